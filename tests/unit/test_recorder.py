"""What a call logs is on disk when it returns: every number, under its key, with the call's time and step."""

import logging
import math
import threading
from itertools import count

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_logger.latest import LatestValues
from otel_logger.recorder import SCHEMA_LIMIT, Recorder
from otel_logger.stamps import Stamper
from otel_logger.values import key_text
from otel_logger_exporters.journal import Journal
from otel_logger_exporters.journal_reader import JournalReader
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.records import Kind
from otel_logger_exporters.rows import Row, RowReader
from otel_logger_exporters.segments import is_begun, read_segment, segments_of
from otel_logger_exporters.signals import Signal
from tests.journals import disk_with, tending, touched

MS = 1_000_000
START = 1_700_000_000_000 * MS


class _Clock:
    """A clock that moves a second each time it is looked at."""

    def __init__(self):
        self._seconds = count()

    def time_ns(self):
        return START + next(self._seconds) * 1000 * MS

    def monotonic(self):
        return 0.0


class _Case:
    """A recorder over a real journal, and what can be read back of it."""

    def __init__(self, folder, *, exclude=(), segment_size=2**16, mapped=True, latest=None):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.clock = _Clock()
        self.ledger = Ledger(self.clock, logging.getLogger("test"))
        self.journal = Journal(
            folder, Signal.METRICS, bytes(16), clock=self.clock, mapped=mapped, segment_size=segment_size
        )
        self.tend()
        # The journal looks at the clock too, for its segments.
        self.recorder = Recorder(self.journal, Stamper(_Clock().time_ns), self.ledger, exclude=exclude, latest=latest)

    def tend(self):
        """Do what the background does."""
        self.journal.tend()

    def rows(self) -> list[Row]:
        """All rows, read segment by segment."""
        found = []
        self.tend()
        for _, path in segments_of(self.folder, Signal.METRICS):
            if is_begun(path):
                found += RowReader().rows(read_segment(path.read_bytes()).records)
        return found

    def values(self):
        """(key, step, value) of all that was recorded."""
        return [(k, row.step, v) for row in self.rows() for k, v in zip(row.keys, row.values, strict=True)]

    @property
    def stats(self):
        return self.ledger.stats(frozenset())


@pytest.fixture
def case(tmp_path):
    """A recorder of a folder of its own."""
    return _Case(tmp_path / "journal")


class Raising:
    """An object that is neither number nor text."""

    def __float__(self):
        raise RuntimeError("no")

    __str__ = __index__ = __float__


class _Device:
    type = "cuda"


class _Tensor:
    """A tensor on a device, which nobody may read."""

    device = _Device()

    def __init__(self, elements=1):
        self._elements = elements

    def numel(self):
        return self._elements

    def __float__(self):
        pytest.fail("the training waits for the device")

    __bool__ = __index__ = __int__ = item = tolist = __len__ = __iter__ = __float__


_Tensor.__module__, _Tensor.__name__ = "torch", "Tensor"


def test_a_call_of_floats_is_one_row(case):
    """The common call is a row with all its keys, its step and its time."""
    assert (True, None) == case.recorder.record({"loss": 0.5, "acc": math.inf}, 7)
    assert [Row(("loss", "acc"), (0.5, math.inf), START, 7)] == case.rows()
    assert 2 == case.stats.recorded["metrics"]


def test_calls_come_back_in_order_with_times_of_their_own(case):
    """Calls with one and with several sets of keys keep their order, times and steps, as steps repeat and go back."""
    calls = [({"a": 1.0}, 0), ({"a": 2.0, "b": 3}, 0), ({"a": 4.0}, 1), ({"b": 5.0, "a": 6.0}, 0), ({"a": 7}, None)]
    for metrics, step in calls:
        case.recorder.record(metrics, step)
    rows = case.rows()
    assert [(dict(zip(row.keys, row.values, strict=True)), row.step) for row in rows] == calls
    assert [row.time_ns for row in rows] == [START + n * 1000 * MS for n in range(5)]


