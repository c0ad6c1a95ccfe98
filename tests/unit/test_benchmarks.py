"""What the programs in benchmarks/ conclude from what they saw; the programs themselves are run by hand."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from otlp_server import Received

from otel_logger_exporters.signals import Signal


@pytest.fixture(scope="module")
def benchmarks() -> Iterator[Path]:
    """The folder of the programs, from which they can be imported."""
    folder = Path(__file__).resolve().parents[2] / "benchmarks"
    before = list(sys.path)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path[:] = before


@pytest.fixture
def soak_sink(benchmarks: Path) -> ModuleType:
    """The module `soak_sink`."""
    import soak_sink

    return soak_sink


@pytest.fixture
def reliability(benchmarks: Path) -> ModuleType:
    """The module `reliability`."""
    import reliability

    return reliability


@pytest.fixture
def blobs(benchmarks: Path) -> ModuleType:
    """The module `blobs`."""
    import blobs

    return blobs


def request(name: str, key: str, numbers: list[int]) -> Received:
    """Return a request with values of a key."""
    message = ExportMetricsServiceRequest()
    metric = message.resource_metrics.add().scope_metrics.add().metrics.add(name=name)
    for number in numbers:
        point = metric.gauge.data_points.add(as_double=float(number))
        pair = point.attributes.add(key="training.metric.key")
        pair.value.string_value = key
    return Received(Signal.METRICS, message.SerializeToString(), {}, "peer")


def test_the_sink_of_the_soak_marks_each_value(soak_sink: ModuleType) -> None:
    """What is missing, what came again and what nobody recorded are told apart, values from steps."""
    sink = soak_sink.Sink(["soak/0", "soak/1"], 4)

    sink.handle(request("soak/0", "soak/0", [0, 1, 2, 3]))
    sink.handle(request("soak/1", "soak/1", [0, 1, 1, 1, 7]))
    sink.handle(request("training.step", "soak/0", [0, 1, 2, 3]))
    sink.handle(request("training.step", "soak/1", [0, 1, 2, 3]))
    sink.handle(request("otel_logger.recorded", "", [9]))

    assert soak_sink.Arrivals(arrived=6, missing=2, again=2, foreign=1) == sink.values()
    assert soak_sink.Arrivals(arrived=8, missing=0, again=0, foreign=0) == sink.steps()
    assert (False, True) == (sink.values().is_exact, sink.steps().is_exact)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ERROR opentelemetry.x: Failed to export metrics batch code: 500, reason: x", {Signal.METRICS}),
        ("WARNING opentelemetry.x: Queue full, dropping Span.", {Signal.TRACES}),
        (
            "WARNING opentelemetry.x: Transient error x encountered while exporting logs batch, retrying in 1s.",
            set(),
        ),
        ("WARNING otel_logger: Sending metrics fails for now (500). Nothing is lost: it is on disk.", set()),
        ("WARNING otel_logger: A logger inherited by a forked process records nothing: x (1 so far)", set(Signal)),
        ("otel_logger: run x ended: delivered 3 values, 2 log records, 2 spans", set()),
        ("otel_logger: run x ended: delivered 3 values, 2 spans; 1 log record refused by the endpoint", {Signal.LOGS}),
    ],
)
def test_a_loss_is_told_by_words_about_it(reliability: ModuleType, line: str, told: set[Signal]) -> None:
    """A line counts for the signals it names, or for all when it names none; a try that failed is no loss yet."""
    result = reliability.Result(said=[line])

    assert told == {signal for signal in Signal if result.told(signal)}


def test_a_row_of_the_table(reliability: ModuleType) -> None:
    """Protocols that fared alike share a row, with their times; a loss without a word has its mark."""
    fault = reliability.FAULTS[0]

    def result(seconds: float, spans: int) -> Any:
        recorded = dict.fromkeys(Signal, 5)
        at_exit = recorded | {Signal.METRICS: 3, Signal.TRACES: spans}
        in_the_end = recorded | {Signal.TRACES: spans}
        return reliability.Result(recorded, at_exit, in_the_end, True, seconds)

    alike = reliability.rows(fault, "sdk", [("http/protobuf", result(0.5, 4)), ("grpc", result(1.25, 4))])
    apart = reliability.rows(fault, "otel_logger", [("http/protobuf", result(0.5, 4)), ("grpc", result(0.5, 5))])

    assert [[fault.title, "SDK (HTTP, gRPC)", "5/5", "yes", "5/5", "4/5!", "2 values", "0.5 to 1.2", ""]] == alike
    assert ["otel_logger (HTTP)", "otel_logger (gRPC)"] == [row[1] for row in apart]
    assert ["4/5!", "5/5"] == [row[5] for row in apart]


class Answering:
    """A process of the benchmark of blobs, which answers at once, with calls that take longer and longer."""

    def __init__(self, milliseconds: float, can: tuple[str, ...], asked: list[str]) -> None:
        self.can = can
        self._milliseconds = milliseconds
        self._asked = asked
        self._calls = 0

    def ask(self, **command: str) -> dict[str, float]:
        """Note the question, and answer it."""
        self._asked.append(f"{command['do']} {self._milliseconds:g}")
        self._calls += 1
        seconds = self._milliseconds * self._calls / 1000
        return {"seconds": seconds, "processor": seconds / 2, "settled": seconds}


def test_libraries_take_turns_at_calls(blobs: ModuleType, tmp_path: Path) -> None:
    """Each round has a call of each library that is able; the first rounds do not count; ratios are of rounds."""
    asked: list[str] = []
    bench = blobs.Bench(blobs.arguments(["--rounds", "3"]), tmp_path, ExitStack())
    bench.workers = {
        blobs.OURS: Answering(1, ("images", "table"), asked),
        "W&B": Answering(10, ("images", "table"), asked),
        "TensorBoard": Answering(5, ("images",), asked),
    }

    rows = bench.calls("table", "log_table")

    assert ["table 1", "table 10"] * (blobs.WARM_UP + 3) == asked
    assert [
        ["log_table", blobs.OURS, "5.00", "6.00", "6.00", "2.50", "1.0"],
        ["log_table", "W&B", "50.00", "60.00", "60.00", "25.00", "10.0"],
    ] == rows
    assert ["MISSED  log_table, median, at most 1 ms: 5.00 ms"] == [str(target) for target in bench.targets]


def test_a_ratio_is_of_rounds_and_not_of_medians(blobs: ModuleType) -> None:
    """A round in which the machine was slow, for both of them, changes nothing."""
    assert 2.0 == blobs.ratio([2.0, 20.0, 6.0], [1.0, 10.0, 3.0])


@pytest.mark.parametrize(("share", "found"), [(0.0, 1.0), (0.5, 2.0), (0.75, 3.0), (0.76, 4.0), (0.99, 4.0)])
def test_a_percentile_is_a_sample(blobs: ModuleType, share: float, found: float) -> None:
    """It is the smallest that the share does not exceed."""
    assert found == blobs.percentile([4.0, 2.0, 1.0, 3.0], share)


def test_targets_are_met_at_their_limit(blobs: ModuleType) -> None:
    """A figure may be as large, or as small, as its limit."""
    targets = [blobs.smaller("x", 2.0, 2, " ms"), blobs.larger("y", 2.0, 2, ""), blobs.larger("z", 1.99, 2, "")]

    assert [
        "met     x, at most 2 ms: 2.00 ms",
        "met     y, at least 2: 2.00",
        "MISSED  z, at least 2: 1.99",
    ] == [str(target) for target in targets]
