"""A private copy holds what its file held at that moment, by whichever way there is; failing leaves nothing."""

import errno
import os
import shutil
import socket
import stat
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_logger_exporters.private_copy import MOVERS, is_trusted_copy, private_copy, remove_copy

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="unnamed files and /proc are Linux's")

CONTENT = bytes(range(256)) * 9000
HIDDEN = f".otel_logger-staged-{os.geteuid()}"


@pytest.fixture
def source(tmp_path):
    """Give a file of 2.3 MB in a folder of its own."""
    path = tmp_path / "run" / "ckpt" / "ep1.pt"
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def folder(tmp_path):
    """Give the folder for copies, which is not there yet."""
    return tmp_path / "logs" / "staged"


@pytest.fixture
def top():
    """Give a folder on a file system that knows unnamed files."""
    path = Path(tempfile.mkdtemp(dir="/dev/shm"))
    yield path
    shutil.rmtree(path)


def mode(path):
    """Return the permissions of a file or folder."""
    return stat.S_IMODE(path.stat().st_mode)


def refuse(number):
    """Return a way to clone or to move that fails by this number."""

    def fail(*_):
        raise OSError(number, os.strerror(number))

    return fail


def pour(source, target):
    """Clone, as far as anybody can see afterwards."""
    size = os.fstat(source).st_size
    os.pwrite(target, os.pread(source, size, 0), 0)


def clone_elsewhere(then=pour):
    """Return a way to clone that fails at first as between two file systems, and goes on to `then`."""
    ways = iter([refuse(errno.EXDEV), then])
    return lambda source, target: next(ways)(source, target)


def copied(source, folder, **ways):
    """Return what a copy holds that was made without sharing blocks."""
    return private_copy(source, folder, "1", clone=refuse(errno.EOPNOTSUPP), **ways).read_bytes()


def test_a_copy_is_the_same_and_private(source, folder):
    """It has the content, in a folder and a file that only their owner can read."""
    copy = private_copy(source, folder, "1")

    assert folder / "1" == copy
    assert CONTENT == copy.read_bytes()
    assert (0o700, 0o600) == (mode(folder), mode(copy))
    assert is_trusted_copy(copy, folder)


def test_the_original_may_change_and_vanish_at_once(source, folder):
    """Neither is seen in the copy, nor is a link to the original one."""
    link = source.with_name("latest")
    link.symlink_to(source.name)
    first = private_copy(link, folder, "1")
    source.write_bytes(b"new")
    second = private_copy(link, folder, "2")
    shutil.rmtree(source.parent)

    assert (CONTENT, b"new") == (first.read_bytes(), second.read_bytes())
    assert not first.is_symlink()


@pytest.mark.parametrize("size", [0, 1, 2**20, 2**20 + 1, 2 * 2**20 - 1])
def test_files_of_any_size_are_copied_by_reading_and_writing(source, folder, size):
    """Where the kernel can do nothing of it, as outside Linux."""
    source.write_bytes(CONTENT[:size])

    assert CONTENT[:size] == copied(source, folder, movers=())


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EIO])
def test_what_the_kernel_cannot_is_done_by_the_next_way(source, folder, number):
    """Whichever way says so, by whichever number."""
    assert CONTENT == copied(source, folder, movers=[refuse(number), *MOVERS])
    (folder / "1").unlink()
    assert CONTENT == copied(source, folder, movers=[*MOVERS, refuse(number)])
    (folder / "1").unlink()
    assert CONTENT == copied(source, folder, movers=[refuse(number), refuse(number)])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    plans=st.lists(
        st.tuples(
            st.lists(st.integers(1, 2000), max_size=4), st.sampled_from([0, errno.EXDEV, errno.EINVAL, errno.EIO])
        ),
        max_size=4,
    ),
    size=st.integers(0, 5000),
)
def test_whatever_the_ways_do_the_copy_is_whole(tmp_path, plans, size):
    """Each way may move some of it, in pieces of any size, and then say that this is the end or that it cannot."""

    def mover(amounts, number):
        left = iter(amounts)

        def move(source, target, most):
            amount = next(left, 0)
            if not amount and number:
                refuse(number)()
            return os.write(target, os.read(source, min(amount, most))) if amount else 0

        return move

    content = CONTENT[:size]
    (tmp_path / "file").write_bytes(content)
    copy = tmp_path / "staged" / "1"
    copy.unlink(missing_ok=True)

    assert content == copied(tmp_path / "file", copy.parent, movers=[mover(*plan) for plan in plans])


