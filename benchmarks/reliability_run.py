"""One program under one fault: the program, the receiver it sends to, and counts of what was recorded and arrived."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from google.protobuf.message import DecodeError
from receiver import Received, Receiver, Reply
from reliability_program import WORKER_NUMBERS

from otel_logger_exporters.signals import Signal

__all__ = ["LIBRARIES", "PROTOCOLS", "Result", "Run"]

LIBRARIES = ("otel_logger", "sdk")
PROTOCOLS = ("http/protobuf", "grpc")

PROGRAM = Path(__file__).with_name("reliability_program.py")
LONGEST_EXIT = 150.0

LINE = re.compile(r"(WARNING|ERROR|CRITICAL) (opentelemetry|otel_logger)|otel_logger: ")
"""How a line of either library begins on the programs' standard error; others are of Python, gRPC and the program."""

LOSS_WORDS = re.compile(r"^ERROR opentelemetry|dropping|lost|refused|not delivered|records nothing")
"""What tells of a loss: each ERROR of the SDK, while its WARNING `Transient error` is followed by another try."""

SIGNAL_WORDS = {
    Signal.METRICS: re.compile(r"\b(metrics?|values?)\b", re.IGNORECASE),
    Signal.LOGS: re.compile(r"\blogs?\b", re.IGNORECASE),
    Signal.TRACES: re.compile(r"\b(spans?|traces?)\b", re.IGNORECASE),
}

STEPS_RATE = 20


@dataclass
class Result:
    """What became of one program's data; numbers of items by signal."""

    recorded: dict[Signal, int] = field(default_factory=dict)
    at_exit: dict[Signal, int] = field(default_factory=dict)
    """Of those recorded, arrived when the process was gone."""
    in_the_end: dict[Signal, int] = field(default_factory=dict)
    """Arrived after what came then: `otel-logger sync`."""
    has_last_value: bool | None = None
    """Whether the last metric value arrived; None where there is no order."""
    exit_seconds: float | None = None
    said: list[str] = field(default_factory=list)
    """What the library wrote to standard error."""
    notes: list[str] = field(default_factory=list)

    def told(self, signal: Signal) -> bool:
        """Whether the program said that something of this signal, or of signals that it did not name, is lost."""
        for line in self.said:
            for clause in line.replace("Nothing is lost", "").split("; "):
                named = [each for each, word in SIGNAL_WORDS.items() if word.search(clause)]
                if LOSS_WORDS.search(clause) and (signal in named or not named):
                    return True
        return False


