"""A training program that does what it is told and keeps account of it: the child process in the tests of outages.

Commands come on standard input, one JSON object a line, and each is answered by one on standard output; `train` also
tells there how far it is. `training.py` is the other end.
"""

from __future__ import annotations

import json
import logging
import math
import pickle
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from otel_logger import ConfigurationError, OTelLogger

__all__ = ["KEYS", "WIDE_KEY", "Call", "picture", "text_of", "values_of"]

KEYS = tuple(f"part{index}/metric" for index in range(10))
"""The metrics of each call."""

WIDE_KEY = "wide/" + 60_000 * "k"
"""Begins the key of each call of `fill`: a row with a schema of its own, large, so that few calls fill a disk."""

ODD_VALUES = (math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 0.1, 2**53 + 1, 2**63 - 1, -(2**63))
"""What JSON or float64 cannot hold, or just so."""

CHUNK = 8000
"""Characters of one string: longer ones are shortened."""

Call = tuple[str, int, int, int, int, int, int]
"""Kind and number of a call, the times before and after it (ns since the epoch), how long it took by the clock and of
processor time (ns), and how often its thread went to sleep in it."""


def values_of(step: int) -> dict[str, float | int]:
    """The metrics of a step: the same in each process, of all magnitudes, every fiftieth step with odd ones."""
    if step % 50 == 49:
        return dict(zip(KEYS, ODD_VALUES, strict=True))
    random = Random(step)
    return {key: math.ldexp(random.random() - 0.5, random.randint(-300, 300)) for key in KEYS}


