"""The end of a run whose process died is told in its own journal, once, by whoever adopts what it left."""

import json
import logging
import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_logger.adopter import Adopter
from otel_logger.deaths import REASON, last_sign, last_write, tell_death
from otel_logger.folders import WriterFile
from otel_logger.launch import read_launch
from otel_logger.syncing import Errand
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.decoding import decode_events
from otel_logger_exporters.items import Event, encode_event, encode_resource
from otel_logger_exporters.journal_reader import JournalReader
from otel_logger_exporters.limits import Limits
from otel_logger_exporters.owner import Owner
from otel_logger_exporters.payloads import Frame, ResourceRecord
from otel_logger_exporters.postscript import add_postscript
from otel_logger_exporters.records import Kind
from otel_logger_exporters.rows import Schema
from otel_logger_exporters.segments import newest_segments
from otel_logger_exporters.signals import Signal
from tests.journals import disk_with, files, journal_in, segments

S = 10**9
START = 1_600_000_000 * S
SCOPE = InstrumentationScope("test")
WRITER = WriterFile("abcdef", START, "exp-1", "exp", attempt=2, rank=3)
RESOURCE = ResourceRecord(encode_resource({"service.instance.id": "exp-1/3/2/abcdef"}), True)


def frame(name: str, second: int, **attributes: object) -> tuple[Kind, bytes]:
    """A record of an event, some seconds after the start."""
    return Kind.OTLP, encode_event(Event(name, START + second * S, attributes), SCOPE).pack()


def die(folder: Path, *events: tuple[Kind, bytes], rows: int = 0, at: int = 60, writer: WriterFile = WRITER) -> Path:
    """Leave a folder as a killed writer does that was last seen `at` seconds after its start."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    Owner(folder).abandon()
    writer.write(folder)
    logs = journal_in(folder, Signal.LOGS)
    logs.tend()
    logs.keep("resource", Kind.RESOURCE, RESOURCE.pack())
    for event in events:
        logs.append(event)
    logs.abandon()
    if rows:
        metrics = journal_in(folder)
        metrics.tend()
        schema = Schema(1, ["loss"], "d")
        metrics.append((Kind.SCHEMA, schema.pack()))
        for step in range(rows):
            metrics.append((Kind.ROW, schema.pack_row(START + step * S, step, [0.5])))
        metrics.abandon()
    for path in folder.iterdir():
        os.utime(path, ns=(START + at * S, START + at * S))
    return folder


def told(folder: Path) -> list[dict[str, object]]:
    """Return all events of a journal, in order."""
    records = [record for segment in segments(folder, Signal.LOGS) for record in segment.records]
    return [e for r in records if r.kind == Kind.OTLP for e in decode_events(Frame.unpack(r.payload).body)]


def tell(folder: Path, writer: WriterFile = WRITER) -> WriterFile:
    """Tell the death of the writer of a folder, without owning it."""
    return tell_death(folder, writer, last_sign(folder), Limits())


def test_a_death_is_told_with_all_that_is_known(tmp_path: Path) -> None:
    """Outcome, reason, the last sign of life, what the run was and how far it came."""
    folder = die(tmp_path, frame("training.run.start", 0), rows=5)
    ended = tell(folder)

    start, end = told(folder)
    uid = end["attributes"].pop("log.record.uid")
    assert {
        "process.pid": os.getpid(),
        "training.rank": 3,
        "training.run.id": "exp-1",
        "training.run.name": "exp",
        "training.run.attempt": 2,
        "training.step": 4,
        "training.run.outcome": "lost",
        "training.run.duration": 60.0,
        "training.run.reason": REASON,
    } == end["attributes"]
    assert ("training.run.end", START + 60 * S, "ERROR") == (end["name"], end["time"], end["severity"])
    assert "training.run.start" == start["name"]
    assert 32 == len(uid)
    assert replace(WRITER, ended_ns=START + 60 * S, outcome="lost") == ended == WriterFile.read(folder)


def test_the_journals_own_resource_is_the_end_s_too(tmp_path: Path) -> None:
    """The segment can be sent by itself, as each one can."""
    folder = die(tmp_path, frame("training.run.start", 0))
    tell(folder)
    newest = next(newest_segments(folder, Signal.LOGS))
    assert (True, False, 0, 2) == (newest.sealed, newest.damaged, newest.cut, newest.header.sequence)
    assert [Kind.RESOURCE, Kind.OTLP] == [record.kind for record in newest.records]
    assert RESOURCE == ResourceRecord.unpack(newest.records[0].payload)


def test_what_was_recorded_last_was_lived_to_see(tmp_path: Path) -> None:
    """A mapped file's time is that of its last write to disk, which comes late."""
    folder = die(tmp_path, frame("training.run.start", 0), frame("training.trace", 90), rows=70, at=5)
    assert START + 90 * S == tell(folder).ended_ns
    folder = die(tmp_path / "rows", frame("training.run.start", 0), rows=70, at=5)
    assert START + 69 * S == tell(folder).ended_ns