class Run:
    """A context manager: starts the program and the receiver, and leaves nothing behind."""

    def __init__(self, library: str, protocol: str, folder: Path) -> None:
        self.library = library
        self.result = Result()
        self._protocol = protocol
        self._folder = folder
        self._receiver = Receiver(protocol, self._take)
        self._lock = threading.Lock()
        self._answer: Callable[[Signal, int], Reply] = lambda signal, count: Reply()
        self._delay = 0.0
        self._requests: Counter[Signal] = Counter()
        self._rejected: Counter[Signal] = Counter()
        self._unreadable = 0
        self._accepted: list[Received] = []
        self._recorded: dict[Signal, set[int]] = {each: set() for each in Signal}
        self._step = 0
        self._is_of_workers = False
        self._program: subprocess.Popen[str] | None = None
        folder.mkdir(parents=True)

    def __enter__(self) -> "Run":
        self._receiver.up()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._program is not None and self._program.poll() is None:
            self._program.kill()
            self._program.wait()
        self._receiver.__exit__(None, None, None)

    # What a fault is made of.

    def up(self) -> None:
        """Let the receiver listen and answer."""
        self._receiver.up()

    def down(self) -> None:
        """Let the receiver refuse connections."""
        self._receiver.down()

    def black_hole(self) -> None:
        """Let the receiver take everything and never answer."""
        self._receiver.black_hole()

    def answer(self, answer: Callable[[Signal, int], Reply], delay: float = 0.0) -> None:
        """Answer the nth request of each signal, counted from 0, by `answer(signal, n)`, each `delay` seconds late."""
        with self._lock:
            self._answer, self._delay = answer, delay
            self._requests.clear()

    def start(self) -> None:
        """Start the program, which is the same as before when it is started again."""
        with (self._folder / "stderr.txt").open("a") as stderr:
            self._program = subprocess.Popen(
                [sys.executable, str(PROGRAM), self.library, self._protocol, self._receiver.endpoint],
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self._answered("ready")

    def steps(self, count: int) -> None:
        """Record a metric value, a log record and a span per step, 20 steps a second; return when it is done."""
        self._tell(f"steps {self._step} {count} {STEPS_RATE}")
        self._recorded_now(range(self._step, self._step + count), Signal)
        self._step += count

    def spans(self, count: int) -> None:
        """Record spans alone, as fast as they can be made."""
        self._tell(f"spans {self._step} {count}")
        self._recorded_now(range(self._step, self._step + count), [Signal.TRACES])
        self._step += count

    def fork(self, workers: int, steps: int, seconds: int) -> None:
        """Fork workers that record steps by what they inherited, and live for some seconds."""
        self._tell(f"fork {workers} {steps} {seconds}")
        for worker in range(1, workers + 1):
            self._recorded_now(range(WORKER_NUMBERS * worker, WORKER_NUMBERS * worker + steps), Signal)

    def join(self) -> None:
        """Wait for the workers."""
        self._tell("join")

    def end(self, how: str = "end") -> None:
        """End the program by `end`, `raise` or `_exit`, and note how long its end took."""
        self._leave(lambda: self._write(how))

    def kill(self, number: int) -> None:
        """End the program by a signal."""
        self._leave(lambda: self._process.send_signal(number))

    def sync(self) -> None:
        """Do what a user can do afterwards: for otel_logger `otel-logger sync`, for the SDK nothing."""
        if self.library == "otel_logger":
            command = [sys.executable, "-m", "otel_logger", "sync", str(self._folder / "runs")]
            done = subprocess.run(
                command, env=self._environment(), capture_output=True, text=True, check=False, timeout=60
            )
            if done.returncode != 0:
                self.result.notes.append(f"`sync` ended with {done.returncode}")
                self.result.said += ["otel_logger: sync: " + line for line in (done.stdout + done.stderr).splitlines()]

    def wait_for_all(self, seconds: float) -> None:
        """Wait until everything has arrived, at most `seconds`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._arrived() != {k: len(v) for k, v in self._recorded.items()}:
            time.sleep(0.1)

    def only_workers(self) -> None:
        """Count only what workers recorded."""
        self._is_of_workers = True
        for numbers in self._recorded.values():
            numbers -= {number for number in numbers if number < WORKER_NUMBERS}

    def finish(self) -> Result:
        """Return what became of everything."""
        result = self.result
        result.recorded = {each: len(numbers) for each, numbers in self._recorded.items()}
        result.in_the_end = self._arrived()
        if (values := self._recorded[Signal.METRICS]) and not self._is_of_workers:
            result.has_last_value = max(values) in set(self._numbers(Signal.METRICS))
        result.said = self._said() + result.said
        if self._unreadable:
            result.notes.append(f"garbled requests: {self._unreadable}")
        return result

    def points_of_workers(self) -> int:
        """Return how many metric points came from another process than the one that sent the first."""
        instances = [
            next(
                (pair.value.string_value for pair in each.resource.attributes if pair.key == "service.instance.id"), ""
            )
            for each, _ in self._metrics()
        ]
        counts = [len(metric.gauge.data_points) for _, metric in self._metrics()]
        return sum(count for instance, count in zip(instances, counts, strict=True) if instance != instances[0])

    # How it is done.

    @property
    def _process(self) -> "subprocess.Popen[str]":
        assert self._program is not None
        return self._program

    def _environment(self) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        return clean | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self._receiver.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": self._protocol,
            "OTEL_LOGGER_DIR": str(self._folder / "runs"),
            "OTEL_LOGGER_TRACE_EVENTS": "log",
        }

    def _write(self, command: str) -> None:
        pipe: IO[str] | None = self._process.stdin
        assert pipe is not None
        pipe.write(command + "\n")
        pipe.flush()

    def _answered(self, answer: str) -> None:
        pipe: IO[str] | None = self._process.stdout
        assert pipe is not None
        if (line := pipe.readline().strip()) != answer:
            msg = f"the program said {line!r} in place of {answer!r}: {(self._folder / 'stderr.txt').read_text()}"
            raise RuntimeError(msg)

    def _tell(self, command: str) -> None:
        self._write(command)
        self._answered("done")

    def _leave(self, cause: Callable[[], None]) -> None:
        started = time.monotonic()
        cause()
        try:
            self._process.wait(LONGEST_EXIT)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        self.result.exit_seconds = time.monotonic() - started
        self.result.at_exit = self._arrived()

    def _recorded_now(self, numbers: range, signals: Any) -> None:
        for each in signals:
            self._recorded[each] |= set(numbers)

    def _take(self, received: Received) -> Reply:
        with self._lock:
            reply = self._answer(received.signal, self._requests[received.signal])
            self._requests[received.signal] += 1
            delay = self._delay
        time.sleep(delay)
        try:
            received.message()
        except DecodeError:
            # Cut short by a kill, or of two processes that write to one connection: forks that share it.
            with self._lock:
                self._unreadable += 1
            return Reply(grpc="INVALID_ARGUMENT", http=400, message="the request cannot be parsed")
        is_accepted = reply.grpc == "OK" if self._protocol == "grpc" else reply.http == 200
        if is_accepted:
            with self._lock:
                self._accepted.append(received)
                self._rejected[received.signal] += reply.rejected
        return reply

    def _arrived(self) -> dict[Signal, int]:
        """Return how many of what was recorded has arrived, each number counted once."""
        return {each: len(set(self._numbers(each)) & self._recorded[each]) - self._rejected[each] for each in Signal}

    def _numbers(self, wanted: Signal) -> Iterator[int]:
        if wanted is Signal.METRICS:
            for _, metric in self._metrics():
                yield from (int(point.as_double) for point in metric.gauge.data_points)
            return
        for message in self._messages(wanted):
            if wanted is Signal.LOGS:
                for each in (each for resource in message.resource_logs for each in resource.scope_logs):
                    yield from (item.body.int_value for item in each.log_records if item.body.HasField("int_value"))
            else:
                for each in (each for resource in message.resource_spans for each in resource.scope_spans):
                    for span in each.spans:
                        yield from (pair.value.int_value for pair in span.attributes if pair.key == "seq")

    def _metrics(self) -> Iterator[tuple[Any, Any]]:
        for message in self._messages(Signal.METRICS):
            for resource in message.resource_metrics:
                for scope in resource.scope_metrics:
                    yield from ((resource, metric) for metric in scope.metrics if metric.name == "loss")

    def _messages(self, wanted: Signal) -> list[Any]:
        with self._lock:
            return [received.message() for received in self._accepted if received.signal is wanted]

    def _said(self) -> list[str]:
        lines = (self._folder / "stderr.txt").read_text("utf-8", "replace").splitlines()
        return [line for line in lines if LINE.match(line) and ", attempt " not in line]
