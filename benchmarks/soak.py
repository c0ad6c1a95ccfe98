"""A soak: steady logging through a long outage of a real Collector, judged by what arrives and what it costs.

    python benchmarks/soak.py                                  15 minutes, of which 5 without the Collector
    python benchmarks/soak.py --minutes 1                      the same proportions in a minute

One process logs at `--rate` calls per second; a second one runs the same loop without a logger at the same time, so
that what the machine does to both can be told from what the logger costs. Values go to a Collector, which is stopped
for the outage, and through it to a sink that marks each one. Memory, disk and CPU of the logging process are read each
second. Prints a table by the minute and a verdict, and exits with 1 when that is bad. Needs Linux and `make servers`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from machine import measured_on
from receiver import Receiver
from soak_sink import Sink

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from collector import Collector, find_binary  # noqa: E402

KIB = 1024
MIB = 1024 * KIB
PROGRAM = Path(__file__).with_name("soak_program.py")
CONFIG = Path(__file__).with_name("soak-collector.yaml")

SETTLING = 60.0
"""Seconds at the beginning of each phase (before, in and after the outage) whose memory is not judged: imports end,
buffers reach their size, the back-off its longest wait. Short soaks judge the second half of each phase."""

WINDOW = 10.0
"""Seconds whose smallest sample stands for them: what is held while a request is made comes and goes."""

SLOPE_LIMIT = 64.0
"""KiB of anonymous memory per minute that pass as flat: 90 MiB in a day."""

GROWTH_LIMIT = 32.0
"""MiB by which anonymous memory may be higher after the outage than before."""

PEAK_LIMIT = 128.0
"""MiB by which anonymous memory may ever be higher than before the outage."""

SHORTEST_PHASE = 60.0
"""Seconds below which a slope of memory says nothing."""

REQUESTS_LIMIT = 2.0
"""Requests a second with metrics: what is recorded is sent together, by default once a second."""

SLOWEST_LIMIT = 25.0
"""Milliseconds by which the slowest call may be slower than the control's: another thread holds the interpreter for
5 ms at a time, on a machine whose processors are shared with the Collector, the sink and the control."""


def main() -> int:
    """Run the soak; return the exit status."""
    options = arguments()
    load = os.getloadavg()[0]
    binary, why = find_binary()
    if binary is None:
        print(f"soak: {why}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="soak-", dir=options.folder) as name:
        soak = Soak(options, Path(name), binary)
        soak.run()
        report = Report(options, soak)
        print(f"load of the machine in the minute before: {load:.1f}")
        report.table()
        if options.samples is not None:
            soak.write_samples(options.samples)
        return 0 if report.verdict() else 1


def arguments() -> argparse.Namespace:
    """Return the command line; an outage that is not given is the middle third."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=15.0, help="how long it logs (default: 15)")
    parser.add_argument("--outage-start", type=float, help="minute at which the Collector stops (default: a third in)")
    parser.add_argument("--outage-minutes", type=float, help="for how long (default: a third of all)")
    parser.add_argument("--rate", type=int, default=500, help="calls per second (default: 500)")
    parser.add_argument("--metrics", type=int, default=10, help="metrics per call (default: 10)")
    parser.add_argument("--protocol", choices=("grpc", "http/protobuf"), default="grpc")
    parser.add_argument("--folder", type=Path, help="where the journal is put (default: the system's temporary folder)")
    parser.add_argument("--samples", type=Path, help="file to write what was sampled each second to, as CSV")
    options = parser.parse_args()
    if options.outage_start is None:
        options.outage_start = options.minutes / 3
    if options.outage_minutes is None:
        options.outage_minutes = options.minutes / 3
    if options.outage_start + options.outage_minutes >= options.minutes:
        parser.error("the outage must end before the soak does")
    options.calls = round(options.minutes * 60 * options.rate)
    options.outage = (options.outage_start * 60, (options.outage_start + options.outage_minutes) * 60)
    return options


@dataclass(frozen=True)
class Sample:
    """The logging process in one moment; `at` in seconds since it began, memory and disk in bytes, `cpu` in seconds."""

    at: float
    rss: int
    anonymous: int
    disk: int
    cpu: float


