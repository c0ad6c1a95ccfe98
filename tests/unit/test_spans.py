"""Whatever a trainer's events are, its spans are closed, nested and finite, and its traces stay small."""

import random
import threading
from contextlib import ExitStack, contextmanager
from contextvars import Context

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from otel_logger.conventions import SCHEMA_URL
from otel_logger.span_block import SpanBlock
from otel_logger.spans import Spans
from otel_logger_exporters.decoding import decode_spans
from otel_logger_exporters.items import encode_spans

RUN, FIT, EPOCH, BATCH, EVAL, PREDICT = (
    f"training.{name}" for name in ("run", "fit", "epoch", "batch", "eval", "predict")
)
DATA, FORWARD, BACKWARD, CHECKPOINT = (f"training.{name}" for name in ("data", "forward", "backward", "checkpoint"))
NAMES = (FIT, EPOCH, BATCH, EVAL, PREDICT)
MAY_BE_IN = {FIT: {RUN}, BATCH: {EPOCH, FIT, RUN}, EVAL: {BATCH, EPOCH, FIT, RUN}, PREDICT: {BATCH, EPOCH, FIT, RUN}}

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT_ID = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{PARENT_ID}-01"


class _Clock:
    """A clock that moves when told, and a little at each look: a millisecond of time, 10 µs of the other."""

    def __init__(self):
        self.ns = 1_700_000_000_000_000_000
        self.seconds = 0.0

    def time_ns(self):
        self.ns += 1_000_000
        return self.ns

    def monotonic(self):
        self.seconds += 1e-5
        return self.seconds


class _Case:
    def __init__(self, *, environ=None, batches=1_000_000, run=True, sampler=None):
        self.clock = _Clock()
        self.ended = []
        self.spans = Spans(self.ended.append, environ or {}, self.clock, batches, sampler)
        if run:
            self.spans.start_run({"training.run.id": "r"})

    def block(self, name, attributes):
        """A block of the caller's own."""
        return SpanBlock(lambda: (self.spans.block(name, attributes), lambda end, error: end(error)))

    def sent(self):
        """What is sent of the spans that have ended."""
        return [span for one in self.ended for span in decode_spans(encode_spans([one]).body)]

    def named(self, name):
        (span,) = [span for span in self.sent() if span["name"] == name]
        return span


@pytest.fixture
def case():
    """Spans of a run that has started."""
    return _Case()


def test_the_run_is_a_short_span_at_its_start(case):
    """The run's span is emitted at once, the root of a trace of its own."""
    (run,) = case.sent()
    assert (RUN, "", {"training.run.id": "r"}) == (run["name"], run["parent_span_id"], run["attributes"])
    assert run["start"] < run["end"]
    assert [] == run["links"]


def test_a_usual_fit(case):
    """Fit, epochs, batches and evaluations nest; each is emitted when it ends."""
    spans = case.spans
    spans.begin(FIT, {"training.step": 0})
    for epoch in range(2):
        spans.begin(EPOCH, {"training.epoch": epoch})
        for _ in range(2):
            spans.begin(BATCH, {})
            spans.end(BATCH)
        spans.begin(EVAL, {})
        spans.end(EVAL, {"training.step": 9})
        spans.end(EPOCH)
    spans.end(FIT)
    sent = case.sent()
    assert [RUN, *([BATCH, BATCH, EVAL, EPOCH] * 2), FIT] == [span["name"] for span in sent]
    run, fit = sent[0], sent[-1]
    assert (run["trace_id"], run["span_id"]) == (fit["trace_id"], fit["parent_span_id"])
    assert {"training.step": 0} == fit["attributes"]
    assert {"training.step": 9} == sent[3]["attributes"]
    for index, epoch in ((4, sent[4]), (8, sent[8])):
        inside = sent[index - 3 : index]
        assert {(epoch["trace_id"], epoch["span_id"])} == {(s["trace_id"], s["parent_span_id"]) for s in inside}


