"""A scraper gets the format that it asks for, with the same names in each."""

import gzip

import pytest

from otel_logger_exporters.measurements import Instrument, Measurement
from otel_logger_exporters.scrape_page import ScrapePage

MEASUREMENTS = [
    Measurement(Instrument("loss/train"), {(("training.metric.key", 'loss/train "é"\n'),): 0.5}),
    Measurement(Instrument("otel_logger.items", "{item}", is_sum=True), {(): 3}),
]
PLAIN = """\
# HELP target_info resource
# TYPE target_info gauge
target_info{service_name="x"} 1.0
# HELP loss_train loss/train
# TYPE loss_train gauge
loss_train{training_metric_key="loss/train \\"é\\"\\n"} 0.5
# HELP otel_logger_items_total otel_logger.items
# TYPE otel_logger_items_total counter
otel_logger_items_total 3.0
"""
OPENMETRICS = """\
# HELP target resource
# TYPE target info
target_info{service_name="x"} 1.0
# HELP loss_train loss/train
# TYPE loss_train gauge
loss_train{training_metric_key="loss/train \\"é\\"\\n"} 0.5
# HELP otel_logger_items otel_logger.items
# TYPE otel_logger_items counter
otel_logger_items_total 3.0
# EOF
"""

# Of Prometheus 3, which takes the names of other scripts, and of 2.
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,*/*;q=0.1"
PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,"


def make(measurements=MEASUREMENTS, resource=None):
    """Return the page of some measurements."""
    return ScrapePage(lambda: measurements, lambda: {"service.name": "x"} if resource is None else resource)


@pytest.mark.parametrize(
    ("accept", "kind", "body"),
    [
        ("", "text/plain; version=0.0.4", PLAIN),
        ("*/*", "text/plain; version=0.0.4", PLAIN),
        ("text/html", "text/plain; version=0.0.4", PLAIN),
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4", PLAIN),
        # Of which earlier versions of prometheus_client know nothing.
        ("text/plain;version=1.0.0;escaping=underscores", "text/plain; version=", PLAIN),
        ("text/plain;version=1.0.0;escaping=dots", "text/plain; version=", PLAIN),
        ("application/openmetrics-text", "application/openmetrics-text; version=1.0.0", OPENMETRICS),
        ("application/openmetrics-text;version=nonsense", "application/openmetrics-text; version=1.0.0", OPENMETRICS),
        ("application/openmetrics-text; version=1.0.0; escaping=values", "application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text;escaping=dots;version=1.0.0", "application/openmetrics-text", OPENMETRICS),
        (PROMETHEUS_3, "application/openmetrics-text; version=1.0.0", OPENMETRICS),
        (PROMETHEUS_2, "application/openmetrics-text; version=1.0.0", OPENMETRICS),
        (PROTOBUF + PROMETHEUS_3, "application/openmetrics-text; version=1.0.0", OPENMETRICS),
    ],
)
def test_each_format_has_the_same_names(accept, kind, body):
    """Also where names are to be escaped in a way that would double their underscores."""
    page = make().render(accept=accept)

    assert body == page.body.decode()
    assert dict(page.headers)["Content-Type"].startswith(kind)
    assert "dots" not in str(page.headers)


def test_a_page_is_compressed_for_who_reads_that():
    """As Prometheus asks for."""
    page = make().render(encoding="gzip")

    assert PLAIN == gzip.decompress(page.body).decode()
    assert "gzip" == dict(page.headers)["Content-Encoding"]


def test_some_names_can_be_asked_for():
    """By the parameter that Prometheus' own clients know."""
    page = make().render(accept="application/openmetrics-text", names=["loss_train", "unknown"])

    assert ["loss_train"] == [line.split("{")[0] for line in page.body.decode().splitlines() if line[0] != "#"]


@pytest.mark.parametrize(("accept", "body"), [("", b""), ("application/openmetrics-text", b"# EOF\n")])
def test_a_run_of_which_nothing_is_known_has_an_empty_page(accept, body):
    """Empty is valid in both formats."""
    assert body == make([], {}).render(accept=accept).body


def test_a_metric_that_would_clash_with_the_resource_is_shown_beside_it():
    """In OpenMetrics a key `target` and the resource would be two families of one name."""
    target = Measurement(Instrument("target"), {(("training.metric.key", "target"),): 1})
    body = make([target]).render(accept="application/openmetrics-text").body.decode()

    assert ["# TYPE target_info gauge", "# TYPE target gauge"] == [x for x in body.splitlines() if "TYPE" in x]