class Soak:
    """The two loops, the Collector, the sink, and what was seen of them."""

    def __init__(self, options: argparse.Namespace, folder: Path, binary: Path) -> None:
        self.options = options
        self.sink = Sink([f"soak/{number}" for number in range(options.metrics)], options.calls)
        self.samples: list[Sample] = []
        self.result: dict[str, Any] = {}
        self._binary = binary
        self._runs = folder / "runs"
        self._folder = folder

    def run(self) -> None:
        """Run it to its end."""
        with Receiver("http/protobuf", self.sink.handle) as receiver:
            receiver.up()
            collector = _Collector(self._binary, self._folder / "collector", receiver.endpoint)
            collector.start()
            try:
                self._log(collector)
            finally:
                collector.stop()
        self.result = json.loads((self._folder / "soak" / "result.json").read_text("utf-8"))

    def _log(self, collector: Collector) -> None:
        endpoint = collector.grpc_endpoint if self.options.protocol == "grpc" else collector.http_endpoint
        environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        environ |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": self.options.protocol,
            "OTEL_LOGGER_DIR": str(self._runs),
        }
        with self._program("control", environ, "--control") as control, self._program("soak", environ) as soak:
            began = time.monotonic()
            over = threading.Event()
            outage = threading.Thread(target=self._outage, args=(collector, began, over), name="outage")
            outage.start()
            while soak.poll() is None:
                time.sleep(max(0.0, began + len(self.samples) + 1 - time.monotonic()))
                if (sample := self._sample(soak.pid, time.monotonic() - began)) is not None:
                    self.samples.append(sample)
            over.set()
            outage.join()
            control.wait(60)
        for name, program in (("soak", soak), ("control", control)):
            if program.returncode != 0:
                msg = f"the {name} program ended with status {program.returncode}"
                raise RuntimeError(msg)

    @contextmanager
    def _program(self, name: str, environ: dict[str, str], *more: str) -> Iterator[subprocess.Popen[bytes]]:
        folder = self._folder / name
        folder.mkdir()
        options = self.options
        numbers = ("--calls", str(options.calls), "--rate", str(options.rate), "--metrics", str(options.metrics))
        command = [sys.executable, str(PROGRAM), "--folder", str(folder), *numbers, *more]
        with subprocess.Popen(command, env=environ) as program:
            try:
                yield program
            finally:
                if program.poll() is None:
                    program.kill()

    def _outage(self, collector: Collector, began: float, over: threading.Event) -> None:
        for at, action in zip(self.options.outage, (collector.stop, collector.start), strict=True):
            if over.wait(max(0.0, began + at - time.monotonic())):
                return
            action()

    def _sample(self, pid: int, at: float) -> Sample | None:
        try:
            status = Path(f"/proc/{pid}/status").read_text("ascii")
            numbers = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        except OSError:
            return None
        sizes = {name: int(rest.split()[0]) * KIB for name, rest in _lines(status) if name in ("VmRSS", "RssAnon")}
        if "RssAnon" not in sizes:
            # It has ended, and only its status is left.
            return None
        cpu = (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")
        return Sample(at, sizes["VmRSS"], sizes["RssAnon"], self.on_disk(), cpu)

    def on_disk(self) -> int:
        """Return the bytes of disk that the journals take."""
        total = 0
        for path in self._runs.rglob("*.seg"):
            try:
                total += path.stat().st_blocks * 512
            except OSError:
                # Delivered and deleted meanwhile.
                continue
        return total

    def write_samples(self, path: Path) -> None:
        """Write what was sampled each second as CSV."""
        names = [field.name for field in fields(Sample)]
        rows = [",".join(str(getattr(sample, name)) for name in names) for sample in self.samples]
        path.write_text("\n".join([",".join(names), *rows]) + "\n", "ascii")

    def numbers(self, program: str, file: str) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """Return a file of pairs of a program: nanoseconds since its first call, and a number."""
        return np.fromfile(self._folder / program / file, dtype=np.int64).reshape(-1, 2)


class _Collector(Collector):
    def __init__(self, binary: Path, folder: Path, sink: str) -> None:
        super().__init__(binary, folder, CONFIG)
        self._sink = sink

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "SINK_ENDPOINT": self._sink}


