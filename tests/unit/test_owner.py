"""A folder is owned for as long as its writer lives; what a dead one left is adopted by one process alone."""

import errno
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import otel_logger_exporters
from otel_logger_exporters.filesystems import FileSystem
from otel_logger_exporters.owner import NotClaimable, Owner, is_owned
from otel_logger_exporters.owner_folder import LEASE, OwnerFolder
from otel_logger_exporters.owner_record import Machine, OwnerRecord

ROOT = Path(otel_logger_exporters.__file__).parents[1]
LOCAL = FileSystem("ext2/3/4", is_local=True, is_mappable=True)
SHARED = FileSystem("nfs", is_local=False, is_mappable=False)
HOUR = 3600

CHILD = """
import os, sys
from pathlib import Path
from otel_logger_exporters.owner import Owner, is_owned
folder = Path(sys.argv[1])
owner = Owner(folder)
if sys.argv[2:] == ["fork"]:
    pid = os.fork()
    if pid == 0:
        owner.abandon()
        owner.abandon()
        owner.release()
        os._exit(0 if owner.renew() else 1)
    assert os.waitpid(pid, 0)[1] == 0
    print("fork", is_owned(folder), flush=True)
    # One that a library has made without asking Python, so that it keeps everything open.
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    owner.release()
    Owner.claim(folder).release()
    os.close(writing)
print("owned", flush=True)
sys.stdin.read()
"""


def machine(
    host: str = "here",
    boot_id: str = "this-boot",
    *,
    on: FileSystem = LOCAL,
    uid: int | None = None,
    flock: Callable[[int, int], object] = fcntl.flock,
    probe: Callable[[Path], FileSystem] | None = None,
) -> Machine:
    """Return a machine of this name and boot, whose folders are on such a file system."""
    uid = os.geteuid() if uid is None else uid
    return Machine(host, boot_id, uid, flock, probe or (lambda _: on), pause=lambda _: None)


def no_locks(_file: int, _operation: int) -> None:
    """Answer as a file system without locks."""
    raise OSError(errno.EOPNOTSUPP, "Operation not supported")


def died(folder: Path, host: str = "here", boot_id: str = "this-boot", seconds_ago: float = 0, pid: int = 7) -> Path:
    """Leave what a writer leaves that was killed so long after its last renewal."""
    lock = folder / "owner.lock"
    lock.write_text(json.dumps({"host": host, "boot_id": boot_id, "pid": pid, "started": None, "ended": False}))
    lock.chmod(0o600)
    make_older(lock, seconds_ago)
    return lock


def make_older(file: Path, seconds: float) -> None:
    """Make the last renewal so many seconds older."""
    time = file.stat().st_mtime_ns - int(seconds * 1e9)
    os.utime(file, ns=(time, time))


def refusal(folder: Path, by: Machine | None = None) -> NotClaimable:
    """Return why a folder cannot be claimed."""
    with pytest.raises(NotClaimable) as caught:
        Owner.claim(folder, by or machine())
    return caught.value


def can_be_claimed(folder: Path, by: Machine) -> bool:
    """Tell whether a folder can be claimed, and that it is then no more a living writer's; gives it up again."""
    try:
        owner = Owner.claim(folder, by)
    except NotClaimable:
        assert is_owned(folder, by)
        return False
    assert not is_owned(folder, by)
    owner.release()
    assert not is_owned(folder, by)
    return True


def test_a_folder_is_owned_until_it_is_released(tmp_path):
    """From construction to release, which may come twice."""
    assert not is_owned(tmp_path)
    owner = Owner(tmp_path)
    assert is_owned(tmp_path)
    assert is_owned(tmp_path)
    owner.release()
    owner.release()
    assert not is_owned(tmp_path)


def test_a_folder_that_is_not_there_is_not_owned(tmp_path):
    """Neither is one that no writer ever had, nor a file."""
    (tmp_path / "file").touch()
    assert not is_owned(tmp_path / "absent")
    assert not is_owned(tmp_path / "file")


def test_two_who_look_at_once_do_not_see_each_other(tmp_path):
    """The ranks of a restarted job all look at the dead writer's folder in the same moment, and must agree."""
    died(tmp_path)
    other = os.open(tmp_path / "owner.lock", os.O_RDWR)
    try:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert not is_owned(tmp_path, machine())
    finally:
        os.close(other)


