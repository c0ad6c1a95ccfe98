"""What gzip costs and brings for the requests that otel_logger sends.

    python benchmarks/compression.py [--repeat 30] [--json]

For each kind of request and each level: the ratio of sizes; the time of compressing per item (a value with its step, a
log record, a span); the share of a core at 10,000 items per second; and the bandwidth below which a compressed request
is there earlier than a plain one, decompression counted. Figures are medians of processor time; zlib releases the
interpreter's lock meanwhile. Over HTTP we choose the level, gRPC takes zlib's default, which is 6.
"""

import argparse
import gzip
import json
import random
import statistics
import struct
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from machine import measured_on
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_logger.settings import Settings
from otel_logger.vocabulary import metric_vocabulary
from otel_logger_exporters.items import Event, encode_event, encode_resource, encode_spans
from otel_logger_exporters.requests import frame_requests, metric_requests
from otel_logger_exporters.rows import Row

LEVELS = (1, 6)
ITEMS_PER_SECOND = 10_000
START_NS = 1_760_000_000_000_000_000
STEP_NS = 100_000_000

RESOURCE = encode_resource(
    {
        "service.name": "training",
        "service.instance.id": "digits-7352c1/0/1/a1b2c3",
        "host.name": "node-17.cluster.example",
        "training.run.id": "digits-7352c1",
        "training.run.name": "digits",
        **{f"training.hparam.optimizer.group{number}.lr": 0.1 / (number + 1) for number in range(40)},
    }
)


@dataclass(frozen=True, slots=True)
class Payload:
    """One request and how many items it holds."""

    name: str
    items: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Result:
    """What one level makes of a payload. `pays_below` is in Mbit/s, `core` in percent at 10,000 items per second."""

    payload: str
    bytes_per_item: float
    level: int
    ratio: float
    compress_ns: float
    decompress_ns: float
    core: float
    pays_below: float


def payloads() -> Iterator[Payload]:
    """Yield requests as they are in training: of a second's calls, and of a backlog."""
    draw = random.Random(0)
    for origin in ("f32", "f64"):
        for metrics in (1, 10, 100):
            for calls in (10, 1000):
                yield _metrics(draw, origin, metrics, calls)
    yield from (_logs(calls) for calls in (10, 1000))
    yield from (_spans(calls) for calls in (10, 1000))


def measure(payload: Payload, level: int, repeat: int) -> Result:
    """Return the medians of `repeat` rounds."""
    compress, decompress = [], []
    for _ in range(repeat):
        begin = time.thread_time_ns()
        packed = gzip.compress(payload.body, level, mtime=0)
        middle = time.thread_time_ns()
        gzip.decompress(packed)
        compress.append(middle - begin)
        decompress.append(time.thread_time_ns() - middle)
    packing, unpacking = statistics.median(compress), statistics.median(decompress)
    saved = len(payload.body) - len(packed)
    return Result(
        payload=payload.name,
        bytes_per_item=len(payload.body) / payload.items,
        level=level,
        ratio=len(payload.body) / len(packed),
        compress_ns=packing / payload.items,
        decompress_ns=unpacking / payload.items,
        core=packing / payload.items * ITEMS_PER_SECOND / 1e9 * 100,
        pays_below=saved * 8 / (packing + unpacking) * 1000,
    )


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeat", type=int, default=30, help="rounds of each measurement")
    options.add_argument("--json", action="store_true", help="print JSON")
    given = options.parse_args()
    results = [measure(payload, level, given.repeat) for payload in payloads() for level in LEVELS]
    if given.json:
        print(json.dumps([asdict(result) for result in results], indent=1))
        return
    print(f"{measured_on('protobuf')}; median of {given.repeat}\n")
    print("| request | B/item | level | ratio | ns/item | ns/item back | core at 10k/s | pays below |")
    print("|---|---|---|---|---|---|---|---|")
    for result in results:
        print(
            f"| {result.payload} | {result.bytes_per_item:.0f} | {result.level} | {result.ratio:.2f} "
            f"| {result.compress_ns:.0f} | {result.decompress_ns:.0f} | {result.core:.2f} % "
            f"| {result.pays_below:.0f} Mbit/s |"
        )
    print()
    for level in LEVELS:
        of_level = [result for result in results if result.level == level]
        print(
            f"level {level}, median of all: ratio {statistics.median(r.ratio for r in of_level):.2f}, "
            f"{statistics.median(r.compress_ns for r in of_level):.0f} ns/item, "
            f"pays below {statistics.median(r.pays_below for r in of_level):.0f} Mbit/s "
            f"(from {min(r.pays_below for r in of_level):.0f} to {max(r.pays_below for r in of_level):.0f})"
        )


def _metrics(draw: random.Random, origin: str, metrics: int, calls: int) -> Payload:
    keys = tuple(f"layer{number}/loss/train" if number else "loss/train/total" for number in range(metrics))
    rows = []
    for call in range(calls):
        # A curve that falls, with noise; what comes from a GPU has the 24 bits of a float32.
        values = [2.0 / (1 + call / 50) + draw.gauss(0, 0.01) for _ in keys]
        if origin == "f32":
            values = [struct.unpack("f", struct.pack("f", value))[0] for value in values]
        rows.append(Row(keys, tuple(values), START_NS + call * STEP_NS, call))
    (body, *more) = metric_requests(rows, RESOURCE, metric_vocabulary(Settings())).bodies
    count = metrics * calls
    if more:
        # A request is cut at 3 MiB: what is in the first is proportional to its size.
        count = round(count * len(body) / (len(body) + sum(map(len, more))))
    return Payload(f"metrics {origin}, {metrics} a call, {calls} calls", count, body)


def _logs(count: int) -> Payload:
    scope = InstrumentationScope("otel_logger", "0.1.0")
    frames = [
        encode_event(
            Event(
                "training.file",
                START_NS + number * STEP_NS,
                {
                    "training.name": f"checkpoints/ep{number // 100}-ba{number}-rank0.pt",
                    "training.blob.uri": f"s3://bucket/runs/digits-7352c1/ep{number // 100}-ba{number}-rank0.pt",
                    "training.blob.digest": f"sha256:{random.Random(number).randbytes(32).hex()}",
                    "training.blob.size": 123_456_789 + number,
                    "training.step": number,
                    "training.run.id": "digits-7352c1",
                    "log.record.uid": random.Random(-number).randbytes(16).hex(),
                },
            ),
            scope,
        )
        for number in range(count)
    ]
    return Payload(f"logs, {count} records", count, frame_requests(frames, RESOURCE)[0])


def _spans(count: int) -> Payload:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("otel_logger")
    with tracer.start_as_current_span("training.epoch"):
        for number in range(count):
            begun = START_NS + number * STEP_NS
            span = tracer.start_span("training.batch", start_time=begun, attributes={"training.step": number})
            span.end(begun + STEP_NS - number)
    frames = [encode_spans([span]) for span in exporter.get_finished_spans()[:count]]
    return Payload(f"spans, {count}", count, frame_requests(frames, RESOURCE)[0])


if __name__ == "__main__":
    main()
