"""The hooks by which a process tells that it ends or has forked, to the open session of a logger."""

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Hooked", "ProcessHooks"]


class Hooked(Protocol):
    """What is told of the end of its process: a session."""

    failure: BaseException | None

    def note_failure_of_program(self) -> None:
        """Take the uncaught exception that ended the program, if one did, for the run's failure."""
        ...

    def guard(self, action: Callable[..., Any], *arguments: Any) -> Any:
        """Carry out `action`, whatever it raises."""
        ...

    def finish(self) -> None:
        """Finish what is open."""
        ...

    def abandon(self) -> None:
        """Drop what the child of a fork has inherited."""
        ...


class ProcessHooks:
    """Finishes the open session of one logger, where there is one, when the program ends, and drops it after a fork.

    They hold the session, for a logger may be forgotten without being closed. Registered when the logger is made, not
    with each session: exit hooks run in the reverse of that order. Composer's, which closes the logger and whoever logs
    while closing, is registered before `init` opens a further session.
    """

    def __init__(self) -> None:
        self.session: Hooked | None = None
        atexit.register(self.finish)
        os.register_at_fork(after_in_child=self._abandon)
        processes = sys.modules.get("multiprocessing.process")
        if processes is not None and processes.parent_process() is not None:
            # Before Python 3.13 a child that multiprocessing has forked runs no exit hooks but those of its own.
            from multiprocessing.util import Finalize

            Finalize(None, self._finish_child, exitpriority=0)

    def finish(self) -> None:
        """Finish the session, where one is open, for the reason that the program ends for."""
        if (session := self.session) is not None:
            session.note_failure_of_program()
            session.guard(session.finish)

    def _finish_child(self) -> None:
        # They are run before the process waits for its threads, who may log on.
        present = threading.current_thread()
        if all(thread.daemon or thread is present for thread in threading.enumerate()):
            if (session := self.session) is not None:
                session.failure = session.failure or sys.exc_info()[1]
            self.finish()

    def _abandon(self) -> None:
        if (session := self.session) is not None:
            self.session = None
            session.abandon()
