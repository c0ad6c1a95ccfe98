"""A training process in the tests of outages, and the comparison of its account with what arrived."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from received import LogRecord, MetricPoint, Received, Span, by_identity
from trainee import KEYS, WIDE_KEY, Call, text_of, values_of

from otel_logger import conventions as names

__all__ = ["Account", "Audit", "Training", "audit"]

PATIENCE = 60.0
"""Seconds that any command takes at most, unless it hangs."""

MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Account:
    """What a training process did: its calls, each with its cost; idle calls beside them; what calls raised."""

    calls: list[Call]
    idle: list[Call]
    raised: list[str]
    warm: int
    """How many of the calls were there to warm up."""

    def of(self, kind: str) -> dict[int, Call]:
        """The calls of a kind by their number."""
        return {call[1]: call for call in self.calls if call[0].partition(" ")[0] == kind}

    @property
    def items(self) -> int:
        """The items that were logged: metric values, spans, and log records, also those of images and tables."""
        return sum(len(KEYS) if call[0] == "metrics" else 1 for call in self.calls)

    def waits(self, kind: str, longer_than: float = 0.0) -> list[float]:
        """For how long (s) calls of a kind waited, once warm, as far as that is longer; `idle` are the idle ones.

        A call waits if its thread went to sleep in it: it was off the processor, and not because that was taken away.
        """
        calls = self.idle if kind == "idle" else [call for call in self.calls[self.warm :] if call[0].startswith(kind)]
        took = [(call[4] - call[5]) / 1e9 for call in calls if call[6]]
        return [seconds for seconds in took if seconds > longer_than]

    def figures(self, kind: str = "") -> str:
        """Durations of calls, and of idle ones beside them, as a line for people."""
        parts = []
        for name, calls in ((kind or "calls", self.calls[self.warm :]), ("idle", self.idle)):
            took = sorted(call[4] / 1000 for call in calls if name == "idle" or call[0].startswith(kind)) or [0.0]
            at = {label: took[min(len(took) - 1, int(len(took) * part))] for label, part in PERCENTILES.items()}
            parts.append(f"{name}: " + ", ".join(f"{label} {value:.0f}" for label, value in at.items()) + " us")
        waits = self.waits(kind, 0.002)
        return "; ".join(
            [*parts, f"waits over 2 ms: {len(waits)}, the longest {1000 * max(waits, default=0.0):.1f} ms"]
        )


PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


class Training:
    """A process that runs `trainee.py`. Its death by a signal is an error wherever it is noticed."""

    def __init__(self, folder: Path, prefix: Sequence[str] = ()) -> None:
        self._account = folder / "account.pickle"
        self._errors = folder / "errors.txt"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*prefix, sys.executable, str(Path(__file__).with_name("trainee.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
            )
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def open(self, environ: Mapping[str, str], run_name: str = "outage") -> dict[str, Any]:
        """Makes the logger; what it says of its run, or the `error`."""
        return self.ask("open", run_name=run_name, environ=dict(environ))

    def begin(self, do: str, **arguments: Any) -> None:
        """Gives a command, for whose end `finish` waits."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self._process.stdin.flush()

    def reach(self, call: int) -> None:
        """Waits until the training under way has made so many calls."""
        while self._answer()["at"] < call:
            pass

    def finish(self) -> dict[str, Any]:
        """Waits for the end of the command that was begun, and returns its answer."""
        while "at" in (answer := self._answer()):
            pass
        return answer

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Gives a command and returns its answer."""
        self.begin(do, **arguments)
        return self.finish()

    def deliver(self, seconds: float = PATIENCE) -> None:
        """Flushes until nothing is left, which may take several attempts."""
        deadline = time.monotonic() + seconds
        while not self.ask("flush", timeout=5.0)["empty"]:
            if time.monotonic() > deadline:
                msg = f"not everything is delivered after {seconds:.0f} s: {self.ask('stats')}"
                raise AssertionError(msg)

    def end(self) -> Account:
        """Lets the process end, and returns its account; its exit is that of a program without a fault."""
        self.ask("report", path=str(self._account))
        assert self._process.stdin is not None
        self._process.stdin.close()
        status = self._process.wait(timeout=PATIENCE)
        assert status == 0, self._told(status)
        return Account(*pickle.loads(self._account.read_bytes()))

    def _answer(self) -> dict[str, Any]:
        line = self._answers.get(timeout=PATIENCE)
        if not line:
            raise AssertionError(self._told(self._process.wait(timeout=PATIENCE)))
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(b"")

    def _told(self, status: int) -> str:
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        return f"the training ended with {how}:\n{self._errors.read_text(errors='replace')[-2000:]}"


@dataclass(slots=True)
class Audit:
    """What the comparison of an account with what arrived has found, by kind of item; `copies` were sent again."""

    expected: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)
    invented: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    own: int = 0
    """Spans and log records that arrived and that the logger makes itself, until it is closed."""

    @property
    def arrived(self) -> int:
        """The distinct items that arrived, until the logger was closed."""
        return self.own + sum(self.expected.values()) - sum(self.lost.values())

    @property
    def is_faithful(self) -> bool:
        """Whether all that arrived is what was logged, and each item one after de-duplication."""
        return not self.invented and not self.wrong

    def check(self, kind: str, logged: Iterable[int], arrived: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        """Compares the numbers of what was logged with those of what arrived; returns what is right so far."""
        wanted = set(logged)
        self.expected[kind] += len(wanted)
        self.lost[kind] += len(wanted - arrived.keys())
        self.invented += [f"{kind} {number}" for number in list(arrived.keys() - wanted)[:10]]
        twice = {number: found for number, found in arrived.items() if len(found) != 1}
        self.wrong += [f"{kind} {number} is several: {found}" for number, found in list(twice.items())[:10]]
        return {number: found[0] for number, found in arrived.items() if number in wanted and len(found) == 1}

    def distinct(self, kind: str, items: Sequence[Any]) -> list[Any]:
        """De-duplicates items by their identity; copies that differ are wrong."""
        groups = by_identity(items).values()
        self.copies[kind] += len(items) - len(groups)
        self.wrong += [f"copies differ: {group}" for group in groups if any(not same(group[0], each) for each in group)]
        return [group[0] for group in groups]


def audit(account: Account, received: Received, root: Path = Path("/")) -> Audit:
    """Compares all that was logged with all that arrived: each once, at its time, the same to the bit, nothing else.

    `root` is where the training's files are found from here.
    """
    found = Audit()
    _audit_metrics(found, account, received.metrics)
    _audit_logs(found, account, received.logs, root)
    _audit_spans(found, account, received.spans)
    return found


def _audit_metrics(found: Audit, account: Account, received: Sequence[MetricPoint]) -> None:
    values: dict[tuple[str, int], MetricPoint] = {}
    steps: dict[tuple[str, int], Any] = {}
    for point in found.distinct(
        "metrics", [each for each in received if names.METRIC_KEY in each.attributes and each.value is not None]
    ):
        key = point.attributes[names.METRIC_KEY]
        (steps if point.name == names.STEP else values)[key, point.time_ns] = point
    logged = {key: account.of("metrics") for key in KEYS}
    wide = account.of("wide")
    logged.update({f"{WIDE_KEY}{number}": {number: call} for number, call in wide.items()})
    arrived: dict[str, dict[int, list[MetricPoint]]] = {key: {} for key in logged}
    for (key, time_ns), point in values.items():
        if key not in arrived or (key, time_ns) not in steps:
            found.invented.append(f"{key[-100:]} at {time_ns}")
            continue
        arrived[key].setdefault(steps[key, time_ns].value, []).append(point)
    found.invented += [f"step of {key[-100:]} at {time_ns}" for key, time_ns in steps if (key, time_ns) not in values]
    times: dict[tuple[str, int], set[int]] = {}
    for key, calls in logged.items():
        kind = "wide" if key.startswith(WIDE_KEY) else "metrics"
        for number, point in found.check(kind, calls, arrived[key]).items():
            times.setdefault((kind, number), set()).add(point.time_ns)
            value = float(number) if kind == "wide" else values_of(number)[key]
            if not same_number(value, point.value):
                found.wrong.append(f"{key[-100:]} of step {number}: {point.value!r} in place of {value!r}")
    _audit_stamps(found, account, times)


def _audit_stamps(found: Audit, account: Account, times: Mapping[tuple[str, int], set[int]]) -> None:
    latest_ms = 0
    for kind, number, before, after, *_ in account.calls:
        if kind not in ("metrics", "wide"):
            continue
        # Calls are set a millisecond apart, and so may be ahead of the clock.
        latest_ms = max(after // MS, latest_ms + 1)
        if (stamps := times.get((kind, number))) is not None:
            if len(stamps) > 1 or min(stamps) % MS or not before // MS <= min(stamps) // MS <= latest_ms:
                found.wrong.append(f"{kind} of step {number} at {sorted(stamps)}, logged from {before} to {after}")
            latest_ms = min(stamps) // MS


def _audit_logs(found: Audit, account: Account, received: Sequence[LogRecord], root: Path) -> None:
    records = found.distinct("logs", received)
    texts: dict[int, list[LogRecord]] = {}
    blobs: dict[str, dict[int, list[LogRecord]]] = {"image": {}, "table": {}}
    for record in records:
        name = str(record.attributes.get(names.TRACE_NAME) or record.attributes.get(names.NAME) or "")
        kind, _, number = name.partition("-")
        if record.event_name == names.EVENT_TRACE:
            texts.setdefault(int(number), []).append(record)
        elif record.attributes.get(names.BLOB_OUTCOME) == names.OUTCOME_FAILED:
            # It tells of one that is lost, which is counted as such.
            found.own += 1
        elif record.event_name in (names.EVENT_IMAGE, names.EVENT_TABLE):
            blobs[kind].setdefault(int(number), []).append(record)
        elif record.event_name != names.EVENT_RUN_END:
            found.own += 1
    calls = account.of("text")
    for number, record in found.check("text", calls, texts).items():
        if record.body != text_of(number, int(calls[number][0].partition(" ")[2])):
            found.wrong.append(f"text {number}: {str(record.body)[:200]}")
        _check_time(found, f"text {number}", calls[number], record.time_ns, record.time_ns)
    for kind, arrived in blobs.items():
        for number, record in found.check(kind, account.of(kind), arrived).items():
            _check_blob(found, f"{kind} {number}", record, root)


def _audit_spans(found: Audit, account: Account, received: Sequence[Span]) -> None:
    blocks: dict[int, list[Span]] = {}
    for span in found.distinct("spans", received):
        if span.name == "block":
            blocks.setdefault(span.attributes["number"], []).append(span)
        else:
            found.own += 1
    calls = account.of("span")
    for number, span in found.check("span", calls, blocks).items():
        inside = [(event.name, event.attributes.get(names.TRACE_VALUE)) for event in span.events]
        if inside != [("inside", number)]:
            found.wrong.append(f"span {number} has {span.events}")
        _check_time(found, f"span {number}", calls[number], span.start_ns, span.end_ns)


def _check_time(found: Audit, what: str, call: Call, start_ns: int, end_ns: int) -> None:
    if not call[2] <= start_ns <= end_ns <= call[3]:
        found.wrong.append(f"{what} from {start_ns} to {end_ns}, logged from {call[2]} to {call[3]}")


def _check_blob(found: Audit, what: str, record: LogRecord, root: Path) -> None:
    path = root / unquote(urlsplit(record.attributes[names.BLOB_URI]).path).lstrip("/")
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "no file"
    if record.attributes[names.BLOB_DIGEST] != f"sha256:{digest}":
        found.wrong.append(f"{what}: {path} has {digest}, told is {record.attributes[names.BLOB_DIGEST]}")


def same(one: Any, other: Any) -> bool:
    """Whether two received items are the same; NaN is the same as NaN."""
    return one == other or repr(one) == repr(other)


def same_number(logged: float, arrived: float | None) -> bool:
    """Whether a number arrived as it was logged, to the bit; of NaN JSON keeps no bits."""
    if isinstance(arrived, float) and (isinstance(logged, float) or int(float(logged)) == logged):
        both_nan = math.isnan(arrived) and math.isnan(logged)
        return both_nan or struct.pack("<d", arrived) == struct.pack("<d", logged)
    return type(logged) is type(arrived) and logged == arrived


def sync(path: Path, endpoint: str, **environ: str) -> list[dict[str, Any]]:
    """Runs `otel-logger sync` on a folder; what it says of each writer. Its failure is an error."""
    done = subprocess.run(
        [sys.executable, "-m", "otel_logger", "sync", str(path), "--json", "--timeout", str(PATIENCE / 2)],
        env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
