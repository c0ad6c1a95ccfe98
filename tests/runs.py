"""What tests of the logger share: a trainer's state, and what a run recorded."""

from types import SimpleNamespace
from typing import Any

from otel_logger import OTelLogger, read_run


def trainer_state(name: str = "run", batch: int = 0, epoch: int = 0) -> Any:
    """Return what of Composer's state the logger reads."""
    timestamp = SimpleNamespace(batch=SimpleNamespace(value=batch), epoch=SimpleNamespace(value=epoch))
    return SimpleNamespace(run_name=name, timestamp=timestamp, dataloader_label="eval")


def points(log: OTelLogger) -> list[tuple[str, int | None, float]]:
    """Return the (key, step, value) of everything recorded, in order."""
    assert log.run_dir is not None
    return [(row["key"], row["step"], row["value"]) for row in read_run(log.run_dir).metrics]


def events(log: OTelLogger, name: str) -> list[dict[str, Any]]:
    """Return the log records of an event name."""
    assert log.run_dir is not None
    return [row for row in read_run(log.run_dir).events if row["name"] == name]
