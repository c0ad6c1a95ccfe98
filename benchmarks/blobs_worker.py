"""The processes of benchmarks/blobs.py: one for each library, obeyed from here, its memory watched."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["Memory", "Worker", "delete_large"]

PROGRAM = Path(__file__).with_name("blobs_program.py")

_PERIOD = 0.005


class Worker:
    """A process with one library open, from entering to leaving; what it says is kept in `<folder>/words.txt`."""

    def __init__(self, library: str, folder: Path, options: dict[str, str]) -> None:
        self.library = library
        self.folder = folder
        self._options = options
        self.can: list[str] = []

    def __enter__(self) -> "Worker":
        """Start the process and wait until the library is open."""
        self.folder.mkdir(parents=True)
        command = [sys.executable, str(PROGRAM), "--library", self.library, "--folder", str(self.folder)]
        for name, value in self._options.items():
            command += [f"--{name}", value]
        # What a library stages is on the same file system as everything else.
        environ = {**os.environ, "TMPDIR": str(self.folder)}
        self._words = (self.folder / "words.txt").open("w")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._words, text=True, env=environ
        )
        self.can = self._answer()["can"]
        return self

    def __exit__(self, *_: object) -> None:
        """End the library and the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._words.close()

    def ask(self, **command: Any) -> dict[str, Any]:
        """Give a command and return what was measured."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._answer()

    @contextmanager
    def watched(self) -> Iterator["Memory"]:
        """Watch the memory of the process meanwhile."""
        memory = Memory(self._process.pid)
        thread = threading.Thread(target=memory.run, daemon=True)
        thread.start()
        try:
            yield memory
        finally:
            memory.is_over.set()
            thread.join()

    def tidy(self, larger_than: int) -> None:
        """Delete the large files that it has left."""
        delete_large(self.folder, larger_than)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            said = (self.folder / "words.txt").read_text("utf-8", errors="replace")[-3000:]
            msg = f"{self.library} ended: {said}"
            raise RuntimeError(msg)
        answer: dict[str, Any] = json.loads(line)
        return answer


def delete_large(folder: Path, larger_than: int) -> None:
    """Delete the large files below a folder in which others are at work."""
    for above, _, names in os.walk(folder):
        for name in names:
            path = Path(above, name)
            with suppress(FileNotFoundError):
                if not path.is_symlink() and path.stat().st_size > larger_than:
                    path.unlink()


class Memory:
    """Anonymous memory of a process, from when it is made; `growth` in MiB."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self._first = self._peak = self._anonymous()
        self.is_over = threading.Event()

    @property
    def growth(self) -> float:
        """Return by how much it was larger than at first, at most."""
        return (self._peak - self._first) / 1024

    def run(self) -> None:
        """Look again and again."""
        while not self.is_over.wait(_PERIOD):
            self._peak = max(self._peak, self._anonymous())

    def _anonymous(self) -> int:
        lines = self._status.read_text("ascii", errors="replace").splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith("RssAnon:")), 0)
