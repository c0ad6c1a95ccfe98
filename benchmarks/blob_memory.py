"""What a large file costs in memory on its way to object storage and back, and how fast it goes.

    python benchmarks/blob_memory.py                    20 GB, or what of it the disk has room for
    python benchmarks/blob_memory.py --gigabytes 4      4 GB

Stores a file in a real S3 server on this machine and copies it out again, as a checkpoint goes, and reads the anonymous
memory of this process a hundred times a second. Prints a line for each way and exits with 1 when memory grows by
`GROWTH_LIMIT` or more. The file is mostly holes, the server's copies are not: on a disk without reflinks they need
twice its size. Needs Linux and `make servers`.
"""

import argparse
import hashlib
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from machine import measured_on

from otel_logger_exporters.blob_files import sha256_file
from otel_logger_exporters.blob_meta import BlobMeta
from otel_logger_exporters.blob_store import open_blob_store

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from s3 import S3Server, S3ServerError  # noqa: E402

MIB = 2**20
GB = 10**9

GROWTH_LIMIT = 200.0
"""MiB by which anonymous memory may grow, whatever the size of the file."""

INTERVAL = 0.01
"""Seconds between two looks at memory."""

SPACING = 16 * MIB
"""Bytes from one piece of the file that is no hole to the next: each part of an upload is another."""

COPIES = 2
"""How often the disk has to hold the file at once: as parts and as object, or as object and as what is copied out."""

SPARE = 4 * GB
"""Bytes of disk that are left alone."""


@dataclass
class Way:
    """What going one way cost: seconds, and MiB of anonymous memory at most and before."""

    seconds: float = 0.0
    before: float = 0.0
    peak: float = 0.0

    @property
    def growth(self) -> float:
        """MiB that were needed for it."""
        return self.peak - self.before


def main() -> int:
    """Store and fetch a file; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=20.0, help="size of the file, in 10^9 bytes (default: 20)")
    parser.add_argument("--folder", type=Path, help="where all of it lies (default: the system's temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="blob-memory-", dir=options.folder) as name:
        folder = Path(name)
        size = int(options.gigabytes * GB)
        room = (shutil.disk_usage(folder).free - SPARE) // COPIES
        if room < size:
            print(f"blob_memory: the disk has room for {room / GB:.1f} GB, not for {size / GB:.1f}", file=sys.stderr)
            size = room
        if size < SPACING:
            return 2
        try:
            with S3Server(folder / "s3", side_by_side=True, sidecars=True) as server:
                ways = there_and_back(server, folder, size)
        except S3ServerError as error:
            print(f"blob_memory: {error}", file=sys.stderr)
            return 2
    print(measured_on("obstore"))
    for what, way in ways.items():
        rate = size / MIB / way.seconds
        print(
            f"{what:8} {size / GB:6.1f} GB  {way.seconds:6.1f} s  {rate:6.0f} MiB/s  "
            f"RssAnon {way.before:4.0f} MiB + {way.growth:4.0f} MiB"
        )
    is_good = all(way.growth < GROWTH_LIMIT for way in ways.values())
    print(f"{'good' if is_good else 'bad'}: memory has to grow by less than {GROWTH_LIMIT:.0f} MiB")
    return 0 if is_good else 1


def there_and_back(server: S3Server, folder: Path, size: int) -> dict[str, Way]:
    """Store a file of `size` bytes on the server and copy it out again; return what each way cost."""
    source = write_file(folder / "source", size)
    meta = BlobMeta("run", 1, sha256_file(source), size, "application/octet-stream", "ep1/x.pt", "upload-1", 0)
    store = open_blob_store(f"{server.url}/runs", server.environ)
    ways = {}
    with watched() as ways["upload"]:
        store.put_file(meta.name, source, meta, may_replace=lambda known: False)
    with watched() as ways["download"]:
        store.copy_to(meta.name, folder / "out")
    if sha256_file(folder / "out") != meta.sha256:
        msg = "other bytes came back"
        raise RuntimeError(msg)
    return ways


def write_file(path: Path, size: int) -> Path:
    """Write a file of which the first MiB in each `SPACING` is no hole, and none is like another."""
    with path.open("wb") as file:
        for start in range(0, size, SPACING):
            file.seek(start)
            file.write(hashlib.shake_128(b"%d" % start).digest(min(MIB, size - start)))
        file.truncate(size)
    return path


@contextmanager
def watched() -> Iterator[Way]:
    """Watch time and memory of what is done meanwhile."""
    way = Way(before=anonymous())
    way.peak = way.before
    is_done = threading.Event()

    def watch() -> None:
        while not is_done.wait(INTERVAL):
            way.peak = max(way.peak, anonymous())

    watcher = threading.Thread(target=watch, name="watcher", daemon=True)
    watcher.start()
    began = time.monotonic()
    try:
        yield way
    finally:
        way.seconds = time.monotonic() - began
        is_done.set()
        watcher.join()


def anonymous() -> float:
    """MiB of memory of this process that are no file's."""
    status = Path("/proc/self/status").read_text("ascii", errors="replace")
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024


if __name__ == "__main__":
    sys.exit(main())
