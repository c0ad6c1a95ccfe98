"""Extents, the places of a file on its disk: whether another file shares them."""

import struct
import sys

__all__ = ["is_shared"]

_HEAD = struct.Struct("<QQIIII")
_EXTENT = struct.Struct("<QQQ16xI12x")
_MOST = 17
"""Extents looked at: as many as fit into the 1,024 bytes for which Python lets other threads run meanwhile."""

_FIEMAP = 0xC020660B
_SHARED = 0x2000
"""FS_IOC_FIEMAP and FIEMAP_EXTENT_SHARED: Linux, Documentation/filesystems/fiemap.rst."""


def is_shared(file: int) -> bool:
    """Tell whether an open file shares blocks with a copy, as `cp` makes one on XFS: then writing needs new ones.

    False where the file system does not say, which is so where it cannot share.
    """
    if sys.platform != "linux":
        return False
    import fcntl

    asked = bytearray(_HEAD.pack(0, 2**64 - 1, 0, 0, _MOST, 0) + bytes(_MOST * _EXTENT.size))
    try:
        fcntl.ioctl(file, _FIEMAP, asked)
    except OSError:
        return False
    count = min(_HEAD.unpack_from(asked)[3], _MOST)
    flags = (_EXTENT.unpack_from(asked, _HEAD.size + number * _EXTENT.size)[3] for number in range(count))
    return any(flag & _SHARED for flag in flags)