def test_an_idle_writer_lived_as_long_as_its_lease(tmp_path: Path) -> None:
    """It renews that though it records nothing; whoever adopts the folder does not touch it."""
    folder = die(tmp_path, frame("training.run.start", 0), at=5)
    os.utime(folder / "owner.lock", ns=(START + 900 * S, START + 900 * S))
    assert START + 5 * S == last_write(folder)
    Owner.claim(folder).release()
    assert (START + 900 * S, os.getpid()) == (last_sign(folder).time_ns, last_sign(folder).pid)
    assert START + 900 * S == tell(folder).ended_ns


def test_telling_twice_is_telling_once(tmp_path: Path) -> None:
    """Also for who has read of the writer before the first did."""
    folder = die(tmp_path, frame("training.run.start", 0))
    first = tell(folder)
    assert first == tell(folder)
    assert first == tell(folder, first)
    assert 2 == len(told(folder))


def test_a_death_that_was_told_and_sent_is_not_told_again(tmp_path: Path) -> None:
    """Who has read of the writer before that finds no journal any more, and believes `writer.json`."""
    folder = die(tmp_path, frame("training.run.start", 0))
    first = tell(folder)
    for path in files(folder, Signal.LOGS):
        path.unlink()
    os.utime(folder / "owner.lock")
    assert first == tell(folder, WRITER) == WriterFile.read(folder)


def test_an_adopter_that_dies_in_between_is_followed(tmp_path: Path) -> None:
    """The record is there and `writer.json` does not say so yet: the next one finds it, and takes its time."""
    folder = die(tmp_path, frame("training.run.start", 0))
    first = tell(folder)
    WRITER.write(folder)
    assert first == tell(folder)
    assert 2 == len(told(folder))


def test_two_who_tell_tell_the_same(tmp_path: Path) -> None:
    """Should it be told twice after all, backends know the record again."""
    one, two = (die(tmp_path / name, frame("training.run.start", 0), rows=3) for name in "ab")
    tell(one)
    tell(two)
    assert told(one)[-1] == told(two)[-1]


@pytest.mark.parametrize("outcome", ["finished", "failed", "preempted"])
def test_an_end_that_was_told_counts(tmp_path: Path, outcome: str) -> None:
    """A process that died between its last record and `writer.json` has said itself how it ended."""
    folder = die(
        tmp_path, frame("training.run.start", 0), frame("training.run.end", 30, **{"training.run.outcome": outcome})
    )
    ended = tell(folder)
    assert (START + 30 * S, outcome) == (ended.ended_ns, ended.outcome)
    assert 2 == len(told(folder))


def test_a_writer_that_has_ended_is_left_alone(tmp_path: Path) -> None:
    """Its folder is adopted for what it has not sent."""
    ended = replace(WRITER, ended_ns=START + 1, outcome="finished")
    folder = die(tmp_path, frame("training.run.start", 0), writer=ended)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert ended == tell(folder, ended)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_logger_that_was_never_used_is_no_run(tmp_path: Path) -> None:
    """Nothing was begun, so nothing ended."""
    unused = WriterFile("abcdef", START)
    folder = die(tmp_path, writer=unused)
    assert unused == tell(folder, unused)
    assert [] == told(folder)


def test_a_run_that_died_before_it_was_known_is_told(tmp_path: Path) -> None:
    """Its set-up was killed: there is an end, of a run without an id."""
    starting = WriterFile("abcdef", START)
    folder = die(tmp_path, frame("training.run.start", 0), writer=starting)
    tell(folder, starting)
    assert not {"training.run.id", "training.run.attempt"} & set(told(folder)[-1]["attributes"])
    assert "lost" == told(folder)[-1]["attributes"]["training.run.outcome"]


def test_where_log_records_were_not_wanted_there_is_none(tmp_path: Path) -> None:
    """The outcome is in `writer.json` alone."""
    folder = die(tmp_path, rows=3)
    for path in files(folder, Signal.LOGS):
        path.unlink()
    assert "lost" == tell(folder).outcome
    assert [] == files(folder, Signal.LOGS)


def test_a_journal_that_was_delivered_is_read_on_from_its_end(tmp_path: Path) -> None:
    """What was acknowledged is not sent again, and its end is."""
    folder = die(tmp_path, frame("training.run.start", 0), frame("training.trace", 1))
    reader = JournalReader(folder, Signal.LOGS)
    batch = reader.next_batch(100)
    assert batch is not None
    reader.acknowledge(batch)
    assert 0 == JournalReader(folder, Signal.LOGS).unread
    tell(folder)
    left = JournalReader(folder, Signal.LOGS).next_batch(100)
    assert left is not None
    (content,) = left.contents
    assert isinstance(content, Frame)
    assert ["training.run.end"] == [event["name"] for event in decode_events(content.body)]


