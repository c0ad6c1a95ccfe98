"""Threads of the background: whether one of them can be waited for."""

import sys
import threading

__all__ = ["can_wait_for"]


def can_wait_for(thread: threading.Thread) -> bool:
    """Tell whether to wait for a thread makes sense: it is at work, will be while it is waited for, and is another one.

    When the interpreter is finalized daemon threads are gone without a word, and who waits for one waits for all of its
    time. And the thread itself may be where garbage is collected that closes a logger.
    """
    return thread.is_alive() and not sys.is_finalizing() and threading.current_thread() is not thread