def _lines(status: str) -> Iterator[tuple[str, str]]:
    for line in status.splitlines():
        name, _, rest = line.partition(":")
        yield name, rest


class Report:
    """The table and the verdict."""

    def __init__(self, options: argparse.Namespace, soak: Soak) -> None:
        self._options = options
        self._soak = soak
        self._calls = soak.numbers("soak", "latency.bin")
        self._control = soak.numbers("control", "latency.bin")
        self._waiting = soak.numbers("soak", "waiting.bin")
        self._seconds = float(self._calls[-1, 0]) / 1e9

    def table(self) -> None:
        """Print what was measured, minute by minute."""
        options = self._options
        print(f"{measured_on('opentelemetry-proto', 'grpcio')}; {options.protocol}")
        print(
            f"{options.rate} calls/s of {options.metrics} metrics for {options.minutes:g} min, Collector stopped from "
            f"{options.outage[0] / 60:g} to {options.outage[1] / 60:g} min\n"
        )
        print("| minute | calls | p50 µs | p99 µs | p99.9 µs | max ms | control p99.9 µs | control max ms |", end="")
        print(" CPU % | RSS MiB | anonymous MiB | journal on disk MiB | waiting values |")
        print("|" + " --- |" * 13)
        for minute in range(-int(-self._seconds // 60)):
            print("| " + " | ".join(self._row(60.0 * minute, 60.0 * (minute + 1))) + " |")
        print()

    def _row(self, begin: float, end: float) -> list[str]:
        ours, control = (_durations(calls, begin, end) for calls in (self._calls, self._control))
        samples = [sample for sample in self._soak.samples if begin <= sample.at < end]
        last = samples[-1]
        waiting = self._waiting[self._waiting[:, 0] < end * 1e9]
        is_outage = begin < self._options.outage[1] and end > self._options.outage[0]
        return [
            f"{begin / 60 + 1:g}{' (outage)' if is_outage else ''}",
            str(len(ours)),
            *(f"{_percentile(ours, q):.0f}" for q in (50, 99, 99.9)),
            f"{max(ours) / 1e6:.2f}",
            f"{_percentile(control, 99.9):.0f}",
            f"{max(control) / 1e6:.2f}",
            f"{100 * (last.cpu - samples[0].cpu) / max(1.0, last.at - samples[0].at):.1f}",
            f"{last.rss / MIB:.1f}",
            f"{last.anonymous / MIB:.1f}",
            f"{last.disk / MIB:.1f}",
            str(waiting[-1, 1] if len(waiting) else 0),
        ]

    def verdict(self) -> bool:
        """Print each thing that is judged with its figures; return whether all are as they should be."""
        checks: list[Callable[[], tuple[bool, str]]] = [self._arrival, self._accounts, self._requests]
        checks += [self._journal, self._memory]
        checks += [lambda: self._slowest(inside=True), lambda: self._slowest(inside=False)]
        results = [check() for check in checks]
        for good, text in results:
            print(f"{'good' if good else 'BAD '}  {text}")
        return all(good for good, _ in results)

    def _arrival(self) -> tuple[bool, str]:
        both = {"values": self._soak.sink.values(), "steps": self._soak.sink.steps()}
        words = [
            f"{found.arrived} {what} arrived, {found.missing} missing, {found.again} twice, {found.foreign} foreign"
            for what, found in both.items()
        ]
        return all(found.is_exact for found in both.values()), "; ".join(words)

    def _accounts(self) -> tuple[bool, str]:
        stats = self._soak.result["stats"]
        recorded, delivered = (stats[name]["metrics"] for name in ("recorded", "delivered"))
        good = recorded == delivered >= self._options.calls * self._options.metrics and not stats["dropped"]
        return good, (
            f"stats(): recorded {recorded}, delivered {delivered}, dropped {stats['dropped'] or 0}, "
            f"by way of memory {stats['adjusted'].get('memory', 0)}"
        )

    def _requests(self) -> tuple[bool, str]:
        rate = self._soak.sink.requests / self._seconds
        cpu = self._soak.samples[-1].cpu / self._soak.samples[-1].at
        return rate <= REQUESTS_LIMIT, (
            f"{self._soak.sink.requests} requests with metrics, {rate:.1f} a second; {100 * cpu:.1f} % of a processor"
        )

    def _journal(self) -> tuple[bool, str]:
        left = self._soak.on_disk()
        largest = max(sample.disk for sample in self._soak.samples)
        drained = self._drained() - self._options.outage[1]
        return left == 0, (
            f"journal: {left} bytes on disk after close, {largest / MIB:.1f} MiB at most; "
            f"empty {drained:.0f} s after the outage; close took {self._soak.result['close_seconds']:.2f} s"
        )

    def _drained(self) -> float:
        """Return the second at which no more waits than what two seconds of logging leave."""
        few = 2 * self._options.rate * self._options.metrics
        end = self._options.outage[1]
        found = self._waiting[(self._waiting[:, 0] > end * 1e9) & (self._waiting[:, 1] <= few)]
        return float(found[0, 0]) / 1e9 if len(found) else self._seconds

    def _memory(self) -> tuple[bool, str]:
        start, end = self._options.outage
        phases = {"before": (0.0, start), "in": (start, end), "after": (self._drained(), self._seconds)}
        slopes, levels, words = [], [], []
        for name, (begin, finish) in phases.items():
            slope, level = self._flatness(begin + min(SETTLING, (finish - begin) / 2), finish)
            levels.append(level)
            words.append(f"{level:.1f} MiB {name} the outage")
            if slope is not None:
                slopes.append(slope)
                words[-1] += f" ({slope:+.0f} KiB/min)"
        peak = max(sample.anonymous for sample in self._soak.samples) / MIB
        good = max(slopes, default=0.0) <= SLOPE_LIMIT
        good &= levels[2] - levels[0] <= GROWTH_LIMIT and peak - levels[0] <= PEAK_LIMIT
        return good, f"anonymous memory: {', '.join(words)}, at most {peak:.1f} MiB"

    def _flatness(self, begin: float, end: float) -> tuple[float | None, float]:
        """Return the slope of the memory of a phase in KiB per minute, None for a short one, and its median in MiB."""
        samples = [sample for sample in self._soak.samples if begin <= sample.at < end]
        least: dict[float, int] = {}
        for sample in samples:
            window = sample.at // WINDOW * WINDOW
            least[window] = min(sample.anonymous, least.get(window, sample.anonymous))
        level = float(np.median([sample.anonymous for sample in samples])) / MIB
        if end - begin < SHORTEST_PHASE:
            return None, level
        return float(np.polyfit([at / 60 for at in least], [size / KIB for size in least.values()], 1)[0]), level

    def _slowest(self, *, inside: bool) -> tuple[bool, str]:
        ours, control = (self._part(calls, inside=inside) for calls in (self._calls, self._control))
        slowest, machine = max(ours) / 1e6, max(control) / 1e6
        words = [
            ", ".join(f"p{percent:g} {_percentile(calls, percent):.0f} µs" for percent in (50, 99, 99.9))
            + f", slowest {max(calls) / 1e6:.2f} ms"
            for calls in (ours, control)
        ]
        text = f"calls {'inside' if inside else 'outside'} the outage: {words[0]}; control: {words[1]}"
        return slowest <= machine + SLOWEST_LIMIT, text

    def _part(self, calls: Any, *, inside: bool) -> Any:
        begin, end = (second * 1e9 for second in self._options.outage)
        within = (calls[:, 0] >= begin) & (calls[:, 0] < end)
        return calls[within if inside else ~within, 1]


def _durations(calls: Any, begin: float, end: float) -> Any:
    return calls[(calls[:, 0] >= begin * 1e9) & (calls[:, 0] < end * 1e9), 1]


def _percentile(durations: Any, percent: float) -> float:
    """Return a percentile in microseconds."""
    return float(np.percentile(durations, percent)) / 1e3


if __name__ == "__main__":
    sys.exit(main())
