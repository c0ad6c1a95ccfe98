"""The launch: everything that construction reads from its surroundings, checked, once."""

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opentelemetry.sdk.trace.sampling import Sampler

from otel_logger.identity import describe_process, launch_seed
from otel_logger.ranks import Ranks
from otel_logger.resource import described_by_user
from otel_logger.settings import Settings, unknown_variables
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.limits import Limits, limits_from_environ
from otel_logger_exporters.propagators import trace_context_from_environ
from otel_logger_exporters.routes import Routes, routes_from_environ
from otel_logger_exporters.samplers import sampler_from_environ

__all__ = ["Launch", "read_launch"]


@dataclass(frozen=True, slots=True)
class Launch:
    """What a logger was started with: its settings, the folder of runs, where signals go, its place among the ranks,
    the user's resource and trace context, how spans are sampled and what data is limited to, and notes for the user.

    `script` is the name of the program, which names a run that nobody named.
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
    restart_count: int | None
    host: str
    script: str
    notes: tuple[str, ...]


def read_launch(environ: Mapping[str, str], settings: Settings | None) -> Launch:
    """Return the launch that `environ` describes; ConfigurationError for the first variable that is wrong.

    `settings`, where given, stand for all `OTEL_LOGGER_*` variables.
    """
    ranks = Ranks.from_environ(environ)
    routes = routes_from_environ(environ)
    # OTEL_SDK_DISABLED makes what else is said of OpenTelemetry harmless, and what is wrong with it too.
    telemetry: Mapping[str, str] = {} if routes.disabled else environ
    trace_context, propagation_notes = trace_context_from_environ(telemetry)
    restarts = environ.get("TORCHELASTIC_RESTART_COUNT", "")
    notes = routes.notes + propagation_notes
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
        seed=launch_seed(environ, ranks, describe_process(os.getppid())),
        restart_count=int(restarts) if restarts.isascii() and restarts.isdigit() else None,
        host=socket.gethostname(),
        script=_script(sys.argv),
        notes=notes,
    )


def _script(argv: Sequence[str]) -> str:
    # "" in an interactive session, "-c" and "-m" where Python was given no file.
    return "training" if not argv or argv[0].startswith("-") else Path(argv[0]).stem or "training"
