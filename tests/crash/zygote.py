"""A process that forks children which train, or sync, and kill themselves when a chosen line of ours is reached.

Reads one JSON object per line (see `Case`) and answers each with the child's exit status as `os.waitpid` gives it. All
is imported before the first fork, so that a child lives for some tens of milliseconds.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import otel_logger
import otel_logger_exporters
from otel_logger import OTelLogger
from otel_logger.sync_command import run_sync
from otel_logger_exporters import outbox
from otel_logger_exporters.journal import Journal
from otel_logger_exporters.signals import Signal
from tests.crash.plan import FLUSHES, LATEST, LOSSES, SPANS, STEPS, TRACES, UPLOADS, content, once

MODULES = ("journal", "segment_files", "journal_reader", "lane", "outbox", "adoption")
"""Those of otel_logger_exporters in which children die: from a record's way into a segment to its leaving it."""

EXPORTERS, LOGGER = otel_logger_exporters.__path__[0], otel_logger.__path__[0]

TARGETS = {str(Path(EXPORTERS) / f"{module}.py"): module for module in MODULES}

STORING = (
    *((EXPORTERS, module) for module in ("blob_files", "consignments", "courier", "file_store", "postscript")),
    *((LOGGER, module) for module in ("delivery", "deposits", "leftovers", "posthumous", "staging")),
)
"""Those that a file passes through from the call that uploads it to the end of what waits of it."""

STORING_TARGETS = {str(Path(folder) / f"{module}.py"): module for folder, module in STORING}

SEGMENT_SIZE = 2048
"""Small, so that a few records make segments begin, end, be sealed and be trimmed."""


class Tracer:
    """Counts the lines that are reached, or kills the process when one has been reached a number of times."""

    def __init__(self, kill: tuple[str, int, int] | None, targets: dict[str, str]) -> None:
        self.reached: Counter[tuple[str, int]] = Counter()
        self._kill = kill
        self._targets = targets

    def install(self) -> None:
        """Watch all threads from here on."""
        threading.settrace(self._enter)
        sys.settrace(self._enter)

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._line if frame.f_code.co_filename in self._targets else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            place = self._targets[frame.f_code.co_filename], frame.f_lineno
            self.reached[place] += 1
            if self._kill is not None and (*place, self.reached[place]) == self._kill:
                os.kill(os.getpid(), signal.SIGKILL)
        return self._line


def train(environ: dict[str, str], accepted: int, *, dies: bool) -> None:
    """Record the plan, and tell each record when the call that recorded it has returned; close the logger or die."""
    outbox.Journal = functools.partial(Journal, segment_size=SEGMENT_SIZE)  # type: ignore[misc,assignment]
    log = OTelLogger(run_name="crash", environ=environ)
    for step in range(STEPS):
        log.log_metrics({"loss": LOSSES[step]}, step=step)
        told(log, accepted, f"metric {step}")
        if step in TRACES:
            log.log_traces({f"trace {step}": "x" * 100})
            told(log, accepted, f"trace {step}")
        if step in SPANS:
            with log.span(f"span {step}"):
                pass
            told(log, accepted, f"span {step}")
        if step in FLUSHES:
            log.flush(5.0)
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    log.close()


def store(environ: dict[str, str], accepted: int, *, dies: bool) -> None:
    """Upload files, one name again and again, and tell each when its call has returned; close the logger or die."""
    log = OTelLogger(run_name="crash", environ=environ)
    log.log_table(["a"], [[1]], name="table")
    source = Path(environ["OTEL_LOGGER_DIR"]).parent / "source"
    for number in range(UPLOADS):
        for name, overwrite in ((once(number), False), (LATEST, True)):
            source.write_bytes(content(name, number))
            log.upload_file(None, name, source, overwrite=overwrite)
            source.unlink()
            os.write(accepted, f"{name} {number}\n".encode())
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    log.close()


def told(log: OTelLogger, accepted: int, what: str) -> None:
    """Say that a record is accepted, once it is no more in memory for want of a prepared segment."""
    assert log._session is not None
    journals = [log._session.writer.outbox.journal(signal) for signal in Signal]
    while any(journal is not None and journal.waiting_items for journal in journals):
        time.sleep(0.0005)
    os.write(accepted, f"{what}\n".encode())


def run(case: dict[str, Any]) -> None:
    """Carry out a case in this process."""
    tracer = Tracer(tuple(case["kill"]) if case["kill"] else None, STORING_TARGETS if case["storing"] else TARGETS)
    if case["after"] is not None:
        # By the clock of the machine, wherever the process then is.
        signal.setitimer(signal.ITIMER_REAL, case["after"])
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    accepted = os.open(case["accepted"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if case["after"] is None:
        tracer.install()
    if case["action"] == "train":
        train(case["environ"], accepted, dies=case["dies"])
    elif case["action"] == "store":
        store(case["environ"], accepted, dies=case["dies"])
    else:
        run_sync(case["environ"], None, timeout=5.0, as_json=True)
    if case["reached"]:
        sys.settrace(None)
        Path(case["reached"]).write_text(json.dumps([[*place, count] for place, count in tracer.reached.items()]))


def main() -> None:
    """Fork a child for each case."""
    for line in sys.stdin:
        case = json.loads(line)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                # What the child prints is not an answer.
                os.dup2(os.open(case["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
                os.dup2(1, 2)
                run(case)
                status = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
