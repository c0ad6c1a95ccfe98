"""Log hooks: where a session hears of what the program logs and warns of, without the program noticing.

A handler of the root logger would be noticed: `logging.basicConfig`, which trainers call after their loggers are made,
does nothing where there is one, Python's handler of last resort falls silent, and `dictConfig` takes it away. So the
sessions of a process share what stands in place of `logging.Logger.callHandlers`, through which each record passes that
the levels and filters of the program's loggers let through, and of `warnings.showwarning`. Both do what stood there
before; what is shown, and where, stays as it is.
"""

import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, Final

__all__ = ["WARNINGS", "LogHook"]

WARNINGS: Final = "py.warnings"
"""The name of the logger of warnings, that of `logging.captureWarnings` too."""

_hooks: "set[LogHook]" = set()

_previous: dict[Callable[..., None], Callable[..., None]] = {}
"""For each function of ours that may stand somewhere, what it stands in place of."""

_seen: Final = threading.local()


class LogHook:
    """Gives `take` each log record of at least `level`, warnings as such, from its construction until `close`.

    `take` must not raise. In the child of a fork nothing is given.
    """

    def __init__(self, take: Callable[[logging.LogRecord], None], level: int) -> None:
        self._take = take
        self._level = level
        self._process = os.getpid()
        _hooks.add(self)
        _install()

    def wants(self, level: int) -> bool:
        """Tell whether records of a level are to be given."""
        # While the interpreter is finalized a daemon thread that was ended may hold a lock for ever.
        return level >= self._level and self._process == os.getpid() and not sys.is_finalizing()

    def hand(self, record: logging.LogRecord) -> None:
        """Give a record, if it is wanted."""
        if self.wants(record.levelno):
            self._take(record)

    def close(self) -> None:
        """Hear no more; with the last one, what stood before is restored, unless somebody else has replaced ours."""
        _hooks.discard(self)
        if not _hooks:
            _restore()
            if _hooks:
                # Opened in another thread in between, which found ours in place.
                _install()


def _install() -> None:
    # Where somebody has replaced ours it may be called from theirs, or not at all any more: a second one does no harm,
    # for what comes twice is recorded once.
    if (standing := logging.Logger.callHandlers) not in _previous:
        logging.Logger.callHandlers = _calling(standing)  # type: ignore[method-assign]
    if callable(warner := warnings.showwarning) and warner not in _previous:
        warnings.showwarning = _showing(warner)


def _restore() -> None:
    while (standing := _previous.pop(logging.Logger.callHandlers, None)) is not None:
        logging.Logger.callHandlers = standing  # type: ignore[method-assign]
    while (warner := _previous.pop(warnings.showwarning, None)) is not None:
        warnings.showwarning = warner


def _calling(previous: Callable[..., None]) -> Callable[..., None]:
    def callHandlers(self: logging.Logger, record: logging.LogRecord) -> None:
        if record.name == WARNINGS:
            _seen.warnings = _count() + 1
        _hand(record)
        previous(self, record)

    _previous[callHandlers] = previous
    return callHandlers


def _showing(previous: Callable[..., None]) -> Callable[..., None]:
    def showwarning(
        message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: str | None = None
    ) -> None:
        before = _count()
        try:
            if not _show_whole(previous, message):
                previous(message, category, filename, lineno, file, line)
        finally:
            # Unless what stood before has logged it, as that of `logging.captureWarnings` does.
            if _count() == before and any(hook.wants(logging.WARNING) for hook in tuple(_hooks)):
                _seen.warnings = before + 1
                _hand(_record(message, category, filename, lineno))

    _previous[showwarning] = previous
    return showwarning


def _count() -> int:
    """Return how many warnings of this thread have come by."""
    count: int = getattr(_seen, "warnings", 0)
    return count


def _hand(record: logging.LogRecord) -> None:
    # A copy: other threads open and close sessions meanwhile.
    for hook in tuple(_hooks):
        hook.hand(record)


def _record(message: object, category: object, filename: str, lineno: int) -> logging.LogRecord:
    kind = getattr(category, "__name__", "Warning")
    return logging.LogRecord(WARNINGS, logging.WARNING, filename, lineno, "%s: %s", (kind, message), None)


def _show_whole(previous: Callable[..., None], message: object) -> bool:
    """Show a warning as Python itself does where nobody stands in its place: with the source of a ResourceWarning.

    That is not among what `showwarning` is given, but its caller has it.
    """
    show = getattr(warnings, "_showwarnmsg_impl", None)
    whole = sys._getframe(2).f_locals.get("msg")
    is_known = isinstance(whole, warnings.WarningMessage) and whole.message is message
    if show is None or not is_known or previous is not getattr(warnings, "_showwarning_orig", None):
        return False
    show(whole)
    return True
