"""Signals at every place where Python handles one, without any: a profiler does what the handler would."""

import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

__all__ = ["interrupted"]

_PLACES = frozenset({"call", "return", "c_return"})


def interrupted(call: Callable[[], object], place: int, handler: Callable[[], object], *modules: ModuleType) -> None:
    """Carry out `call`, and `handler` at the place of this number, from 1 on, within `modules`, if there is one.

    Python handles signals where a function begins and where one has returned. (Where a loop goes back too: but what
    loops calls.) An exception of the handler comes out of `call` if that lets it.
    """
    files = {module.__file__ for module in modules}
    passed = 0

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal passed
        if event in _PLACES and frame.f_code.co_filename in files:
            passed += 1
            if passed == place:
                handler()

    present = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(present)