BAD = {
    "str": "text",
    "none": None,
    "object": Raising(),
    "nested": {"a": 1.0, "b": {"c": 2}},
    "list": [1.0],
    "array": np.array([1.0, 2.0]),
    "complex": 1j,
}
GOOD = {
    "float": 0.5,
    "nan": math.nan,
    "inf": -math.inf,
    "bool": True,
    "int": 7,
    "big": 2**53 + 1,
    "bigger": 2**63 - 1,
    "huge": 2**64,
    "0-d": np.array(1.5),
    "1-element": np.array([[2]]),
    "numpy": np.float32(0.25),
    "": 1.0,
    "é" * 3: 2.0,
    "k" * 400: 3.0,
    7: 4.0,
    None: 5.0,
    "\ud800": 6.0,
}


def test_a_bad_value_costs_that_value_alone(case):
    """Of a dict with everything in it, the numbers arrive, and the rest is handed on as it is, with time and step."""
    carried, leftover = case.recorder.record({**GOOD, **BAD, "last": 8.0}, 3)
    assert carried
    expected = {
        "float": 0.5,
        "inf": -math.inf,
        "bool": 1.0,
        "int": 7.0,
        "big": 2**53 + 1,
        "bigger": 2**63 - 1,
        "huge": 2.0**64,
        "0-d": 1.5,
        "1-element": 2.0,
        "numpy": 0.25,
        "": 1.0,
        "ééé": 2.0,
        "k" * 400: 3.0,
        "7": 4.0,
        "None": 5.0,
        "\\ud800": 6.0,
        "last": 8.0,
    }
    (row,) = case.rows()
    found = dict(zip(row.keys, row.values, strict=True))
    assert math.isnan(found.pop("nan"))
    assert expected == found
    assert {int} == {type(found[key]) for key in ("big", "bigger")}
    assert BAD == leftover.others
    assert {} == leftover.device
    assert (row.time_ns, 3) == (leftover.time_ns, leftover.step)
    assert {"overflow": 1} == case.stats.adjusted
    assert {} == case.stats.dropped


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_bad_value_alone_is_no_row(case, bad):
    """A call without a number writes none, and says that there was none."""
    carried, leftover = case.recorder.record({"x": bad}, None)
    assert (False, None) == (carried, leftover.step)
    assert [] == case.rows()


def test_an_empty_call_is_nothing(case):
    """Composer logs an empty dict too."""
    assert (False, None) == case.recorder.record({}, 1)
    assert [] == case.rows()


def test_the_callers_dict_is_not_changed(case):
    """Every logger gets the same dict."""
    metrics = {**GOOD, **BAD}
    case.recorder.record(metrics, 1)
    assert list(metrics) == [*GOOD, *BAD]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 0),
        (-5, -5),
        (2**63 - 1, 2**63 - 1),
        (-(2**63) + 1, -(2**63) + 1),
        (np.int32(3), 3),
        (np.uint64(2**63 - 1), 2**63 - 1),
        (np.array(4), 4),
        (None, None),
    ],
    ids=repr,
)
def test_a_step_is_an_integer_of_64_bits(case, step, expected):
    """Python's and NumPy's integers are steps; None is none, and not counted."""
    case.recorder.record({"a": 1.0}, step)
    case.recorder.record({"a": 1}, step)
    assert [("a", expected, 1.0)] * 2 == case.values()
    assert {} == case.stats.adjusted


@pytest.mark.parametrize(
    "step",
    [
        True,
        1.0,
        "1",
        2**63,
        -(2**63),
        np.uint64(2**63),
        np.float32(1),
        np.array([1, 2]),
        Raising(),
        _Tensor(),
        type("Odd", (Raising,), {"__module__": "numpy"})(),
    ],
    ids=lambda step: type(step).__name__,
)
def test_another_step_is_none_and_counted(case, step):
    """What is no integer of 64 bits costs the step, not the value; a tensor's is not waited for."""
    assert (True, None) == case.recorder.record({"a": 1.0}, step)
    assert [("a", None, 1.0)] == case.values()
    assert {"step": 1} == case.stats.adjusted


def test_tensors_on_a_device_are_handed_on_unread(case):
    """One-element tensors on a device go to be copied, others to the log record, and nobody waits for either."""
    one, several = _Tensor(), _Tensor(2)
    carried, leftover = case.recorder.record({"loss": one, 3: _Tensor(), "vector": several, "lr": 0.5}, 9)
    assert carried
    assert [("lr", 9, 0.5)] == case.values()
    assert ["loss", "3"] == list(leftover.device)
    assert leftover.device["loss"] is one
    assert {"vector": several} == leftover.others
    carried, leftover = case.recorder.record({"loss": one}, 9)
    assert (True, {}) == (carried, leftover.others)


