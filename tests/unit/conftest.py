"""Fixtures of the unit tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from otel_logger import OTelLogger


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., OTelLogger]:
    """Return a constructor of loggers in a folder of the test's own."""

    def construct(run_name: str | None = "run", run_id: str | None = None, **environ: str) -> OTelLogger:
        return OTelLogger(
            run_name=run_name, run_id=run_id, environ={"OTEL_LOGGER_DIR": str(tmp_path / "logs"), **environ}
        )

    return construct
