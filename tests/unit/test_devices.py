"""Values on a device are read when their copies are there, in order, and none is lost in silence."""

import logging
from itertools import count

import pytest

from otel_logger import devices
from otel_logger.devices import DeviceReads
from otel_logger_exporters.ledger import Ledger


class _Clock:
    """A clock that moves ten milliseconds each time it is looked at."""

    def __init__(self):
        self._looks = count()

    def time_ns(self):
        return 0

    def monotonic(self):
        return next(self._looks) * 0.01


class _Host:
    type = "cpu"


class _Tensor:
    """A one-element tensor: on its device until its copy is read on the host."""

    def __init__(self, value):
        self.value = value
        self.device = _Host()
        self.shape, self.dtype = (), "torch.float32"

    def numel(self):
        return 1

    def is_complex(self):
        return False

    def detach(self):
        return self

    def item(self):
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


_Tensor.__module__, _Tensor.__name__ = "torch", "Tensor"


class _Engine:
    """Copies that are there when the test says so; reading one before fails the test."""

    def __init__(self):
        self.started = []
        self.ready = set()
        self.error = None

    def start(self, tensors):
        if self.error is not None:
            raise self.error
        number = len(self.started)
        self.started.append(tensors)
        copies = [_Copy(tensor.value, self, number) for tensor in tensors]
        return lambda: self.is_ready(number), copies

    def is_ready(self, number):
        if "failed" in self.ready:
            raise RuntimeError("device-side assert")
        return number in self.ready


class _Copy(_Tensor):
    def __init__(self, value, engine, number):
        super().__init__(value)
        self._engine, self._number = engine, number

    def item(self):
        assert "failed" in self._engine.ready or self._number in self._engine.ready, "read before it was there"
        return super().item()


class _Case:
    def __init__(self):
        self.engine, self.delivered = _Engine(), []
        self.ledger = Ledger(_Clock(), logging.getLogger("test"))
        self.reads = DeviceReads(lambda *call: self.delivered.append(call), self.ledger, self.engine)

    @property
    def dropped(self):
        return self.ledger.stats(frozenset()).dropped


@pytest.fixture
def case():
    """Reads from a device that the test commands."""
    return _Case()


def test_nothing_is_read_before_its_copy_is_there(case):
    """A call waits until its copies are there, however often it is asked, and is then handed on once."""
    case.reads.add({"loss": _Tensor(0.5), "acc": _Tensor(1)}, 10, 3)
    for _ in range(3):
        case.reads.poll()
    assert ([], 1) == (case.delivered, len(case.reads))
    case.engine.ready.add(0)
    for _ in range(3):
        case.reads.poll()
    assert ([({"loss": 0.5, "acc": 1.0}, 10, 3)], 0) == (case.delivered, len(case.reads))


def test_calls_are_handed_on_in_order(case):
    """A call whose copies are there waits for those before it, which may be on another device."""
    for number in range(4):
        case.reads.add({"a": _Tensor(number)}, number, None)
    case.engine.ready |= {1, 2}
    case.reads.poll()
    assert [] == case.delivered
    case.engine.ready.add(0)
    case.reads.poll()
    assert [0, 1, 2] == [time for _, time, _ in case.delivered]
    case.engine.ready.add(3)
    case.reads.poll()
    assert [({"a": float(n)}, n, None) for n in range(4)] == case.delivered


def test_a_copy_that_cannot_be_started_is_counted(case, caplog):
    """A device that refuses costs its values, counted and told, and no exception."""
    case.engine.error = RuntimeError("out of memory")
    case.reads.add({"a": _Tensor(1), "b": _Tensor(2)}, 0, 0)
    assert ({"device": 2}, 0) == (case.dropped, len(case.reads))
    assert "reading them from a device failed: RuntimeError('out of memory')" in caplog.text


def test_a_value_that_cannot_be_read_costs_itself(case, caplog):
    """One value that fails is counted; its neighbours and the next calls arrive."""
    case.reads.add({"a": _Tensor(1), "bad": _Tensor(RuntimeError("nan check")), "text": _Tensor("x")}, 0, 0)
    case.reads.add({"bad": _Tensor(RuntimeError("x"))}, 1, 0)
    case.reads.add({"b": _Tensor(2)}, 2, 0)
    case.engine.ready |= {0, 1, 2}
    case.reads.poll()
    assert [({"a": 1.0}, 0, 0), ({"b": 2.0}, 2, 0)] == case.delivered
    assert {"device": 3} == case.dropped
    assert "reading it from its device failed" in caplog.text


def test_a_device_that_has_failed_holds_nobody_up(case):
    """When asking whether a copy is there raises, its values are read, and say themselves whether they are there."""
    case.reads.add({"a": _Tensor(1), "bad": _Tensor(RuntimeError("lost"))}, 0, 0)
    case.engine.ready.add("failed")
    case.reads.poll()
    assert ([({"a": 1.0}, 0, 0)], {"device": 1}) == (case.delivered, case.dropped)


def test_a_device_that_never_finishes_fills_no_memory(case, monkeypatch):
    """Beyond a number of waiting calls the newest are lost and counted, and not even started."""
    monkeypatch.setattr(devices, "PENDING_LIMIT", 3)
    for number in range(5):
        case.reads.add({"a": _Tensor(number), "b": _Tensor(number)}, number, None)
    assert (3, 3, {"device": 4}) == (len(case.reads), len(case.engine.started), case.dropped)
    case.engine.ready |= {0, 1, 2}
    case.reads.poll()
    case.reads.add({"a": _Tensor(9)}, 9, None)
    assert [0, 1, 2] == [time for _, time, _ in case.delivered]
    assert 1 == len(case.reads)


def test_the_end_waits_for_what_is_under_way(case):
    """At the end, copies that arrive within the time are handed on."""
    case.reads.add({"a": _Tensor(1)}, 0, None)
    asked = case.engine.is_ready
    left = iter(range(3))

    def is_ready(number):
        if next(left, None) is None:
            case.engine.ready.add(number)
        return asked(number)

    case.engine.is_ready = is_ready
    case.reads.finish(1.0, _Clock())
    assert ([({"a": 1.0}, 0, None)], {}) == (case.delivered, case.dropped)


def test_what_does_not_arrive_by_the_end_is_counted(case, caplog):
    """At the end, copies that a device does not finish are lost, counted and told; what was there is handed on."""
    for number in range(3):
        case.reads.add({"a": _Tensor(1), "b": _Tensor(2)}, number, None)
    case.engine.ready.add(0)
    case.reads.finish(0.05, _Clock())
    assert ([0], {"device": 4}, 0) == ([time for _, time, _ in case.delivered], case.dropped, len(case.reads))
    assert "the device has not finished their copies at the end" in caplog.text


def test_no_time_is_enough_for_what_is_there(case):
    """A deadline that has passed still hands on what is ready."""
    case.reads.add({"a": _Tensor(1)}, 0, None)
    case.engine.ready.add(0)
    case.reads.finish(0.0, _Clock())
    assert ([({"a": 1.0}, 0, None)], {}) == (case.delivered, case.dropped)
