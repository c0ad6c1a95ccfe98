"""Blocks of code in spans: with statements and decorators, for every kind of function, in threads and in tasks."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from otel_logger import OTelLogger, read_run


def spans(log: OTelLogger) -> list[dict[str, Any]]:
    """The blocks of a closed logger in the order of their ends."""
    assert log.run_dir is not None
    return [span for span in read_run(log.run_dir).spans if not span["name"].startswith("training.")]


def parents(log: OTelLogger) -> dict[str, str | None]:
    """The name of the block that each block is in."""
    names = {span["span_id"]: span["name"] for span in spans(log)}
    return {span["name"]: names.get(span["parent_span_id"]) for span in spans(log)}


def test_attributes_may_have_any_name(make: Callable[..., OTelLogger]) -> None:
    """Attributes called `name` and `self` are attributes; values of any type are readable."""
    with make() as log, log.span("work", name="n", self=1, nested={"a": [1, None]}, none=None):
        pass

    (work,) = spans(log)
    assert {"name": "n", "self": 1, "nested": '{"a": [1, null]}', "none": "None"} == work["attributes"]


def test_each_call_of_a_function_is_a_span(make: Callable[..., OTelLogger]) -> None:
    """A decorated function keeps its name and result; recursion nests."""
    with make() as log:

        @log.span("countdown", n=1)
        def countdown(n: int) -> int:
            """Count."""
            return countdown(n - 1) + 1 if n else 0

        assert (3, "countdown", "Count.") == (countdown(3), countdown.__name__, countdown.__doc__)

    found = spans(log)
    assert ["countdown"] * 4 == [span["name"] for span in found]
    assert [span["span_id"] for span in found[1:]] == [span["parent_span_id"] for span in found[:-1]]


def test_one_block_may_be_entered_again(make: Callable[..., OTelLogger]) -> None:
    """The same object is entered within itself and by several threads at once; each time it is a span of its own."""
    together = threading.Barrier(3)
    with make() as log:
        block = log.span("work")

        def work() -> None:
            with block as outer:
                together.wait(10)
                with block as inner:
                    together.wait(10)
                    assert outer is not inner
                    inner.set_attribute("depth", 2)
                together.wait(10)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    found = spans(log)
    inner = [span for span in found if span["attributes"]]
    outer = {span["span_id"] for span in found if not span["attributes"]}
    assert (6, 3, outer) == (len(found), len(inner), {span["parent_span_id"] for span in inner})


def test_a_coroutine_function_is_in_its_span_until_it_returns(make: Callable[..., OTelLogger]) -> None:
    """Tasks that take turns have spans of their own, and what each awaits is inside its own."""
    with make() as log:

        async def main() -> list[str]:
            @log.span("child")
            async def child(name: str) -> str:
                await asyncio.sleep(0)
                log.log_traces({name: 1})
                await asyncio.sleep(0)
                return name

            async def parent(name: str) -> str:
                with log.span(f"parent of {name}"):
                    return await child(name)

            return await asyncio.gather(*(parent(name) for name in "abc"))

        assert ["a", "b", "c"] == asyncio.run(main())

    found = {span["span_id"]: span for span in spans(log)}
    children = [span for span in found.values() if span["name"] == "child"]
    assert {("parent of a", "a"), ("parent of b", "b"), ("parent of c", "c")} == {
        (found[span["parent_span_id"]]["name"], span["events"][0]["name"]) for span in children
    }


def test_one_block_in_several_tasks(make: Callable[..., OTelLogger]) -> None:
    """Tasks that enter the same object one after the other and leave it in the same order leave each its own."""
    with make() as log:
        block = log.span("work")

        async def work(name: str, meet: asyncio.Event, go: asyncio.Event) -> None:
            with block as span:
                meet.set()
                await go.wait()
                span.set_attribute("name", name)
            log.log_traces({f"after {name}": 1})

        async def main() -> None:
            events = [asyncio.Event() for _ in range(4)]
            tasks = [asyncio.create_task(work(str(n), events[n], events[n + 2])) for n in range(2)]
            for event in events[:2]:
                await event.wait()
            events[2].set()
            await tasks[0]
            events[3].set()
            await tasks[1]

        asyncio.run(main())

    assert [("0", []), ("1", [])] == [(span["attributes"]["name"], span["events"]) for span in spans(log)]


def test_a_generator_is_in_its_span_while_it_runs(make: Callable[..., OTelLogger]) -> None:
    """The span lasts as long as the items; who iterates is not in it. Values that are sent and returned go through."""
    with make() as log:

        @log.span("numbers")
        def numbers() -> Any:
            log.log_traces({"in it": 1})
            with log.span("inside"):
                got = yield 1
            try:
                yield got
            except KeyError:
                yield "caught"
            return "end"

        def consume() -> Any:
            result = yield from numbers()
            yield result

        with log.span("loop"):
            items = consume()
            assert 1 == next(items)
            with log.span("outside"):
                assert "sent" == items.send("sent")
            assert ["caught", "end"] == [items.throw(KeyError), next(items)]

    assert {"numbers": "loop", "inside": "numbers", "outside": "loop", "loop": None} == parents(log)
    assert [None] * 4 == [span["error"] for span in spans(log)]
    (events,) = [span["events"] for span in spans(log) if span["name"] == "numbers"]
    assert ["in it"] == [event["name"] for event in events]


def test_a_generator_that_is_given_up_or_fails(make: Callable[..., OTelLogger]) -> None:
    """One that is closed early ends its span without an error; one that raises makes it a failed one."""
    with make() as log:

        @log.span("numbers")
        def numbers(n: int) -> Iterator[int]:
            yield from range(n)
            raise ValueError("no more")

        given_up = numbers(5)
        next(given_up)
        given_up.close()  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="no more"):
            list(numbers(2))

    assert [None, "ValueError: no more"] == [span["error"] for span in spans(log)]


def test_an_asynchronous_generator(make: Callable[..., OTelLogger]) -> None:
    """Its span lasts from the first item to the end, and is not current for who iterates."""
    with make() as log:

        @log.span("numbers")
        async def numbers() -> AsyncIterator[int]:
            for number in range(2):
                with log.span(f"make {number}"):
                    await asyncio.sleep(0)
                yield number

        async def main() -> list[int]:
            got = []
            with log.span("loop"):
                async for number in numbers():
                    with log.span(f"use {number}"):
                        got.append(number)
            return got

        assert [0, 1] == asyncio.run(main())

    assert {
        "numbers": "loop",
        "make 0": "numbers",
        "make 1": "numbers",
        "use 0": "loop",
        "use 1": "loop",
        "loop": None,
    } == parents(log)


def test_without_a_logger_that_records_functions_work_on(make: Callable[..., OTelLogger]) -> None:
    """After the end, and on a rank that sends no spans, blocks run and exceptions pass; nothing is raised by us."""
    log = make(RANK="1", WORLD_SIZE="2")
    decorated = log.span("work")(lambda value: value)
    with log.span("block") as span:
        assert not span.is_recording()
    assert 1 == decorated(1)
    log.close()
    assert 2 == decorated(2)
    with pytest.raises(ValueError, match="bad"), log.span("block"):
        raise ValueError("bad")


def test_a_block_around_the_end(make: Callable[..., OTelLogger]) -> None:
    """A block in which the logger is closed is sent by the close, and its own end does nothing."""
    log = make()
    with log.span("work"):
        log.close()
    (work,) = spans(log)
    assert ("work", None, {}) == (work["name"], work["error"], log.stats().dropped)


def test_secrets_of_exceptions_and_attributes_are_replaced(make: Callable[..., OTelLogger]) -> None:
    """A URL with a password is nowhere on the span, nor in its status."""
    secret = "https://user:hunter2@host/"

    def work(log: OTelLogger) -> None:
        with log.span("work", url=secret):
            raise ValueError(secret)

    with make() as log, pytest.raises(ValueError, match="hunter2"):
        work(log)

    assert "hunter2" not in repr(spans(log))
    assert ["exception"] == [event["name"] for event in spans(log)[0]["events"]]


def test_secrets_that_an_exception_names_are_replaced(make: Callable[..., OTelLogger]) -> None:
    """Its message is free text: what follows `password=` is on no span and in no reason; the rest stays to be read."""

    def work(log: OTelLogger) -> None:
        with log, log.span("work"):
            raise ValueError("no login with " + "password=hunter2 as joe")

    log = make()
    with pytest.raises(ValueError, match="hunter2"):
        work(log)

    (end,) = [event for event in read_run(log.run_dir).events if event["name"] == "training.run.end"]
    expected = "no login with password=[redacted] as joe"
    assert [expected] == [event["attributes"]["exception.message"] for event in spans(log)[0]["events"]]
    assert f"ValueError: {expected}" == end["attributes"]["training.run.reason"]
    assert "password=hunter2" not in repr([spans(log), end])