def test_an_epoch_is_a_trace_of_its_own_linked_to_what_is_around_it(case):
    """Each epoch begins a new trace, linked to the fit; without a fit, to the run."""
    case.spans.begin(FIT, {})
    case.spans.begin(EPOCH, {})
    case.spans.end(EPOCH)
    case.spans.end(FIT)
    fit, epoch = case.named(FIT), case.named(EPOCH)
    assert fit["trace_id"] != epoch["trace_id"]
    assert ("", [{"trace_id": fit["trace_id"], "span_id": fit["span_id"]}]) == (
        epoch["parent_span_id"],
        epoch["links"],
    )
    alone = _Case()
    alone.spans.begin(EPOCH, {})
    alone.spans.end(EPOCH)
    run, epoch = alone.sent()
    assert [{"trace_id": run["trace_id"], "span_id": run["span_id"]}] == epoch["links"]


def test_epochs_are_linked_to_the_one_before(case):
    """From an epoch one gets to the fit and to the epoch before, so that a run's traces are a chain."""
    case.spans.begin(FIT, {})
    for _ in range(3):
        case.spans.begin(EPOCH, {})
    case.spans.end_all()
    *epochs, fit = case.sent()[1:]
    assert [[fit["span_id"]], [fit["span_id"], epochs[0]["span_id"]], [fit["span_id"], epochs[1]["span_id"]]] == [
        [link["span_id"] for link in epoch["links"]] for epoch in epochs
    ]


def test_spans_say_by_which_schema_they_are(case):
    """The scope of spans carries the version of OpenTelemetry's conventions."""
    (run,) = case.ended
    assert (
        SCHEMA_URL == run.instrumentation_scope.schema_url == ScopeSpans.FromString(encode_spans([run]).body).schema_url
    )


def test_a_trace_that_is_given_is_joined():
    """The run's span is a child of TRACEPARENT's, and the fit is in the same trace."""
    case = _Case(environ={"TRACEPARENT": TRACEPARENT, "TRACESTATE": "a=b"})
    case.spans.begin(FIT, {})
    case.spans.end_all()
    run, fit = case.sent()
    assert (TRACE_ID, PARENT_ID) == (run["trace_id"], run["parent_span_id"])
    assert (TRACE_ID, run["span_id"]) == (fit["trace_id"], fit["parent_span_id"])


@pytest.mark.parametrize("value", ["", "x", TRACEPARENT[:-4], f"ff{TRACEPARENT[2:]}", f"00-{'0' * 32}-{PARENT_ID}-01"])
def test_a_trace_context_that_is_none_is_ignored(value):
    """A TRACEPARENT that cannot be read starts a new trace, as the specification has it."""
    (run,) = _Case(environ={"TRACEPARENT": value}).sent()
    assert ("", True) == (run["parent_span_id"], run["trace_id"] != TRACE_ID)


def test_a_trace_that_is_not_sampled_is_not_sent():
    """Where the caller's trace is not sampled the run's span is not either; what follows says so by not recording."""
    case = _Case(environ={"TRACEPARENT": f"{TRACEPARENT[:-2]}00"})
    case.spans.begin(FIT, {})
    assert not case.spans.current().is_recording()
    with case.block("own", {}) as span:
        assert not span.is_recording()
    case.spans.end_all("error")
    assert [] == case.sent()


def test_a_missing_end_is_made_up_by_the_next_beginning(case):
    """Composer skips ends; what cannot stand around the next span ends before it."""
    for name in (FIT, EPOCH, BATCH, EPOCH, BATCH, BATCH, EVAL, FIT):
        case.spans.begin(name, {})
    case.spans.end_all()
    names = [span["name"] for span in case.sent()]
    assert [RUN, BATCH, EPOCH, BATCH, EVAL, BATCH, EPOCH, FIT, FIT] == names


def test_an_end_without_a_beginning_is_nothing(case):
    """Ends that nothing began, and ends of what is ended already, do nothing."""
    for name in NAMES:
        case.spans.end(name)
    case.spans.begin(FIT, {})
    case.spans.end(FIT)
    case.spans.end(FIT)
    assert [RUN, FIT] == [span["name"] for span in case.sent()]


def test_the_end_of_an_outer_span_ends_what_is_inside(case):
    """A batch that is left open ends with its fit."""
    for name in (FIT, EPOCH, BATCH):
        case.spans.begin(name, {})
    case.spans.end(FIT)
    assert [RUN, BATCH, EPOCH, FIT] == [span["name"] for span in case.sent()]
    assert case.spans.current() is None


steps = st.lists(
    st.tuples(st.sampled_from(["begin", "end"]), st.sampled_from(NAMES)) | st.just(("end_all", None)), max_size=40
)