def test_a_look_does_not_prevent_a_claim(tmp_path):
    """`otel-logger runs` in the same moment as `sync` must not make it refuse a dead writer's folder."""
    died(tmp_path)
    looker = os.open(tmp_path / "owner.lock", os.O_RDONLY)
    fcntl.flock(looker, fcntl.LOCK_SH)
    Owner.claim(tmp_path, replace(machine(), pause=lambda _: fcntl.flock(looker, fcntl.LOCK_UN))).release()
    os.close(looker)


def test_a_released_folder_can_be_owned_again(tmp_path):
    """The lock file stays, and is no obstacle."""
    Owner(tmp_path).release()
    owner = Owner(tmp_path)
    assert is_owned(tmp_path)
    owner.release()


def test_the_death_of_the_owner_frees_the_folder(tmp_path):
    """A process that is killed, and did not even know that it was forked before, leaves its folder to be claimed."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as child:
        assert b"owned\n" == child.stdout.readline()
        assert is_owned(tmp_path)
        assert f"its writer (process {child.pid} on " in str(refusal(tmp_path, Machine.this()))
        child.kill()
        child.wait()
    assert not is_owned(tmp_path)
    Owner.claim(tmp_path).release()


def test_a_forked_child_leaves_the_folder_to_its_parent(tmp_path):
    """The child lets go, which unlocks nothing, and what else it calls does nothing; nor does one that keeps all."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CHILD, str(tmp_path), "fork"]
    done = subprocess.run(command, input=b"", capture_output=True, env=environ, check=True)
    assert b"fork True\nowned\n" == done.stdout


def test_the_lock_is_for_the_owner_alone(tmp_path):
    """Nobody else on the machine may hold it."""
    owner = Owner(tmp_path)
    assert 0o600 == (tmp_path / "owner.lock").stat().st_mode & 0o777
    owner.release()


def test_the_lock_says_whose_it_is(tmp_path):
    """Host, boot, pid and start of the process, for people too; and in the end that it has given the folder up."""
    owner = Owner(tmp_path)
    record = json.loads((tmp_path / "owner.lock").read_text())
    this = Machine.this()
    assert (this.host, this.boot_id, os.getpid(), False) == tuple(
        record[name] for name in ("host", "boot_id", "pid", "ended")
    )
    if sys.platform == "linux":
        assert Path("/proc/sys/kernel/random/boot_id").read_text().strip() == record["boot_id"]
        assert "+00:00" in record["started"]
    owner.release()
    assert record | {"ended": True} == json.loads((tmp_path / "owner.lock").read_text())


def test_a_live_writer_is_refused(tmp_path):
    """With the process that has it; time alone does not help."""
    owner = Owner(tmp_path, machine())
    error = refusal(tmp_path)
    assert f"its writer (process {os.getpid()} on here) is alive; it sends by itself" == str(error)
    assert error.retry_in is None
    owner.release()


def test_a_free_lock_of_this_boot_is_a_dead_writers_though_its_pid_lives(tmp_path):
    """Whatever process has the pid now, and however lately the lease was renewed, on every file system."""
    died(tmp_path, pid=os.getpid())
    assert can_be_claimed(tmp_path, machine())
    died(tmp_path, host="another-container", pid=os.getpid())
    assert can_be_claimed(tmp_path, machine(on=SHARED))


def test_an_earlier_boot_of_this_machine_is_over(tmp_path):
    """On a local file system nobody but this host can have written; it may have restarted within the minute."""
    died(tmp_path, boot_id="earlier-boot")
    assert can_be_claimed(tmp_path, machine())


def test_where_there_is_no_boot_id_the_host_stands_for_it(tmp_path):
    """As on macOS, whose file systems are not known either."""
    died(tmp_path, boot_id="")
    assert can_be_claimed(tmp_path, machine(boot_id="", on=SHARED))
    died(tmp_path, host="elsewhere", boot_id="")
    assert not can_be_claimed(tmp_path, machine(boot_id="", on=SHARED))


@pytest.mark.parametrize(
    ("host", "on"),
    [("elsewhere", SHARED), ("here", SHARED), ("elsewhere", LOCAL)],
    ids=["another-host", "same-name", "exported"],
)
def test_another_machine_has_a_lease(tmp_path, host, on):
    """A free lock says nothing of another kernel; also not on a disk of ours, which may be exported to it."""
    lock = died(tmp_path, host, "another-boot", seconds_ago=LEASE - 20)
    assert not can_be_claimed(tmp_path, machine(on=on))
    make_older(lock, 20.1)
    assert can_be_claimed(tmp_path, machine(on=on))


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_without_locks_the_lease_decides(tmp_path, number):
    """A writer is alive where it renews, also to processes of its own boot, and can be claimed a minute after."""

    def flock(_file, _operation):
        raise OSError(number, os.strerror(number))

    us = machine(on=SHARED, flock=flock)
    owner = Owner(tmp_path, us)
    assert not can_be_claimed(tmp_path, us)
    make_older(tmp_path / "owner.lock", LEASE - 10)
    assert not can_be_claimed(tmp_path, us)
    owner.renew()
    make_older(tmp_path / "owner.lock", LEASE - 10)
    assert not can_be_claimed(tmp_path, us)
    make_older(tmp_path / "owner.lock", 10.1)
    assert can_be_claimed(tmp_path, us)
    owner.release()