def test_late_numbers_have_the_time_and_step_of_their_call(case):
    """What was read from a device later stands in a row of the earlier time."""
    case.recorder.record({"a": 1.0}, 1)
    case.recorder.record_late({"b": 2.0, "c": 2**53 + 1}, START - 5 * MS, None)
    assert [Row(("a",), (1.0,), START, 1), Row(("b", "c"), (2.0, 2**53 + 1), START - 5 * MS, None)] == case.rows()


def test_the_last_step_is_that_of_the_last_call(case):
    """Not the one of an earlier call, whose values were read from a device since; nor does it need the disk."""
    case.recorder.record({"a": 1.0}, 10)
    last_ns = case.recorder.last_step_ns
    case.recorder.record_late({"b": 2.0}, last_ns - 5 * MS, 9)
    assert (10, last_ns) == (case.recorder.last_step, case.recorder.last_step_ns)
    case.journal.close()
    case.recorder.record({"a": 1.0}, 11)
    assert 11 == case.recorder.last_step


def test_excluded_keys_are_counted_and_nothing_else(tmp_path):
    """Keys that match a pattern are neither recorded nor handed on; the others are as without patterns."""
    case = _Case(tmp_path / "journal", exclude=("l2_norm/*", "*/Max", "7"))
    carried, leftover = case.recorder.record(
        {"l2_norm/a": 1.0, "loss": 2.0, "x/Max": "text", "x/max": 3.0, 7: 4.0, "l2_norm/t": _Tensor()}, 1
    )
    assert (True, None) == (carried, leftover)
    assert [("loss", 1, 2.0), ("x/max", 1, 3.0)] == case.values()
    assert {"excluded": 4} == case.stats.adjusted
    assert (False, None) == case.recorder.record({"l2_norm/a": 1.0}, 1)


@pytest.mark.parametrize(
    ("one", "other"),
    [({1: 1.0}, {True: 2.0}), ({1: 1.0}, {"1": 2.0}), ({1.0: 1.0}, {1: 2.0}), ({"a": 1.0}, {np.str_("a"): 2.0})],
)
def test_equal_keys_of_other_types_keep_their_own_text(case, one, other):
    """Keys that are equal, as 1 and True, are not taken for one another."""
    for metrics in (one, other, one):
        case.recorder.record(metrics, 0)
    assert [(str(key), 0, value) for m in (one, other, one) for key, value in m.items()] == case.values()


def test_two_keys_of_one_text_in_one_call(case):
    """Both values are recorded under the text they share."""
    case.recorder.record({1: 1.0, "1": 2.0}, 0)
    assert [("1", 0, 1.0), ("1", 0, 2.0)] == case.values()


def test_a_key_whose_kind_changes(case):
    """A column that is a float at one step and a large integer at the next is read as what it was."""
    values = [1.0, 2**53 + 1, 3.0, 2**53 + 3]
    for value in values:
        case.recorder.record({"n": value}, 0)
    assert [("n", 0, value) for value in values] == case.values()
    assert [float, int, float, int] == [type(value) for _, _, value in case.values()]


def test_keys_that_change_at_every_call_hold_no_memory(case):
    """However many sets of keys there are, a bounded number is remembered, and all are read back."""
    calls = 2 * SCHEMA_LIMIT + 10
    for number in range(calls):
        case.recorder.record({f"k{number}": float(number)}, number)
        case.recorder.record({"same": 0.5}, number)
    assert [v for n in range(calls) for v in ((f"k{n}", n, float(n)), ("same", n, 0.5))] == case.values()
    assert len(case.recorder._schemas) <= SCHEMA_LIMIT


def test_schemas_are_written_once_per_segment(tmp_path):
    """The same keys at each step cost one schema in each segment, which can be read alone."""
    case = _Case(tmp_path / "journal", segment_size=4096)
    for number in range(500):
        case.recorder.record({"a": 1.0, "b": float(number)}, number)
    case.tend()
    segments = [read_segment(p.read_bytes()) for _, p in segments_of(case.folder, Signal.METRICS) if is_begun(p)]
    assert len(segments) > 3
    assert {1} == {sum(record.kind == Kind.SCHEMA for record in segment.records) for segment in segments}
    assert list(range(500)) == [row.step for row in case.rows()]


