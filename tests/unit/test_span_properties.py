"""Whatever a trainer, its callbacks and threads do, in any order: spans are closed, nested, finite and thinned."""

from collections import Counter
from contextvars import Context
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler, SamplingResult

from otel_logger import OTelLogger, read_run
from otel_logger.redaction import Redactor
from otel_logger.spans import Block, Spans
from otel_logger.trace_log import TraceLog
from otel_logger.trainer import EVENT_SPANS, Position, follow
from otel_logger.trainer_events import EVENTS
from otel_logger_exporters.decoding import decode_spans
from otel_logger_exporters.items import encode_spans
from tests.runs import events, trainer_state

MOST_EVENTS = 5
BATCHES = 2
RUN, EPOCH, BATCH, DATA = (f"training.{name}" for name in ("run", "epoch", "batch", "data"))
TRAINERS = {name for name, _, _ in EVENT_SPANS.values()}
MAY_STAND_IN = {
    "training.fit": set(),
    EPOCH: set(),
    DATA: {"training.fit", EPOCH},
    BATCH: {"training.fit", EPOCH},
    "training.forward": {BATCH},
    "training.backward": {BATCH},
    "training.eval": {"training.fit", EPOCH, BATCH},
    "training.predict": {"training.fit", EPOCH, BATCH},
    "training.checkpoint": {"training.fit", EPOCH, BATCH, "training.eval", "training.predict"},
}
"""The spans of the trainer's that each may stand in; besides, each but an epoch in a block, or in the run."""


class _Clock:
    """A clock that a test moves, also back; each look takes a microsecond."""

    def __init__(self) -> None:
        self.ns = 1_700_000_000_000_000_000
        self.seconds = 0.0

    def time_ns(self) -> int:
        self.ns += 1000
        return self.ns

    def monotonic(self) -> float:
        return self.seconds


class _Counting(Sampler):
    """Samples everything, and counts what is begun."""

    def __init__(self) -> None:
        self.begun = 0

    def should_sample(self, *arguments: Any, **keywords: Any) -> SamplingResult:
        self.begun += 1
        return ALWAYS_ON.should_sample(*arguments, **keywords)

    def get_description(self) -> str:
        return "counting"


@dataclass
class _World:
    """A trainer with blocks of its own thread (left in order) and of others (ended whenever)."""

    clock: _Clock = field(default_factory=_Clock)
    sampler: _Counting = field(default_factory=_Counting)
    ended: list[ReadableSpan] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    own: list[tuple[Block, Any]] = field(default_factory=list)
    elsewhere: list[Block] = field(default_factory=list)
    traced: int = 0
    blocks: int = 0
    passed: float = 0.0

    def __post_init__(self) -> None:
        self.spans = Spans(self._take, {}, self.clock, BATCHES, self.sampler, most_events=MOST_EVENTS + 1)
        self.position = Position()
        self.position.attach(trainer_state())
        self.log = TraceLog(self.spans, self._emit, Redactor(), self.clock, "span")

    def _take(self, span: ReadableSpan) -> int:
        self.ended.append(span)
        # As if each were large, so that traces fill up.
        return 1_500_000

    def _emit(self, name: str, attributes: Any, *, body: int, step: int | None, time_ns: int) -> None:
        self.records.append(body)

    def trace(self, count: int) -> None:
        first, self.traced = self.traced, self.traced + count
        self.log.log({f"t{number}": number for number in range(first, self.traced)}, None)

    def enter(self) -> None:
        block = self.spans.block("own", {})
        self.own.append((block, block.enter()))
        self.blocks += 1

    def leave(self, error: Exception | None) -> None:
        if self.own:
            block, undo = self.own.pop()
            undo()
            block.end(error)

    def begin_elsewhere(self) -> None:
        self.elsewhere.append(Context().run(self.spans.block, "elsewhere", {}))
        self.blocks += 1

    def end_elsewhere(self, which: int) -> None:
        if self.elsewhere:
            self.elsewhere.pop(which % len(self.elsewhere)).end()

    def wait(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.clock.ns += int(seconds * 1e9)
        self.passed += seconds


event = st.sampled_from(sorted(EVENT_SPANS)) | st.sampled_from([*sorted(EVENTS), "no_such_event", "close", ""])
batch = ("before_dataloader", "after_dataloader", "batch_start", "before_forward", "after_forward", "before_backward")
batch += ("after_backward", "batch_end")
act = st.one_of(
    st.tuples(st.just("events"), st.lists(event, min_size=1, max_size=8).map(tuple)),
    st.tuples(st.just("events"), st.integers(0, 8).map(lambda cut: batch[:cut])),
    st.tuples(st.just("events"), st.sampled_from([("fit_start", "epoch_start"), ("epoch_end", "fit_end")])),
    st.tuples(st.just("trace"), st.integers(1, 12)),
    st.tuples(st.just("enter"), st.none()),
    st.tuples(st.just("leave"), st.sampled_from([None, ValueError("bad")])),
    st.tuples(st.just("begin elsewhere"), st.none()),
    st.tuples(st.just("end elsewhere"), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 0.3, 1.0])),
    st.tuples(st.just("set back"), st.none()),
    st.tuples(st.just("run"), st.none()),
    st.tuples(st.just("finish"), st.sampled_from([None, ValueError("worse")])),
)


