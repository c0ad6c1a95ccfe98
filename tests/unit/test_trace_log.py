"""`log_traces`: everything arrives, once, in order, where it happened, in spans and traces that backends take."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from otel_logger import OTelLogger, read_run
from tests.runs import events, trainer_state

MOST = 1000


def spans(log: OTelLogger, name: str) -> list[dict[str, Any]]:
    """The spans of a name in the order of their beginning."""
    assert log.run_dir is not None
    return sorted((span for span in read_run(log.run_dir).spans if span["name"] == name), key=lambda s: s["start"])


def values(found: list[dict[str, Any]]) -> list[Any]:
    """What the events of spans carry."""
    return [event["attributes"]["training.trace.value"] for span in found for event in span["events"]]


def test_a_great_many_in_one_call(make: Callable[..., OTelLogger]) -> None:
    """All of them are events of the block and of its further parts, in order, each part linked to the one before."""
    count = 10_000
    with make() as log, log.span("work", kind="big") as work:
        log.log_traces({f"trace {number}": number for number in range(count)})

    found = spans(log, "work")
    assert list(range(count)) == values(found)
    assert [MOST] * (count // MOST) == [len(span["events"]) for span in found]
    assert f"{work.get_span_context().span_id:016x}" == found[0]["span_id"]
    parts = [span["attributes"].get("training.span.part", 1) for span in found]
    assert list(range(1, len(found) + 1)) == parts
    assert {"big"} == {span["attributes"]["kind"] for span in found}
    for before, after in pairwise(found):
        assert [{"trace_id": before["trace_id"], "span_id": before["span_id"]}] == after["links"]
    assert ({}, []) == (log.stats().dropped, events(log, "training.trace"))


def test_times_are_in_order_and_inside_their_span(make: Callable[..., OTelLogger]) -> None:
    """The order of a call is that of its times, which lie within the span that has them."""
    with make() as log, log.span("work"):
        log.log_traces(dict.fromkeys("abc", 1))
        log.log_traces(dict.fromkeys("de", 1))

    (work,) = spans(log, "work")
    times = [event["time"] for event in work["events"]]
    assert list("abcde") == [event["name"] for event in work["events"]]
    assert sorted(set(times)) == times
    assert work["start"] <= times[0] < times[-1] <= work["end"]


def test_a_trainers_span_goes_on_in_parts_as_traces_of_bounded_size(make: Callable[..., OTelLogger]) -> None:
    """An epoch with 12 MB of traces is several spans of about a megabyte, in traces of less than five."""
    state, text = trainer_state(), "x" * 2000
    log = make(run_name=None)
    log.init(state, None)
    log.fit_start(state, None)
    log.epoch_start(state, None)
    for number in range(6000):
        log.log_traces({str(number): text})
    log.eval_start(state, None)
    log.post_close()

    found = spans(log, "training.epoch")
    assert [str(number) for number in range(6000)] == [event["name"] for span in found for event in span["events"]]
    sizes = [sum(2000 + len(event["name"]) for event in span["events"]) for span in found]
    assert 900_000 < max(sizes) < 1_000_000
    by_trace: dict[str, int] = {}
    for span, size in zip(found, sizes, strict=True):
        by_trace[span["trace_id"]] = by_trace.get(span["trace_id"], 0) + size
    assert 5_000_000 > max(by_trace.values())
    assert found[-1]["span_id"] == spans(log, "training.eval")[0]["parent_span_id"]
    assert {} == log.stats().dropped


def test_blocks_go_on_in_further_traces(make: Callable[..., OTelLogger]) -> None:
    """A loop of blocks is several traces of less than 5 MB, each of a short run's span linked to the one before."""
    with make() as log:
        log.log_metrics({"loss": 1.0})
        for number in range(600):
            with log.span("step", text="x" * 8000):
                log.log_traces({"number": number})

    runs, steps = spans(log, "training.run"), spans(log, "step")
    assert 2 == len(runs)
    assert [{"trace_id": runs[0]["trace_id"], "span_id": runs[0]["span_id"]}] == runs[1]["links"]
    assert ([None, 2], 2) == (
        [run["attributes"].get("training.span.part") for run in runs],
        len({run["trace_id"] for run in runs}),
    )
    assert {run["span_id"]: run["trace_id"] for run in runs} == {
        step["parent_span_id"]: step["trace_id"] for step in steps
    }
    sizes = [sum(8000 for step in steps if step["trace_id"] == run["trace_id"]) for run in runs]
    assert (600 * 8000, True) == (sum(sizes), 3_900_000 < max(sizes) < 4_100_000)


