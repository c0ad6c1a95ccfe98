"""The vocabulary of metrics: how rows become OTLP under the settings."""

from collections.abc import Iterable

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope

from otel_logger.conventions import METRIC_KEY, SCHEMA_URL, SCOPE_NAME, SCOPE_VERSION, STEP, STEP_UNIT, metric_name
from otel_logger.settings import Settings
from otel_logger_exporters.measurements import Attributes, Instrument, Measurement
from otel_logger_exporters.requests import MetricVocabulary

__all__ = ["SCOPE", "ended_values", "metric_vocabulary"]

SCOPE = InstrumentationScope(name=SCOPE_NAME, version=SCOPE_VERSION)
"""The scope of all metrics; its schema is `SCHEMA_URL` of the conventions."""


def ended_values(keys: Iterable[str], settings: Settings, *, with_steps: bool) -> list[Measurement]:
    """Return the end of the series of `keys`, and of their steps where they had some."""
    points: dict[str, dict[Attributes, float | int]] = {}
    for key in keys:
        attributes: Attributes = ((METRIC_KEY, key),)
        points.setdefault(metric_name(key), {})[attributes] = 0
        if with_steps and settings.step_series == "metric":
            points.setdefault(STEP, {})[attributes] = 0
    return [
        Measurement(Instrument(name, STEP_UNIT if name == STEP else ""), found, has_ended=True)
        for name, found in points.items()
    ]


def metric_vocabulary(settings: Settings) -> MetricVocabulary:
    """Return how keys, steps and times are encoded under `settings`."""
    return MetricVocabulary(
        name_of=metric_name,
        key_attribute=METRIC_KEY,
        step_metric=STEP if settings.step_series == "metric" else None,
        step_unit=STEP_UNIT,
        scope=SCOPE,
        schema_url=SCHEMA_URL,
        nanoseconds=settings.time_resolution == "ns",
    )