@settings(max_examples=60, deadline=None)
@given(steps, st.sampled_from([0, 1, 1_000_000]), st.booleans())
def test_any_sequence_of_events_is_closed_nested_and_finite(sequence, batches, run):
    """However events come, every span ends once, after its start, inside a parent that may stand around it."""
    case, begun = _Case(batches=batches, run=run), 0
    for number, (act, name) in enumerate(sequence):
        case.clock.seconds += number % 3 / 2
        if act == "begin":
            case.spans.begin(name, {"n": number})
            begun += not case.spans.is_thinned
        elif act == "end":
            case.spans.end(name)
        else:
            case.spans.end_all()
    case.spans.end_all()
    assert case.spans.current() is None
    assert not case.spans.is_thinned
    sent = case.sent()
    by_id = {span["span_id"]: span for span in sent}
    assert begun + run == len(sent) == len(by_id)
    for span in sent:
        assert span["start"] < span["end"]
        parent = by_id.get(span["parent_span_id"])
        if span["name"] in (RUN, EPOCH):
            assert "" == span["parent_span_id"]
            continue
        if parent is None:
            assert ("", run) == (span["parent_span_id"], False)
            continue
        assert parent["name"] in MAY_BE_IN[span["name"]]
        assert parent["trace_id"] == span["trace_id"]
        if parent["name"] != RUN:
            assert parent["start"] < span["start"] < span["end"] < parent["end"]


def test_batches_are_thinned(case):
    """At most so many spans of batches per second are begun; in a batch without one, its surroundings are current."""
    case = _Case(batches=2)
    case.spans.begin(EPOCH, {})
    epoch = case.spans.current()
    kept = []
    for _ in range(40):
        case.spans.begin(BATCH, {})
        kept.append(not case.spans.is_thinned)
        assert case.spans.is_thinned == (case.spans.current() is epoch)
        case.spans.end(BATCH)
        assert not case.spans.is_thinned
        case.clock.seconds += 0.125
    assert ([True] + [False] * 3) * 10 == kept
    case.spans.end_all()
    assert 10 == sum(span["name"] == BATCH for span in case.sent())


def test_no_batches():
    """With 0 no batch has a span."""
    case = _Case(batches=0)
    for _ in range(3):
        case.spans.begin(BATCH, {})
        assert case.spans.is_thinned
        case.spans.end(BATCH)
        case.clock.seconds += 100
    assert [RUN] == [span["name"] for span in case.sent()]


def test_a_batch_and_the_loading_of_its_data_are_decided_together():
    """The data of a batch with a span has one too, a sibling; that of a thinned batch is thinned, up to its end."""
    case = _Case(batches=1)
    case.spans.begin(EPOCH, {})
    kept = []
    for _ in range(4):
        case.spans.begin(DATA, {})
        case.clock.seconds += 0.5
        case.spans.end(DATA)
        between = case.spans.is_thinned
        case.spans.begin(BATCH, {})
        kept.append(not case.spans.is_thinned)
        assert between == case.spans.is_thinned
        case.spans.end(BATCH)
    assert [True, False, True, False] == kept
    case.spans.end_all()
    epoch = case.named(EPOCH)
    assert [DATA, BATCH, DATA, BATCH] == [s["name"] for s in case.sent() if s["parent_span_id"] == epoch["span_id"]]


def test_loading_that_finds_no_more_data_ends_with_the_epoch(case):
    """The last look at a data loader has no end of its own, and no batch."""
    for name in (FIT, EPOCH, DATA):
        case.spans.begin(name, {})
    case.spans.end(EPOCH)
    assert [RUN, DATA, EPOCH] == [span["name"] for span in case.sent()]
    assert case.named(EPOCH)["span_id"] == case.named(DATA)["parent_span_id"]


