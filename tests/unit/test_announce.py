"""A user is told where the data goes and what became of it, in words, never with a secret."""

import logging
import sys
from pathlib import Path

import pytest

from otel_logger.announce import announce, destinations, outcome, shown
from otel_logger_exporters.blob_counts import BlobStats
from otel_logger_exporters.ledger import Stats
from otel_logger_exporters.routes import routes_from_environ

NOTHING = {"metrics": 0, "logs": 0, "traces": 0}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "metrics, logs, traces kept in otel_logs (no OTEL_EXPORTER_OTLP_ENDPOINT is set)"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"},
            "metrics, logs, traces to collector:4317 (grpc)",
        ),
        (
            {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://m:4318/v1/metrics", "OTEL_TRACES_EXPORTER": "none"},
            "metrics to m:4318 (http/protobuf); "
            "logs kept in otel_logs (no OTEL_EXPORTER_OTLP_ENDPOINT is set); "
            "traces not recorded (OTEL_TRACES_EXPORTER=none)",
        ),
        (
            {
                "OTEL_METRICS_EXPORTER": "prometheus",
                "OTEL_LOGS_EXPORTER": "console",
                "OTEL_TRACES_EXPORTER": "otlp,console",
            },
            "metrics kept in otel_logs (OTEL_METRICS_EXPORTER has no otlp); logs printed; "
            "traces to localhost:4318 (http/protobuf) and printed",
        ),
    ],
)
def test_where_each_signal_goes(environ, expected):
    """Signals of one destination are named together; one that is kept or not recorded says why."""
    assert expected == destinations(routes_from_environ(environ), "otel_logs")


def test_where_metrics_are_scraped():
    """It is told beside where they go."""
    assert (
        "metrics, logs, traces kept in otel_logs (no OTEL_EXPORTER_OTLP_ENDPOINT is set); "
        "metrics scraped at http://localhost:9465/metrics"
    ) == destinations(routes_from_environ({}), "otel_logs", "http://localhost:9465/metrics")


def test_secrets_are_not_told():
    """Neither headers nor what a URL carries beside its address is in the line."""
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector.example.com/in/pathsecret",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20headersecret",
    }
    assert "secret" not in destinations(routes_from_environ(environ), "otel_logs")


def stats(**fields):
    """Stats with nothing but what is given."""
    return Stats(**({name: NOTHING for name in ("recorded", "delivered", "refused", "waiting", "kept")} | fields))


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, "nothing was recorded"),
        ({"kept": NOTHING | {"metrics": 5}}, "5 values kept in d"),
        (
            {"delivered": {"metrics": 5, "logs": 2, "traces": 1}, "blobs": BlobStats(stored=3)},
            "delivered 5 values, 2 log records, 1 span; 3 blobs stored",
        ),
        (
            {"blobs": BlobStats(stored=1, failed=2, waiting=1)},
            "1 blob stored; 2 blobs not stored; 1 blob waits for the blob store; send with `otel-logger sync d`",
        ),
        (
            {"blobs": BlobStats(waiting=2)},
            "2 blobs wait for the blob store; send with `otel-logger sync d`",
        ),
        (
            {"delivered": NOTHING | {"logs": 1}, "waiting": NOTHING | {"metrics": 7}},
            "delivered 1 log record; 7 values not delivered, they wait; send them with `otel-logger sync d`",
        ),
        ({"refused": NOTHING | {"traces": 2}}, "2 spans refused by the endpoint"),
        (
            {"kept": NOTHING | {"logs": 1}, "dropped": {"file": 1, "disk": 4}},
            "1 log record kept in d; lost 4 (disk), 1 (file)",
        ),
    ],
)
def test_what_became_of_the_data(counts, expected):
    """What was delivered, kept, waits, was refused or lost is told, and nothing else."""
    assert expected == outcome(stats(**counts), "d")


def test_a_folder_is_shown_as_a_user_writes_it(tmp_path, monkeypatch):
    """Below the working directory a folder is relative, elsewhere absolute."""
    monkeypatch.chdir(tmp_path)
    assert "otel_logs/x" == shown(tmp_path / "otel_logs" / "x")
    assert "/elsewhere" == shown(Path("/elsewhere"))


def test_a_folder_is_shown_though_the_working_directory_is_gone(tmp_path, monkeypatch):
    """A program whose working directory was deleted still gets its line."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "/data/x" == shown(Path("/data/x"))


@pytest.fixture
def log():
    """A logger of its own, which propagates to nobody."""
    logger = logging.Logger("announce")
    logger.propagate = False
    return logger


def test_a_program_that_shows_info_gets_a_log_record(log, caplog, capsys):
    """Where the program logs INFO the line is one of its records, and percent signs are no placeholders."""
    log.setLevel(logging.INFO)
    log.addHandler(caplog.handler)
    announce(log, "100% of %s")
    assert ["100% of %s"] == caplog.messages
    assert "" == capsys.readouterr().err


def test_otherwise_the_line_goes_to_standard_error(log, capsys):
    """A program that set up no logging, or shows warnings only, gets the line on standard error."""
    announce(log, "line")
    log.setLevel(logging.WARNING)
    announce(log, "line")
    assert "otel_logger: line\n" * 2 == capsys.readouterr().err


def test_a_broken_standard_error_is_no_harm(log, monkeypatch):
    """Standard error may be absent, closed or full."""

    class Full:
        def write(self, line):
            raise OSError(28, "No space left on device")

    with open("/dev/null", "w") as closed:
        pass
    for stderr in (None, closed, Full()):
        monkeypatch.setattr(sys, "stderr", stderr)
        announce(log, "line")
