"""A small disk in memory, for tests to fill: a tmpfs in a mount namespace of its own, gone when the test is."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["SmallDisk"]

MIB = 2**20


class SmallDisk:
    """A tmpfs of `size` bytes; who is started with the `prefix` sees it at `inside`, everybody else at `outside`.

    Root may mount; others may in a user namespace, where the system allows that. The test is skipped where it does not.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self.inside = folder / "disk"
        self.inside.mkdir()
        is_root = os.geteuid() == 0
        script = f'mount -t tmpfs -o size={size} small-disk "$0" && echo mounted && exec cat'
        command = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            *([] if is_root else ["--user", "--map-root-user"]),
        ]
        if shutil.which("unshare") is None or shutil.which("nsenter") is None:
            pytest.skip("a disk that is full needs a small one: install util-linux, for unshare and nsenter")
        self._holder = subprocess.Popen(
            [*command, "sh", "-c", script, str(self.inside)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"mounted\n":
            _, said = self._holder.communicate()
            pytest.skip(
                "a disk that is full needs a small one, which this system lets nobody mount but root: run the tests as "
                f"root or allow user namespaces ({said.decode().strip()})"
            )
        target = ["--target", str(self._holder.pid), "--mount"]
        self.prefix = ["nsenter", *target, *([] if is_root else ["--user", "--preserve-credentials"]), "--"]
        self.root = Path(f"/proc/{self._holder.pid}/root")
        """Where all that is seen inside is found from outside."""
        self.outside = self.root / self.inside.relative_to("/")
        self._ballast = self.outside / "ballast"

    def __enter__(self) -> SmallDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.communicate()

    @property
    def free(self) -> int:
        """Bytes that are left on it."""
        found = os.statvfs(self.outside)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Fills it to the last page, or up to `leave` bytes."""
        with self._ballast.open("ab") as file:
            end, step = file.tell(), 16 * MIB
            while step >= 4096:
                try:
                    if self.free - step < leave:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.posix_fallocate(file.fileno(), end, step)
                    end += step
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    step //= 2

    def make_room(self) -> None:
        """Takes away again what `fill` filled."""
        self._ballast.unlink()

    def make_read_only(self, path: Path) -> None:
        """Lets nobody create, rename or delete anything below `path` (as it is inside); open files stay writable.

        That is what taking the write permission from a folder does to everybody but root.
        """
        for arguments in (["--bind", str(path), str(path)], ["-o", "remount,bind,ro", str(path)]):
            subprocess.run([*self.prefix, "mount", *arguments], check=True)

    def make_writable(self, path: Path) -> None:
        """Takes back `make_read_only`."""
        subprocess.run([*self.prefix, "umount", str(path)], check=True)
