"""Private copies on real file systems: one that shares blocks, one that does not, and between two of them.

The disks are mounted in a mount namespace of the test's own, gone with it. XFS, in a file, only root can mount, where
xfsprogs are; elsewhere the tests are run with tmpfs alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MIB = 2**20

IS_ROOT = os.geteuid() == 0
DISKS = ["tmpfs"]
if IS_ROOT and Path("/dev/loop-control").exists() and shutil.which("mkfs.xfs"):
    DISKS.append("xfs")

PROGRAM = """
import json, os, shutil, sys
from pathlib import Path
from otel_logger_exporters.private_copy import is_trusted_copy, private_copy, remove_copy

disk, elsewhere = map(Path, sys.argv[1:])
content = os.urandom(1 << 20) * 48
room = []

def checkpoint():
    path = disk / "project" / "run" / "ckpt" / "ep1.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.sync()
    return path

def copy(source, folder):
    room.clear()
    before = os.statvfs(disk).f_bfree
    made = private_copy(source, folder, "1", make_room=lambda _, size: room.append(size))
    os.sync()
    return made, {
        "taken": (before - os.statvfs(disk).f_bfree) * os.statvfs(disk).f_frsize,
        "room": sum(room),
        "same": made.read_bytes() == content,
        "place": str(made.parent.relative_to(disk if disk in made.parents else elsewhere)),
        "trusted": is_trusted_copy(made, folder),
    }

said = {}
made, said["on the disk"] = copy(checkpoint(), disk / "logs")
remove_copy(made)
made, said["from the disk"] = copy(checkpoint(), elsewhere / "logs")
checkpoint().write_bytes(b"new")
shutil.rmtree(disk / "project")
said["from the disk"]["outlives"] = made.read_bytes() == content
remove_copy(made)
(elsewhere / "source").write_bytes(content)
made, said["to the disk"] = copy(elsewhere / "source", disk / "logs")
remove_copy(made)
said["left"] = sorted(os.listdir(disk)) + sorted(os.listdir(elsewhere))
print(json.dumps(said))
"""


@pytest.fixture(params=DISKS)
def disk(request: pytest.FixtureRequest) -> str:
    """The kind of disk, of 400 MiB."""
    kind: str = request.param
    return kind


@pytest.fixture
def seen(disk: str, tmp_path: Path) -> dict[str, Any]:
    """What a program says that makes copies on the disk, from it to another, and the other way."""
    mounted, elsewhere = tmp_path / "disk", tmp_path / "elsewhere"
    mounted.mkdir()
    elsewhere.mkdir()
    mount = f"mount -t tmpfs -o size={400 * MIB} disk"
    if disk == "xfs":
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(400 * MIB)
        subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", str(image)], check=True)
        mount = f"mount -o loop {image}"
    unshare = ["unshare", "--mount", "--propagation", "private"]
    if not IS_ROOT:
        unshare += ["--user", "--map-root-user"]
    script = f'{mount} "$1" && exec "$0" -c "$3" "$1" "$2"'
    done = subprocess.run(
        [*unshare, "sh", "-c", script, sys.executable, str(mounted), str(elsewhere), PROGRAM],
        stdout=subprocess.PIPE,
        check=True,
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_a_copy_shares_blocks_where_the_disk_can(disk: str, seen: dict[str, Any]) -> None:
    """It is then made on the file's own disk, outlives the file's folder, and takes no space; else it is a copy."""
    shares, size = disk == "xfs", 48 * MIB
    hidden = f".otel_logger-staged-{os.geteuid()}"
    taken = {where: seen[where].pop("taken") for where in ("on the disk", "from the disk", "to the disk")}
    copy = {"room": size, "same": True, "place": "logs", "trusted": True}
    clone = {**copy, "room": 0}

    assert {
        "on the disk": clone if shares else copy,
        "from the disk": {**(clone if shares else copy), "place": hidden if shares else "logs", "outlives": True},
        "to the disk": copy,
        "left": ["logs", "logs", "source"],
    } == seen
    assert [not shares, False, True] == [amount > size // 2 for amount in taken.values()]
