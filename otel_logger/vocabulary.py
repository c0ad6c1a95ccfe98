"""The vocabulary of metrics: how rows become OTLP under the settings."""

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope

from otel_logger.conventions import METRIC_KEY, SCHEMA_URL, SCOPE_NAME, SCOPE_VERSION, STEP, STEP_UNIT, metric_name
from otel_logger.settings import Settings
from otel_logger_exporters.requests import MetricVocabulary

__all__ = ["metric_vocabulary"]


def metric_vocabulary(settings: Settings) -> MetricVocabulary:
    """Return how keys, steps and times are encoded under `settings`."""
    return MetricVocabulary(
        name_of=metric_name,
        key_attribute=METRIC_KEY,
        step_metric=STEP if settings.step_series == "metric" else None,
        step_unit=STEP_UNIT,
        scope=InstrumentationScope(name=SCOPE_NAME, version=SCOPE_VERSION),
        schema_url=SCHEMA_URL,
        nanoseconds=settings.time_resolution == "ns",
    )
