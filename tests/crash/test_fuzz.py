"""The fuzzer of the readers: a short run of it finds nothing, and it would find what is wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fuzz
import pytest

from otel_logger_exporters.records import Record


def test_readers_stand_what_disks_and_crashes_do_to_segments(tmp_path: Path) -> None:
    """Whatever is in a folder, no reader raises, hangs, takes memory by a number it has read, or makes records up."""
    command = [sys.executable, fuzz.__file__, "--seed", "1", "--inputs", "200", "--seconds", "15", "--keep", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 findings" in done.stdout


def careless(data: bytes, start: int = 0) -> Iterator[Record]:
    """Reads records without a look at their marks."""
    view, offset = memoryview(data), start
    while offset + 12 <= len(view) and view[offset + 4]:
        size = int.from_bytes(view[offset : offset + 4], "little")
        end = offset + (size + 12 + 7) // 8 * 8
        yield Record(view[offset + 4], view[offset + 8 : offset + 8 + size], end)
        offset = end


def broken(*arguments: Any, **named: Any) -> Any:
    """Reads nothing."""
    raise LookupError


def forgetful(*arguments: Any, **named: Any) -> Any:
    """Reads a run as one in which nothing was logged."""
    run = fuzz.read_run(*arguments, **named)
    return type("Run", (), {name: () for name in run.__slots__})


@pytest.mark.parametrize(
    ("readers", "finding"),
    [
        (fuzz.Readers(records=careless), "Wrong at fuzz.py"),
        (fuzz.Readers(segment=broken), "LookupError at test_fuzz.py"),
        (fuzz.Readers(journal=broken), "LookupError at test_fuzz.py"),
        (fuzz.Readers(run=forgetful), "Wrong at fuzz.py"),
    ],
)
def test_the_fuzzer_finds_readers_that_are_wrong(tmp_path: Path, readers: fuzz.Readers, finding: str) -> None:
    """A reader that looks at no checksum, one that raises, and one that leaves something out, are found and kept."""
    told: list[str] = []
    fuzzer = fuzz.Fuzzer(1, tmp_path / "work", readers)
    fuzzer.run(15.0, 40, tmp_path / "kept", told.append)

    assert any(name.startswith(finding) for name in fuzzer.findings), fuzzer.findings
    (kept, *_) = (tmp_path / "kept").iterdir()
    assert (kept / "finding.txt").read_text() in told
    assert list((kept / "run" / "writer").glob("*.seg"))
