"""What the doctor says of the folder of runs."""

import errno
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

from otel_logger.doctor_folder import check_folder, check_store_folder, check_unsent
from otel_logger.doctor_store import check_blob_store
from otel_logger.findings import OK, PROBLEM, SKIPPED, WARNING, Finding
from otel_logger.folders import WriterFile, run_folder
from otel_logger.settings import Settings
from otel_logger_exporters.blob_url import parse_blob_store
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.filesystems import FileSystem
from otel_logger_exporters.journal import Journal
from otel_logger_exporters.owner import Owner
from otel_logger_exporters.payloads import Frame
from otel_logger_exporters.records import Kind
from otel_logger_exporters.signals import Signal

EXT4 = FileSystem("ext2/3/4", is_local=True, is_mappable=True)
OVERLAY = FileSystem("overlay", is_local=True, is_mappable=False)
NFS = FileSystem("nfs", is_local=False, is_mappable=False)
GB = 10**9


def check(directory: Path, kind: FileSystem = EXT4, free: int = 500 * GB, **settings: Any) -> dict[str, Finding]:
    """Return the findings by their checks, on a file system of 1 TB."""
    found = check_folder(directory, Settings(**settings), file_system=lambda _: kind, free=lambda _: (free, 1000 * GB))
    return {finding.check: finding for finding in found}


@pytest.mark.parametrize(("name", "state"), [("", "can be written"), ("a/b/c", "can be made")])
def test_a_good_folder_is_told_with_its_file_system_and_left_as_it_was(tmp_path: Path, name: str, state: str) -> None:
    """A folder that is there, or can be made, gets its lines; nothing is left behind, not even the folder itself."""
    found = check(tmp_path / name)

    assert [
        Finding("folder", OK, f"{tmp_path / name} {state}, on ext2/3/4"),
        Finding("durability", OK, "call: what is recorded survives the death of the process"),
        Finding("space", OK, "500 GB of 1.00 TB are free"),
    ] == list(found.values())
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(("kind", "called"), [(OVERLAY, "overlay"), (NFS, "nfs (shared)")])
def test_a_file_system_without_durability_is_told_with_one_that_has_it(
    tmp_path: Path, kind: FileSystem, called: str
) -> None:
    """Where a call cannot be made durable, what a killed process loses is said, and where it would not."""
    found = check(tmp_path, kind)["durability"]

    assert (WARNING, f"call cannot be had on {called}: a process that is killed loses its last 200 ms") == (
        found.verdict,
        found.found,
    )
    assert "Set OTEL_LOGGER_DIR to a disk of this machine (ext4, XFS" in (found.remedy or "")


def test_interval_that_somebody_chose_is_no_warning(tmp_path: Path) -> None:
    """Whoever sets it knows what it is."""
    found = check(tmp_path, NFS, durability="interval")["durability"]

    assert (OK, True) == (found.verdict, found.found.startswith("interval, as set"))


@pytest.mark.parametrize(
    ("free", "settings", "verdict"),
    [
        (2 * GB, {}, OK),
        (1 * GB, {}, PROBLEM),
        (1 * GB, {"min_free_bytes": 0}, OK),
        (50 * GB, {"min_free_bytes": 60 * GB}, PROBLEM),
    ],
)
def test_free_space_is_held_against_the_floor(
    tmp_path: Path, free: int, settings: dict[str, int], verdict: str
) -> None:
    """Below the floor nothing is recorded, which is told before the run finds out."""
    found = check(tmp_path, free=free, **settings)["space"]

    assert verdict == found.verdict
    assert (verdict == PROBLEM) == ("OTEL_LOGGER_MIN_FREE_BYTES" in (found.remedy or ""))


def test_a_file_system_that_does_not_say_its_size_is_not_judged(tmp_path: Path) -> None:
    """Some of FUSE say 0 of 0."""
    found = check_folder(tmp_path, Settings(), file_system=lambda _: NFS, free=lambda _: (0, 0))

    assert [SKIPPED] == [finding.verdict for finding in found if finding.check == "space"]


def test_a_file_in_the_way_is_a_problem(tmp_path: Path) -> None:
    """No folder can be made below a file; the file is named."""
    (tmp_path / "file").write_text("")
    found = check(tmp_path / "file" / "runs")

    assert ["folder"] == list(found)
    assert PROBLEM == found["folder"].verdict
    assert (
        f"{tmp_path / 'file' / 'runs'} cannot be written: '{tmp_path / 'file'}' is no folder" == found["folder"].found
    )
    assert "Set OTEL_LOGGER_DIR to a folder that can be written" in (found["folder"].remedy or "")


