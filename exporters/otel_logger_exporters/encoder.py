"""The encoder of a lane: from a batch of a journal to requests under a resource."""

from collections.abc import Callable

from otel_logger_exporters.journal_reader import Batch
from otel_logger_exporters.lane import Encoded
from otel_logger_exporters.payloads import Frame
from otel_logger_exporters.requests import MetricVocabulary, frame_requests, join_requests, metric_requests
from otel_logger_exporters.rows import Row
from otel_logger_exporters.signals import Signal

__all__ = ["batch_encoder"]


def batch_encoder(
    signal: Signal, vocabulary: MetricVocabulary, resource: Callable[[], bytes | None]
) -> Callable[[Batch], Encoded | None]:
    """Return the encoder of a signal, whose result is None while `resource` gives none."""

    def encode(batch: Batch) -> Encoded | None:
        if (message := resource()) is None:
            return None
        frames = [content for content in batch.contents if isinstance(content, Frame)]
        if signal is Signal.METRICS:
            rows = [content for content in batch.contents if isinstance(content, Row)]
            requests = metric_requests(rows, message, vocabulary)
            return Encoded(join_requests([*requests.bodies, *frame_requests(frames, message)]), requests.coalesced)
        return Encoded(frame_requests(frames, message))

    return encode
