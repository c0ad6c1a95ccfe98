"""A run whose training hangs still says that it lives, where it is and since when."""

from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint

from otel_logger import OTelLogger
from otel_logger import conventions as names
from otel_logger_exporters.signals import Signal
from tests.otlp_server import OtlpServer

LONG = 15.0


def points(server: OtlpServer, name: str) -> list[NumberDataPoint]:
    """Return the points of a metric in the order in which they came."""
    return [point for metric, point in server.points() if metric.name == name]


def test_a_run_that_hangs_is_seen_to_hang(tmp_path):
    """Its thread says nothing any more; beats come all the same, with the old step and a phase that grows."""
    with OtlpServer("http/protobuf") as server:
        environ = {
            "OTEL_LOGGER_DIR": str(tmp_path),
            "OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint,
            "OTEL_LOGGER_HEARTBEAT_INTERVAL": "100",
            "OTEL_LOGGER_FLUSH_INTERVAL": "10",
        }
        with OTelLogger(run_name="run", environ=environ) as log:
            log.log_metrics({"loss": 0.5}, step=7)
            # What a training that hangs does: nothing.
            assert server.wait_for(Signal.METRICS, 5, LONG)
        steps = [point for point in points(server, names.POSITION_STEP) if not point.flags]
        spent = [p.as_double for p in points(server, names.PHASE_TIME) if p.attributes[0].value.string_value == "other"]
        ends = [point for point in points(server, names.POSITION_STEP) if point.flags]
    assert len(steps) >= 4
    assert {7} == {point.as_int for point in steps}
    assert len({point.time_unix_nano for point in steps}) == len(steps)
    assert sorted(spent[:-1]) == spent[:-1]
    assert spent[-2] > spent[0] >= 0
    assert 1 == len(ends)
    assert ends[0].time_unix_nano > steps[-1].time_unix_nano
