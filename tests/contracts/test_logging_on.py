"""Program logs beside a real endpoint, and at the end of a process: sending them makes no more of them."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_logger import OTelLogger, read_run
from otel_logger_exporters.signals import Signal
from tests.exports import PROTOCOLS
from tests.otlp_server import OtlpServer, Reply


@pytest.fixture
def loud() -> Iterator[logging.Logger]:
    """Have every library say everything, and return a logger of the program's."""
    root, app = logging.getLogger(), logging.getLogger("tests.app")
    before = root.level
    root.setLevel(logging.DEBUG)
    yield app
    root.setLevel(before)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_sending_log_records_makes_no_log_records(tmp_path: Path, protocol: str, loud: logging.Logger) -> None:
    """With the libraries that send at their loudest, and answers that make them say more."""
    with OtlpServer(protocol) as server:
        server.answer_with(*[Reply(http=503, grpc="UNAVAILABLE", retry_after=0.01)] * 3)
        environ = {
            "OTEL_LOGGER_DIR": str(tmp_path),
            "OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_LOGGER_FLUSH_INTERVAL": "10",
            "OTEL_LOGGER_PROGRAM_LOGS": "debug",
        }
        with OTelLogger(run_name="run", environ=environ) as log:
            for number in range(20):
                loud.debug("round %d", number)
                log.log_metrics({"loss": 0.5}, step=number)
                log.flush(1)
        sent = [
            (scope.scope.name, record.body.string_value)
            for request in server.requests(Signal.LOGS)
            for resource in request.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
            if not record.event_name
        ]

    assert {("tests.app", f"round {number}") for number in range(20)} == set(sent)


AT_EXIT = """
import atexit, logging, sys, threading
from otel_logger import OTelLogger

logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(message)s")
app = logging.getLogger("app")

class Last:
    def __del__(self):
        app.info("destructor")

def chatter():
    while True:
        app.debug("thread")

last = Last()
last.itself = last
atexit.register(app.info, "after the end")
log = OTelLogger(run_name="run")
atexit.register(app.info, "before the end")
threading.Thread(target=chatter, daemon=True).start()
log.log_metrics({"loss": 0.5}, step=1)
app.info("in time")
sys.last_words = last
"""


def test_a_program_that_logs_to_its_last_moment_ends(tmp_path: Path) -> None:
    """A daemon thread, exit hooks and destructors log on: the process ends, and all before the end is recorded."""
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT],
        env={"OTEL_LOGGER_DIR": str(tmp_path), "OTEL_LOGGER_PROGRAM_LOGS": "info"},
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )
    (run,) = (folder for folder in tmp_path.iterdir() if folder.name.startswith("run"))

    assert (0, "") == (done.returncode, "".join(x for x in done.stderr.splitlines() if "otel_logger: " not in x))
    assert ["in time", "before the end"] == [row["body"] for row in read_run(run).events if not row["name"]]