def text_of(number: int, size: int) -> list[str]:
    """About `size` characters that tell one number from another and look like no secret."""
    return [f"{number:x} " * (CHUNK // len(f"{number:x} ")) for _ in range(max(1, size // CHUNK))]


def picture(number: int) -> np.ndarray[Any, Any]:
    """A small image that tells one number from another."""
    return np.frombuffer(number.to_bytes(64, "big"), np.uint8).reshape(8, 8)


class Trainee:
    """A logger, the calls made of it, and what each of them cost."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.idle: list[Call] = []
        self.raised: list[str] = []
        self.warnings: list[str] = []
        self._log: OTelLogger | None = None
        self._warm = 0
        self._step = 0
        self._number = 0
        logging.getLogger("otel_logger").addHandler(_Notes(self.warnings))

    @property
    def log(self) -> OTelLogger:
        """The logger."""
        assert self._log is not None
        return self._log

    def open(self, run_name: str, environ: dict[str, str]) -> dict[str, Any]:
        """Makes the logger."""
        # To look for secrets in a text of 64 KB takes ten milliseconds.
        environ = {"OTEL_LOGGER_REDACT_ALLOW": "note-*", **environ}
        try:
            self._log = OTelLogger(run_name=run_name, environ=environ)
        except ConfigurationError as error:
            return {"error": str(error)}
        self.log.log_hyperparameters({"lr": 0.1, "optimizer": {"name": "adam"}})
        return {"run_dir": str(self.log.run_dir), "run_id": self.log.run_id}

    def warm_up(self) -> dict[str, Any]:
        """Logs some of everything, which binds the resource and loads what is loaded late; says what memory it takes.

        What these calls cost is not held against any bound.
        """
        for _ in self.train(60, pace=0.002):
            pass
        self._warm = len(self.calls)
        return {"memory": memory()}

    def train(
        self, calls: int, pace: float = 0.0, text_every: int = 50, text_size: int = 100, span_every: int = 100
    ) -> Iterator[Any]:
        """Logs metrics `calls` times, every `pace` seconds; in between traces, spans, images and tables."""
        peak = memory()
        due = time.monotonic()
        for index in range(calls):
            self._metrics()
            if index % text_every == 0:
                self._text(text_size)
            if index % span_every == 10:
                self._span()
            if index % 500 == 20:
                self._blobs()
            if index % 50 == 0:
                peak = max(peak, memory())
                yield {"at": index}
            # One that is late does not hurry after.
            due = max(due + pace, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
        yield {"peak": max(peak, memory()), "step": self._step}

    def fill(self, calls: int, pace: float = 0.0, text_size: int = 64_000) -> Iterator[Any]:
        """Logs `calls` times a metric whose key is large and a trace whose text is: 125 KB to be kept for each."""
        peak = memory()
        for index in range(calls):
            number = self._next()
            key = f"{WIDE_KEY}{number}"
            self._measured("wide", number, self.log.log_metrics, {key: float(number)}, number)
            self._text(text_size)
            if index % 10 == 0:
                peak = max(peak, memory())
                yield {"at": index}
            time.sleep(pace)
        yield {"peak": max(peak, memory())}

    def widen(self, calls: int, pace: float) -> Iterator[Any]:
        """Logs 1,000 metrics in each of `calls` calls, every `pace` seconds."""
        for index in range(calls):
            number = self._next()
            metrics = {f"broad/{column}": float(number) for column in range(1000)}
            self._measured("broad", number, self.log.log_metrics, metrics, number)
            yield {"at": index}
            time.sleep(pace)
        yield {}

    def flush(self, timeout: float) -> dict[str, Any]:
        """Flushes; says whether nothing is left."""
        return {"empty": self.log.flush(timeout)}

    def stats(self) -> dict[str, Any]:
        """What the logger counts, what it has said, and what it holds in memory."""
        return {"stats": asdict(self.log.stats()), "warnings": self.warnings, "memory": memory()}

    def close(self) -> dict[str, Any]:
        """Closes the logger; says how long that took."""
        begun = time.monotonic()
        self.log.close()
        return {"seconds": time.monotonic() - begun}

    def report(self, path: str) -> dict[str, Any]:
        """Writes the account of all calls."""
        Path(path).write_bytes(pickle.dumps((self.calls, self.idle, self.raised, self._warm)))
        return {}

    def _metrics(self) -> None:
        step, self._step = self._step, self._step + 1
        metrics = values_of(step)
        self._measured("metrics", step, self.log.log_metrics, metrics, step)
        # As long as the call before, so that it meets as much of what else goes on in this process and machine.
        longest = 1_000_000
        self.idle.append(self._cost("idle", step, _spin, min(self.calls[-1][5] if self.calls else 0, longest)))

    def _text(self, size: int) -> None:
        number = self._next()
        self._measured(f"text {size}", number, self.log.log_traces, {f"note-{number}": text_of(number, size)})

    def _span(self) -> None:
        number = self._next()
        self._measured("span", number, self._block, number)

    def _block(self, number: int) -> None:
        with self.log.span("block", number=number):
            self.log.log_traces({"inside": number})

    def _blobs(self) -> None:
        number = self._next()
        self._measured("image", number, self.log.log_images, picture(number), f"image-{number}", step=number)
        number = self._next()
        self._measured("table", number, self.log.log_table, ["number"], [[number]], f"table-{number}", number)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _measured(self, kind: str, number: int, call: Callable[..., object], *arguments: Any, **named: Any) -> None:
        try:
            self.calls.append(self._cost(kind, number, call, *arguments, **named))
        except Exception as error:
            self.raised.append(f"{kind} {number}: {error!r}")

    def _cost(self, kind: str, number: int, call: Callable[..., object], *arguments: Any, **named: Any) -> Call:
        sleeps = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        before = time.time_ns()
        busy = time.thread_time_ns()
        begun = time.perf_counter_ns()
        call(*arguments, **named)
        took = time.perf_counter_ns() - begun
        busy = time.thread_time_ns() - busy
        after = time.time_ns()
        sleeps = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - sleeps
        return kind, number, before, after, took, busy, sleeps


class _Notes(logging.Handler):
    def __init__(self, notes: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        self._notes.append(record.getMessage())


def memory() -> int:
    """The bytes of memory that are this process's own: neither programs nor mapped files, which the system can drop."""
    status = Path("/proc/self/status").read_text("ascii")
    return 1024 * int(status.partition("RssAnon:")[2].split()[0])


def _spin(nanoseconds: int) -> None:
    end = time.perf_counter_ns() + nanoseconds
    while time.perf_counter_ns() < end:
        pass


def main() -> None:
    """Carries out commands until there are no more."""
    trainee = Trainee()
    for line in sys.stdin:
        command = json.loads(line)
        answer = getattr(trainee, command.pop("do"))(**command)
        for each in answer if isinstance(answer, Iterator) else (answer,):
            print(json.dumps(each), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
