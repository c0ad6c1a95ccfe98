"""A small training program that records by otel_logger or by the stock OpenTelemetry SDK, as it is told on its input.

Commands, one per line, each answered by a line on its output:

    steps FIRST COUNT RATE      record a metric value, a log record and a span per number from FIRST on, RATE a second
    spans FIRST COUNT           record spans alone, as fast as they can be made
    fork WORKERS COUNT SECONDS  fork workers by multiprocessing, as a data loader does; each records COUNT steps,
                                numbered from a million times its own number, and lives for SECONDS
    join                        wait for them
    end | raise | _exit         end the program: normally, by an exception that nobody catches, by `os._exit`
"""

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace.export import SpanExporter

WORKER_NUMBERS = 1_000_000


class Recorder(Protocol):
    """What both libraries are asked to record: everything carries the number by which it is known where it arrives."""

    def metric(self, number: int) -> None:
        """Record the value of a metric."""

    def log(self, number: int) -> None:
        """Record a log record."""

    def span(self, number: int) -> None:
        """Record a span, which ends at once."""


class OwnRecorder:
    """otel_logger; `log_traces` makes log records, by OTEL_LOGGER_TRACE_EVENTS=log."""

    def __init__(self) -> None:
        from otel_logger import OTelLogger

        self.logger = OTelLogger(run_name="reliability")

    def metric(self, number: int) -> None:
        """Record the value of a metric."""
        self.logger.log_metrics({"loss": float(number)}, step=number)

    def log(self, number: int) -> None:
        """Record a log record."""
        self.logger.log_traces({"seq": number})

    def span(self, number: int) -> None:
        """Record a span."""
        with self.logger.span("work", seq=number):
            pass


def grpc_exporters(endpoint: str) -> "tuple[MetricExporter, LogRecordExporter, SpanExporter]":
    """Return the SDK's exporters over gRPC."""
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    return (
        OTLPMetricExporter(endpoint=endpoint, insecure=True),
        OTLPLogExporter(endpoint=endpoint, insecure=True),
        OTLPSpanExporter(endpoint=endpoint, insecure=True),
    )


def http_exporters(endpoint: str) -> "tuple[MetricExporter, LogRecordExporter, SpanExporter]":
    """Return the SDK's exporters over HTTP."""
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return (
        OTLPMetricExporter(endpoint=f"{endpoint}/v1/metrics"),
        OTLPLogExporter(endpoint=f"{endpoint}/v1/logs"),
        OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces"),
    )


class SdkRecorder:
    """The stock SDK as its documentation sets it up: batch processors and exporters with their defaults.

    Its metrics are exported each second, not each minute as by default, which is as often as otel_logger sends.
    Providers shut down at the end of the interpreter, by default.
    """

    def __init__(self, protocol: str, endpoint: str) -> None:
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        metrics, logs, spans = grpc_exporters(endpoint) if protocol == "grpc" else http_exporters(endpoint)
        resource = Resource.create({"service.name": "training"})
        reader = PeriodicExportingMetricReader(metrics, export_interval_millis=1000)
        meters = MeterProvider(metric_readers=[reader], resource=resource)
        loggers = LoggerProvider(resource=resource)
        loggers.add_log_record_processor(BatchLogRecordProcessor(logs))
        tracers = TracerProvider(resource=resource)
        tracers.add_span_processor(BatchSpanProcessor(spans))
        self._gauge = meters.get_meter("reliability").create_gauge("loss")
        self._logger = loggers.get_logger("reliability")
        self._tracer = tracers.get_tracer("reliability")

    def metric(self, number: int) -> None:
        """Record the value of a metric."""
        self._gauge.set(float(number))

    def log(self, number: int) -> None:
        """Record a log record."""
        self._logger.emit(event_name="seq", body=number, timestamp=time.time_ns())

    def span(self, number: int) -> None:
        """Record a span."""
        with self._tracer.start_as_current_span("work", attributes={"seq": number}):
            pass


@contextmanager
def recorder(library: str, protocol: str, endpoint: str) -> Iterator[Recorder]:
    """Return the recorder of a library, set up and ended as that library's users do it."""
    if library == "sdk":
        yield SdkRecorder(protocol, endpoint)
        return
    own = OwnRecorder()
    with own.logger:
        yield own


def main() -> None:
    """Do as the input says until it ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=("otel_logger", "sdk"))
    parser.add_argument("protocol", choices=("grpc", "http/protobuf"))
    parser.add_argument("endpoint")
    options = parser.parse_args()
    # What each library says is told from the other's and the program's own.
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    workers: Sequence[multiprocessing.process.BaseProcess] = []
    with recorder(options.library, options.protocol, options.endpoint) as record:
        print("ready", flush=True)
        for line in sys.stdin:
            command, *words = line.split()
            numbers = [int(word) for word in words]
            if command == "steps":
                steps(record, *numbers)
            elif command == "spans":
                first, count = numbers
                for number in range(first, first + count):
                    record.span(number)
            elif command == "fork":
                workers = fork(record, *numbers)
            elif command == "join":
                for worker in workers:
                    worker.join()
            elif command == "raise":
                msg = "the training failed"
                raise RuntimeError(msg)
            elif command == "_exit":
                os._exit(0)
            elif command == "end":
                break
            print("done", flush=True)


def steps(record: Recorder, first: int, count: int, rate: int) -> None:
    """Record steps at a steady rate."""
    begin = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, begin + number / rate - time.monotonic()))
        record.metric(first + number)
        record.log(first + number)
        record.span(first + number)


def fork(record: Recorder, count: int, items: int, seconds: int) -> Sequence[multiprocessing.process.BaseProcess]:
    """Start workers, which have inherited the recorder."""
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=work, args=(record, WORKER_NUMBERS * n, items, seconds)) for n in range(1, count + 1)
    ]
    for worker in workers:
        worker.start()
    return workers


def work(record: Recorder, first: int, items: int, seconds: int) -> None:
    """Be a worker."""
    begin = time.monotonic()
    steps(record, first, items, 20)
    time.sleep(max(0.0, begin + seconds - time.monotonic()))


if __name__ == "__main__":
    main()