@pytest.mark.parametrize("batches", [0, 1_000_000])
def test_passes_are_spans_of_a_batch_that_has_one(batches):
    """Each microbatch has its passes; without a batch, or in a thinned one, they have no spans, also by mistake."""
    case = _Case(batches=batches)
    case.spans.begin(FORWARD, {})
    case.spans.end(BACKWARD)
    case.spans.begin(EPOCH, {})
    case.spans.begin(BATCH, {})
    for name in (FORWARD, BACKWARD, FORWARD, BACKWARD):
        case.spans.begin(name, {})
        case.spans.end(name)
    case.spans.end_all()
    expected = [FORWARD, BACKWARD, FORWARD, BACKWARD, BATCH] if batches else []
    assert [RUN, *expected, EPOCH] == [span["name"] for span in case.sent()]
    assert (
        {case.named(BATCH)["span_id"]}
        if batches
        else set() == {span["parent_span_id"] for span in case.sent() if span["name"] in (FORWARD, BACKWARD)}
    )


def test_what_begins_in_a_thinned_batch_is_not_in_a_batch():
    """An evaluation inside a batch without a span is the epoch's, and the batch is over for what is traced."""
    case = _Case(batches=0)
    for name in (EPOCH, BATCH, EVAL):
        case.spans.begin(name, {})
    assert not case.spans.is_thinned
    case.spans.end_all()
    assert case.named(EPOCH)["span_id"] == case.named(EVAL)["parent_span_id"]


def test_an_error_fails_what_is_open(case):
    """At a failure every open span ends as failed, with the reason."""
    case.spans.begin(FIT, {})
    case.spans.begin(EPOCH, {})
    case.spans.end(EPOCH)
    case.spans.begin(BATCH, {})
    case.spans.end_all("ValueError: bad")
    assert {RUN: None, EPOCH: None, BATCH: "ValueError: bad", FIT: "ValueError: bad"} == {
        span["name"]: span["error"] for span in case.sent()
    }


def test_a_clock_that_is_set_back_makes_no_negative_spans(case):
    """A span ends no earlier than it began, whatever the clock does meanwhile."""
    case.spans.begin(FIT, {})
    with case.block("own", {}):
        case.clock.ns -= 3600 * 10**9
    case.spans.end(FIT)
    assert all(span["start"] <= span["end"] for span in case.sent())


def test_spans_of_the_callers_own(case):
    """A block is a child of what is current, current itself, and OpenTelemetry's current span."""
    case.spans.begin(FIT, {})
    with case.block("outer", {"n": 1}) as outer:
        assert case.spans.current() is outer is trace.get_current_span()
        with case.block("inner", {}) as inner:
            assert case.spans.current() is inner
        assert case.spans.current() is outer
    assert trace.get_current_span() is trace.INVALID_SPAN
    case.spans.end(FIT)
    fit, outer, inner = (case.named(name) for name in (FIT, "outer", "inner"))
    assert (fit["span_id"], outer["span_id"]) == (outer["parent_span_id"], inner["parent_span_id"])
    assert {fit["trace_id"]} == {outer["trace_id"], inner["trace_id"]}
    assert {"n": 1} == outer["attributes"]


def test_a_span_before_and_without_a_run():
    """A block before the run's start is a trace of its own; after it, the run's child."""
    case = _Case(run=False)
    assert case.spans.current_context() is None
    with case.block("early", {}):
        pass
    case.spans.start_run({})
    with case.block("late", {}):
        pass
    run = case.named(RUN)
    assert ("", run["span_id"]) == (case.named("early")["parent_span_id"], case.named("late")["parent_span_id"])
    assert run["span_id"] == format(case.spans.current_context().span_id, "016x")


def test_a_block_that_outlives_the_run_is_still_sent(case):
    """Closing ends the trainer's spans, not a block of the caller's, which ends with its own end."""
    with case.block("own", {}) as own:
        case.spans.end_all()
        assert case.spans.current() is own
    assert [RUN, "own"] == [span["name"] for span in case.sent()]


def test_an_exception_is_recorded_once_and_goes_on(case):
    """Every block that it passes fails with it, the innermost has it as an event; it is not swallowed."""
    with pytest.raises(ValueError, match="bad"), case.block("outer", {}), case.block("inner", {}):
        raise ValueError("bad")
    inner, outer = case.named("inner"), case.named("outer")
    assert ("ValueError: bad", "ValueError: bad", []) == (inner["error"], outer["error"], outer["events"])
    (event,) = inner["events"]
    assert ("exception", "ValueError", "bad") == (
        event["name"],
        event["attributes"]["exception.type"],
        event["attributes"]["exception.message"],
    )
    assert "raise ValueError" in event["attributes"]["exception.stacktrace"]


