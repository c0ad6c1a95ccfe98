"""Resource detectors of the OpenTelemetry SDK, as `OTEL_EXPERIMENTAL_RESOURCE_DETECTORS` names them.

The SDK's own way of running them waits for one that hangs for ever, also when its result is not wanted any more: in
`Resource.create`, and again at the exit of the interpreter. Here each has a daemon thread of its own.
"""

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from opentelemetry.sdk.resources import Resource

from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.envvars import read_list

__all__ = ["Detected", "detect"]

_VARIABLE = "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS"
_GROUP = "opentelemetry_resource_detector"

TIMEOUT = 5.0
"""Seconds for all detectors together: what the SDK gives to each."""

_OURS = frozenset({"otel", "service_instance"})
"""Detectors of what is read, or made, elsewhere: the variables of the resource, and the instance's id."""

_NOT_THEIRS = frozenset({"service.instance.id"})
_NOT_THEIR_NAMESPACES = ("telemetry.", "training.")


@dataclass(frozen=True, slots=True)
class Detected:
    """What detectors have found, and what the user should know of those that failed."""

    attributes: Mapping[str, Any]
    notes: tuple[str, ...] = ()


_NOTHING = Detected({})
_found: dict[tuple[int, tuple[str, ...]], Detected] = {}


def detect(environ: Mapping[str, str], timeout: float = TIMEOUT) -> Detected:
    """Return what the detectors that are configured find within `timeout` seconds; nothing is raised.

    Of several that find one attribute the last one named counts. What says who the writer is, or what has made its
    data, is left out. They run once in a process, so that one that hangs is waited for once.
    """
    names = read_list(environ, _VARIABLE)
    if not names:
        return _NOTHING
    # A forked child is another process, with another pid.
    key = os.getpid(), names
    if key not in _found:
        _found[key] = _run(names, timeout)
    return _found[key]


def _run(names: tuple[str, ...], timeout: float) -> Detected:
    registered = {point.name: point for point in entry_points(group=_GROUP)}
    expanded = [part for name in names for part in (sorted(set(registered) - set(names)) if name == "*" else [name])]
    notes = []
    attempts = []
    for name in dict.fromkeys(expanded):
        if name in _OURS:
            continue
        if name not in registered:
            known = ", ".join(sorted(set(registered) - _OURS))
            notes.append(f"{_VARIABLE}: there is no detector {name!r} installed; there are {known}")
            continue
        attempts.append(_Attempt(name, registered[name]))
    clock = SystemClock()
    deadline = clock.monotonic() + timeout
    attributes: dict[str, Any] = {}
    for attempt in attempts:
        attempt.wait(max(0.0, deadline - clock.monotonic()))
        attributes |= attempt.attributes
        if attempt.problem is not None:
            notes.append(f"{_VARIABLE}: {attempt.name} {attempt.problem}, and is left out")
    return Detected({key: value for key, value in attributes.items() if _is_theirs(key)}, tuple(notes))


def _is_theirs(key: str) -> bool:
    return key not in _NOT_THEIRS and not key.startswith(_NOT_THEIR_NAMESPACES)


class _Attempt:
    """One detector at work in a thread of its own."""

    def __init__(self, name: str, entry_point: Any) -> None:
        self.name = name
        self.attributes: Mapping[str, Any] = {}
        self.problem: str | None = "took too long"
        self._entry_point = entry_point
        self._thread = threading.Thread(target=self._run, name=f"otel_logger detector {name}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.problem = f"cannot be run: {error}"

    def wait(self, timeout: float) -> None:
        """Wait until it is done, `timeout` seconds at most."""
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            found = self._entry_point.load()().detect()
            if isinstance(found, Resource):
                self.attributes, self.problem = dict(found.attributes), None
            else:
                self.problem = f"returns no Resource, but {type(found).__name__}"
        except BaseException as error:
            # Also one that exits: it would end this thread without a word.
            self.problem = f"fails: {error!r}"