def test_a_writer_that_may_be_alive_is_refused_with_the_time_that_decides(tmp_path):
    """In words, and in seconds for whoever can wait."""
    died(tmp_path, "node7", "another-boot", seconds_ago=LEASE - 20)
    error = refusal(tmp_path, machine(on=SHARED))
    assert (
        "its writer (process 7 on node7) may be alive: no lock tells here, and it was last seen 40 s ago. After 60 s "
        "without a sign it is taken for dead: try again in 20 s"
    ) == str(error)
    assert 19 < error.retry_in <= 20


@pytest.mark.parametrize("hours", [-30, 30])
def test_our_own_clock_does_not_count(tmp_path, hours):
    """The age is that between the lease and a file written now; no clock of ours is compared with a server's."""

    class Clock:
        def time_ns(self):
            return (tmp_path / "owner.lock").stat().st_mtime_ns + hours * HOUR * 10**9

        def monotonic(self):
            return 0.0

    us = replace(machine(on=SHARED), clock=Clock())
    lock = died(tmp_path, "elsewhere", "another-boot")
    assert not can_be_claimed(tmp_path, us)
    make_older(lock, LEASE)
    assert can_be_claimed(tmp_path, us)


def test_where_nothing_can_be_written_only_what_is_very_old_is_dead(tmp_path, monkeypatch):
    """An archive that is mounted read-only lists its runs as lost; a day is more than clocks differ by."""

    def read_only(_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(OwnerFolder, "_written", property(read_only))
    lock = died(tmp_path, "elsewhere", "another-boot", seconds_ago=2 * HOUR)
    assert is_owned(tmp_path, machine(on=SHARED))
    make_older(lock, 24 * HOUR)
    assert not is_owned(tmp_path, machine(on=SHARED))


def test_looking_writes_nothing_where_the_lock_or_the_record_answers(tmp_path):
    """Held, of this boot, of an earlier one, given up: the folder's files are not added to for a moment."""
    for lock in ("held", "died", "rebooted", "released"):
        folder = tmp_path / lock
        folder.mkdir()
        owner = Owner(folder, machine()) if lock in ("held", "released") else None
        if owner is None:
            died(folder, boot_id="earlier-boot" if lock == "rebooted" else "this-boot")
        elif lock == "released":
            owner.release()
        before = folder.stat().st_mtime_ns, (folder / "owner.lock").stat().st_mtime_ns
        assert (lock == "held") == is_owned(folder, machine())
        assert before == (folder.stat().st_mtime_ns, (folder / "owner.lock").stat().st_mtime_ns)
        if owner is not None:
            owner.release()


def test_a_folder_that_was_adopted_is_a_dead_writers(tmp_path):
    """The adopter holds the lock, and says so beside it; a second one is told who is at it."""
    died(tmp_path)
    adopter = Owner.claim(tmp_path, machine())
    assert not is_owned(tmp_path, machine())
    assert f"another process (process {os.getpid()} on here) sends it" == str(refusal(tmp_path))
    adopter.release()
    assert ["owner.lock"] == os.listdir(tmp_path)


def test_what_was_found_dead_once_is_dead_for_all(tmp_path):
    """Whoever comes after an adopter that was interrupted needs neither a lease nor a lock."""
    died(tmp_path, "elsewhere", "another-boot", seconds_ago=LEASE)
    Owner.claim(tmp_path, machine(on=SHARED)).release()
    assert not is_owned(tmp_path, machine("third", "third-boot", on=SHARED, flock=no_locks))
    assert can_be_claimed(tmp_path, machine("third", "third-boot", on=SHARED, flock=no_locks))


def test_a_folder_without_a_lock_can_be_claimed_again_and_again(tmp_path):
    """No writer ever had it, so that none needs to be waited for."""
    us = machine(on=SHARED)
    assert can_be_claimed(tmp_path, us)
    assert can_be_claimed(tmp_path, us)


def test_an_adopter_has_a_lease_of_its_own(tmp_path):
    """One that dies is succeeded by another, from another machine as soon as its lease is over."""
    here = machine(on=SHARED, flock=no_locks)
    there = machine("elsewhere", "another-boot", on=SHARED, flock=no_locks)
    died(tmp_path, seconds_ago=LEASE)
    first = Owner.claim(tmp_path, here)
    error = refusal(tmp_path, there)
    assert str(error).startswith(f"the process that sent it (process {os.getpid()} on here) may be alive: ")
    assert 59 < error.retry_in <= 60
    first.abandon()
    make_older(tmp_path / "adopter-1.lock", LEASE)
    second = Owner.claim(tmp_path, there)
    assert ["adopter-1.lock", "adopter-2.lock", "owner.lock"] == sorted(os.listdir(tmp_path))
    second.release()
    assert ["owner.lock"] == os.listdir(tmp_path)


def test_of_two_that_find_an_owner_dead_one_claims_the_folder(tmp_path, monkeypatch):
    """Also where no lock keeps them apart: one comes between the other's look and its claim."""
    died(tmp_path, seconds_ago=LEASE)
    us = machine(on=SHARED, flock=no_locks)
    open_adopter = OwnerFolder.open_adopter
    quicker = []

    def late(folder, number, flags):
        monkeypatch.undo()
        quicker.append(Owner.claim(tmp_path, us))
        return open_adopter(folder, number, flags)

    monkeypatch.setattr(OwnerFolder, "open_adopter", late)
    assert "another process has just begun to send it" == str(refusal(tmp_path, us))
    assert ["adopter-1.lock", "owner.lock"] == sorted(os.listdir(tmp_path))
    quicker[0].release()


def test_a_claim_behind_a_later_one_is_none(tmp_path):
    """The client of a server may have listed the folder as it was: what it makes is then no longer the newest."""
    died(tmp_path, "elsewhere", "another-boot", seconds_ago=LEASE)

    def probe(_folder):
        (tmp_path / "adopter-2.lock").touch()
        return SHARED

    assert "another process has just begun to send it" == str(refusal(tmp_path, machine(probe=probe)))
    assert ["adopter-2.lock", "owner.lock"] == sorted(os.listdir(tmp_path))


def test_an_owner_that_was_succeeded_learns_it(tmp_path):
    """A process that was suspended is told by its next renewal, which takes nothing back; nor does its release."""
    owner = Owner(tmp_path, machine(on=SHARED, flock=no_locks))
    assert owner.renew()
    make_older(tmp_path / "owner.lock", LEASE)
    adopter = Owner.claim(tmp_path, machine("elsewhere", "another-boot", on=SHARED, flock=no_locks))
    assert not owner.renew()
    owner.release()
    assert owner.renew()
    assert adopter.renew()
    assert ["adopter-1.lock", "owner.lock"] == sorted(os.listdir(tmp_path))
    adopter.release()


def test_an_adopter_that_was_succeeded_leaves_its_successor_alone(tmp_path):
    """Its own file stays until the successor is done, or the number after it would be free again."""
    us = machine(on=SHARED, flock=no_locks)
    died(tmp_path, seconds_ago=LEASE)
    first = Owner.claim(tmp_path, us)
    make_older(tmp_path / "adopter-1.lock", LEASE)
    second = Owner.claim(tmp_path, us)
    assert not first.renew()
    first.release()
    assert not can_be_claimed_by_lease(tmp_path, us)
    second.release()
    assert ["owner.lock"] == os.listdir(tmp_path)


def can_be_claimed_by_lease(folder: Path, by: Machine) -> bool:
    """Tell whether an adopted folder can be claimed."""
    try:
        Owner.claim(folder, by).release()
    except NotClaimable:
        return False
    return True


def test_the_folder_of_another_user_is_not_adopted(tmp_path):
    """Neither is anything made in it."""
    reason = str(refusal(tmp_path, machine(uid=4242)))
    us = os.geteuid()
    assert f"it belongs to user {us}, and this is user 4242: do this as the user who ran the training" == reason
    assert [] == os.listdir(tmp_path)


def test_a_server_says_who_we_are(tmp_path):
    """Root is nobody on many servers: ours is what belongs to whom our own files belong to there."""
    died(tmp_path)
    assert can_be_claimed(tmp_path, machine(uid=4242, on=SHARED))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_the_folder_of_another_user_of_a_server_is_not_adopted(tmp_path):
    """What we write there is not theirs."""
    os.chown(tmp_path, 4242, 4242)
    assert "it belongs to user 4242" in str(refusal(tmp_path, machine(on=SHARED)))
    assert [] == os.listdir(tmp_path)


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o1777])
def test_a_folder_that_others_can_write_is_not_adopted(tmp_path, mode):
    """They may have put anything into it."""
    died(tmp_path)
    tmp_path.chmod(mode)
    assert (f"it can be written by others (mode {mode:04o}): see that all in it is yours, then `chmod go-w`") == str(
        refusal(tmp_path)
    )


