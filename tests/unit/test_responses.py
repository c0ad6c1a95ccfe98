"""Whatever bytes a server answers with, something is read from them and nothing raises."""

import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import DebugInfo, RetryInfo
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from otel_logger_exporters.responses import partial_success, retry_delay, shortened, status_message
from otel_logger_exporters.signals import Signal


def _any(message):
    packed = Any()
    packed.Pack(message)
    return packed


@pytest.mark.parametrize(
    ("signal", "response", "field"),
    [
        (Signal.METRICS, ExportMetricsServiceResponse(), "rejected_data_points"),
        (Signal.LOGS, ExportLogsServiceResponse(), "rejected_log_records"),
        (Signal.TRACES, ExportTraceServiceResponse(), "rejected_spans"),
    ],
)
def test_partial_success_of_each_signal(signal, response, field):
    """Each signal's count and message are read; an empty response rejected nothing."""
    assert partial_success(signal, b"") == (0, "")
    setattr(response.partial_success, field, 4)
    response.partial_success.error_message = "too\nmany"
    assert partial_success(signal, response.SerializeToString()) == (4, "too many")


def test_retry_delay_is_found_among_the_details():
    """RetryInfo counts wherever it stands in the details, in seconds with fractions."""
    info = RetryInfo(retry_delay=Duration(seconds=2, nanos=500_000_000))
    status = Status(message="later", details=[_any(DebugInfo(detail="x")), _any(info)])
    assert retry_delay(status.SerializeToString()) == 2.5
    assert retry_delay(Status(message="later").SerializeToString()) is None


def test_message_of_an_error_is_protobuf_or_text():
    """An error's body is google.rpc.Status or plain text, told in one short line."""
    assert status_message(Status(message="bad name").SerializeToString()) == "bad name"
    assert status_message(b" bad\n  name ") == "bad name"
    assert status_message(b"") == ""
    assert len(shortened("x" * 1000)) == 300


@given(st.binary(max_size=60), st.sampled_from(Signal))
def test_no_bytes_raise(data, signal):
    """Bytes that are nothing we know are read as nothing."""
    rejected, _ = partial_success(signal, data)
    assert rejected >= 0
    assert (retry_delay(data) or 0.0) >= 0.0
    assert isinstance(status_message(data), str)
