"""A hidden folder is made as high on a file system as nobody else can move it, and never beside the file itself."""

import os
import stat
from types import SimpleNamespace

import pytest

from otel_logger_exporters.hidden_folder import hiding_place

US = os.geteuid()
STRANGER = US + 1


@pytest.fixture
def disk(tmp_path):
    """Give a folder for tests to call a file system, with `a/b/c/file` in it."""
    (tmp_path / "disk/a/b/c").mkdir(parents=True)
    (tmp_path / "disk/a/b/c/file").touch()
    return tmp_path / "disk"


def chosen(disk, path="a/b/c/file", kind="xfs", **folders):
    """Return which folder of `disk` is chosen for a file, where `folders` have other owners and modes."""

    def status(found):
        inside = found == disk or disk in found.parents
        name = "top" if found == disk else found.name
        owner, mode = folders.get(name, (US, 0o755)) if inside else (US, 0o755)
        return SimpleNamespace(st_dev=7 if inside else 1, st_uid=owner, st_mode=stat.S_IFDIR | mode)

    place = hiding_place(disk / path, status, lambda _: kind)
    return None if place is None else str(place.relative_to(disk.parent))


def test_the_topmost_folder_of_the_file_system_is_chosen(disk):
    """What is above it is on another file system."""
    assert "disk" == chosen(disk)


@pytest.mark.parametrize(
    ("owner", "mode", "expected"),
    [
        (US, 0o755, "disk"),
        (US, 0o700, "disk"),
        (US, 0o1777, "disk"),
        (0, 0o1777, "disk"),
        (US, 0o775, "disk/a"),
        (US, 0o777, "disk/a"),
        (STRANGER, 0o755, "disk/a"),
        (STRANGER, 0o1777, "disk/a"),
        (STRANGER, 0o2775, "disk/a"),
    ],
)
def test_a_folder_in_which_others_could_rename_ours_is_not(disk, owner, mode, expected):
    """Its owner could, and everybody who may write to it, unless it is sticky."""
    assert expected == chosen(disk, top=(owner, mode))


def test_the_folder_of_the_file_itself_is_never_chosen(disk):
    """Who writes checkpoints deletes it; where there is no other, nothing is hidden."""
    strange = (STRANGER, 0o755)
    assert "disk/a/b" == chosen(disk, top=strange, a=strange)
    assert None is chosen(disk, top=strange, a=strange, b=strange)


def test_a_link_is_hidden_where_it_leads_to(disk):
    """The copy shares the blocks of the file, not of the link."""
    link = disk.parent / "link"
    link.symlink_to(disk / "a/b/c/file")

    assert "disk" == chosen(disk, link)


@pytest.mark.parametrize("kind", ["overlay", "aufs"])
def test_nothing_is_hidden_in_a_container_s_own_layer(disk, kind):
    """It is gone with the container, where the folder of runs may be on a volume."""
    assert None is chosen(disk, kind=kind)


def test_the_system_is_asked(disk):
    """Where the root of all folders is ours or `/tmp` sticky, there is a place for whatever is further down."""
    place = hiding_place(disk / "a/b/c/file", kind=lambda _: "xfs")

    assert place is not None
    assert place in disk.parents or place == disk
    assert place.stat().st_dev == disk.stat().st_dev
