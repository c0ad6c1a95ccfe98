"""Which file system a folder is on, and what can be relied on there.

| file systems | local | mappable | why |
|---|---|---|---|
| ext2, ext3, ext4, XFS | yes | yes | a block that is allocated and written is overwritten in place |
| tmpfs (`/dev/shm`) | yes | yes | `fallocate` takes the pages themselves, from the bound of the mount |
| Btrfs, ZFS, bcachefs, NILFS2, F2FS | yes | no | written elsewhere each time: a full disk fails the write to a page |
| overlay, aufs | yes | no | what lies above (Btrfs with some container engines) cannot be seen from inside |
| ramfs, FAT, exFAT, NTFS, HFS+, JFS, ReiserFS | yes | no | no `fallocate`, or none that writes |
| NFS, SMB, Ceph, Lustre, GPFS, BeeGFS, 9P, FUSE and their like | no | no | a page fails with its server |
| any other, and every system but Linux | no | no | unknown |

virtiofs, gcsfuse, s3fs, GlusterFS, SSHFS and NTFS-3G are FUSE. *Local* means that one kernel alone has it mounted, so
that this kernel's locks and times are the only ones.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FileSystem", "file_system_of", "free_bytes", "statfs_type"]


@dataclass(frozen=True, slots=True)
class FileSystem:
    """A kind of file system: what it is called, and what can be relied on there.

    `is_local`: one kernel alone has it mounted. `is_mappable`: writing to a page of a mapped file that we created,
    allocated by `fallocate` and have written before cannot fail for want of space, which would be a SIGBUS.
    """

    name: str
    is_local: bool
    is_mappable: bool


_UNKNOWN = FileSystem("unknown", is_local=False, is_mappable=False)

_MAPPABLE = {
    0xEF53: "ext2/3/4",  # one number for the three; they differ in nothing that matters here
    # In place, unless somebody has copied the file by reference (`cp` does by default): a page is then moved at its
    # next write, and that fails when the disk is full. See `MappedFile.is_shared`.
    0x58465342: "xfs",
    0x01021994: "tmpfs",
}
_LOCAL = {
    0x9123683E: "btrfs",
    0x2FC12FC1: "zfs",
    0xCA451A4E: "bcachefs",
    0x3434: "nilfs2",
    # Out of place on flash. It sets segments aside for that, but says nowhere that a page can always be written.
    0xF2F52010: "f2fs",
    0x794C7630: "overlay",
    0x61756673: "aufs",
    0x858458F6: "ramfs",
    0x4D44: "vfat",
    0x2011BAB0: "exfat",
    0x7366746E: "ntfs3",
    0x482B: "hfsplus",
    0x3153464A: "jfs",
    0x52654973: "reiserfs",
}
_SHARED = {
    0x6969: "nfs",
    0x517B: "smb",
    0xFF534D42: "cifs",
    0xFE534D42: "smb2",
    0x00C36400: "ceph",
    0x0BD00BD0: "lustre",
    0x47504653: "gpfs",
    0x19830326: "beegfs",
    0x20030528: "orangefs",
    0xAAD7AAEA: "panfs",
    0x5346414F: "afs",
    0x6B414653: "afs",
    0x73757245: "coda",
    # Block devices that several machines mount at once.
    0x01161970: "gfs2",
    0x7461636F: "ocfs2",
    0x65735546: "fuse",
    # A host's folder in its virtual machine.
    0x01021997: "9p",
    0xBACBACBC: "vmhgfs",
    0x786F4256: "vboxsf",
}
# What is not named here is unknown, and treated as the last group: a list of those that are safe, not of those that are
# not, because new ones appear.
_KNOWN = {
    **{number: FileSystem(name, is_local=True, is_mappable=True) for number, name in _MAPPABLE.items()},
    **{number: FileSystem(name, is_local=True, is_mappable=False) for number, name in _LOCAL.items()},
    **{number: FileSystem(name, is_local=False, is_mappable=False) for number, name in _SHARED.items()},
}


def statfs_type(folder: Path) -> int | None:
    """Return the number by which the kernel knows the file system of `folder`; None where it cannot be had."""
    # Not /proc/self/mountinfo: it needs /proc, and the mount of a path cannot be told from it without doubt (mounts on
    # top of mounts, devices that Btrfs numbers otherwise in stat). Python's os.statvfs leaves the number out.
    if sys.platform != "linux":
        return None
    path = os.fsencode(folder)
    # Larger than `struct statfs` of any architecture; `f_type` is its first word.
    buffer = (ctypes.c_ulong * 64)()
    try:
        if b"\0" in path or ctypes.CDLL(None).statfs(path, buffer) != 0:
            return None
    except (OSError, AttributeError):
        # A Python that is linked statically, or a C library without the function.
        return None
    # A signed word on some: the magic numbers have 32 bits.
    return buffer[0] & 0xFFFFFFFF


def file_system_of(folder: Path, probe: Callable[[Path], int | None] = statfs_type) -> FileSystem:
    """Return the kind of file system that `folder` is on, by one system call; never raises.

    One that is not known, or a folder that is not there, is `FileSystem("unknown", False, False)`. `probe` is what asks
    the kernel.
    """
    number = probe(folder)
    return _UNKNOWN if number is None else _KNOWN.get(number, _UNKNOWN)


def free_bytes(folder: Path) -> tuple[int, int]:
    """Return how many bytes of the file system of `folder` are free for us, and how many it has in all.

    What is set aside for root is not free. Both are 0 where the file system does not say (some of FUSE). Raises
    OSError.
    """
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