@pytest.mark.parametrize(
    ("number", "found", "remedy"),
    [
        (errno.EACCES, "Permission denied", f"Let this user (uid {os.geteuid()}) write there, or set OTEL_LOGGER_DIR"),
        (errno.EROFS, "Read-only file system", "Set OTEL_LOGGER_DIR to a folder that is not mounted read-only"),
        (errno.ENOSPC, "No space left on device", "Free some, or set OTEL_LOGGER_DIR to another disk."),
        (errno.EIO, "Input/output error", "Set OTEL_LOGGER_DIR to a folder that can be written"),
    ],
)
def test_why_a_folder_cannot_be_written_decides_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, found: str, remedy: str
) -> None:
    """Rights, a mount, a full and a broken disk each need something else."""

    def refuse(**_: object) -> str:
        raise OSError(number, os.strerror(number))

    # Root, whom tests may run as, is refused nothing.
    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    finding = check(tmp_path)["folder"]

    assert (PROBLEM, f"{tmp_path} cannot be written: {found}") == (finding.verdict, finding.found)
    assert (finding.remedy or "").startswith(remedy)


def test_a_blob_store_of_its_own_is_tried_too(tmp_path: Path) -> None:
    """Images and files may go elsewhere than telemetry."""
    (tmp_path / "file").write_text("")

    assert (Finding("blob store", OK, f"{tmp_path} can be written"), tmp_path) == check_store_folder(tmp_path)
    finding, place = check_store_folder(tmp_path / "file")
    assert place is None
    assert "OTEL_LOGGER_BLOB_STORE" in (finding.remedy or "")


def make_writer(directory: Path, name: str, *, kept: tuple[str, ...], **fields: Any) -> Path:
    """Make a run of one writer with a log record in its journal, ended unless `fields` say otherwise."""
    writer = WriterFile("abcdef", 1, run_id=name, run_name=name, kept=kept, **{"ended_ns": 2, **fields})
    folder = run_folder(directory, name) / "0-1-abcdef"
    folder.mkdir(parents=True)
    journal = Journal(folder, Signal.LOGS, bytes(16), clock=SystemClock(), mapped=False)
    journal.append((Kind.OTLP, Frame(1, bytes(1000)).pack()), items=1)
    journal.tend()
    journal.close()
    writer.write(folder)
    return folder


def test_an_empty_folder_has_nothing_unsent(tmp_path: Path) -> None:
    """There need not be a folder at all."""
    found = check_unsent(tmp_path / "none", has_endpoint=True)

    assert Finding("unsent", OK, f"nothing waits in {tmp_path / 'none'}") == found


@pytest.mark.parametrize("has_endpoint", [True, False])
def test_what_could_not_be_sent_is_told_with_the_command_that_sends_it(tmp_path: Path, has_endpoint: bool) -> None:
    """Ended runs are counted, those that died without an end too; the command needs an endpoint."""
    make_writer(tmp_path, "ended", kept=())
    make_writer(tmp_path, "dead", kept=(), ended_ns=None)
    found = check_unsent(tmp_path, has_endpoint=has_endpoint)

    assert (WARNING, True) == (found.verdict, "2.0" in found.found)
    assert f" kB of ended runs in {tmp_path} could not be sent; 1 process died without an end" in found.found
    command = f"Send it: otel-logger sync {tmp_path}"
    assert (command if has_endpoint else f"{command}, with OTEL_EXPORTER_OTLP_ENDPOINT set to where it is to go") == (
        found.remedy
    )


def test_what_was_kept_on_purpose_is_no_warning(tmp_path: Path) -> None:
    """A run without an endpoint is where it should be."""
    make_writer(tmp_path, "kept", kept=("metrics", "logs", "traces"))
    found = check_unsent(tmp_path, has_endpoint=True)

    assert OK == found.verdict
    assert f" kB of ended runs is kept in {tmp_path}; `otel-logger sync` would send it" in found.found


def test_a_run_that_goes_on_sends_by_itself(tmp_path: Path) -> None:
    """What a live writer has not sent yet is no business of a later command."""
    owner = Owner(make_writer(tmp_path, "live", kept=(), ended_ns=None))
    found = check_unsent(tmp_path, has_endpoint=True)
    owner.release()

    assert f"nothing waits in {tmp_path}" == found.found


def test_commands_can_be_copied_into_a_shell(tmp_path: Path) -> None:
    """A folder's name may hold blanks."""
    make_writer(tmp_path / "my runs", "ended", kept=())
    found = check_unsent(tmp_path / "my runs", has_endpoint=True)

    assert f"Send it: otel-logger sync '{tmp_path / 'my runs'}'" == found.remedy


def test_a_blob_store_that_does_not_answer_is_told_in_time() -> None:
    """One that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_ENDPOINT_URL": address}
        finding = check_blob_store(parse_blob_store("s3://bucket"), keys, patience=0.2)

    assert (PROBLEM, "s3://bucket has not answered within 0.2 s") == (finding.verdict, finding.found)