def play(world: _World, acts: list[tuple[str, Any]]) -> int:
    """Do all that, and finish; return how many events the trainer had."""
    count, is_begun = 0, False
    for what, argument in acts:
        if what == "events":
            for name in argument:
                follow(name, world.spans, world.position)
            count += len(argument)
        elif what == "trace":
            world.trace(argument)
        elif what == "enter":
            world.enter()
        elif what == "leave":
            world.leave(argument)
        elif what == "begin elsewhere":
            world.begin_elsewhere()
        elif what == "end elsewhere":
            world.end_elsewhere(argument)
        elif what == "wait":
            world.wait(argument)
        elif what == "set back":
            world.clock.ns -= 5_000_000_000
        elif what == "run" and not is_begun:
            world.spans.start_run({})
            is_begun = True
        elif what == "finish":
            world.spans.finish("failed" if argument else None, argument)
    world.spans.finish()
    while world.own:
        world.leave(None)
    while world.elsewhere:
        world.end_elsewhere(0)
    return count


@settings(max_examples=150, deadline=None)
@given(st.lists(act, max_size=40))
def test_spans_are_closed_nested_finite_and_thinned(acts: list[tuple[str, Any]]) -> None:
    """Each span that begins ends once; children lie in their parents; nothing that was traced is lost or doubled."""
    world = _World()
    count = play(world, acts)
    sent = [span for one in world.ended for span in decode_spans(encode_spans([one]).body)]
    by_id = {span["span_id"]: span for span in sent}

    assert (None, False) == (world.spans.current(), world.spans.is_thinned)
    assert world.sampler.begun == len(sent) == len(by_id)
    # Finite: each act begins one, and each span goes on only because of what is inside it.
    assert len(sent) <= 1 + 3 * (count + world.blocks + world.traced)

    for span in sent:
        assert span["start"] <= span["end"]
        assert len(span["events"]) <= MOST_EVENTS + 1
        parent = by_id.get(span["parent_span_id"])
        is_part = span["attributes"].get("training.span.part", 1) > 1
        if is_part:
            assert by_id[span["links"][0]["span_id"]]["name"] == span["name"]
        if parent is None:
            assert "" == span["parent_span_id"]
            continue
        assert parent["trace_id"] == span["trace_id"]
        assert parent["start"] <= span["start"]
        if parent["name"] != RUN and span["name"] in TRAINERS:
            assert span["end"] <= parent["end"]
        if span["name"] in TRAINERS and parent["name"] in TRAINERS:
            assert parent["name"] in MAY_STAND_IN[span["name"]]
        for event in span["events"]:
            assert span["start"] <= event["time"] <= span["end"]

    names = Counter(span["name"] for span in sent if "training.span.part" not in span["attributes"])
    assert max(names[BATCH], names[DATA]) <= BATCHES * world.passed + 1

    on_spans = [event["attributes"] for span in sent for event in span["events"] if event["name"] != "exception"]
    assert list(range(world.traced)) == sorted(
        [attributes["training.trace.value"] for attributes in on_spans] + world.records
    )
    assert sorted(world.records) == world.records


@settings(max_examples=15, deadline=None)
@given(st.lists(act, max_size=15), st.booleans())
def test_a_logger_goes_through_anything(tmp_path_factory: Any, acts: list[tuple[str, Any]], is_closed: bool) -> None:
    """Through the whole logger: no call fails inside, every trace arrives, and what is closed in the middle is read."""
    folder = str(tmp_path_factory.mktemp("logs"))
    log = OTelLogger(run_name="any", environ={"OTEL_LOGGER_DIR": folder, "OTEL_SPAN_EVENT_COUNT_LIMIT": "6"})
    state, traced, entered = trainer_state("any"), 0, []
    for index, (what, argument) in enumerate(acts):
        if what == "events":
            for name in argument:
                value: Any = SimpleNamespace(value=name) if index % 2 else name
                log.run_event(value, state, None)
        elif what == "trace":
            log.log_traces({f"t{traced + number}": traced + number for number in range(argument)})
            traced += argument
        elif what == "enter":
            block = log.span("own", n=index)
            entered.append(block)
            block.__enter__()
        elif what == "leave" and entered:
            entered.pop().__exit__(type(argument) if argument else None, argument, None)
        elif what == "begin elsewhere":
            log.state_dict()
    if is_closed:
        log.close()
        log.run_event("batch_start", state, None)
    while entered:
        entered.pop().__exit__(None, None, None)
    log.close()

    assert log.run_dir is not None
    sent = list(read_run(log.run_dir).spans)
    assert len(sent) == len({span["span_id"] for span in sent})
    assert {"own", *TRAINERS, RUN} >= {span["name"] for span in sent}
    told = [e["attributes"]["training.trace.value"] for s in sent for e in s["events"] if e["name"] != "exception"]
    assert list(range(traced)) == sorted(told + [record["body"] for record in events(log, "training.trace")])
    assert {} == log.stats().dropped
