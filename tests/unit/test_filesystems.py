"""A folder's file system is known by the kernel's number for it, and only those known to be safe are relied on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_logger_exporters.filesystems import FileSystem, file_system_of, free_bytes, statfs_type

UNKNOWN = FileSystem("unknown", is_local=False, is_mappable=False)

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="statfs is Linux's")


def seen(number):
    """Return what is made of a file system of this number."""
    return file_system_of(Path("/somewhere"), lambda _: number)


@pytest.mark.parametrize(("number", "name"), [(0xEF53, "ext2/3/4"), (0x58465342, "xfs"), (0x01021994, "tmpfs")])
def test_what_overwrites_in_place_is_mappable(number, name):
    """On these a page that was written once can be written again whatever else fills the disk."""
    assert FileSystem(name, is_local=True, is_mappable=True) == seen(number)


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (0x9123683E, "btrfs"),
        (0x2FC12FC1, "zfs"),
        (0xCA451A4E, "bcachefs"),
        (0xF2F52010, "f2fs"),
        (0x794C7630, "overlay"),
        (0x858458F6, "ramfs"),
    ],
)
def test_copy_on_write_and_layers_are_local_but_not_mappable(number, name):
    """A page of these may need new space at each write, or hides what does."""
    assert FileSystem(name, is_local=True, is_mappable=False) == seen(number)


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (0x6969, "nfs"),
        (0xFF534D42, "cifs"),
        (0xFE534D42, "smb2"),
        (0x00C36400, "ceph"),
        (0x0BD00BD0, "lustre"),
        (0x47504653, "gpfs"),
        (0x19830326, "beegfs"),
        (0x65735546, "fuse"),
        (0x01021997, "9p"),
    ],
)
def test_what_other_machines_may_mount_is_neither(number, name):
    """Another machine may own a folder there, and its server may fail a page."""
    assert FileSystem(name, is_local=False, is_mappable=False) == seen(number)


@pytest.mark.parametrize("number", [None, 0, 0x9FA0, 0xDEADBEEF])
def test_what_is_not_known_is_not_relied_on(number):
    """A number that is new or cannot be had is as the worst."""
    assert UNKNOWN == seen(number)


@on_linux
def test_the_kernel_is_asked():
    """`/proc` and `/dev/shm` are what they are on every Linux; and what it says is what `stat -f` says."""
    assert 0x9FA0 == statfs_type(Path("/proc"))
    assert "tmpfs" == file_system_of(Path("/dev/shm")).name
    said = subprocess.run(["stat", "-f", "-c", "%t", "/"], capture_output=True, text=True, check=True).stdout
    assert int(said, 16) == statfs_type(Path("/"))


@pytest.mark.parametrize("folder", ["absent", "a\0b", "file/below", "x" * 5000, "\udcff"])
def test_a_folder_that_is_not_there_is_on_an_unknown_one(tmp_path, folder):
    """Nothing raises, whatever the path."""
    (tmp_path / "file").touch()
    assert UNKNOWN == file_system_of(tmp_path / folder)


def test_free_space_is_what_we_may_use(tmp_path):
    """Free for us (not for root), and in all, in bytes."""
    free, total = free_bytes(tmp_path)
    status = os.statvfs(tmp_path)
    assert status.f_blocks * status.f_frsize == total
    assert 0 < free < total
    assert free % status.f_frsize == 0
    with pytest.raises(FileNotFoundError):
        free_bytes(tmp_path / "absent")
