"""Refused requests are kept with their reasons, up to a bound, each whole or not at all."""

import json

import pytest

from otel_logger_exporters.rejected import RejectedFolder
from otel_logger_exporters.signals import Signal
from tests.journals import disk_with


def put(rejected, *bodies, reason="400: no"):
    """Keep bodies that were refused at the time 5."""
    return rejected.put(Signal.LOGS, bodies, reason, 5)


@pytest.fixture
def folder(tmp_path):
    """Give the path of a folder that is not there yet."""
    return tmp_path / "rejected"


def kept(folder):
    """Return the names of what is kept."""
    return sorted(path.name for path in folder.iterdir())


def test_a_request_has_its_reason_beside_it(folder):
    """Each request of a record has its own, under names that never meet."""
    assert folder == put(RejectedFolder(folder), b"first", b"second", reason="400: n\u00f6")
    assert ["logs-5-1.json", "logs-5-1.otlp", "logs-5-2.json", "logs-5-2.otlp"] == kept(folder)
    assert b"second" == (folder / "logs-5-2.otlp").read_bytes()
    assert {"reason": "400: n\u00f6", "time_ns": 5, "size": 6} == json.loads((folder / "logs-5-2.json").read_text())


def test_what_is_kept_has_a_bound(folder):
    """It is that of the disk, of which a small file takes a block; what is beyond it is not there in part."""
    rejected = RejectedFolder(folder, 5 * 4096)
    assert [folder, folder, None, None] == [put(rejected, b"x") for _ in range(4)]
    assert 4 == len(kept(folder))
    assert 4 * 4096 == rejected.size


def test_the_bound_is_for_all_processes_that_come_after_each_other(folder):
    """Who sends what a dead writer left finds what it had kept."""
    put(RejectedFolder(folder), b"x" * 4097)
    rejected = RejectedFolder(folder, 4 * 4096)
    assert put(rejected, b"x") is None
    assert 3 * 4096 == rejected.size
    assert 2 == len(kept(folder))


def test_a_disk_that_is_full_keeps_all_or_nothing(folder):
    """Nothing of it is left there or counted, however often it is tried."""
    rejected = RejectedFolder(folder)
    put(rejected, b"x")
    with disk_with(60):
        for _ in range(3):
            with pytest.raises(OSError, match="File too large"):
                put(rejected, b"y", b"z" * 100)
    assert ["logs-5-1.json", "logs-5-1.otlp"] == kept(folder)
    assert 2 * 4096 == rejected.size
