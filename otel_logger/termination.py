"""SIGTERM, by which schedulers and launchers end a process: noted for the end of the run, and handed on.

Where nothing handles it, it kills at once: no exit hook runs, and the run has no end. So the sessions of a process
share a handler of ours, which does what stood there before. What the default action was becomes SystemExit(143), 128
plus the number of the signal as shells have it. What the program ignores stays ignored, and a handler that somebody
installs after ours decides by itself whether ours is called.

A handler runs in the main thread between any two of its steps, also in the middle of a call of ours that holds locks.
So it takes none and finishes nothing; it is `SystemExit`, or what the program's own handler does, that ends the process
and has the sessions finished on the way out.
"""

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any, Final

__all__ = ["EXIT_STATUS", "Termination", "is_put_off", "shield"]

EXIT_STATUS: Final = 128 + signal.SIGTERM
"""The exit status of a process that SIGTERM has ended in order."""

_watching: "set[Termination]" = set()
_pending: "deque[_Handler]" = deque()


class Termination:
    """Learns of SIGTERM for one session, from its construction until `close`; `came` says whether one came.

    Constructed in another thread than the main one it installs no handler, and hears of SIGTERM what one hears that
    another session has installed; not `is_wanted`, it hears nothing. `is_deaf` says that a handler of C code stands,
    which can be neither called nor restored, and stays. `finish` finishes the session: it is called for a SIGTERM that
    finds the program waiting for its last threads, where nothing that is raised would end it.
    """

    def __init__(self, finish: Callable[[], None], *, is_wanted: bool = True) -> None:
        self.came = False
        self.finish = finish
        self.raised: tuple[type[BaseException], ...] = (SystemExit, KeyboardInterrupt)
        self.is_deaf = is_wanted and not _install()
        if is_wanted:
            _watching.add(self)

    def explains(self, error: BaseException | None) -> bool:
        """Tell whether a program that ends by `error` (None: by no exception) does so because SIGTERM came."""
        return self.came and (error is None or isinstance(error, self.raised))

    def close(self) -> None:
        """Hear no more; with the last one, what stood before is restored.

        Unless somebody else has replaced ours, or the process ends by what it has raised.
        """
        _watching.discard(self)
        if not _watching:
            _restore()


def shield(action: Callable[[], None]) -> None:
    """Carry out `action`; a SIGTERM that comes meanwhile is handed on when that is done.

    Launchers send several: the second must not break off the orderly end that the first has begun.
    """
    try:
        _shielded(action)
    finally:
        # An action within an action leaves it to the outer one.
        if _is_main_thread() and not _is_running(_shielded.__code__):
            while _pending:
                handler = _pending.popleft()
                # What was put off before a fork is the parent's.
                if handler.process == os.getpid():
                    handler.hand_on(signal.SIGTERM, sys._getframe(), is_orderly=True)


def is_put_off() -> bool:
    """Tell whether a SIGTERM has come that waits for a shielded action to end."""
    return any(handler.process == os.getpid() for handler in tuple(_pending))


def _shielded(action: Callable[[], None]) -> None:
    action()


class _Handler:
    """A handler of SIGTERM that knows what it stands in place of."""

    def __init__(self, previous: Any) -> None:
        self.previous = previous
        self.process = os.getpid()
        self._has_raised = False

    @property
    def is_needed(self) -> bool:
        """Whether the process ends by what was raised here, which a further SIGTERM must not break off."""
        return self._has_raised and _is_ending()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        # In the child of a fork, until it is restored there, it does what would be done without it. A copy: other
        # threads open and close sessions meanwhile.
        sessions = tuple(_watching) if self.process == os.getpid() else ()
        for session in sessions:
            session.came = True
        # The stack itself tells: a count of who is shielded would be wrong for ever after an exception that comes
        # between two steps, as KeyboardInterrupt does, and SIGTERM would be put off for ever.
        if self.process == os.getpid() and _is_running(_shielded.__code__):
            if self not in _pending:
                _pending.append(self)
        elif not callable(self.previous) and _is_running(_waiting_for_threads()):
            for session in sessions:
                session.finish()
            _die(number)
        else:
            self.hand_on(number, frame, is_orderly=bool(sessions))

    def hand_on(self, number: int, frame: FrameType | None, *, is_orderly: bool) -> None:
        """Do what stood here before; with `is_orderly`, SystemExit stands for the default action."""
        if callable(self.previous):
            try:
                self.previous(number, frame)
            except BaseException as error:
                for session in tuple(_watching):
                    session.raised += (type(error),)
                raise
        elif is_orderly and not _is_ending():
            self._has_raised = True
            raise SystemExit(EXIT_STATUS)
        elif not is_orderly and not self.is_needed:
            _die(number)


def _die(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _install() -> bool:
    """Install a handler unless there is one of ours, or a reason against it; return False if what stands is unknown."""
    if not _is_main_thread():
        return True
    standing: Any = signal.getsignal(signal.SIGTERM)
    if standing is None:
        return False
    # Inherited by a fork after the last session was closed on another thread than the main one.
    while isinstance(standing, _Handler) and standing.process != os.getpid():
        standing = standing.previous
    if standing != signal.SIG_IGN and not isinstance(standing, _Handler):
        # ValueError: the main thread of an interpreter that is not the main one.
        with suppress(ValueError):
            signal.signal(signal.SIGTERM, _Handler(standing))
    return True


def _restore() -> None:
    standing = signal.getsignal(signal.SIGTERM)
    # On another thread it stays, and without a session it does what would be done without it.
    if isinstance(standing, _Handler) and not standing.is_needed and _is_main_thread():
        with suppress(ValueError):
            signal.signal(signal.SIGTERM, standing.previous)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _is_ending() -> bool:
    """Tell whether the process already ends by SystemExit(143), or runs its exit hooks: raising would break those."""
    error = sys.exc_info()[1]
    seen: set[int] = set()
    # What is handled at the moment, in a `finally` or an `__exit__`, and what that came in the course of. Whoever has
    # caught the first SystemExit and goes on is asked again.
    while error is not None and id(error) not in seen:
        if isinstance(error, SystemExit) and type(error.code) is int and error.code == EXIT_STATUS:
            return True
        seen.add(id(error))
        error = error.__context__
    return not threading.main_thread().is_alive()


def _waiting_for_threads() -> CodeType | None:
    """Return the code in which a program whose main thread has ended waits for the others."""
    return getattr(getattr(threading, "_shutdown", None), "__code__", None)


def _is_running(code: CodeType | None) -> bool:
    """Tell whether the present thread is in a call of this code."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None
