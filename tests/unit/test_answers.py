"""Every code of HTTP and gRPC has a verdict, and messages refine it."""

import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_logger_exporters.answers import (
    GRPC_ROWS,
    GRPC_VERDICTS,
    HTTP_ROWS,
    HTTP_VERDICTS,
    LOCAL_ROWS,
    PHRASES,
    Answer,
    Verdict,
    from_grpc,
    from_http,
)

ROOT = Path(__file__).parents[2]
GENERATOR = ROOT / "tools" / "answers_page.py"

TOO_OLD_REMEDY = "enlarge Prometheus' out_of_order_time_window, in Loki reject_old_samples_max_age"

ACCEPTED, RETRY, CONFIGURATION, REFUSED = Verdict.ACCEPTED, Verdict.RETRY, Verdict.CONFIGURATION, Verdict.REFUSED


@pytest.mark.parametrize(
    ("verdict", "statuses"),
    [
        (ACCEPTED, (200, 202, 204)),
        (RETRY, (408, 425, 429, 500, 502, 503, 504, 599)),
        (CONFIGURATION, (301, 302, 304, 307, 308, 401, 403, 404, 405, 409, 415, 418, 501, 511, 100, 0, 999)),
        (REFUSED, (400, 413, 422)),
    ],
)
def test_http_statuses(verdict, statuses):
    """A status means the same whatever else the answer holds."""
    assert {from_http(status, "", None, 0.0).verdict for status in statuses} == {verdict}


@pytest.mark.parametrize(
    ("verdict", "codes"),
    [
        (ACCEPTED, "OK"),
        (RETRY, "CANCELLED UNKNOWN INTERNAL DEADLINE_EXCEEDED RESOURCE_EXHAUSTED ABORTED OUT_OF_RANGE UNAVAILABLE"),
        (CONFIGURATION, "UNAUTHENTICATED PERMISSION_DENIED UNIMPLEMENTED NOT_FOUND FAILED_PRECONDITION BRAND_NEW"),
        (REFUSED, "INVALID_ARGUMENT"),
    ],
)
def test_grpc_codes(verdict, codes):
    """A code means the same whatever else the status holds."""
    assert {from_grpc(code, "").verdict for code in codes.split()} == {verdict}


def test_no_grpc_code_is_forgotten():
    """The table has exactly the codes that gRPC has."""
    assert set(GRPC_VERDICTS) == {code.name for code in grpc.StatusCode}
    assert set(HTTP_VERDICTS) == set(range(200, 600))


def test_what_needs_somebody_says_what_to_do():
    """Every line of class configuration has a remedy, which is part of the message; the others are left as they are."""
    rows = (*HTTP_ROWS, *GRPC_ROWS, *LOCAL_ROWS, *PHRASES)
    assert [] == [row for row in rows if not row.meaning]
    assert [] == [row for row in rows if row.verdict is CONFIGURATION and not row.remedy]
    assert "who? (check OTEL_EXPORTER_OTLP_HEADERS)" == from_http(401, "who?", None, 0.0).message
    assert "check OTEL_EXPORTER_OTLP_HEADERS" == from_grpc("UNAUTHENTICATED", "").message
    assert "busy" == from_http(503, "busy", None, 0.0).message


def test_the_page_is_made_of_the_tables():
    """docs/answers.md says what the tables say; where it does not, the test says how to make it anew."""
    made = subprocess.run([sys.executable, GENERATOR, "--print"], capture_output=True, text=True, check=True).stdout
    page = (ROOT / "docs" / "answers.md").read_text("utf-8")

    assert made == page, "docs/answers.md is out of date: run `.venv/bin/python tools/answers_page.py`"