def test_what_a_failed_clone_left_is_written_over(source, folder):
    """A file system may share a part, and then fail."""

    def half(_, target):
        os.write(target, b"x" * 2 * len(CONTENT))
        refuse(errno.ENOSPC)()

    assert CONTENT == private_copy(source, folder, "1", clone=half).read_bytes()


def test_room_is_made_for_bytes_but_not_for_shared_blocks(source, folder):
    """It is asked for once, with the folder and the size, before anything is written."""
    asked = []

    def make_room(place, size):
        asked.append((place, size, (folder / "1").stat().st_size))

    private_copy(source, folder, "1", clone=refuse(errno.ENOTTY), make_room=make_room)
    private_copy(source, folder, "2", clone=pour, make_room=make_room)

    assert [(folder, len(CONTENT), 0)] == asked


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), TimeoutError("alarm"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("where", ["clone", "make_room", "movers"])
def test_a_failure_is_told_and_leaves_nothing(source, folder, where, error):
    """A full disk, no room, what a handler of a signal raises; but a clone that cannot be made is no failure."""

    def fail(*_):
        raise error

    ways = {"clone": refuse(errno.ENOTTY), where: [fail] if where == "movers" else fail}
    if where == "clone" and isinstance(error, OSError) and error.errno:
        private_copy(source, folder, "1", **ways).unlink()
    else:
        with pytest.raises(type(error)) as raised:
            private_copy(source, folder, "1", **ways)
        assert error is raised.value
    assert [] == os.listdir(folder)


@pytest.mark.parametrize("most", [0, 100_000])
def test_a_file_that_grows_meanwhile_is_copied_as_it_was(source, folder, most):
    """However fast it grows, and whichever way copies it, the copy comes to an end."""

    def move(original, target, wanted):
        with source.open("ab") as file:
            file.write(CONTENT)
        return os.write(target, os.read(original, min(most, wanted)))

    assert CONTENT == copied(source, folder, movers=[move])


def test_a_file_that_shrinks_meanwhile_is_copied_as_far_as_it_is_there(source, folder):
    """The copy ends where the file does."""

    def move(original, target, _):
        os.truncate(source, 1_000_000)
        return os.write(target, os.read(original, 600_000))

    assert CONTENT[:1_000_000] == copied(source, folder, movers=[move])


@on_linux
def test_a_file_without_a_size_is_read_to_its_end(folder):
    """As those of /proc; room is made for what was read."""
    asked = []
    copy = private_copy(Path("/proc/version"), folder, "1", make_room=lambda _, size: asked.append(size))

    assert Path("/proc/version").read_bytes() == copy.read_bytes()
    assert copy.stat().st_size == sum(asked)


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder", "absent", "dangling"])
def test_what_is_no_file_is_refused_without_waiting(tmp_path, folder, kind):
    """A pipe that nobody writes to would be waited for as long as the training lives."""
    path = tmp_path / "x"
    expected, number = {
        "folder": (IsADirectoryError, errno.EISDIR),
        "absent": (FileNotFoundError, errno.ENOENT),
        "dangling": (FileNotFoundError, errno.ENOENT),
    }.get(kind, (OSError, errno.EINVAL))
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        # By a relative name, as an address has 108 bytes at most.
        shorter = os.path.relpath(path)
        server = socket.socket(socket.AF_UNIX)
        server.bind(min(shorter, str(path), key=len))
        server.close()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "dangling":
        path.symlink_to("nothing")

    with pytest.raises(expected) as raised:
        private_copy(path, folder, "1")

    assert number == raised.value.errno
    assert not folder.exists()


def test_a_name_that_is_taken_is_not_touched(source, folder):
    """Neither a file nor what a symbolic link leads to."""
    folder.mkdir(parents=True)
    (folder / "1").write_bytes(b"old")
    (folder / "2").symlink_to(folder / "1")

    for name in ("1", "2"):
        with pytest.raises(FileExistsError):
            private_copy(source, folder, name)

    assert b"old" == (folder / "1").read_bytes()


@on_linux
def test_on_another_file_system_blocks_are_shared_in_a_hidden_folder(source, folder, top):
    """The copy is private, outlives the original's folder, takes no room and nothing in the folder for copies."""
    copy = private_copy(
        source, folder, "1", clone=clone_elsewhere(), place=lambda _: top, make_room=refuse(errno.ENOSPC)
    )
    shutil.rmtree(source.parent)

    assert top / HIDDEN == copy.parent
    assert CONTENT == copy.read_bytes()
    assert (0o700, 0o600) == (mode(copy.parent), mode(copy))
    assert [] == os.listdir(folder)
    assert is_trusted_copy(copy, folder)


@on_linux
def test_a_hidden_folder_goes_with_its_last_copy(source, folder, top):
    """Copies of one name do not meet there; a copy that is gone already is no error."""
    first, second = (private_copy(source, folder, "1", clone=clone_elsewhere(), place=lambda _: top) for _ in range(2))
    assert first != second

    remove_copy(first)
    remove_copy(first)
    assert [second.name] == os.listdir(top / HIDDEN)
    remove_copy(second)
    assert [] == os.listdir(top)


def test_the_folder_for_copies_stays_when_its_last_is_removed(source, folder):
    """It is the writer's."""
    remove_copy(private_copy(source, folder, "1"))

    assert [] == os.listdir(folder)


@on_linux
@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSPC, errno.EINVAL])
def test_where_blocks_cannot_be_shared_there_is_no_hidden_folder(source, folder, top, number):
    """The copy is then in the folder for copies."""
    copy = private_copy(source, folder, "1", clone=clone_elsewhere(refuse(number)), place=lambda _: top)

    assert folder / "1" == copy
    assert CONTENT == copy.read_bytes()
    assert [] == os.listdir(top)


