"""A fuzzer over all that reads segments: `read_records`, `read_segment`, `JournalReader` and `read_run`.

    python tests/crash/fuzz.py --seconds 300 --seed 1
    python tests/crash/fuzz.py --repeat /tmp/otel-logger-fuzz/1-17

Each input is a folder with the journals of a writer, valid at first and then damaged, as disks, crashes and other
programs do it. Whatever is in it, no reader may raise, hang, or ask for memory by a number that it has read. Damage of
bytes (`Damage.BYTES`) costs the records from the first changed byte on and none before; where whole records are moved
(`RECORDS`), each that is read is one that was written; and records that were forged, with a checksum that is right
(`FORGED`), as another version might write them, are read, or passed over.

What is found is written to a folder, and its traceback beside it. Frames of the same traceback are one finding.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from damaged_segments import Case, Damage, Made, make_case, make_segment

from otel_logger.reading import read_run
from otel_logger_exporters.journal_reader import JournalReader, Position
from otel_logger_exporters.payloads import Frame
from otel_logger_exporters.records import Kind, pack_record, read_records
from otel_logger_exporters.rows import RowReader
from otel_logger_exporters.segments import HEADER_SIZE, read_segment
from otel_logger_exporters.signals import Signal

__all__ = ["Fuzzer", "Readers", "Wrong"]

HANG_SECONDS = 10.0
"""What one input takes at most: a hundred times what the slowest takes."""

SPARE_MEMORY = 512 * 2**20
"""Bytes of address space that the fuzzer may grow by: a length of 4 GiB that is believed is an error."""

CORPUS = 40
"""Valid segments of each signal that inputs are made from."""


class Wrong(Exception):
    """A reader gave what it must not give."""


@dataclass(frozen=True, slots=True)
class Readers:
    """What is fuzzed; a test puts others in their place."""

    records: Callable[..., Iterator[Any]] = read_records
    segment: Callable[..., Any] = read_segment
    journal: Callable[..., Any] = JournalReader
    run: Callable[..., Any] = read_run


class Fuzzer:
    """Makes inputs from a seed, and shows them to readers."""

    def __init__(self, seed: int, work: Path, readers: Readers | None = None) -> None:
        self.executions = 0
        self.findings: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self._seed = seed
        self._work = work
        self._readers = readers or Readers()
        random = Random(seed)
        self._corpus = {name: [make_segment(random, name) for _ in range(CORPUS)] for name in Signal}

    def run(
        self,
        seconds: float,
        inputs: float = float("inf"),
        keep: Path | None = None,
        say: Callable[[str], object] = print,
    ) -> None:
        """Make inputs for so long, or so many; what is found is told, and kept in a folder below `keep`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.executions < inputs:
            number, self.executions = self.executions, self.executions + 1
            # Each input has a generator of its own: it can be made again without those before it.
            random = Random(f"{self._seed}/{number}")
            case = make_case(random, self._corpus)
            folder = self._work / "run" / "writer"
            case.write(folder)
            try:
                for error in self.examine(case, folder, random):
                    self._take(error, case, number, keep, say)
            finally:
                shutil.rmtree(folder.parent, ignore_errors=True)

    def examine(self, case: Case, folder: Path, random: Random) -> list[Exception]:
        """Show an input to all readers; return what they raise, and as Wrong what they give and should not."""
        counts = [0] * len(case.segments)
        reads: list[Callable[[], object]] = [
            *(partial(self._read_bytes, case, index, counts) for index in range(len(counts))),
            partial(self._read_run, case, folder, counts),
            *(partial(self._read_journal, case, folder, name, counts, random) for name in Signal),
        ]
        found = []
        for read in reads:
            try:
                with deadline(HANG_SECONDS):
                    read()
            except Exception as error:
                found.append(error)
        return found

    def _read_bytes(self, case: Case, index: int, counts: list[int]) -> None:
        """Read one segment from memory, and put into `counts` how many records it has that can be read."""
        made = case.segments[index]
        self.seen[made.damage.name] += 1
        data = bytes(made.data)
        records = [(record.kind, bytes(record.payload)) for record in self._readers.records(data, HEADER_SIZE)]
        list(self._readers.records(data, len(data) // 2))
        counts[index] = len(records)
        check_records(case, made, records)
        segment = self._readers.segment(data)
        if segment is None:
            if made.sound >= HEADER_SIZE:
                raise Wrong(f"a segment with a sound header is not read: {made.signal} {made.sequence}")
            return
        inside = [(record.kind, bytes(record.payload)) for record in segment.records]
        if inside != records[: len(inside)] or (len(inside) < len(records) and records[len(inside)][0] != Kind.SEAL):
            raise Wrong(f"read_segment has {len(inside)} records, read_records {len(records)}")
        if made.damage is Damage.NONE and (segment.damaged or segment.cut):
            raise Wrong(f"a sound segment is said to be damaged: {segment.damaged}, {segment.cut} bytes cut")

    def _read_run(self, case: Case, folder: Path, counts: Sequence[int]) -> None:
        run = self._readers.run(folder.parent)
        for table in (run.metrics, run.hyperparameters, run.events, run.spans, run.blobs, run.damage):
            list(table)
        if is_exact(case.segments):
            values = sum(len(row.values) for row in expected(case, Signal.METRICS, counts))
            if len(run.metrics) != values:
                raise Wrong(f"read_run has {len(run.metrics)} values in place of {values}")

    def _read_journal(self, case: Case, folder: Path, name: Signal, counts: Sequence[int], random: Random) -> None:
        keep = random.random() < 0.5
        journal = self._readers.journal(folder, name, keep=keep)
        if journal.unread < 0:
            raise Wrong(f"{journal.unread} bytes are unread")
        contents: list[str] = []
        last = Position(-1, 0)
        most = 16 + sum(len(made.data) // 12 for made in case.segments if made.signal is name)
        while (batch := journal.next_batch(random.choice((1, 2, 3, 10, 8192)))) is not None:
            if random.random() < 0.2:
                smaller = journal.next_batch(max(1, len(batch.contents) // 2))
                if list(map(repr, smaller.contents)) != list(map(repr, batch.contents[: len(smaller.contents)])):
                    raise Wrong("a smaller batch is not the beginning of the larger one")
                batch = smaller
            if not batch.contents or batch.end <= last:
                raise Wrong(f"a batch of {len(batch.contents)} ends at {batch.end}, the one before at {last}")
            last = batch.end
            contents += map(repr, batch.contents)
            if len(contents) > most:
                raise Wrong(f"{len(contents)} items are read of what can hold {most}")
            journal.acknowledge(batch)
            if random.random() < 0.2:
                # As after a crash: it goes on from what is on disk.
                journal = self._readers.journal(folder, name, keep=keep)
        if journal.unread and is_exact(case.segments):
            raise Wrong(f"{journal.unread} bytes are unread after the last batch")
        if is_exact(case.segments) and f"{name.value}.ack" not in case.acknowledgements:
            wanted = list(map(repr, expected(case, name, counts)))
            if wanted != contents:
                raise Wrong(f"the journal has {len(contents)} items in place of {len(wanted)}")
        if not keep:
            journal.discard()

    def _take(self, error: Exception, case: Case, number: int, keep: Path | None, say: Callable[[str], object]) -> None:
        frames = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
        name = f"{type(error).__name__} at {' < '.join(reversed(frames[-3:]))}"
        self.findings[name] += 1
        if self.findings[name] > 1:
            return
        told = "".join(traceback.format_exception(error))
        if keep is not None:
            folder = keep / f"{self._seed}-{number}"
            shutil.rmtree(folder, ignore_errors=True)
            case.write(folder / "run" / "writer")
            (folder / "finding.txt").write_text(told)
            say(f"finding {folder}:")
        say(told)


def check_records(case: Case, made: Made, records: list[tuple[int, bytes]]) -> None:
    """Raise Wrong unless the records are those that may be read from a segment."""
    sure = sum(end <= made.sound for end in made.ends)
    if made.sound >= HEADER_SIZE and made.records[:sure] != records[:sure]:
        raise Wrong(f"of {sure} records before the damage of {made.signal} {made.sequence} {len(records)} are read")
    if made.damage <= Damage.BYTES and records != made.records[: len(records)]:
        raise Wrong(f"{len(records)} records are no prefix of the {len(made.records)} that were written")
    if strange := [record for record in records if record not in case.pool]:
        raise Wrong(f"{len(strange)} records were never written: {str(strange[0])[:200]}")


def is_exact(segments: Sequence[Made]) -> bool:
    """Tell whether it is known what must be read: headers are sound, and no record is elsewhere or forged."""
    return all(made.damage <= Damage.BYTES and made.sound >= HEADER_SIZE for made in segments)


def expected(case: Case, name: Signal, counts: Sequence[int]) -> list[Any]:
    """The rows or frames of a signal in the records that can be read."""
    found: list[Any] = []
    for made, count in sorted(zip(case.segments, counts, strict=True), key=lambda pair: pair[0].sequence):
        if made.signal is not name:
            continue
        rows = RowReader()
        packed = b"".join(pack_record(kind, payload) for kind, payload in made.records[:count])
        for record in read_records(packed):
            content = Frame.unpack(record.payload) if record.kind == Kind.OTLP else rows.take(record)
            if content is not None:
                found.append(content)
    return found


class deadline:
    """A block that raises TimeoutError when it takes longer than so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGALRM, self._ring)
        # A test has a deadline of its own, by the same clock.
        self._timer = signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
        signal.setitimer(signal.ITIMER_REAL, *self._timer)

    def _ring(self, *_: object) -> None:
        raise TimeoutError(f"it takes longer than {self._seconds:g} s")


def limit_memory() -> None:
    """Let this process grow by no more than SPARE_MEMORY, where the system tells how large it is."""
    if not (statm := Path("/proc/self/statm")).exists():
        return
    size = int(statm.read_text("ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + SPARE_MEMORY, resource.RLIM_INFINITY))


def repeat_finding(folder: Path) -> None:
    """Show an input that was kept to all readers, which raises what was found, unless it is mended."""
    for path in sorted((folder / "run" / "writer").glob("*.seg")):
        data = path.read_bytes()
        list(read_records(data, HEADER_SIZE))
        read_segment(data)
    with tempfile.TemporaryDirectory() as scratch:
        copy = shutil.copytree(folder / "run", Path(scratch) / "run")
        read_run(copy)
        for name in Signal:
            journal = JournalReader(copy / "writer", name)
            while (batch := journal.next_batch(8192)) is not None:
                journal.acknowledge(batch)


def main() -> int:
    """Run from the command line; the exit status tells whether nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long to go on (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same inputs (default %(default)s)")
    parser.add_argument("--inputs", type=int, default=sys.maxsize, help="how many inputs to make at most")
    folder = Path(tempfile.gettempdir()) / "otel-logger-fuzz"
    parser.add_argument("--keep", type=Path, default=folder, help="where findings go (default %(default)s)")
    parser.add_argument("--repeat", type=Path, help="the folder of a finding, to be shown to the readers once more")
    given = parser.parse_args()
    if given.repeat is not None:
        repeat_finding(given.repeat)
        return 0
    limit_memory()
    memory = Path("/dev/shm")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as work:
        fuzzer = Fuzzer(given.seed, Path(work))
        fuzzer.run(given.seconds, given.inputs, given.keep)
    took = time.monotonic() - begun
    segments = ", ".join(f"{count} {name.lower()}" for name, count in sorted(fuzzer.seen.items()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines = [
        f"{fuzzer.executions} inputs in {took:.0f} s, {fuzzer.executions / took:.0f} a second, "
        f"of {sum(fuzzer.seen.values())} segments (by damage: {segments}); memory at most {peak:.0f} MiB; "
        f"{len(fuzzer.findings)} findings",
        *(f"  {count} times: {name}" for name, count in fuzzer.findings.most_common()),
    ]
    print("\n".join(lines))  # noqa: T201
    return 1 if fuzzer.findings else 0


if __name__ == "__main__":
    sys.exit(main())
