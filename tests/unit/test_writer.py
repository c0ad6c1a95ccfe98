"""The writer: when the resource is bound, and what waits for it."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_logger.launch import read_launch
from otel_logger.reading import read_run
from otel_logger.trainer import Position
from otel_logger.writer import LONGEST_UNBOUND, Writer
from otel_logger_exporters.ledger import Ledger


class FakeClock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0
        self.elapsed = 0.0

    def time_ns(self) -> int:
        """Return the time set."""
        return int(self.now * 1e9)

    def monotonic(self) -> float:
        """Return the seconds set."""
        return self.elapsed


@pytest.fixture
def clock() -> FakeClock:
    """Return a clock of the test's."""
    return FakeClock()


@pytest.fixture
def make(tmp_path: Path, clock: FakeClock) -> Callable[[], Writer]:
    """Return a constructor of writers."""

    def construct() -> Writer:
        launch = read_launch({"OTEL_LOGGER_DIR": str(tmp_path)}, None)
        ledger = Ledger(clock, logging.getLogger("otel_logger"))
        return Writer(launch, clock, ledger, run_name=None, run_id=None, position=Position())

    return construct


def test_the_resource_is_bound_after_ten_minutes_of_set_up(make: Callable[[], Writer], clock: FakeClock) -> None:
    """A set-up that hangs does not keep its spans to itself for ever."""
    writer = make()
    writer.begin("slow")
    clock.elapsed += LONGEST_UNBOUND - 1
    writer.outbox.flush(5.0)
    before = writer.identity
    clock.elapsed += 1
    writer.outbox.flush(5.0)
    after = writer.identity
    writer.close(5.0)

    assert before is None
    assert after is not None
    assert "slow" == after.run_name
    assert ["training.run"] == read_run(writer.folder).spans["name"]


def test_an_unused_writer_is_not_bound_by_time(make: Callable[[], Writer], clock: FakeClock) -> None:
    """A logger that only loads checkpoints becomes no run, however long it lives."""
    writer = make()
    clock.elapsed += 2 * LONGEST_UNBOUND
    writer.outbox.flush(5.0)
    writer.close(5.0)

    assert writer.identity is None
    assert not writer.folder.exists()


def test_what_is_recorded_stays_whatever_breaks_off_the_first_call(
    make: Callable[[], Writer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt while the first call looks for earlier runs leaves its row on disk: the folder is not unused."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    writer = make()
    assert not writer.is_used
    with monkeypatch.context() as patch:
        patch.setattr(writer._place, "known", interrupt)
        with pytest.raises(KeyboardInterrupt):
            writer.log_metrics({"loss": 1.0}, 1)
    assert writer.is_used
    writer.close(5.0)

    assert [1.0] == read_run(writer.folder).metrics["value"]


def test_times_never_repeat_while_the_clock_stands(make: Callable[[], Writer], clock: FakeClock) -> None:
    """Calls within one millisecond are a millisecond apart, so that Prometheus keeps each."""
    writer = make()
    for step in range(3):
        writer.log_metrics({"loss": float(step)}, step)
    writer.close(5.0)

    start = clock.time_ns() // 1_000_000 * 1_000_000
    assert [start, start + 1_000_000, start + 2_000_000] == read_run(writer.folder).metrics["time"]