@on_linux
def test_a_name_that_is_too_long_to_be_hidden_is_not(source, folder, top):
    """The folder for copies takes it, and no empty hidden folder is left."""
    name = "n" * 250

    copy = private_copy(source, folder, name, clone=clone_elsewhere(), place=lambda _: top)

    assert (folder / name, CONTENT) == (copy, copy.read_bytes())
    assert [] == os.listdir(top)


@on_linux
@pytest.mark.parametrize("obstacle", ["none", "error", "absent", "file", "link", "open"])
def test_a_place_that_is_not_ours_alone_is_not_used(source, folder, top, obstacle):
    """Whatever stands where the hidden folder should be, the copy is made, and nothing is written through it."""
    others = top / "others"
    others.mkdir(mode=0o700)
    (others / "theirs").touch()
    place = {"none": None, "absent": top / "absent"}.get(obstacle, top)
    if obstacle == "file":
        (top / HIDDEN).write_bytes(b"old")
    elif obstacle == "link":
        (top / HIDDEN).symlink_to(others)
    elif obstacle == "open":
        others.rename(top / HIDDEN)
        others = top / HIDDEN
        others.chmod(0o750)
    find = refuse(errno.EACCES) if obstacle == "error" else lambda _: place

    copy = private_copy(source, folder, "1", clone=clone_elsewhere(), place=find)

    assert folder / "1" == copy
    assert CONTENT == copy.read_bytes()
    assert ["theirs"] == os.listdir(others)


def test_a_manifest_names_no_file_of_ours_that_is_not_a_copy(source, folder, tmp_path, monkeypatch):
    """What a manifest says is data: only files in the folder for copies, or in a hidden one of ours, are believed."""
    copy = private_copy(source, folder, "1")
    hidden = tmp_path / HIDDEN
    hidden.mkdir(mode=0o700)
    (hidden / "1-a").write_bytes(b"")
    (hidden / "link").symlink_to(copy)
    (hidden / "sub").mkdir()
    (folder / "link").symlink_to(copy)
    elsewhere = source.parent / HIDDEN
    elsewhere.symlink_to(hidden)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_bytes(b"")

    def trusted(path):
        return is_trusted_copy(Path(path), folder)

    assert [True, True] == [trusted(copy), trusted(hidden / "1-a")]
    refused = [
        *(source, tmp_path / "secret", folder, folder / "absent", folder / "link", folder / ".." / "staged" / "1"),
        *(hidden, hidden / "absent", hidden / "link", hidden / "sub", hidden / "..", elsewhere / "1-a"),
        *(f"{HIDDEN}/1-a", f"{hidden}/..//../secret", f"{hidden}/a\0b", f"{folder}/a\0b", f"{folder}/\ud800", "", "/"),
    ]
    assert [] == [path for path in refused if trusted(path)]
    for open_to in (0o750, 0o701, 0o777):
        hidden.chmod(open_to)
        assert not trusted(hidden / "1-a")
