"""Program logs under real Composer, which sets logging up after its loggers are made: heard, and shown as ever."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from otel_logger import conventions as names
from otel_logger import read_run

pytestmark = pytest.mark.composer

HERE = Path(__file__).resolve().parent

PROGRAM = """
import logging, sys, warnings
from composer import Callback
from otel_logger.composer import OTelLogger
from tiny import tiny_trainer

class Talker(Callback):
    def batch_end(self, state, logger):
        logging.getLogger("train.loop").info("batch %d done", state.timestamp.batch.value)

warnings.simplefilter("ignore")
logger = OTelLogger()
logging.getLogger("train").setLevel("INFO")
trainer = tiny_trainer([logger], callbacks=[Talker()], python_log_level="info")
trainer.fit()
logging.getLogger("train.loop").warning("done with %s", "it")
trainer.close()
"""

VARYING = re.compile(r"0x[0-9a-f]+|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+|rank\d+\[\d+\]|\d+\.\d+|/[^ ]*/otel_logs[^ ]*")
"""What is another text in each process: addresses, times, process ids, the run's folder."""


def run(folder: Path, **environ: str) -> list[str]:
    """Run the program in a folder; return the lines that it shows, but for those of otel_logger."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(HERE), "RUN_NAME": "tiny", **environ},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    lines = [VARYING.sub("#", line) for line in (done.stdout + done.stderr).splitlines()]
    return [line for line in lines if "otel_logger" not in line and "run tiny" not in line]


@pytest.mark.timeout(330)
def test_composers_logging_is_seen_and_stays_what_it_is(tmp_path: Path) -> None:
    """Every record has the step and the span that it was said in; what the user reads is what it was without."""
    plain = run(tmp_path / "plain")
    heard = run(tmp_path / "heard", OTEL_LOGGER_PROGRAM_LOGS="info")

    assert plain == heard
    assert any("batch 4 done" in line for line in plain), "Composer's own set-up of logging shows it"
    (folder,) = (tmp_path / "heard" / "otel_logs").glob("tiny-*")
    found = read_run(folder)
    said = [row for row in found.events if row["scope"] == "train.loop"]
    assert [*(f"batch {number} done" for number in (1, 2, 3, 4)), "done with it"] == [row["body"] for row in said]
    assert [1, 2, 3, 4, 4] == [row["attributes"].get(names.STEP) for row in said]
    spans = {row["span_id"]: row["name"] for row in found.spans}
    assert {names.SPAN_BATCH, names.SPAN_EPOCH} >= {spans[row["span_id"]] for row in said[:4]}
    assert any(row["scope"].startswith("composer.") for row in found.events)
