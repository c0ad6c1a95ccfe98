"""One library at work, in a process of its own, for benchmarks/blobs.py.

It reads commands from standard input, one JSON object a line, and answers each by one on what was standard output when
it began; what libraries print goes to standard error.

    {"do": "images"}                      -> {"seconds": 0.0012, "processor": 0.0011, "settled": 0.1}
    {"do": "upload", "name": "x"}         -> likewise: one call by the clock, its thread's work, and its background
    {"do": "stall", "load": "table"}      -> {"longest": 6.2, "waiting": 5.1, "working": 5.0, "quiet": 0.9}
"""

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blobs_libraries import Library, open_library
from blobs_samples import CLASSES, batch, columns, large_images, mixed_rows, plain_rows
from blobs_witness import Witness

BATCHES = 4
"""Batches that calls take in turn, so that none finds its own in a processor's cache."""

QUIET_SECONDS = 2.0


def main() -> None:
    """Obey until the end of standard input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--uri", required=True)
    parser.add_argument("--bucket", type=Path, required=True)
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--rows", type=int, required=True, help="rows of the large table")
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    program = Program(open_library(options.library, options.folder, options.uri, options.bucket), options)
    print(json.dumps({"can": sorted(program.library.CAN)}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(program.obey(json.loads(line))), file=answers, flush=True)
    program.library.close()


class Program:
    """Does what it is told with a library."""

    def __init__(self, library: Library, options: argparse.Namespace) -> None:
        self.library = library
        self._file: Path = options.file
        self._large_rows: int = options.rows
        self._calls = 0
        if {"images", "table"} & library.CAN:
            self._batches = [batch(number) for number in range(BATCHES)]
            self._plain = [plain_rows(1000, times=2) for _ in range(BATCHES)]
            self._mixed = [mixed_rows(1000) for _ in range(BATCHES)]

    def obey(self, command: dict[str, Any]) -> dict[str, float]:
        """Carry out a command and return what was measured."""
        self._calls += 1
        if command["do"] == "stall":
            return self._stall(self._load(command["load"]))
        call = self._call(command)
        begin, worked = time.perf_counter(), time.thread_time()
        call()
        seconds, worked = time.perf_counter() - begin, time.thread_time() - worked
        self.library.settle()
        return {"seconds": seconds, "processor": worked, "settled": time.perf_counter() - begin}

    def _call(self, command: dict[str, Any]) -> Callable[[], None]:
        what = command["do"]
        if what == "upload":
            return lambda: self.library.upload_file(command["name"], self._file)
        if what in ("table", "mixed table"):
            rows = (self._plain if what == "table" else self._mixed)[self._calls % BATCHES]
            return lambda: self.library.log_table(columns(10), rows)
        images, masks = self._batches[self._calls % BATCHES]
        if what == "masks":
            return lambda: self.library.log_images(images, masks, CLASSES)
        return lambda: self.library.log_images(images, None, {})

    def _load(self, name: str) -> Callable[[], None]:
        if name == "images":
            images = large_images()

            def log() -> None:
                for image in images:
                    self.library.log_images(image[None], None, {})

            return log
        if name == "table":
            rows = plain_rows(self._large_rows)
            return lambda: self.library.log_table(columns(4), rows)
        return lambda: self.library.upload_file(f"stall-{self._calls}", self._file)

    def _stall(self, load: Callable[[], None]) -> dict[str, float]:
        # The garbage collector would look through what is made for the load, which in a training is somebody else's.
        gc.collect()
        gc.freeze()
        with Witness() as quiet:
            time.sleep(QUIET_SECONDS)
        with Witness() as witness:
            load()
            self.library.settle()
        gc.unfreeze()
        figures = {"longest": witness.longest, "waiting": witness.waiting, "working": witness.working}
        return {**figures, "quiet": quiet.longest}


if __name__ == "__main__":
    main()
