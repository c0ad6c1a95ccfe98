"""The block of code in a span, as users write it: `with log.span(..)`, or a decorator."""

import functools
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, TypeVar, cast

from opentelemetry.trace import INVALID_SPAN, Span

from otel_logger.spans import Block

__all__ = ["SpanBlock"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


class SpanBlock:
    """Context manager and decorator: each block, and each call of a function, runs in a span of its own.

    `begin` gives a block and what guards its end against faults, or None where nothing is recorded. One of these may be
    entered again while it is, also by other threads and tasks. A coroutine function's span lasts until it returns. That
    of a generator function, an asynchronous one too, lasts from its first item to its end, and is current only while
    the function itself runs, not for who iterates.
    """

    def __init__(self, begin: Callable[[], tuple[Block, Callable[..., Any]] | None]) -> None:
        self._begin = begin
        self._entered: list[tuple[_Run, Callable[[], None], int]] = []

    def __enter__(self) -> Span:
        """Begin a span, and make it the current one."""
        run = _Run(self._begin())
        self._entered.append((run, run.enter(), threading.get_ident()))
        return run.span

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the span that this thread or task began last; an exception makes it a failed one, and goes on."""
        run, leave, _ = self._entered.pop(self._innermost())
        leave()
        run.end(error)

    def __call__(self, function: _Function) -> _Function:
        """Return the function with a span around each of its calls."""
        wrapper: Callable[..., Any]
        if inspect.isasyncgenfunction(function):
            wrapper = self._around_async_generator(function)
        elif inspect.isgeneratorfunction(function):
            wrapper = self._around_generator(function)
        elif inspect.iscoroutinefunction(function):
            wrapper = self._around_coroutine(function)
        else:
            wrapper = self._around_call(function)
        functools.update_wrapper(wrapper, function)
        return cast("_Function", wrapper)

    def _around_call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            with SpanBlock(self._begin):
                return function(*arguments, **keywords)

        return wrapper

    def _around_coroutine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def wrapper(*arguments: Any, **keywords: Any) -> Any:
            with SpanBlock(self._begin):
                return await function(*arguments, **keywords)

        return wrapper

    def _innermost(self) -> int:
        entered, thread = self._entered, threading.get_ident()
        # Tasks share a thread, and a block may be left in another context than it was entered in.
        of_task = [index for index, (run, _, _) in enumerate(entered) if run.is_current]
        of_thread = [index for index, (_, _, entered_by) in enumerate(entered) if entered_by == thread]
        return (of_task or of_thread or [-1])[-1]

    @contextmanager
    def _lasting(self) -> Iterator[Callable[[], AbstractContextManager[None]]]:
        """Begin a span for a generator, and give what makes it current for a step."""
        run = _Run(self._begin())
        try:
            yield run.as_current
        except BaseException as error:
            run.end(error)
            raise
        run.end(None)

    def _around_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **keywords: Any) -> Generator[Any, Any, Any]:
            generator = function(*arguments, **keywords)
            step: Callable[[], Any] = functools.partial(next, generator)
            with self._lasting() as step_of:
                while True:
                    try:
                        with step_of():
                            item = step()
                    except StopIteration as stop:
                        return stop.value
                    try:
                        step = functools.partial(generator.send, (yield item))
                    except BaseException as error:
                        step = functools.partial(generator.throw, error)

        return wrapper

    def _around_async_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def wrapper(*arguments: Any, **keywords: Any) -> AsyncGenerator[Any, Any]:
            generator = function(*arguments, **keywords)
            step: Callable[[], Any] = generator.__anext__
            with self._lasting() as step_of:
                while True:
                    try:
                        with step_of():
                            item = await step()
                    except StopAsyncIteration:
                        return
                    try:
                        step = functools.partial(generator.asend, (yield item))
                    except BaseException as error:
                        step = functools.partial(generator.athrow, error)

        return wrapper


class _Run:
    """One span of a block, or nothing in its place."""

    def __init__(self, begun: tuple[Block, Callable[..., Any]] | None) -> None:
        self._begun = begun
        self.span: Span = begun[0].span if begun is not None else INVALID_SPAN

    @property
    def is_current(self) -> bool:
        return self._begun is not None and self._begun[0].is_current

    def enter(self) -> Callable[[], None]:
        return self._begun[0].enter() if self._begun is not None else _nothing

    @contextmanager
    def as_current(self) -> Iterator[None]:
        leave = self.enter()
        try:
            yield
        finally:
            leave()

    def end(self, error: BaseException | None) -> None:
        if self._begun is not None:
            block, guard = self._begun
            guard(block.end, error)


def _nothing() -> None:
    """What leaving a block without a span takes."""
