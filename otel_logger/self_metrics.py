"""Self-metrics: what became of a writer's data, as metrics of otel_logger's own."""

from collections.abc import Mapping
from typing import Final

from otel_logger import conventions as names
from otel_logger_exporters.ledger import Stats
from otel_logger_exporters.measurements import Instrument, Measurement

__all__ = ["measure_delivery"]

_ITEMS: Final = "{item}"

RECORDED: Final = Instrument(names.SELF_RECORDED, _ITEMS, is_sum=True)
DELIVERED: Final = Instrument(names.SELF_DELIVERED, _ITEMS, is_sum=True)
REFUSED: Final = Instrument(names.SELF_REFUSED, _ITEMS, is_sum=True)
WAITING: Final = Instrument(names.SELF_WAITING, _ITEMS)
DROPPED: Final = Instrument(names.SELF_DROPPED, _ITEMS, is_sum=True)
ADJUSTED: Final = Instrument(names.SELF_ADJUSTED, _ITEMS, is_sum=True)
COALESCED: Final = Instrument(names.SELF_COALESCED, _ITEMS, is_sum=True)
BLOB_STORED: Final = Instrument(names.SELF_BLOB_STORED, "{blob}", is_sum=True)
BLOB_SIZE: Final = Instrument(names.SELF_BLOB_SIZE, "By", is_sum=True)
BLOB_FAILED: Final = Instrument(names.SELF_BLOB_FAILED, "{blob}", is_sum=True)
BLOB_RETRIES: Final = Instrument(names.SELF_BLOB_RETRIES, "{attempt}", is_sum=True)
BLOB_WAITING: Final = Instrument(names.SELF_BLOB_WAITING, "{blob}")
BLOB_WAITING_SIZE: Final = Instrument(names.SELF_BLOB_WAITING_SIZE, "By")
BLOB_AGE: Final = Instrument(names.SELF_BLOB_AGE, "s")
SIZE: Final = Instrument(names.SELF_SIZE, "By")
AGE: Final = Instrument(names.SELF_AGE, "s")


def measure_delivery(stats: Stats) -> list[Measurement]:
    """Return `stats` as measurements; counts are sums since the logger was opened."""
    return [
        _by(names.SELF_SIGNAL, RECORDED, stats.recorded),
        _by(names.SELF_SIGNAL, DELIVERED, stats.delivered),
        _by(names.SELF_SIGNAL, REFUSED, stats.refused),
        _by(names.SELF_SIGNAL, WAITING, stats.waiting),
        _by(names.SELF_REASON, DROPPED, stats.dropped),
        _by(names.SELF_REASON, ADJUSTED, stats.adjusted),
        Measurement(COALESCED, {(): stats.coalesced}),
        Measurement(BLOB_STORED, {(): stats.blobs.stored}),
        Measurement(BLOB_SIZE, {(): stats.blobs.bytes_stored}),
        Measurement(BLOB_FAILED, {(): stats.blobs.failed}),
        Measurement(BLOB_RETRIES, {(): stats.blobs.retries}),
        Measurement(BLOB_WAITING, {(): stats.blobs.waiting}),
        Measurement(BLOB_WAITING_SIZE, {(): stats.blobs.bytes_waiting}),
        Measurement(BLOB_AGE, {(): stats.blobs.oldest or 0.0}),
        Measurement(SIZE, {(): stats.bytes_on_disk}),
        Measurement(AGE, {(): stats.oldest or 0.0}),
    ]


def _by(attribute: str, instrument: Instrument, counts: Mapping[str, int]) -> Measurement:
    return Measurement(instrument, {((attribute, name),): count for name, count in counts.items()})
