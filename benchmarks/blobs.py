"""Images, tables and files: what they cost the training, with otel_logger and with what else there is.

    uv pip install --python .venv/bin/python wandb tensorboard        beside what `make test-all` installs
    make servers
    python benchmarks/blobs.py                                        everything, in about half an hour
    python benchmarks/blobs.py images tables files stalls png         some of it, by name
    python benchmarks/blobs.py --rounds 20 --large-rounds 2           fewer rounds

otel_logger stores in a folder, as by default, and in a bucket of a real S3 server (versitygw) on the loopback
interface; beside it are W&B without a server, PyTorch's writer for TensorBoard, and Composer's RemoteUploaderDownloader
with the same S3 server. Each has a process of its own. They take turns, one call each, and each call waits for what the
one before it left to do in the background. Ratios are medians of the ratios of rounds.

* images: 8 tensors of 3 x 256 x 256 float32 in one call, also with two masks each.
* tables: 1,000 rows of 10 numbers and texts; and of cells of all kinds, among them lists, dictionaries, times and
  NumPy's numbers, which have to be copied and for which no limit is set. "processor" is the time that the calling
  thread has worked, which others on the machine do not lengthen as they do the time by the clock.
* files: 1 GiB. The copy is `shutil.copyfile` on the same file system; "stored" is the time from the call until the file
  is where it belongs (unknown for W&B, whose process tells nothing without a server). Memory is anonymous.
* stalls: the longest time in which another Python thread of the process did not run while 64 images of 1024 x 1024
  or a table of 1,000,000 rows (W&B: of 10,000, more it does not keep) were logged or 1 GiB was uploaded. "Without the
  wait" is without the time in which the thread was free to run but the machine had no processor for it; "at work" is
  what of that other threads of the process can have worked, at most: on a busy machine they wait for a processor too.
* png: one thread of processor time for 8-bit RGB images.

The last lines say which targets are met; the exit status is 1 when one is missed. Needs Linux, `make servers` and
about 10 GB of free disk.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from blobs_figures import Stall, Target, larger, percentile, ratio, smaller, table
from blobs_libraries import LIBRARIES
from blobs_png import measure as measure_png
from blobs_samples import make_file
from blobs_worker import Worker, delete_large
from machine import measured_on

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from s3 import S3Server  # noqa: E402

SECTIONS = ("images", "tables", "files", "stalls", "png")
OURS, OURS_S3 = list(LIBRARIES)[:2]
WANDB_ROWS = 10_000
WARM_UP = 3
LIMITS = {"images": 2.0, "table": 1.0}
# What two copies of one file differ by.
COPY_TOLERANCE = 1.1


class Bench:
    """The libraries at work in a folder, and what was found."""

    def __init__(self, options: argparse.Namespace, folder: Path, stack: ExitStack) -> None:
        self._options = options
        self._folder = folder
        self._size: int = options.mib * 2**20
        self._file = folder / "file.bin"
        self._stack = stack
        self.workers: dict[str, Worker] = {}
        self.targets: list[Target] = []

    def open(self) -> None:
        """Start the server and a process for each library."""
        make_file(self._file, self._size)
        server = self._stack.enter_context(S3Server(self._folder / "s3", side_by_side=True))
        self._bucket = server.bucket
        os.environ.update(server.environ)
        for number, library in enumerate(self._options.libraries or LIBRARIES):
            prefix = f"library-{number}"
            rows = WANDB_ROWS if library == "W&B" else self._options.rows
            given = {"uri": f"{server.url}/{prefix}", "bucket": str(server.bucket), "file": str(self._file)}
            worker = Worker(library, self._folder / prefix, {**given, "rows": str(rows)})
            self.workers[library] = self._stack.enter_context(worker)

    def calls(self, what: str, title: str) -> list[list[str]]:
        """Return rows of the table of calls: those of one kind, by all libraries that have it."""
        able = {name: worker for name, worker in self.workers.items() if what in worker.can and name != OURS_S3}
        times: dict[str, list[float]] = {name: [] for name in able}
        work: dict[str, list[float]] = {name: [] for name in able}
        for number in range(-WARM_UP, self._options.rounds):
            for name, worker in able.items():
                answer = worker.ask(do=what)
                if number >= 0:
                    times[name].append(answer["seconds"] * 1e3)
                    work[name].append(answer["processor"] * 1e3)
        rows = [
            [
                title,
                name,
                f"{statistics.median(each):.2f}",
                f"{percentile(each, 0.99):.2f}",
                f"{max(each):.2f}",
                f"{statistics.median(work[name]):.2f}",
                f"{ratio(each, times[OURS]):.1f}" if OURS in times else "",
            ]
            for name, each in times.items()
        ]
        if OURS in times and what in LIMITS:
            self.targets.append(smaller(f"{title}, median", statistics.median(times[OURS]), LIMITS[what], " ms"))
        return rows

    def files(self) -> str:
        """Return the table of files."""
        able = {name: worker for name, worker in self.workers.items() if "upload" in worker.can}
        copy = "shutil.copyfile"
        seconds: dict[str, list[float]] = {name: [] for name in (copy, *able)}
        stored: dict[str, list[float]] = {name: [] for name in able}
        growth: dict[str, list[float]] = {name: [] for name in able}
        for name in able:
            # The first loads what uploads need.
            self._upload(able[name], "first")
        for number in range(self._options.large_rounds):
            order = [copy, *able]
            # Each is once the first of a round.
            turn = number % len(order)
            for name in order[turn:] + order[:turn]:
                if name == copy:
                    seconds[copy].append(self._copy())
                    continue
                answer, grown = self._upload(able[name], f"checkpoints/ep{number}.pt")
                seconds[name].append(answer["seconds"])
                stored[name].append(answer["settled"])
                growth[name].append(grown)
        rows = []
        for name, each in seconds.items():
            times = ratio(each, seconds[copy])
            known = name in able and name != "W&B"
            rows.append(
                [
                    name,
                    f"{statistics.median(each):.2f}",
                    f"{min(each):.2f} to {max(each):.2f}",
                    f"{times:.2f}",
                    f"{statistics.median(stored[name]):.1f}" if known else "",
                    f"{max(growth[name]):.0f}" if name in able else "",
                ]
            )
            if name in (OURS, OURS_S3):
                what = f"upload_file of {self._options.mib} MiB ({name}), in copies of it"
                self.targets.append(smaller(what, times, COPY_TOLERANCE, ""))
                self.targets.append(smaller(f"its memory ({name})", max(growth[name]), 200.0, " MiB"))
        return table(["upload", "median s", "from, to", "x copy", "stored after s", "memory MiB"], rows)

    def stalls(self) -> str:
        """Return the table of stalls."""
        found: dict[tuple[str, str], list[Stall]] = {}
        for _ in range(self._options.large_rounds):
            for load, what in (("images", "images"), ("table", "table"), ("file", "upload")):
                for name, worker in self.workers.items():
                    if what not in worker.can or (name == OURS_S3 and load != "file"):
                        continue
                    found.setdefault((load, name), []).append(Stall(**worker.ask(do="stall", load=load)))
                    self._tidy(worker)
        rows = []
        for (load, name), stalls in found.items():
            fields = ("longest", "waiting", "working", "quiet")
            series = [[getattr(stall, field) for stall in stalls] for field in fields]
            rows.append([load, name, *(f"{statistics.median(each):.1f} / {max(each):.1f}" for each in series)])
            if name in (OURS, OURS_S3):
                what = f"stall by {load} ({name}), median without the wait for a processor"
                self.targets.append(smaller(what, statistics.median(series[1]), 20.0, " ms"))
        head = ["load", "library", "stall ms, median / longest", "without the wait", "at work", "stall in quiet"]
        return table(head, sorted(rows, key=lambda row: row[0]))

    def png(self) -> str:
        """Return the table of encoders."""
        encodings = measure_png(self._options.rounds)
        for each in encodings:
            if each.encoder == "Pillow, level 1":
                self.targets.append(larger(f"PNG of {each.image}, rate in Pillow's level 1", each.faster, 2.0, ""))
                self.targets.append(smaller(f"PNG of {each.image}, size in Pillow's level 1", each.larger, 1.2, ""))
        rows = [
            [e.image, e.encoder, f"{e.rate:.0f}", f"{e.share:.4f}", f"{e.faster:.2f}", f"{e.larger:.3f}"]
            for e in encodings
        ]
        return table(["image", "encoder", "MB/s", "size of pixels", "ours is x faster", "ours is x its size"], rows)

    def _upload(self, worker: Worker, name: str) -> tuple[dict[str, float], float]:
        with worker.watched() as memory:
            answer = worker.ask(do="upload", name=name)
        self._tidy(worker)
        return answer, memory.growth

    def _copy(self) -> float:
        target = self._folder / "copy.bin"
        begin = time.perf_counter()
        shutil.copyfile(self._file, target)
        seconds = time.perf_counter() - begin
        target.unlink()
        return seconds

    def _tidy(self, worker: Worker) -> None:
        """Delete what an upload has left, so that no round finds more of it to be written to the disk than another."""
        worker.tidy(self._size // 2)
        delete_large(self._bucket, self._size // 2)


def main() -> int:
    """Measure, print, and return 1 when a target is missed."""
    options = arguments()
    chosen = options.sections or SECTIONS
    print(measured_on("numpy", "pillow", "torch", "obstore", "wandb", "tensorboard", "mosaicml", "boto3"))
    with tempfile.TemporaryDirectory(prefix="blobs-", dir=options.folder) as folder, ExitStack() as stack:
        bench = Bench(options, Path(folder), stack)
        if "png" in chosen:
            # First, while nobody else has anything to do.
            show("PNG", bench.png())
        if set(chosen) - {"png"}:
            bench.open()
        rows = []
        if "images" in chosen:
            rows += bench.calls("images", "log_images, 8 x 3 x 256 x 256 float32")
            rows += bench.calls("masks", "log_images with two masks")
        if "tables" in chosen:
            rows += bench.calls("table", "log_table, 1,000 x 10 numbers and text")
            rows += bench.calls("mixed table", "log_table, 1,000 x 10 of all kinds")
        if rows:
            show(
                "Calls", table(["call", "library", "median ms", "p99 ms", "slowest ms", "processor ms", "x ours"], rows)
            )
        if "files" in chosen:
            show("Files", bench.files())
        if "stalls" in chosen:
            show("Stalls", bench.stalls())
    print("\n" + "\n".join(map(str, bench.targets)))
    return int(not all(target.is_met for target in bench.targets))


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--rounds", type=int, default=50, help="rounds of small calls (default: 50)")
    parser.add_argument("--large-rounds", type=int, default=6, help="rounds of files and stalls (default: 6)")
    parser.add_argument("--mib", type=int, default=1024, help="size of the file (default: 1024)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the large table (default: 1,000,000)")
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, help="the libraries (default: all)")
    parser.add_argument("--folder", type=Path, help="where to put everything (default: the folder of temporary files)")
    return parser.parse_args(given)


def show(title: str, text: str) -> None:
    """Print a part of the report as soon as it is there."""
    print(f"\n{title}\n\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
