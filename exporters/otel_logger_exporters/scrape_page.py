"""The page that a scrape gets: families in whichever of Prometheus' formats it asks for, by `prometheus_client`."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from prometheus_client import Metric, make_wsgi_app

from otel_logger_exporters.measurements import Measurement
from otel_logger_exporters.scrape_families import TARGET_INFO, Family, FamilyKind, families_of, target_labels

__all__ = ["Page", "ScrapePage"]

_ESCAPING = re.compile(r";\s*escaping\s*=[^;,]*")
_VERSION = re.compile(r"version\s*=([^;,]*)")
_NUMBERS = re.compile(r"\s*[0-9]+(\.[0-9]+)*\s*")


@dataclass(frozen=True, slots=True)
class Page:
    """An answer to a scrape: a status such as `200 OK`, headers, and the body."""

    status: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


class ScrapePage:
    """Makes pages of what `collect` and `resource` return at the time. Every format has the same names.

    Metrics are `unknown` where they cannot be called otherwise, and have no exemplars: Prometheus takes none of gauges.
    """

    def __init__(self, collect: Callable[[], Iterable[Measurement]], resource: Callable[[], Mapping[str, Any]]) -> None:
        self._collect = collect
        self._resource = resource
        self._application = make_wsgi_app(_Registry(self.metrics))

    def metrics(self) -> list[Metric]:
        """Return what there is as `prometheus_client` has it; nothing of a resource that is not known yet."""
        families = families_of(self._collect())
        labels = target_labels(self._resource())
        return [*([_target(labels, families)] if labels else []), *map(_metric, families)]

    def render(self, *, accept: str = "", encoding: str = "", names: Iterable[str] = ()) -> Page:
        """Return the page for what a scraper accepts; of `names` alone, where it asks for some."""
        answered: list[tuple[str, list[tuple[str, str]]]] = []
        request = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": "/metrics",
            "QUERY_STRING": urlencode([("name[]", name) for name in names]),
            "HTTP_ACCEPT": _understood(accept),
            "HTTP_ACCEPT_ENCODING": encoding,
        }
        body = b"".join(self._application(request, lambda status, headers: answered.append((status, headers))))
        ((status, headers),) = answered
        return Page(status, tuple(headers), body)


class _Registry:
    """What `prometheus_client` knows of a registry."""

    def __init__(self, metrics: Callable[[], Iterable[Metric]]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics()

    def restricted_registry(self, names: Iterable[str]) -> "_Registry":
        wanted = frozenset(names)
        return _Registry(lambda: _restricted(self._metrics(), wanted))


def _restricted(metrics: Iterable[Metric], names: frozenset[str]) -> Iterable[Metric]:
    return [metric for metric in metrics if any(sample.name in names for sample in metric.samples)]


def _understood(accept: str) -> str:
    """Return what a scraper accepts without what would change names, or is no version.

    Names are such that no scheme need escape them, but one of them doubles their underscores all the same.
    """
    accept = _ESCAPING.sub("", accept)
    return _VERSION.sub(lambda found: found[0] if _NUMBERS.fullmatch(found[1]) else "", accept)


def _metric(family: Family) -> Metric:
    name = family.name
    if family.kind is FamilyKind.COUNTER:
        # Without its suffix, which the format adds where it is due.
        name = name.removesuffix("_total")
    metric = Metric(name, ", ".join(family.metrics), family.kind.value)
    for sample in family.samples:
        metric.add_sample(family.name, dict(sample.labels), sample.value)
    return metric


def _target(labels: tuple[tuple[str, str], ...], families: Iterable[Family]) -> Metric:
    base = TARGET_INFO.removesuffix("_info")
    # OpenMetrics would have two families of the name.
    is_clear = all(family.name != base for family in families)
    metric = Metric(base if is_clear else TARGET_INFO, "resource", "info" if is_clear else "gauge")
    metric.add_sample(TARGET_INFO, dict(labels), 1)
    return metric
