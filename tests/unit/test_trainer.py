"""Events of a trainer become spans with its position; events without one do nothing."""

from types import SimpleNamespace

import pytest

from otel_logger.trainer import EVENT_SPANS, Position, follow


class _Spans:
    """Notes what is begun and ended."""

    def __init__(self):
        self.calls = []

        self.innermost = None

    def begin(self, name, attributes):
        self.calls.append(("begin", name, attributes()))

    def end(self, name):
        self.calls.append(("end", name))


class Count:
    """A number of Composer's, which has its value in an attribute."""

    def __init__(self, value):
        self.value = value


def state(batch=7, epoch=2, label=None):
    """A trainer's state."""
    return SimpleNamespace(timestamp=SimpleNamespace(batch=Count(batch), epoch=Count(epoch)), dataloader_label=label)


def test_the_position_is_the_states():
    """Step and epoch are batches and epochs done, and follow the state as its timestamp is replaced."""
    position, moving = Position(), state(label="train")
    position.attach(moving)
    assert (7, 2, "train") == (position.step(), position.epoch(), position.evaluator())
    moving.timestamp = state(batch=8).timestamp
    moving.dataloader_label = "eval"
    assert (8, "eval") == (position.step(), position.evaluator())


def test_a_timestamp_of_plain_numbers():
    """Another trainer's state may hold ints."""
    position = Position()
    position.attach(SimpleNamespace(timestamp=SimpleNamespace(batch=3, epoch=0)))
    assert (3, 0) == (position.step(), position.epoch())


@pytest.mark.parametrize(
    "odd",
    [
        None,
        object(),
        SimpleNamespace(timestamp=None),
        SimpleNamespace(timestamp=SimpleNamespace(batch=None)),
        SimpleNamespace(timestamp=SimpleNamespace(batch="7", epoch=Count(None))),
        SimpleNamespace(timestamp=SimpleNamespace(batch=True, epoch=1.0)),
    ],
)
def test_without_a_trainer_there_is_no_position(odd):
    """No state, or one that holds no whole numbers, has no step, epoch or evaluator."""
    position = Position()
    assert (None, None, None) == (position.step(), position.epoch(), position.evaluator())
    position.attach(odd)
    assert (None, None, None) == (position.step(), position.epoch(), position.evaluator())


PLACE = {"training.epoch": 2, "training.step": 7}


@pytest.mark.parametrize(
    ("event", "call"),
    [
        ("fit_start", ("begin", "training.fit", PLACE)),
        ("fit_end", ("end", "training.fit")),
        ("epoch_start", ("begin", "training.epoch", PLACE)),
        ("epoch_end", ("end", "training.epoch")),
        ("batch_start", ("begin", "training.batch", PLACE)),
        ("batch_end", ("end", "training.batch")),
        ("eval_start", ("begin", "training.eval", {"training.evaluator": "val", "training.step": 7})),
        ("eval_end", ("end", "training.eval")),
        ("predict_start", ("begin", "training.predict", {"training.evaluator": "val", "training.step": 7})),
        ("predict_end", ("end", "training.predict")),
        ("before_dataloader", ("begin", "training.data", PLACE)),
        ("after_dataloader", ("end", "training.data")),
        ("before_forward", ("begin", "training.forward", PLACE)),
        ("after_forward", ("end", "training.forward")),
        ("before_backward", ("begin", "training.backward", PLACE)),
        ("after_backward", ("end", "training.backward")),
        ("checkpoint_start", ("begin", "training.checkpoint", PLACE)),
        ("batch_checkpoint", ("end", "training.checkpoint")),
        ("epoch_checkpoint", ("end", "training.checkpoint")),
        ("iteration_checkpoint", ("end", "training.checkpoint")),
    ],
)
def test_events_and_their_spans(event, call):
    """A start begins a span that says where the trainer is, an end ends it."""
    spans, position = _Spans(), Position()
    position.attach(state(label="val"))
    follow(event, spans, position)
    assert [call] == spans.calls


def test_the_table_is_whole():
    """Every span that begins has an end."""
    assert {name for name, begins, _ in EVENT_SPANS.values() if begins} == {
        name for name, begins, _ in EVENT_SPANS.values() if not begins
    }


@pytest.mark.parametrize("event", ["init", "before_loss", "eval_batch_start", "eval_standalone_start", "", "close"])
def test_other_events_do_nothing(event):
    """Most events have no span."""
    spans = _Spans()
    follow(event, spans, Position())
    assert [] == spans.calls


@pytest.mark.parametrize(
    ("event", "calls"),
    [
        ("eval_before_all", [("end", "training.checkpoint")]),
        ("epoch_end", [("end", "training.checkpoint"), ("end", "training.epoch")]),
        ("checkpoint_start", [("end", "training.checkpoint"), ("begin", "training.checkpoint", {})]),
    ],
)
def test_any_event_ends_a_checkpoint(event, calls):
    """A checkpoint that was made at no event of its own is over when the next event comes."""
    spans = _Spans()
    spans.innermost = "training.checkpoint"
    follow(event, spans, Position())
    assert calls == spans.calls


def test_what_is_not_known_is_left_out():
    """Without a state a span has no attributes rather than empty ones."""
    spans = _Spans()
    follow("batch_start", spans, Position())
    assert [("begin", "training.batch", {})] == spans.calls
