"""What OpenTelemetry's samplers, limits and propagators do to a run, and what they must not do: lose what is logged."""

from collections.abc import Callable

import pytest

from otel_logger import OTelLogger, read_run
from tests.runs import events

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"


@pytest.mark.parametrize("sampler", ["always_off", "parentbased_always_off", "traceidratio"])
def test_what_is_traced_where_nothing_is_sampled_becomes_log_records(
    make: Callable[..., OTelLogger], sampler: str
) -> None:
    """A sampler thins spans; what `log_traces` is given is no span of its own and is kept."""
    with make(OTEL_TRACES_SAMPLER=sampler, OTEL_TRACES_SAMPLER_ARG="0") as log:
        log.log_metrics({"loss": 1.0})
        with log.span("work"):
            log.log_traces({"a": 1, "b": 2})

    assert log.run_dir is not None
    assert [] == list(read_run(log.run_dir).spans)
    assert [1, 2] == [event["body"] for event in events(log, "training.trace")]


def test_a_sampler_decides_for_a_trace_that_is_handed_down(make: Callable[..., OTelLogger]) -> None:
    """`always_on` samples in a trace whose root is not sampled."""
    with make(OTEL_TRACES_SAMPLER="always_on", TRACEPARENT=f"{TRACEPARENT[:-2]}00") as log:
        log.log_metrics({"loss": 1.0})

    assert log.run_dir is not None
    assert [TRACE_ID] == [span["trace_id"] for span in read_run(log.run_dir).spans]


@pytest.mark.parametrize(
    ("limit", "parts"), [("4", [3, 3, 3]), ("2", [1] * 9), ("1", [0]), ("0", [0]), ("1000000", [9])]
)
def test_traces_beyond_the_limit_of_events_go_on_in_further_spans(
    make: Callable[..., OTelLogger], limit: str, parts: list[int]
) -> None:
    """OTEL_SPAN_EVENT_COUNT_LIMIT loses no trace, and leaves room for the exception that ends a span."""

    def work(log: OTelLogger) -> None:
        with log.span("work"):
            for number in range(9):
                log.log_traces({f"t{number}": number})
            raise ValueError("bad")

    with make(OTEL_SPAN_EVENT_COUNT_LIMIT=limit) as log, pytest.raises(ValueError, match="bad"):
        work(log)

    assert log.run_dir is not None
    spans = [span for span in read_run(log.run_dir).spans if span["name"] == "work"]
    spans.sort(key=lambda span: span["attributes"].get("training.span.part", 1))
    names = [[event["name"] for event in span["events"]] for span in spans]
    expected = [[f"t{sum(parts[:part]) + number}" for number in range(count)] for part, count in enumerate(parts)]
    # The exception is on the span that the caller has.
    expected[0] += ["exception"] if limit != "0" else []
    assert expected == names
    assert list(range(sum(parts), 9)) == [event["body"] for event in events(log, "training.trace")]


def test_events_of_the_callers_own_count_for_the_limit(make: Callable[..., OTelLogger]) -> None:
    """What the caller added to the span leaves less room for traces, and none of those is lost."""
    with make(OTEL_SPAN_EVENT_COUNT_LIMIT="3") as log, log.span("work") as span:
        span.add_event("own")
        log.log_traces({"a": 1, "b": 2})

    assert log.run_dir is not None
    further, work = [span for span in read_run(log.run_dir).spans if span["name"] == "work"]
    assert (["own", "a"], ["b"]) == tuple([event["name"] for event in span["events"]] for span in (work, further))
    assert [] == events(log, "training.trace")


def test_limits_of_attributes_hold_for_spans_and_log_records(make: Callable[..., OTelLogger]) -> None:
    """They cut what is recorded, but neither metrics nor the resource; what stays of a log record is its uid."""
    environ = {"OTEL_ATTRIBUTE_COUNT_LIMIT": "1", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "32"}
    with make(OTEL_RESOURCE_ATTRIBUTES=f"note={'n' * 40}", **environ) as log:
        log.log_metrics({"loss" * 20: 1.0})
        with log.span("work", first="x" * 33, second=2):
            log.log_traces({"t": "y" * 33})

    assert log.run_dir is not None
    run = read_run(log.run_dir)
    work = next(span for span in run.spans if span["name"] == "work")
    assert {"first": "x" * 32} == work["attributes"]
    assert [{"training.trace.value": "y" * 32}] == [event["attributes"] for event in work["events"]]
    assert {("log.record.uid",)} == {tuple(event["attributes"]) for event in run.events}
    assert ["loss" * 20] == run.metrics["key"]
    assert "n" * 40 == run.resources[1, 0]["note"]


def test_a_trace_that_is_handed_down_is_not_joined_without_its_propagator(make: Callable[..., OTelLogger]) -> None:
    """OTEL_PROPAGATORS=none leaves TRACEPARENT alone."""
    with make(OTEL_PROPAGATORS="none", TRACEPARENT=TRACEPARENT) as log:
        log.log_metrics({"loss": 1.0})

    assert log.run_dir is not None
    (run_span,) = read_run(log.run_dir).spans
    assert TRACE_ID != run_span["trace_id"]