def test_a_block_of_many_blocks_goes_on_in_further_traces(make: Callable[..., OTelLogger]) -> None:
    """What a block has inside is in further traces too; there, further parts of the block stand around it."""
    with make() as log, log.span("all"):
        for _ in range(600):
            with log.span("step", text="x" * 8000):
                pass

    parts, steps = spans(log, "all"), spans(log, "step")
    assert [None, 2] == [part["attributes"].get("training.span.part") for part in parts]
    assert {part["span_id"]: part["trace_id"] for part in parts} == {
        step["parent_span_id"]: step["trace_id"] for step in steps
    }
    assert 2 == len({part["trace_id"] for part in parts})


@pytest.mark.parametrize("mode", ["span", "log", "both"])
def test_a_value_that_is_too_long_for_a_span_is_whole_in_a_log_record(
    make: Callable[..., OTelLogger], mode: str
) -> None:
    """2,048 bytes are what backends keep of an event's attribute: more is cut there, and whole, once, in the logs."""
    long, exact = "ü" * 1025, "é" * 1024
    with make(OTEL_LOGGER_TRACE_EVENTS=mode) as log, log.span("work"):
        log.log_traces({"long": long, "exact": exact, "nested": {"a": list(range(1000))}})

    bodies = {event["attributes"]["training.trace.name"]: event["body"] for event in events(log, "training.trace")}
    whole = {"long": long, "nested": {"a": list(range(1000))}} | ({"exact": exact} if mode != "span" else {})
    assert (whole, len(whole)) == (bodies, len(events(log, "training.trace")))
    if mode != "log":
        shown = {e["name"]: e["attributes"]["training.trace.value"] for e in spans(log, "work")[0]["events"]}
        assert (exact, "ü" * 1022 + "…") == (shown["exact"], shown["long"])
        assert '{"a": [0, 1, 2,' == shown["nested"][:15]
        assert [2048, 2047, 2048] == [len(shown[name].encode()) for name in ("exact", "long", "nested")]


def test_values_of_any_type(make: Callable[..., OTelLogger]) -> None:
    """Scalars stay what they are; anything else is text, JSON where it is nested; nothing is refused."""
    strange = {"int": 3, "float": 0.5, "bool": True, "text": "t", "none": None, "list": [1, "a"], "bytes": b"\xff"}
    with make() as log, log.span("work"):
        log.log_traces(strange | {"object": object, "": "no key", 7: "no string"})  # type: ignore[dict-item]

    shown = {e["name"]: e["attributes"]["training.trace.value"] for e in spans(log, "work")[0]["events"]}
    assert {
        "int": 3,
        "float": 0.5,
        "bool": True,
        "text": "t",
        "none": "None",
        "list": '[1, "a"]',
        "bytes": "b'\\xff'",
        "training.trace": "no key",
        "7": "no string",
    } == {key: value for key, value in shown.items() if key != "object"}
    assert "object" in shown["object"]


def test_records_of_spans_that_are_not_sampled_say_so(make: Callable[..., OTelLogger]) -> None:
    """What a span would have told is in order in the logs, under the ids of that span: records of one stay together."""
    with make(OTEL_TRACES_SAMPLER="always_off") as log:
        log.log_metrics({"loss": 1.0})
        with log.span("work") as span:
            log.log_traces({str(number): number for number in range(50)})

    records = events(log, "training.trace")
    assert list(range(50)) == [record["body"] for record in records]
    assert {f"{span.get_span_context().span_id:016x}"} == {record["span_id"] for record in records}
    assert not span.get_span_context().trace_flags.sampled


def test_a_trace_that_is_not_sampled_where_it_was_joined_has_no_epochs(make: Callable[..., OTelLogger]) -> None:
    """The decision of TRACEPARENT holds for all traces of the run, which are one but for their size."""
    state = trainer_state()
    log = make(run_name=None, TRACEPARENT="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
    for event in ("fit_start", "epoch_start", "batch_start"):
        log.run_event(event, state, None)
    log.log_traces({"a": 1})
    log.post_close()

    assert log.run_dir is not None
    assert ([], [1]) == (list(read_run(log.run_dir).spans), [e["body"] for e in events(log, "training.trace")])


def test_traces_of_thinned_batches_are_log_records_in_order(make: Callable[..., OTelLogger]) -> None:
    """From the loading of its data to its end, a batch without a span puts nothing on the epoch's."""
    state = trainer_state()
    log = make(run_name=None, OTEL_LOGGER_BATCH_SPANS="0")
    for number, event in enumerate(
        ["fit_start", "epoch_start", "before_dataloader", "after_dataloader", "batch_start", "before_forward"]
    ):
        log.run_event(event, state, None)
        log.log_traces({event: number})
    log.run_event("batch_end", state, None)
    log.log_traces({"batch_end": 6})
    log.post_close()

    assert [2, 3, 4, 5] == [event["body"] for event in events(log, "training.trace")]
    assert ([0], [1, 6]) == (values(spans(log, "training.fit")), values(spans(log, "training.epoch")))