@pytest.mark.parametrize(
    ("details", "verdict"),
    [
        ("grpc: received message larger than max (5000000 vs. 4194304)", REFUSED),
        ("Decompressed message Larger Than Max", REFUSED),
        ("gRPC message exceeds maximum size 4194304: 5000000", REFUSED),
        ("Received message exceeds the maximum configured message size.", REFUSED),
        ("exceeds the maximum number of series", RETRY),
        ("rate limit reached", RETRY),
        ("", RETRY),
    ],
)
def test_resource_exhausted_is_about_size_or_rate(details, verdict):
    """A request that can never fit is refused, one that came too soon is retried."""
    assert from_grpc("RESOURCE_EXHAUSTED", details, 2.0).verdict is verdict


@pytest.mark.parametrize(
    ("details", "verdict"),
    [
        ("grpc: error unmarshalling request: string field contains invalid UTF-8", REFUSED),
        ("Exception deserializing request!", REFUSED),
        ("Invalid protobuf byte sequence", REFUSED),
        ("panic in a processor", RETRY),
    ],
)
def test_internal_may_be_about_the_data(details, verdict):
    """A request that a server cannot read would hold up all others for ever."""
    assert from_grpc("INTERNAL", details).verdict is verdict


def test_too_large_has_another_code_in_rust():
    """tonic says OUT_OF_RANGE to a request that is too large."""
    message = "Error, decoded message length too large: found 8423749 bytes, the limit is: 4194304 bytes"
    assert from_grpc("OUT_OF_RANGE", message).verdict is REFUSED


@pytest.mark.parametrize(
    "message",
    [
        "out of order sample",
        "Out of bounds",
        "too old sample",
        "entry too far behind, oldest acceptable timestamp is ...",
        "the sample has been rejected (err-mimir-sample-out-of-order)",
    ],
)
def test_data_that_is_too_old_is_kept_with_a_remedy(message):
    """Data refused for its age waits for a setting, which the message names."""
    assert from_http(400, message, None, 0.0) == Answer(CONFIGURATION, "400", f"{message} ({TOO_OLD_REMEDY})")
    assert from_grpc("INVALID_ARGUMENT", message) == Answer(
        CONFIGURATION, "INVALID_ARGUMENT", f"{message} ({TOO_OLD_REMEDY})"
    )
    assert "out_of_order_time_window" in TOO_OLD_REMEDY


def test_wrong_door_is_no_fault_of_the_data():
    """A port that wants TLS, or speaks another protocol, is a setting to change, whatever code it gives."""
    assert from_http(400, "Client sent an HTTP request to an HTTPS server.", None, 0.0).verdict is CONFIGURATION
    assert from_grpc("UNAVAILABLE", "Trying to connect an http1.x server").verdict is CONFIGURATION
    assert from_grpc("UNAVAILABLE", "Ssl handshake failed: SSL_ERROR_SSL: ...").verdict is CONFIGURATION
    assert from_grpc("UNAVAILABLE", "Connection refused").verdict is RETRY


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0.0),
        (" 120 ", 120.0),
        ("1.5", 1.5),
        ("Thu, 01 Jan 1970 00:02:00 GMT", 20.0),
        ("Thu, 01 Jan 1970 00:02:00", 20.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("", None),
        (None, None),
        ("-1", None),
        ("soon", None),
        ("nan", None),
        ("9" * 400, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header, seconds):
    """Retry-After is read as seconds or as an HTTP date, what is past means now, and nonsense means nothing."""
    assert from_http(503, "busy", header, 100.0) == Answer(RETRY, "503", "busy", seconds)


@given(st.text(max_size=40))
def test_no_retry_after_header_raises(header):
    """Whatever a server writes in Retry-After, an answer comes of it."""
    answer = from_http(429, "", header, 0.0)
    assert answer.retry_after is None or answer.retry_after >= 0


def test_wait_belongs_to_retries_only():
    """A wait is kept for what is retried, of either protocol, and for nothing else."""
    assert from_grpc("UNAVAILABLE", "busy", 0.25) == Answer(RETRY, "UNAVAILABLE", "busy", 0.25)
    assert from_grpc("INVALID_ARGUMENT", "bad", 0.25) == Answer(REFUSED, "INVALID_ARGUMENT", "bad")
    assert from_http(401, "who?", "10", 0.0).retry_after is None