@pytest.mark.parametrize("metrics", [{"k" * 10_000: 1.0}, {f"key {n}": float(n) for n in range(1000)}])
def test_keys_larger_than_a_segment(tmp_path, metrics):
    """A set of keys that fills a segment alone is recorded, and the calls after it too."""
    case = _Case(tmp_path / "journal", segment_size=1024)
    for step in range(3):
        case.recorder.record(metrics, step)
        case.recorder.record({"a": 0.5}, step)
    expected = [v for step in range(3) for v in (*((k, step, v) for k, v in metrics.items()), ("a", step, 0.5))]
    assert expected == case.values()
    assert len(segments_of(case.folder, Signal.METRICS)) <= 10


def test_threads_do_not_mix(tmp_path):
    """Calls of several threads are whole rows, each thread's in its order, all in the order of their times."""
    case = _Case(tmp_path / "journal", segment_size=4096)
    calls = 300

    def log(thread):
        for number in range(calls):
            keys = ("a", "b") if number % 3 else (f"t{thread}", "a")
            case.recorder.record(dict.fromkeys(keys, float(thread)), number)

    threads = [threading.Thread(target=log, args=(thread,)) for thread in range(4)]
    with tending(case.journal):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rows = case.rows()
    assert 4 * calls == len(rows)
    assert [row.time_ns for row in rows] == sorted({row.time_ns for row in rows})
    assert {1} == {len(set(row.values)) for row in rows}
    for thread in range(4):
        assert list(range(calls)) == [row.step for row in rows if row.values[0] == thread]


def test_a_reader_beside_it_reads_the_same(case):
    """What the sender reads while it is written is what was recorded."""
    reader, found = JournalReader(case.folder, Signal.METRICS), []
    for number in range(50):
        case.recorder.record({f"k{number % 3}": number}, number)
        if number % 7 == 0:
            while (batch := reader.next_batch(3)) is not None:
                found += batch.contents
                reader.acknowledge(batch)
    while (batch := reader.next_batch(3)) is not None:
        found += batch.contents
        reader.acknowledge(batch)
    assert [(f"k{n % 3}", n, float(n)) for n in range(50)] == [(row.keys[0], row.step, row.values[0]) for row in found]


def test_what_the_disk_does_not_take_is_counted(tmp_path, caplog):
    """Once memory is full too, it costs the values, counted and told, and no exception; later ones are kept again."""
    case = _Case(tmp_path / "journal", segment_size=1024)
    case.journal._memory_size = 2000
    with disk_with(10):
        for step in range(100):
            assert (True, None) == case.recorder.record({"a": 1.0, "b": float(step)}, step)
        with pytest.raises(OSError, match="File too large"):
            case.tend()
        assert (True, None) == case.recorder.record({"a": 1}, 1)
    recorded = case.stats.recorded["metrics"]
    assert 201 == recorded + case.stats.dropped["disk"]
    assert "Metrics are lost, the disk does not take them" in caplog.text
    assert "File too large" in case.stats.last_error
    case.tend()
    case.recorder.record({"a": 1.0}, 100)
    found = case.values()
    assert recorded + 1 == len(found)
    assert [("a", 100, 1.0)] == found[-1:]
    assert list(range(recorded // 2)) == [step for key, step, _ in found if key == "b"]


def test_what_is_beyond_the_bound_of_unsent_data_is_counted_apart(case, caplog):
    """The reason is told as the journal knows it."""
    case.journal.refusal = "5 bytes wait for the endpoint"
    assert (True, None) == case.recorder.record({"a": 1.0, "b": 2.0}, 1)
    case.journal.refusal = None
    case.recorder.record({"a": 3.0}, 2)
    assert {"limit": 2} == case.stats.dropped
    assert ["Metrics are lost: 5 bytes wait for the endpoint (2 so far)"] == caplog.messages
    assert [("a", 2, 3.0)] == case.values()


def test_ten_thousand_keys(tmp_path):
    """A call of so many is one row, in a segment that its schema and itself may fill alone."""
    case = _Case(tmp_path / "journal")
    metrics = {f"layer.{number}.weight.norm": float(number) for number in range(10_000)}
    for step in range(3):
        case.recorder.record(metrics, step)
    rows = case.rows()
    assert [(tuple(metrics), tuple(metrics.values()), step) for step in range(3)] == [
        (row.keys, row.values, row.step) for row in rows
    ]
    assert 30_000 == case.stats.recorded["metrics"]


def test_recording_touches_no_disk(case):
    """Neither for new keys nor for ints nor for what is no number: the caller pays for memory alone."""
    case.recorder.record({"a": 1.0}, 1)
    calls = [{"a": 1.0}, {"b": 2}, {"c": np.float32(1)}, {f"k{n}": 1.0 for n in range(100)}, {"a": "text"}]
    assert [] == touched(lambda: [case.recorder.record(metrics, 7) for metrics in calls])


@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "plain"])
def test_rows_of_changing_keys_are_read_whatever_waits_where(tmp_path, mapped):
    """A schema is in the same segment as each of its rows, where these wait in memory and where segments end too."""
    case = _Case(tmp_path / "journal", segment_size=512, mapped=mapped)
    expected = []
    for number in range(300):
        metrics = {"a": float(number), f"k{number % 7}": number} if number % 5 else {"a": number}
        case.recorder.record(metrics, number)
        expected += [(key, number, value) for key, value in metrics.items()]
        if number % 11 == 0:
            case.tend()
    assert expected == case.values()


