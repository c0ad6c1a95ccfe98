"""The resource: what is true of everything that one writer sends."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

from otel_logger.conventions import (
    LOCAL_RANK,
    NODE_RANK,
    RANK,
    RESTART_COUNT,
    RUN_ATTEMPT,
    RUN_ID,
    RUN_NAME,
    RUN_PARENT_ID,
    SCOPE_NAME,
    SCOPE_VERSION,
    WORLD_SIZE,
    WRITER_ID,
)
from otel_logger.identity import Identity
from otel_logger.ranks import Ranks
from otel_logger.redaction import Redactor
from otel_logger_exporters.errors import ConfigurationError

__all__ = ["described_by_user", "names_service", "resource_attributes"]

DEFAULT_SERVICE = "training"

_OF_A_PROCESS = frozenset({"process.pid", "process.parent_pid"})
"""What detectors find that is another number in each attempt, and so is on log records and spans alone."""


def described_by_user(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME, which wins for `service.name`.

    The form is `key=value,key=value` with percent-encoded values (OpenTelemetry resource SDK specification).
    """
    attributes = _said(environ)
    attributes.setdefault("service.name", DEFAULT_SERVICE)
    return attributes


def names_service(environ: Mapping[str, str]) -> bool:
    """Tell whether the user says what the service's name is."""
    return "service.name" in _said(environ)


def _said(environ: Mapping[str, str]) -> dict[str, str]:
    attributes = {}
    key, redactor = "", Redactor()
    for number, pair in enumerate(environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","), start=1):
        if not pair.strip():
            continue
        before = key
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            # It may be what follows a comma in the value before.
            shown = redactor.redact(before.strip(), pair.strip())
            msg = (
                f"OTEL_RESOURCE_ATTRIBUTES: entry {number}, {shown!r}, is not key=value. Separate entries with "
                "commas and write a comma or equals sign inside a value as %2C or %3D."
            )
            raise ConfigurationError(msg)
        try:
            attributes[unquote(key.strip(), errors="strict")] = unquote(value.strip(), errors="strict")
        except UnicodeDecodeError:
            shown = redactor.redact(key.strip(), pair.strip())
            msg = (
                f"OTEL_RESOURCE_ATTRIBUTES: entry {number}, {shown!r}, is not UTF-8 when it is decoded. Write "
                "what is not ASCII in UTF-8, as it is or percent-encoded."
            )
            raise ConfigurationError(msg) from None
    if service := environ.get("OTEL_SERVICE_NAME", "").strip():
        attributes["service.name"] = service
    return attributes


def resource_attributes(
    user: Mapping[str, str],
    *,
    identity: Identity | None,
    run_name: str | None,
    writer: str,
    ranks: Ranks,
    host: str,
    restart_count: int | None,
    found: Mapping[str, Any] = MappingProxyType({}),
    with_process: bool = True,
) -> dict[str, Any]:
    """Return the attributes of a writer's resource, hyperparameters apart; without those of a process by its number
    where these are not wanted.

    What is `found` of the surroundings wins over the host's name, and the user's attributes win over both, but not over
    identity: two writers that share a `service.instance.id` overwrite each other's series without a word.
    """
    detected: dict[str, Any] = {
        "host.name": host,
        **{key: value for key, value in found.items() if with_process or key not in _OF_A_PROCESS},
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": SCOPE_NAME,
        "telemetry.sdk.version": SCOPE_VERSION,
    }
    ours: dict[str, Any] = {
        "service.instance.id": identity.instance_id if identity is not None else f"starting/{writer}",
        WRITER_ID: writer,
        RANK: ranks.rank,
        LOCAL_RANK: ranks.local_rank,
        NODE_RANK: ranks.node_rank,
        WORLD_SIZE: ranks.world_size,
    }
    if restart_count is not None:
        ours[RESTART_COUNT] = restart_count
    if identity is not None:
        ours |= {RUN_ID: identity.run_id, RUN_NAME: identity.run_name, RUN_ATTEMPT: identity.attempt}
        if identity.parent_id is not None:
            ours[RUN_PARENT_ID] = identity.parent_id
    elif run_name is not None:
        ours[RUN_NAME] = run_name
    return {**detected, **user, **ours}