def test_an_exception_that_is_replaced_is_another_one(case):
    """An exception raised in handling another is an event of its own, where it comes up."""

    @case.block("outer", {})
    def work():
        try:
            with case.block("inner", {}):
                raise ValueError("bad")
        except ValueError as error:
            raise KeyError("worse") from error

    with pytest.raises(KeyError):
        work()
    assert [["ValueError"], ["KeyError"]] == [
        [event["attributes"]["exception.type"] for event in case.named(name)["events"]] for name in ("inner", "outer")
    ]


def test_an_exception_ends_what_the_trainer_began_in_the_block(case):
    """A trainer tells nothing of an exception; the block that it leaves does, and the innermost span has the event."""

    @case.block("experiment", {})
    def work():
        for name in (FIT, EPOCH, BATCH, FORWARD):
            case.spans.begin(name, {})
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        work()
    assert case.spans.current() is None
    spans = [case.named(name) for name in (FORWARD, BATCH, EPOCH, FIT, "experiment")]
    assert ["ValueError: bad"] * 5 == [span["error"] for span in spans]
    assert [1, 0, 0, 0, 0] == [len(span["events"]) for span in spans]
    experiment, fit = case.named("experiment"), case.named(FIT)
    assert experiment["span_id"] == fit["parent_span_id"]


def test_the_exception_that_ends_the_run_is_an_event_of_the_innermost_span(case):
    """What is open fails for the reason; an exception that a block has recorded is not recorded again."""
    for name in (FIT, EPOCH, BATCH):
        case.spans.begin(name, {})
    case.spans.finish("ValueError: bad", ValueError("bad"))
    assert [1, 0, 0] == [len(case.named(name)["events"]) for name in (BATCH, EPOCH, FIT)]
    again = _Case()
    again.spans.begin(FIT, {})
    with pytest.raises(ValueError, match="bad") as raised, again.block("in a callback", {}):
        raise ValueError("bad")
    again.spans.finish("ValueError: bad", raised.value)
    assert (1, 0) == (len(again.named("in a callback")["events"]), len(again.named(FIT)["events"]))


def test_a_fit_that_comes_after_one_without_an_end(case):
    """Where an exception has ended a fit nothing says so; the next one tells, and starts anew."""
    for name in (FIT, EPOCH, BATCH, FIT, EPOCH):
        case.spans.begin(name, {})
    case.spans.end(FIT)
    reason = "its end was not reached"
    assert [(BATCH, reason), (EPOCH, reason), (FIT, reason), (EPOCH, None), (FIT, None)] == [
        (span["name"], span["error"]) for span in case.sent()[1:]
    ]


def test_after_a_block_the_trainers_span_is_current_again(case):
    """An exception or not, a block leaves nothing behind."""
    case.spans.begin(FIT, {})
    fit = case.spans.current()
    with pytest.raises(KeyboardInterrupt), case.block("own", {}):
        raise KeyboardInterrupt
    assert case.spans.current() is fit
    assert [RUN, "own"] == [span["name"] for span in case.sent()]


def test_blocks_nest_in_each_thread(case):
    """Each thread has blocks of its own, children of the trainer's span and not of another thread's."""
    case.spans.begin(FIT, {})
    depth, together = 3, threading.Barrier(4)

    def work(thread):
        with ExitStack() as stack:
            for level in range(depth):
                stack.enter_context(case.block(f"{thread}/{level}", {}))
                together.wait(10)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    case.spans.end(FIT)
    ids = {span["name"]: span["span_id"] for span in case.sent()}
    parents = {span["name"]: span["parent_span_id"] for span in case.sent()}
    for thread in range(4):
        assert ids[FIT] == parents[f"{thread}/0"]
        assert [ids[f"{thread}/{level}"] for level in range(depth - 1)] == [
            parents[f"{thread}/{level}"] for level in range(1, depth)
        ]


def test_a_block_that_is_left_open_does_not_take_what_comes_after(case):
    """A callback that opens a block in a batch and forgets it: the next batch is the epoch's, and current."""
    case.spans.begin(EPOCH, {})
    case.spans.begin(BATCH, {})
    forgotten = case.spans.block("forgotten", {})
    forgotten.enter()
    case.spans.begin(BATCH, {})
    assert case.spans.current() is not forgotten.span
    case.spans.finish()
    epoch, batches = case.named(EPOCH), [span for span in case.sent() if span["name"] == BATCH]
    assert [epoch["span_id"]] * 2 == [batch["parent_span_id"] for batch in batches]
    assert batches[0]["span_id"] == case.named("forgotten")["parent_span_id"]