def test_a_number_that_was_deleted_is_not_given_again(tmp_path: Path) -> None:
    """Whoever goes on behind an acknowledged segment must not miss what comes after it."""
    folder = die(tmp_path)
    (folder / "logs.ack").write_text("7 64\n")
    event = encode_event(Event("x", START), SCOPE)
    add_postscript(folder, Signal.LOGS, [event], None, writer=bytes(16), time_ns=START)
    assert "logs-00000008.seg" == files(folder, Signal.LOGS)[-1].name
    assert 1 == JournalReader(folder, Signal.LOGS).next_batch(10).items


def test_damage_before_the_end_is_no_obstacle(tmp_path: Path) -> None:
    """A segment that cannot be read, or a torn record, is passed over."""
    folder = die(tmp_path, frame("training.run.start", 0))
    (path,) = files(folder, Signal.LOGS)[:1]
    data = path.read_bytes()
    (folder / "logs-00000005.seg").write_bytes(b"no segment at all")
    path.write_bytes(data[:64] + b"torn" + data[68:])
    assert "lost" == tell(folder).outcome
    assert "training.run.end" == decode_first(folder / "logs-00000006.seg")


def decode_first(path: Path) -> str:
    """Return the name of the first event of the newest segment of a folder, which is this file."""
    newest = next(newest_segments(path.parent, Signal.LOGS))
    assert int(path.stem.rpartition("-")[2]) == newest.header.sequence
    (event,) = decode_events(Frame.unpack(newest.records[-1].payload).body)
    return str(event["name"])


def errand(folder: Path, log: logging.Logger) -> Errand:
    """An errand without an endpoint."""
    launch = read_launch({"OTEL_LOGGER_DIR": str(folder)}, None)
    return Errand(launch, SystemClock(), wait=lambda seconds: None, timeout=1.0, log=log)


def test_a_full_disk_is_told_and_nothing_half_is_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What the folder does not take is warned of; the next one tries again."""
    folder = die(tmp_path, frame("training.run.start", 0))
    with disk_with(400):
        errand(tmp_path, logging.getLogger("otel_logger")).run(folder, WRITER)
    assert "cannot be recorded" in caplog.text
    assert 1 == len(told(folder))
    assert [] == [path.name for path in folder.glob("*-postscript.tmp")]
    assert errand(tmp_path, logging.getLogger("otel_logger")).run(folder, WRITER).reason is None
    assert "lost" == WriterFile.read(folder).outcome


def test_two_adopters_tell_once(tmp_path: Path) -> None:
    """Who owns the folder tells; the other one is refused, and finds it told."""
    folder = die(tmp_path, frame("training.run.start", 0))
    log = logging.getLogger("otel_logger")
    owner = Owner.claim(folder)
    refused = errand(tmp_path, log).run(folder, WRITER)
    assert refused.reason is not None
    assert 1 == len(told(folder))
    owner.release()
    for _ in range(2):
        assert errand(tmp_path, log).run(folder, WRITER).reason is None
    assert 2 == len(told(folder))


def test_a_folder_that_cannot_be_written_raises_nothing(tmp_path: Path) -> None:
    """It is told as the reason why it stays as it is."""
    folder = die(tmp_path / "w", frame("training.run.start", 0))
    (folder / "owner.lock").unlink()
    (folder / "owner.lock").mkdir()
    result = errand(tmp_path, logging.getLogger("otel_logger")).run(folder, WRITER)
    assert "the folder cannot be opened" in result.reason
    assert json.loads((folder / "writer.json").read_text())["outcome"] is None


def test_all_deaths_are_told_before_the_first_waits_for_its_endpoint(tmp_path: Path) -> None:
    """Where an endpoint takes nothing, what the oldest attempt has left is tried again for as long as we live."""
    run = tmp_path / "run"
    dead = [replace(WRITER, attempt=attempt, started_ns=START + attempt) for attempt in (1, 2)]
    for writer in dead:
        die(run / str(writer.attempt), frame("training.run.start", 0), writer=writer)
    own = run / "own"
    own.mkdir()
    replace(WRITER, attempt=3, started_ns=START + 3).write(own)
    launch = read_launch({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_LOGGER_DIR": str(tmp_path)}, None)
    adopter = Adopter(launch, SystemClock(), logging.getLogger("otel_logger"), lambda key: nullcontext())
    adopter.start(run, own)
    # It stops where it would wait.
    adopter.finish(5)
    assert ["lost", "lost"] == [(WriterFile.read(run / str(writer.attempt)) or writer).outcome for writer in dead]