def test_a_lock_that_others_can_write_is_not_trusted(tmp_path):
    """They may have said in it what they liked."""
    died(tmp_path).chmod(0o666)
    assert "its owner.lock can be written by others (mode 0666)" in str(refusal(tmp_path))


def test_symbolic_links_are_not_followed(tmp_path):
    """Neither a folder's nor its lock's."""
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o700)
    died(folder)
    (tmp_path / "link").symlink_to(folder)
    assert "it is a symbolic link: give the folder that it leads to" == str(refusal(tmp_path / "link"))
    (folder / "owner.lock").rename(tmp_path / "owner.lock")
    (folder / "owner.lock").symlink_to(tmp_path / "owner.lock")
    assert "its owner.lock is a symbolic link" in str(refusal(folder))
    assert is_owned(folder, machine())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"null",
        b"[]",
        b"{}",
        b"[" * 9000,
        b'{"host": 5}',
        b'{"pid": "x"}',
        b'{"started": []}',
        b'{"ended": 1}',
        b'{"host": "here", "boot_id": null}',
    ],
)
def test_a_damaged_record_is_no_record(tmp_path, content):
    """The lease decides, as on a disk so full that the record found no place."""
    lock = died(tmp_path)
    lock.write_bytes(content)
    assert not can_be_claimed(tmp_path, machine())
    make_older(lock, LEASE)
    assert can_be_claimed(tmp_path, machine())