def test_another_threads_block_stays_where_it_began(case):
    """While the trainer goes on, a block of another thread is current there, and its child stays its child."""
    case.spans.begin(FIT, {})
    case.spans.begin(EVAL, {})
    elsewhere = Context()
    block = elsewhere.run(case.spans.block, "loading", {})
    elsewhere.run(block.enter)
    case.spans.end(EVAL)
    case.spans.begin(PREDICT, {})
    assert elsewhere.run(case.spans.current) is block.span
    assert case.spans.current() is not block.span
    inner = elsewhere.run(case.spans.block, "inner", {})
    inner.end()
    case.spans.end(FIT)
    block.end()
    assert case.named(EVAL)["span_id"] == case.named("loading")["parent_span_id"]
    assert case.named("loading")["span_id"] == case.named("inner")["parent_span_id"]


def test_what_the_trainer_begins_in_a_block_is_inside_it_and_current(case):
    """A fit in a block is its child, and what is logged in a batch belongs to the batch."""
    with case.block("experiment", {}):
        for name in (FIT, EPOCH, BATCH):
            case.spans.begin(name, {})
        batch = case.spans.current()
        with case.block("in the batch", {}) as own:
            assert case.spans.current() is own
        assert case.spans.current() is batch
        case.spans.end(FIT)
    assert case.named("experiment")["span_id"] == case.named(FIT)["parent_span_id"]
    assert case.named(BATCH)["span_id"] == case.named("in the batch")["parent_span_id"]
    assert RUN == next(s["name"] for s in case.sent() if s["span_id"] == case.named("experiment")["parent_span_id"])


def test_finishing_ends_blocks_that_go_on(case):
    """Closing sends the blocks of threads that are still in them; their own end comes too late and does nothing."""
    block = Context().run(case.spans.block, "endless", {})
    case.spans.begin(FIT, {})
    case.spans.finish()
    assert [RUN, FIT, "endless"] == [span["name"] for span in case.sent()]
    block.end(ValueError("late"))
    assert 3 == len(case.sent())


def test_work_in_the_background_is_below_the_span_it_was_asked_for_in(case):
    """An upload is in the trace of its checkpoint, though that may be over; without one it is a trace of its own."""
    case.spans.begin(CHECKPOINT, {})
    around = case.spans.current_context()
    case.spans.end(CHECKPOINT)
    for name, context in (("of a checkpoint", around), ("of nothing", None)):
        case.spans.block_apart(name, {"n": 1}, context).end(OSError("full"))
    assert case.named(CHECKPOINT)["span_id"] == case.named("of a checkpoint")["parent_span_id"]
    alone = case.named("of nothing")
    assert ("", "OSError: full", {"n": 1}) == (alone["parent_span_id"], alone["error"], alone["attributes"])


@contextmanager
def _held(lock):
    """Have another thread hold a lock."""
    held, done = threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    yield
    done.set()
    thread.join()


def test_the_end_of_a_block_after_the_close_waits_for_nothing(case):
    """A generator that is finished with the interpreter ends a block, and no thread is there to let go of a lock."""
    block = case.spans.block("own", {})
    block.at_end = lambda: pytest.fail("the close has done that")
    case.spans.finish()
    with _held(case.spans._lock):
        block.end(ValueError("late"))
    assert [RUN, "own"] == [span["name"] for span in case.sent()]


def test_a_child_of_a_fork_leaves_everything_to_its_parent(case):
    """Open spans are ended by the process that began them, and by no other, also where a lock is held meanwhile."""
    case.spans.begin(FIT, {})
    block = case.spans.block("own", {})
    block.enter()
    with _held(case.spans._lock):
        case.spans.abandon()
        block.end()
        case.spans.end(FIT)
        case.spans.finish()
    assert ([RUN], None) == ([span["name"] for span in case.sent()], case.spans.current())


