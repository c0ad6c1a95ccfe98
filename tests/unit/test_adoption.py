"""What a dead writer holds of the disk in vain is given back, and nothing else; its last resource is found."""

import os

import pytest

from otel_logger_exporters.adoption import read_legacy, tidy
from otel_logger_exporters.journal_reader import end_of_segment
from otel_logger_exporters.payloads import ResourceRecord, pack_hyperparameters
from otel_logger_exporters.records import Kind
from otel_logger_exporters.segments import read_segment
from otel_logger_exporters.signals import Signal
from tests.journals import files, journal_in, numbered, payloads

DIED = 1_600_000_000 * 10**9


def die(folder, *signals, count=30):
    """Leave journals of signals as a killed writer leaves them, a minute of whose time is known."""
    for signal in signals:
        journal = journal_in(folder, signal, segment_size=512)
        for payload in numbered(count):
            journal.append((Kind.OTLP, payload))
            journal.tend()
        journal.abandon()
        for path in files(folder, signal):
            os.utime(path, ns=(DIED, DIED))


def test_zeros_are_cut_and_prepared_files_are_deleted(tmp_path):
    """All records stay, of each signal, and the time of the writer's death is still told."""
    die(tmp_path, *Signal)
    assert {3} == {len(files(tmp_path, signal)) for signal in Signal}
    tidy(tmp_path)
    for signal in Signal:
        found = files(tmp_path, signal)
        assert 2 == len(found)
        assert numbered(30) == payloads(tmp_path, signal=signal)
        assert [end_of_segment(path) for path in found] == [path.stat().st_size for path in found]
        assert {DIED} == {path.stat().st_mtime_ns for path in found}


def test_tidying_twice_is_tidying_once(tmp_path):
    """Whoever comes after another finds nothing to do."""
    die(tmp_path, Signal.LOGS)
    tidy(tmp_path)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    tidy(tmp_path)
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}


@pytest.mark.parametrize("gap", [0, 3, 50])
def test_torn_bytes_are_not_destroyed(tmp_path, gap):
    """What cannot be read stays to be counted, also behind zeros: it is all that is known of what is lost."""
    die(tmp_path, Signal.LOGS, count=3)
    (path,) = files(tmp_path, Signal.LOGS)[:1]
    end = end_of_segment(path)
    with path.open("r+b") as file:
        file.seek(end + gap)
        file.write(b"torn")
    tidy(tmp_path)
    segment = read_segment(path.read_bytes())
    assert (numbered(3), gap + 4) == ([bytes(record.payload) for record in segment.records], segment.cut)
    assert end + gap + 4 == path.stat().st_size


@pytest.mark.parametrize("content", [b"", bytes(5), bytes(10_000)], ids=["empty", "short", "zeros"])
def test_a_file_that_was_just_being_prepared_is_deleted(tmp_path, content):
    """A writer may die between making a file and filling it."""
    die(tmp_path, Signal.LOGS, count=1)
    (tmp_path / "logs-00000009.seg").write_bytes(content)
    tidy(tmp_path)
    assert 1 == len(files(tmp_path, Signal.LOGS))


def test_whole_segments_and_other_files_are_left_alone(tmp_path):
    """What a journal that was closed has left, marks, and what is not ours."""
    journal = journal_in(tmp_path, Signal.LOGS)
    journal.append((Kind.OTLP, b"x"))
    journal.close()
    (tmp_path / "logs.ack").write_text("1 64\n")
    (tmp_path / "logs-1.seg").write_bytes(bytes(100))
    (tmp_path / "metrics-00000001.seg").write_bytes(b"no segment")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    tidy(tmp_path)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_the_newest_segment_says_what_is_known_of_the_writer(tmp_path):
    """Prepared and empty files behind it say nothing."""
    journal = journal_in(tmp_path, segment_size=512)
    journal.keep("resource", Kind.RESOURCE, ResourceRecord(b"early", False).pack())
    journal.keep("hyperparameters", Kind.HYPERPARAMETERS, pack_hyperparameters({"lr": 0.1}, 5))
    for payload in numbered(40):
        journal.append((Kind.OTLP, payload))
        journal.tend()
    journal.keep("resource", Kind.RESOURCE, ResourceRecord(b"late", True).pack())
    journal.abandon()
    (tmp_path / "metrics-00000009.seg").write_bytes(b"")
    legacy = read_legacy(tmp_path, Signal.METRICS)
    assert (ResourceRecord(b"late", True), {"lr": 0.1}) == (legacy.resource, legacy.hyperparameters)
    assert read_legacy(tmp_path, Signal.LOGS).resource is None