def test_a_signal_handler_may_log_in_the_middle(case):
    """A call that interrupts another on the same thread does not wait for it."""
    with case.recorder._lock:
        case.recorder.record({"a": 1.0}, 1)
    assert [("a", 1, 1.0)] == case.values()


number = st.floats(allow_nan=False) | st.integers(-(2**63), 2**63 - 1) | st.booleans()
junk = st.none() | st.text() | st.lists(st.integers(), max_size=2) | st.sampled_from(list(BAD.values()))
keys = st.text(st.characters(), max_size=8) | st.integers(-3, 3) | st.none()
calls = st.lists(
    st.tuples(st.dictionaries(keys, number | junk, max_size=5), st.none() | st.integers(-9, 9)), max_size=8
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls)
def test_whatever_is_logged_is_read_back(tmp_path_factory, made):
    """Any calls: their numbers come back exactly, in order; the rest is in what is handed on."""
    case = _Case(tmp_path_factory.mktemp("calls") / "journal", segment_size=256)
    expected = []
    for metrics, step in made:
        carried, leftover = case.recorder.record(metrics, step)
        is_number = {key: isinstance(value, (int, float)) for key, value in metrics.items()}
        expected += [(key_text(key), step, metrics[key]) for key, found in is_number.items() if found]
        assert carried is any(is_number.values())
        others = {key_text(key) for key, found in is_number.items() if not found}
        assert others == set(leftover.others if leftover is not None else ())
    assert expected == case.values()


def test_what_is_recorded_is_shown_as_the_latest(tmp_path):
    """Under its text, with its step: what came late too, unless newer is there; what is excluded is not."""
    latest = LatestValues()
    case = _Case(tmp_path / "journal", exclude=("time/*",), latest=latest)
    case.recorder.record({"loss": 0.5, 1: 7, "time/x": 1.0, "text": "no number"}, 3)
    case.recorder.record({"loss": 0.25}, 4)
    case.recorder.record_late({"loss": 9.0, "late": 0.125}, START, 1)
    shown = {
        (measurement.instrument.name, attributes[0][1]): value
        for measurement in latest.measure()
        for attributes, value in measurement.points.items()
    }

    assert {
        ("loss", "loss"): 0.25,
        ("training.step", "loss"): 4,
        ("m_1", "1"): 7,
        ("training.step", "1"): 3,
        ("late", "late"): 0.125,
        ("training.step", "late"): 1,
    } == shown


def test_the_latest_values_are_shown_also_where_the_disk_takes_none(tmp_path):
    """Who watches a run sees it go on; the loss is counted."""
    latest = LatestValues()
    case = _Case(tmp_path / "journal", latest=latest)
    case.journal.refusal = "the bound is reached"
    case.recorder.record({"loss": 0.5}, 3)

    assert 1 == sum(case.stats.dropped.values())
    assert {0.5, 3} == {value for measurement in latest.measure() for value in measurement.points.values()}