def test_threads_that_trace_while_the_trainer_goes_on_lose_nothing(case):
    """Events come from everywhere while spans end and go on; each is on one span, inside its time."""
    count, taken = 400, []

    def trace(thread):
        with case.block(f"thread {thread}", {}):
            trace_here(thread)

    def trace_here(thread):
        times = (case.clock.time_ns() for _ in range(count))
        taken.extend(case.spans.add_event(f"{thread}/{n}", {}, at, 4000) for n, at in enumerate(times))

    case.spans.begin(FIT, {})
    threads = [threading.Thread(target=trace, args=(thread,)) for thread in range(3)]
    threads.append(threading.Thread(target=trace_here, args=("trainer",)))
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for name in (EPOCH, BATCH):
            case.spans.begin(name, {})
        case.spans.end(EPOCH)
    for thread in threads:
        thread.join()
    case.spans.finish()
    sent = case.sent()
    found = [event["name"] for span in sent for event in span["events"]]
    assert (4 * count, [True] * 4 * count) == (len(set(found)), taken)
    assert len(found) == len(set(found))
    assert all(span["start"] <= event["time"] <= span["end"] for span in sent for event in span["events"])


def test_two_loggers_do_not_mix():
    """A block of one logger is not the current span of another."""
    one, other = _Case(), _Case()
    with one.block("own", {}):
        assert other.spans.current() is None


def test_events_are_kept_however_many(case):
    """A span keeps more events than the SDK's default of 128, and attributes of any length."""
    case.spans.begin(FIT, {"text": "x" * 100_000})
    for number in range(1000):
        case.spans.current().add_event("e", {"n": number})
    case.spans.end(FIT)
    fit = case.named(FIT)
    assert list(range(1000)) == [event["attributes"]["n"] for event in fit["events"]]
    assert 100_000 == len(fit["attributes"]["text"])


def test_an_event_is_inside_its_span_though_the_clock_is_set_back(case):
    """Neither a child nor an event comes before what it is in."""
    case.spans.begin(FIT, {})
    case.clock.ns -= 10**12
    case.spans.begin(EVAL, {})
    assert case.spans.add_event("e", {}, case.clock.time_ns(), 10)
    case.spans.end(FIT)
    fit, evaluation = case.named(FIT), case.named(EVAL)
    times = [fit["start"], evaluation["start"], evaluation["events"][0]["time"], evaluation["end"], fit["end"]]
    assert sorted(times) == times


def test_a_further_trace_that_is_not_sampled_takes_no_events():
    """Where the sampler lets the first trace of an epoch pass and not the next, the caller is told."""

    class First(Sampler):
        def __init__(self):
            self.left = 1

        def should_sample(self, *arguments, **keywords):
            self.left -= 1
            return (ALWAYS_ON if self.left >= 0 else ALWAYS_OFF).should_sample(*arguments, **keywords)

        def get_description(self):
            return "first"

    case = _Case(run=False, sampler=First())
    case.spans.begin(EPOCH, {})
    taken = [case.spans.add_event("e", {"n": number}, number, 900_000) for number in range(5)]
    case.spans.finish()
    assert ([True, False, False, False, False], [EPOCH]) == (taken, [span["name"] for span in case.sent()])


def test_the_environment_of_the_process_does_not_matter(monkeypatch):
    """Limits and samplers that OTEL_* variables of the process name are not taken from there."""
    monkeypatch.setenv("OTEL_SPAN_EVENT_COUNT_LIMIT", "1")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "1")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "x=y")
    test_events_are_kept_however_many(_Case())


def test_no_generator_of_the_training_is_touched_and_ids_do_not_repeat():
    """`random` and NumPy draw the same with and without spans, and equal seeds do not make equal ids."""
    ids = []
    for _ in range(2):
        random.seed(17)
        np.random.seed(17)
        before = (random.getstate(), repr(np.random.get_state()))
        case = _Case()
        for name in (FIT, EPOCH, BATCH):
            case.spans.begin(name, {})
        with case.block("own", {}):
            pass
        case.spans.end_all()
        assert before == (random.getstate(), repr(np.random.get_state()))
        ids += [span[key] for span in case.sent() for key in ("span_id",)]
    assert 10 == len(ids) == len(set(ids))


def test_no_global_provider_is_set(case):
    """OpenTelemetry's global tracer provider stays the program's own."""
    from opentelemetry.sdk.trace import TracerProvider

    with case.block("own", {}):
        assert not isinstance(trace.get_tracer_provider(), TracerProvider)