def test_a_lock_that_cannot_be_asked_tells_nothing(tmp_path):
    """A claim says why, and a look takes the writer for alive."""

    def flock(_file, _operation):
        raise OSError(errno.EIO, "Input/output error")

    died(tmp_path, seconds_ago=HOUR)
    with pytest.raises(OSError, match="Input/output error"):
        Owner.claim(tmp_path, machine(flock=flock))
    assert is_owned(tmp_path, machine(flock=flock))


def test_a_writer_is_constructed_on_a_full_disk(tmp_path, monkeypatch):
    """Its lock holds without a record, and its lease is renewed without space."""

    def full(_record, _file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(OwnerRecord, "write", full)
    owner = Owner(tmp_path, machine())
    assert is_owned(tmp_path, machine())
    make_older(tmp_path / "owner.lock", HOUR)
    old = (tmp_path / "owner.lock").stat().st_mtime_ns
    assert owner.renew()
    assert (tmp_path / "owner.lock").stat().st_mtime_ns - old > HOUR * 10**9 / 2
    owner.release()


def test_a_full_disk_can_be_adopted_where_the_lock_is_enough(tmp_path, monkeypatch):
    """Sending what fills it is the cure; where the lock keeps nobody out, the claim fails and says why."""

    def full(_folder, _number, _flags):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(OwnerFolder, "open_adopter", full)
    died(tmp_path)
    adopter = Owner.claim(tmp_path, machine())
    assert "alive" in str(refusal(tmp_path))
    assert adopter.renew()
    adopter.release()
    assert not is_owned(tmp_path, machine())
    with pytest.raises(OSError, match="No space left"):
        Owner.claim(tmp_path, machine(on=SHARED))


@pytest.mark.parametrize(("on", "count"), [(SHARED, 1), (LOCAL, 0)])
def test_a_renewal_goes_to_the_server(tmp_path, monkeypatch, on, count):
    """What stays in our cache is seen by nobody else; a disk of our own is not made to write for it."""
    synced = []
    owner = Owner(tmp_path, machine(on=on))
    monkeypatch.setattr(os, "fsync", synced.append)
    owner.renew()
    assert count == len(synced)
    owner.release()


def test_nothing_stays_open(tmp_path):
    """Of an owner, of a look, of a claim, and of one that is refused."""
    before = os.listdir("/dev/fd")
    owner = Owner(tmp_path, machine())
    refusal(tmp_path)
    is_owned(tmp_path, machine())
    owner.release()
    Owner.claim(tmp_path, machine()).release()
    refusal(tmp_path, machine(uid=4242))
    assert before == os.listdir("/dev/fd")


def test_renewing_and_releasing_outlive_the_folder(tmp_path):
    """Somebody may delete it at any time."""
    owner = Owner(tmp_path, machine(on=SHARED))
    (tmp_path / "owner.lock").unlink()
    assert owner.renew()
    owner.release()
