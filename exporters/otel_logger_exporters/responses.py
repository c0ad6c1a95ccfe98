"""Responses: what the bytes of an OTLP server's answer say, in either protocol."""

from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from otel_logger_exporters.signals import Signal

__all__ = ["MESSAGE_LENGTH", "partial_success", "retry_delay", "shortened", "status_message"]

MESSAGE_LENGTH = 300
"""Characters kept of what a server says: it may be a whole web page."""


def partial_success(signal: Signal, body: bytes) -> tuple[int, str]:
    """Return how many items an accepted request lost and why; (0, "") also when the body is no OTLP response.

    A server may have something to say without having rejected anything: (0, "a warning").
    """
    if signal is Signal.METRICS:
        metrics = ExportMetricsServiceResponse()
        _parse(metrics, body)
        rejected, message = metrics.partial_success.rejected_data_points, metrics.partial_success.error_message
    elif signal is Signal.LOGS:
        logs = ExportLogsServiceResponse()
        _parse(logs, body)
        rejected, message = logs.partial_success.rejected_log_records, logs.partial_success.error_message
    else:
        traces = ExportTraceServiceResponse()
        _parse(traces, body)
        rejected, message = traces.partial_success.rejected_spans, traces.partial_success.error_message
    return max(0, rejected), shortened(message)


def status_message(body: bytes) -> str:
    """Return the message of an error's body: of google.rpc.Status when it is one, else its text."""
    status = Status()
    if _parse(status, body) and status.message:
        return shortened(status.message)
    return shortened(body.decode("utf-8", "replace"))


def retry_delay(details: bytes) -> float | None:
    """Return the seconds that RetryInfo in a serialised google.rpc.Status asks to wait, None without one."""
    status = Status()
    _parse(status, details)
    for detail in status.details:
        info = RetryInfo()
        if detail.Is(RetryInfo.DESCRIPTOR):
            _parse(info, detail.value)
            return max(0.0, float(info.retry_delay.seconds + info.retry_delay.nanos / 1e9))
    return None


def shortened(text: str) -> str:
    """Return `text` in one line and cut to MESSAGE_LENGTH."""
    return " ".join(text.split())[:MESSAGE_LENGTH]


def _parse(message: Message, data: bytes) -> bool:
    """Fill `message` from `data`, or leave it empty and return False."""
    try:
        message.ParseFromString(data)
    except DecodeError:
        message.Clear()
        return False
    return True
