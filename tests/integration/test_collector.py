"""The real Collector, its configuration, and the reader of what it writes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from collector import BASE_CONFIG, Collector, CollectorError, run_servers_tool
from received import LogRecord, MetricPoint, Received, Span, SpanEvent, SpanLink, decode_value, metric_points
from typer.testing import CliRunner

from otel_logger.cli import app

TRACE_ID = "5b8efff798038103d269b633813fc60c"
SPAN_ID = "eee19b7ec3c1b174"
PARENT_ID = "eee19b7ec3c1b173"
TIME_NS = 1_700_000_000_123_456_789
RESOURCE = {"attributes": [{"key": "service.name", "value": {"stringValue": "training"}}]}
SCOPE = {"name": "otel_logger", "version": "1"}


def post(url: str, request: dict[str, Any]) -> None:
    """Sends one OTLP request as JSON; raises `HTTPError` when it is refused."""
    body = json.dumps(request).encode()
    message = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    urllib.request.urlopen(message, timeout=10).close()


def gauge(name: str, time_ns: int, **number: object) -> dict[str, Any]:
    """A gauge of one point."""
    attributes = [{"key": "training.metric.key", "value": {"stringValue": name}}]
    return {"name": name, "gauge": {"dataPoints": [{"timeUnixNano": str(time_ns), "attributes": attributes, **number}]}}


def metrics_request(*metrics: dict[str, Any]) -> dict[str, Any]:
    """A metrics request of one resource and one scope."""
    return {"resourceMetrics": [{"resource": RESOURCE, "scopeMetrics": [{"scope": SCOPE, "metrics": list(metrics)}]}]}


def point(name: str, time_ns: int, value: float | None) -> MetricPoint:
    """What `gauge` is read back as."""
    return MetricPoint(
        name=name,
        attributes={"training.metric.key": name},
        time_ns=time_ns,
        value=value,
        resource={"service.name": "training"},
        scope="otel_logger",
        unit="",
        kind="gauge",
    )


@pytest.mark.collector
def test_base_configuration_is_valid(collector_binary: Path) -> None:
    """The Collector accepts `base.yaml` as it is, with nothing set in the environment."""
    done = subprocess.run(
        [collector_binary, "validate", "--config", BASE_CONFIG], env={}, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.collector
def test_metrics_arrive_whole(collector: Collector) -> None:
    """A point is read back with its name, time, attributes, resource and scope, and its number of the type sent."""
    request = metrics_request(
        gauge("loss/train/total", TIME_NS, asDouble=0.1),
        gauge("whole", TIME_NS + 1, asDouble=1.0),
        gauge("steps", TIME_NS + 2, asInt=str(2**63 - 1)),
        gauge("not_a_number", TIME_NS + 3, asDouble="NaN"),
        gauge("too_large", TIME_NS + 4, asDouble="-Infinity"),
        gauge("nothing", TIME_NS + 5, flags=1),
    )

    post(f"{collector.http_endpoint}/v1/metrics", request)
    got = collector.stop_and_read()

    nan = got.metrics[3]
    assert (
        point("loss/train/total", TIME_NS, 0.1),
        point("whole", TIME_NS + 1, 1.0),
        point("steps", TIME_NS + 2, 2**63 - 1),
        point("too_large", TIME_NS + 4, -math.inf),
        point("nothing", TIME_NS + 5, None),
    ) == got.metrics[:3] + got.metrics[4:]
    assert [float, float, int, float, float] == [type(each.value) for each in got.metrics[:5]]
    assert point("not_a_number", TIME_NS + 3, None) == replace(nan, value=None)
    assert isinstance(nan.value, float)
    assert math.isnan(nan.value)
    assert Received(got.metrics, spans=(), logs=()) == got


@pytest.mark.collector
def test_spans_arrive_whole(collector: Collector) -> None:
    """A span is read back with its ids in hex, its events and its links."""
    attributes = [{"key": "training.step", "value": {"intValue": "7"}}]
    span = {
        "name": "epoch",
        "traceId": TRACE_ID,
        "spanId": SPAN_ID,
        "parentSpanId": PARENT_ID,
        "startTimeUnixNano": str(TIME_NS),
        "endTimeUnixNano": str(TIME_NS + 5),
        "attributes": attributes,
        "events": [{"name": "batch", "timeUnixNano": str(TIME_NS + 1), "attributes": attributes}],
        "links": [{"traceId": TRACE_ID, "spanId": PARENT_ID, "attributes": attributes}],
    }

    request = {"resourceSpans": [{"resource": RESOURCE, "scopeSpans": [{"scope": SCOPE, "spans": [span]}]}]}
    post(f"{collector.http_endpoint}/v1/traces", request)

    expected = Span(
        name="epoch",
        trace_id=TRACE_ID,
        span_id=SPAN_ID,
        parent_span_id=PARENT_ID,
        attributes={"training.step": 7},
        events=(SpanEvent("batch", TIME_NS + 1, {"training.step": 7}),),
        links=(SpanLink(TRACE_ID, PARENT_ID, {"training.step": 7}),),
        start_ns=TIME_NS,
        end_ns=TIME_NS + 5,
        resource={"service.name": "training"},
        scope="otel_logger",
    )
    assert (expected,) == collector.stop_and_read().spans


@pytest.mark.collector
def test_log_records_arrive_whole(collector: Collector) -> None:
    """A log record is read back with its event name and its nested body as Python values."""
    body = {
        "kvlistValue": {
            "values": [
                {"key": "optimizer", "value": {"stringValue": "adam"}},
                {"key": "lr", "value": {"doubleValue": 1}},
                {"key": "betas", "value": {"arrayValue": {"values": [{"doubleValue": 0.9}, {"intValue": "1"}]}}},
                {"key": "amsgrad", "value": {"boolValue": False}},
                {"key": "seed", "value": {}},
                {"key": "raw", "value": {"bytesValue": "AAEC"}},
            ]
        }
    }
    record = {
        "timeUnixNano": str(TIME_NS),
        "observedTimeUnixNano": str(TIME_NS + 1),
        "severityNumber": 9,
        "eventName": "training.hyperparameters",
        "body": body,
        "attributes": [{"key": "training.rank", "value": {"intValue": "0"}}],
        "traceId": TRACE_ID,
        "spanId": SPAN_ID,
    }

    request = {"resourceLogs": [{"resource": RESOURCE, "scopeLogs": [{"scope": SCOPE, "logRecords": [record]}]}]}
    post(f"{collector.http_endpoint}/v1/logs", request)

    expected = LogRecord(
        event_name="training.hyperparameters",
        body={
            "optimizer": "adam",
            "lr": 1.0,
            "betas": [0.9, 1],
            "amsgrad": False,
            "seed": None,
            "raw": b"\x00\x01\x02",
        },
        attributes={"training.rank": 0},
        time_ns=TIME_NS,
        observed_time_ns=TIME_NS + 1,
        severity=9,
        trace_id=TRACE_ID,
        span_id=SPAN_ID,
        resource={"service.name": "training"},
        scope="otel_logger",
    )
    assert (expected,) == collector.stop_and_read().logs


@pytest.mark.collector
def test_a_restart_keeps_address_and_output(collector: Collector) -> None:
    """What arrived before the Collector was stopped and started again is there beside what arrived after."""
    url = f"{collector.http_endpoint}/v1/metrics"
    post(url, metrics_request(gauge("before", TIME_NS, asInt="1")))
    collector.stop()
    collector.start()
    post(url, metrics_request(gauge("after", TIME_NS, asInt="2")))

    expected = (point("before", TIME_NS, 1), point("after", TIME_NS, 2))
    assert expected == collector.stop_and_read().metrics


@pytest.mark.collector
def test_a_collector_that_cannot_start_shows_its_log(collector_binary: Path, tmp_path: Path) -> None:
    """A configuration that the Collector refuses is an error with the reason the Collector gave."""
    config = tmp_path / "wrong.yaml"
    config.write_text("receivers: {no_such_receiver: {}}\n", encoding="utf-8")

    with pytest.raises(CollectorError, match=r"(?s)ended with status 1; the end of its log:.*no_such_receiver"):
        Collector(collector_binary, tmp_path / "collector", config).start()


@pytest.mark.collector
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_the_doctor_is_understood_and_sends_nothing(collector: Collector, tmp_path: Path, protocol: str) -> None:
    """The Collector takes requests without data; on the other port the doctor names the protocol that it speaks."""
    right, wrong = collector.grpc_endpoint, collector.http_endpoint
    if protocol != "grpc":
        right, wrong = wrong, right
    found = {}
    for endpoint in (right, wrong):
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
        result = CliRunner().invoke(app, ["doctor", "--json"], env={**environ, "OTEL_LOGGER_DIR": str(tmp_path)})
        checks = [json.loads(line) for line in result.stdout.splitlines()]
        (found[endpoint],) = (check for check in checks if check["check"] == "endpoint")
    other, word = ("http/protobuf", "HTTP") if protocol == "grpc" else ("grpc", "gRPC")

    assert "ok" == found[right]["verdict"]
    assert f"({protocol}) takes metrics, logs, traces, in " in found[right]["found"]
    assert f"{wrong.removeprefix('http://')} speaks {word}, not " in found[wrong]["found"]
    assert f"Set OTEL_EXPORTER_OTLP_PROTOCOL={other}." == found[wrong]["remedy"]
    assert Received((), (), ()) == collector.stop_and_read()


@pytest.mark.parametrize("server", ["collector", "prometheus", "versitygw"])
def test_a_missing_server_is_told_with_the_cure(tmp_path: Path, server: str) -> None:
    """Asked for a server that is not built, the tool names the place it looked at and the command that builds it."""
    done = run_servers_tool("--path", server, environ={"TEST_SERVERS_CACHE": str(tmp_path)})

    assert done.returncode == 1
    assert not done.stdout
    assert f"{server} is not built: {tmp_path}/servers/{server}-" in done.stderr
    assert done.stderr.endswith("is absent; build it with `make servers`\n")


def test_an_old_go_is_told_with_the_cure(tmp_path: Path) -> None:
    """With a Go that is too old the tool builds nothing and says which is needed and where it comes from."""
    old = tmp_path / "go"
    old.write_text(f"#!{sys.executable}\nprint('go version go1.19.8 linux/amd64')\n", encoding="utf-8")
    old.chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-c", PRINT_GO_ERROR, str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert (
        "collector needs Go 1.26 or newer: install it from https://go.dev/dl/ and put it on PATH "
        f"({old} is 1.19)\n" == done.stdout
    ), done.stderr


# In a process of its own, as the tool is no importable module; without the places beside PATH, where a newer Go may be.
PRINT_GO_ERROR = f"""
import runpy, sys
tool = runpy.run_path({str(BASE_CONFIG.parents[1] / "tools" / "servers.py")!r})
tool["find_go"].__globals__["GO_BESIDE_PATH"] = ()
try:
    tool["find_go"](tool["SERVERS"]["collector"], {{"PATH": sys.argv[1]}})
except tool["ServerError"] as error:
    print(error)
"""


def test_a_metric_without_a_single_value_is_not_dropped_in_silence() -> None:
    """The reader raises for a histogram, rather than telling a test that nothing arrived."""
    request = metrics_request({"name": "seconds", "histogram": {"dataPoints": []}})

    with pytest.raises(ValueError, match="metric 'seconds' is no gauge and no sum"):
        list(metric_points(request))


def test_an_unknown_value_is_not_dropped_in_silence() -> None:
    """The reader raises for a kind of value that it does not know."""
    with pytest.raises(ValueError, match="is no OTLP value"):
        decode_value({"futureValue": 1})
