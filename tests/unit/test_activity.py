"""The activity: phases add up to the time that has passed, and the state is what a person would say."""

import itertools
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given, settings
from hypothesis import strategies as st

from otel_logger.activity import CHECKPOINT_START, PHASES, STATES, Activity

EVENTS = (
    *("fit_start", "epoch_start", "before_dataloader", "after_dataloader", "batch_start", "batch_end", "epoch_end"),
    *("fit_end", "eval_start", "eval_end", "predict_start", "predict_end", CHECKPOINT_START, "batch_checkpoint"),
    *("epoch_checkpoint", "iteration_checkpoint", "before_forward", "no such event"),
)


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        """Return the seconds of the clock."""
        return self.now

    def time_ns(self) -> int:
        """Return the time in nanoseconds."""
        return round(self.now * 1e9)


def follow(events: list[tuple[str, float]]) -> tuple[Activity, Clock, list[str]]:
    """Follow events, each with the seconds until the next; return also the state after each."""
    clock = Clock()
    activity = Activity(clock)
    states = []
    for event, seconds in events:
        activity.follow(event)
        states.append(activity.state)
        clock.now += seconds
    return activity, clock, states


def test_a_fit_is_divided_into_its_phases() -> None:
    """Waiting for data, computing, evaluating and saving are told apart, and the rest is `other`."""
    fit = [("fit_start", 1.0), ("epoch_start", 1.0), ("before_dataloader", 2.0), ("after_dataloader", 0.5)]
    fit += [("batch_start", 4.0), ("batch_end", 0.25), ("eval_start", 8.0), ("eval_end", 0.25)]
    fit += [(CHECKPOINT_START, 16.0), ("batch_checkpoint", 1.0), ("fit_end", 3.0)]
    activity, _, _ = follow(fit)
    assert {"data": 2.0, "compute": 4.0, "eval": 8.0, "checkpoint": 16.0, "other": 7.0} == activity.seconds()


def test_the_state_follows_the_fit() -> None:
    """A run starts, trains, evaluates, saves, and is back where it was before each."""
    _, _, states = follow(
        [
            *(("eval_start", 1.0), ("eval_end", 1.0), ("fit_start", 1.0), ("batch_start", 1.0), ("batch_end", 1.0)),
            *(("eval_start", 1.0), ("eval_end", 1.0), (CHECKPOINT_START, 1.0), ("batch_checkpoint", 1.0)),
            *(("fit_end", 1.0), ("predict_start", 1.0), ("predict_end", 1.0)),
        ]
    )
    assert [
        *("evaluating", "starting", "training", "training", "training"),
        *("evaluating", "training", "checkpointing", "training"),
        *("starting", "evaluating", "starting"),
    ] == states


def test_an_end_that_a_trainer_skips_is_made_by_the_next_event() -> None:
    """A checkpoint without its event, and a data loader that has no more, last until something else begins."""
    activity, _, states = follow([("fit_start", 1.0), (CHECKPOINT_START, 2.0), ("before_dataloader", 4.0)])
    activity.follow("epoch_end")
    assert "training" == states[-1]
    assert {"data": 4.0, "compute": 0.0, "eval": 0.0, "checkpoint": 2.0, "other": 1.0} == activity.seconds()


def test_loading_a_checkpoint_is_over_when_it_is_loaded() -> None:
    """A trainer may ask for the state before it loads into it; the time until the fit is no checkpoint's."""
    activity, _, states = follow([(CHECKPOINT_START, 1.0), ("after_load", 5.0), ("fit_start", 1.0)])
    assert ["checkpointing", "starting", "training"] == states
    assert 1.0 == activity.seconds()["checkpoint"]


def test_time_grows_in_the_present_phase_while_nothing_happens() -> None:
    """A training that hangs in its data loader is seen to: what has no end yet counts."""
    activity, clock, _ = follow([("fit_start", 0.0), ("before_dataloader", 60.0)])
    assert 60.0 == activity.seconds()["data"]
    clock.now += 30.0
    assert 90.0 == activity.seconds()["data"]


def test_a_program_without_a_trainer_trains_once_it_logs() -> None:
    """There is no event that says so."""
    activity = Activity(Clock())
    assert "starting" == activity.state
    activity.note_training()
    assert "training" == activity.state


def test_blocks_of_a_phase_nest() -> None:
    """An evaluation with a data loader of its own goes on after it."""
    clock = Clock()
    activity = Activity(clock)
    activity.note_training()
    leave_eval = activity.enter("eval")
    clock.now += 1.0
    leave_data = activity.enter("data")
    clock.now += 2.0
    leave_data()
    leave_data()
    clock.now += 4.0
    assert "evaluating" == activity.state
    leave_eval()
    clock.now += 8.0
    assert "training" == activity.state
    assert {"data": 2.0, "compute": 0.0, "eval": 5.0, "checkpoint": 0.0, "other": 8.0} == activity.seconds()


def test_a_block_of_another_thread_passes_beside_the_training() -> None:
    """What a background thread loads is not what the training waits for."""
    clock = Clock()
    activity = Activity(clock)
    leave = activity.enter("compute")
    with ThreadPoolExecutor() as pool:
        leave_beside = pool.submit(activity.enter, "data").result()
    clock.now += 3.0
    leave_beside()
    clock.now += 1.0
    leave()
    assert {"data": 0.0, "compute": 4.0, "eval": 0.0, "checkpoint": 0.0, "other": 0.0} == activity.seconds()


def test_the_outcome_is_the_last_state() -> None:
    """After the end nothing counts, and no event makes the run live again."""
    activity, clock, _ = follow([("fit_start", 1.0), ("batch_start", 2.0)])
    activity.end("failed")
    activity.follow("eval_start")
    clock.now += 50.0
    activity.follow("eval_end")
    assert "failed" == activity.state
    assert {"data": 0.0, "compute": 2.0, "eval": 0.0, "checkpoint": 0.0, "other": 1.0} == activity.seconds()


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 100)), max_size=40))
def test_phases_add_up_to_the_time_that_has_passed(events: list[tuple[str, int]]) -> None:
    """Whatever the order of events, no second is lost or counted twice, no phase shrinks, and states are known ones."""
    clock = Clock()
    activity = Activity(clock)
    seen = [activity.seconds()]
    for event, seconds in events:
        activity.follow(event)
        clock.now += seconds
        seen.append(activity.seconds())
        assert activity.state in STATES
    assert clock.now - 100.0 == sum(seen[-1].values())
    assert all(before[phase] <= after[phase] for before, after in itertools.pairwise(seen) for phase in PHASES)
