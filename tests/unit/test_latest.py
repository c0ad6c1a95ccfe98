"""Of each key the last value is shown, with its step, for as long as there are not too many."""

import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from otel_logger.latest import MOST_ROWS, LatestValues
from otel_logger_exporters.measurements import Instrument, Measurement
from otel_logger_exporters.rows import NO_STEP


def shown(latest):
    """Return value and step by key."""
    values, steps = {}, {}
    for measurement in latest.measure():
        found = {attributes[0][1]: value for attributes, value in measurement.points.items()}
        (steps if measurement.instrument.name == "training.step" else values).update(found)
    return {key: (value, steps.get(key)) for key, value in values.items()}


def test_the_last_value_of_each_key_is_shown_with_its_own_step():
    """Keys of other calls keep theirs."""
    latest = LatestValues()
    latest.note(("loss", "lr"), 1, 1, (0.5, 0.1))
    latest.note(("loss",), 2, 2, (0.25,))
    latest.note(("eval",), 3, NO_STEP, (7,))

    assert {"loss": (0.25, 2), "lr": (0.1, 1), "eval": (7, None)} == shown(latest)


def test_values_have_the_names_and_attributes_by_which_they_are_sent():
    """Keys that get one name are of one metric."""
    latest = LatestValues()
    latest.note(("a b", "a?b", "up"), 1, NO_STEP, (1.0, 2.0, 3.0))

    assert [
        Measurement(
            Instrument("a_b"),
            {(("training.metric.key", "a b"),): 1.0, (("training.metric.key", "a?b"),): 2.0},
        ),
        Measurement(Instrument("user.up"), {(("training.metric.key", "up"),): 3.0}),
    ] == latest.measure()


def test_a_value_that_was_read_late_does_not_replace_a_newer_one():
    """Values of a device come after those of later steps."""
    latest = LatestValues()
    latest.note(("loss", "lr"), 5, 5, (0.5, 0.1))
    latest.note(("loss", "acc"), 3, 3, (9.0, 0.7))
    latest.note(("loss", "lr"), 4, 4, (8.0, 8.0))

    assert {"loss": (0.5, 5), "lr": (0.1, 5), "acc": (0.7, 3)} == shown(latest)


def test_steps_are_left_out_where_they_are_not_sent_either():
    """As OTEL_LOGGER_STEP_SERIES has it."""
    latest = LatestValues(with_steps=False)
    latest.note(("loss",), 1, 1, (0.5,))

    assert {"loss": (0.5, None)} == shown(latest)


def test_of_too_many_keys_the_newest_are_shown():
    """Keys that are made up anew each time fill no memory; that some are forgotten is told."""
    told = []
    latest = LatestValues(most_keys=10, on_forgotten=told.append)
    for number in range(100):
        latest.note((f"key {number}",), number, number, (float(number),))

    assert {f"key {number}": (float(number), number) for number in range(90, 100)} == shown(latest)
    assert sum(told) > 0
    assert latest._size <= 20


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sets(st.sampled_from("abcd"), min_size=1), st.integers(0, 9)), max_size=40))
def test_what_is_shown_is_what_a_dict_would_hold(calls):
    """However calls are held: the value of the latest time, of two at one time the later call's."""
    latest, expected = LatestValues(), {}
    for number, (keys, time_ns) in enumerate(calls):
        latest.note(tuple(sorted(keys)), time_ns, number, (float(number),) * len(keys))
        for key in keys:
            if key not in expected or expected[key][0] <= time_ns:
                expected[key] = time_ns, (float(number), number)
        if number % 7 == 6:
            latest._take_apart()

    actual = shown(latest)
    assert actual.keys() == expected.keys()
    # Two sets of keys of one time are in the order of their first use, which nothing depends on.
    assert {key: time for key, (time, _) in expected.items()} == {
        key: calls[step][1] for key, (_, step) in actual.items()
    }


def test_a_reader_meets_a_writer():
    """Each look shows a key that has been there from the beginning, also while what is held is taken apart."""
    latest = LatestValues()
    latest.note(("first",), 0, 0, (0.0,))
    done = threading.Event()

    def write():
        for number in range(1, 8 * MOST_ROWS):
            latest.note((f"key {number % 700}",), number, number, (1.0,))
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    looks = 0
    while not done.is_set() or not looks:
        assert (0.0, 0) == shown(latest)["first"]
        looks += 1
    writer.join()
