"""The launch: everything that construction reads from its surroundings, checked, once."""

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace.sampling import Sampler

from otel_logger.cluster import cluster_attributes
from otel_logger.launcher import LaunchMark, Restarts, describe_process, launch_mark, launch_seed
from otel_logger.ranks import Ranks
from otel_logger.resource import described_by_user, names_service
from otel_logger.settings import Settings, unknown_variables
from otel_logger_exporters.detectors import detect
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.limits import Limits, limits_from_environ
from otel_logger_exporters.propagators import trace_context_from_environ
from otel_logger_exporters.routes import Routes, routes_from_environ
from otel_logger_exporters.samplers import sampler_from_environ

__all__ = ["Launch", "read_launch", "with_detectors"]


@dataclass(frozen=True, slots=True)
class Launch:
    """What a logger was started with: its settings, the folder of runs, where signals go, its place among the ranks,
    the user's resource and trace context, how spans are sampled and what data is limited to, and notes for the user.

    `script` is the name of the program, which names a run that nobody named; `found` are attributes of the resource
    that were detected; `seed` and `mark` tell this launch from others; `environ` has what opens the blob store.
    """

    settings: Settings
    directory: Path
    routes: Routes
    ranks: Ranks
    user_resource: Mapping[str, str]
    trace_context: Mapping[str, str]
    sampler: Sampler
    limits: Limits
    seed: str | None
    mark: LaunchMark | None
    restarts: Restarts
    found: Mapping[str, Any]
    host: str
    script: str
    notes: tuple[str, ...]
    # Holds keys of the store.
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


def read_launch(environ: Mapping[str, str], settings: Settings | None) -> Launch:
    """Return the launch that `environ` describes; ConfigurationError for the first variable that is wrong.

    `settings`, where given, stand for all `OTEL_LOGGER_*` variables.
    """
    ranks = Ranks.from_environ(environ)
    routes = routes_from_environ(environ)
    # OTEL_SDK_DISABLED makes what else is said of OpenTelemetry harmless, and what is wrong with it too.
    telemetry: Mapping[str, str] = {} if routes.disabled else environ
    trace_context, propagation_notes = trace_context_from_environ(telemetry)
    restarts = Restarts.from_environ(environ)
    host, parent = socket.gethostname(), describe_process(os.getppid())
    seed = launch_seed(environ, ranks, parent)
    notes = routes.notes + propagation_notes
    if ranks.rank >= ranks.world_size:
        notes += (
            f"RANK={ranks.rank}, but WORLD_SIZE={ranks.world_size}, unset it is 1: set both as the launcher would, or "
            "neither. Metrics of ranks but zero are not recorded unless OTEL_LOGGER_RANKS says so.",
        )
    if settings is None:
        notes += tuple(unknown_variables(environ))
    settings = settings if settings is not None else Settings.from_environ(environ)
    try:
        # Absolute: the program may change its working directory later.
        directory = settings.directory.absolute()
    except OSError as error:
        msg = f"OTEL_LOGGER_DIR={str(settings.directory)!r} is relative to a folder that is gone: give an absolute path"
        raise ConfigurationError(msg) from error
    return Launch(
        settings=settings,
        directory=directory,
        routes=routes,
        ranks=ranks,
        user_resource=described_by_user(telemetry),
        trace_context=trace_context,
        sampler=sampler_from_environ(telemetry),
        limits=limits_from_environ(telemetry),
        seed=seed,
        mark=launch_mark(environ, ranks, seed=seed, restarts=restarts, host=host, parent=parent),
        restarts=restarts,
        found=cluster_attributes(environ),
        host=host,
        script=_script(sys.argv),
        notes=notes,
        environ=dict(environ),
    )


def with_detectors(launch: Launch, environ: Mapping[str, str]) -> Launch:
    """Return the launch with what the resource detectors find that `environ` names, and with what to tell of them.

    It waits for them, for a few seconds at most.
    """
    if launch.routes.disabled:
        return launch
    detected = detect(environ)
    user = dict(launch.user_resource)
    if "service.name" in detected.attributes and not names_service(environ):
        user["service.name"] = str(detected.attributes["service.name"])
    return replace(
        launch,
        user_resource=user,
        found={**launch.found, **detected.attributes},
        notes=launch.notes + detected.notes,
    )


def _script(argv: Sequence[str]) -> str:
    # "" in an interactive session, "-c" and "-m" where Python was given no file.
    return "training" if not argv or argv[0].startswith("-") else Path(argv[0]).stem or "training"
