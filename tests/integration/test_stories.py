"""Real Composer through the real Collector: what arrives of each kind of training is the story that is written down.

The stories are in `tests/data/stories`, to be read. Where one changes because it is to change, write them anew:

    make test-integration PYTEST_ARGS="-k stories --write-stories"
"""

from __future__ import annotations

import difflib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import received
from collector import AT_ONCE, Collector, free_row
from received import Received
from story import tell

pytestmark = [pytest.mark.composer, pytest.mark.collector]

PROGRAM = Path(__file__).with_name("scenarios.py")
EXPECTED = Path(__file__).resolve().parents[1] / "data" / "stories"

PROGRAM_SECONDS = 60

STORIES: dict[str, dict[str, int]] = {
    "several fits": {"several fits": 0},
    "evaluation": {"evaluation": 0},
    "prediction": {"prediction": 0},
    "exception": {"exception": 1},
    "SIGTERM, then started again": {"SIGTERM": 128 + signal.SIGTERM, "one epoch": 0},
    "SIGKILL, then started again": {"SIGKILL": -signal.SIGKILL, "one epoch": 0},
    "resumed from a checkpoint": {"first of two epochs": 0, "second of two epochs": 0},
    "averaging": {"averaging": 0},
    "hyperparameters": {"hyperparameters": 0},
    "two ranks": {"ranks": 0},
    "one of two ranks dies": {"a rank that dies": 0},
}
"""For each story the programs that it is made of, one after the other, and the status that each ends with."""

LAUNCHED = ("ranks", "a rank that dies")
"""The programs that `torchrun` starts, once more when a rank dies."""


class Theatre:
    """Where stories happen: a Collector, and programs beside it, each story in a folder of its own."""

    def __init__(self, collector: Collector, folder: Path) -> None:
        self._collector = collector
        self._folder = folder
        self._zygote: subprocess.Popen[str] | None = None

    def play(self, story: str) -> Received:
        """Plays a story; returns what has arrived by now. Asserts that its programs end as they should."""
        folder = self._folder / story
        folder.mkdir()
        for scenario, status in STORIES[story].items():
            ended = self._launch(story, scenario) if scenario in LAUNCHED else self._fork(story, scenario)
            assert status == ended, (folder / "printed.txt").read_text("utf-8")
        return received.read(self._collector.output)

    def folder(self, story: str) -> Path:
        """Where the programs of a story run."""
        return self._folder / story

    def close(self) -> None:
        """Ends the process that forks programs."""
        if self._zygote is not None:
            self._zygote.communicate(timeout=PROGRAM_SECONDS)

    def _environ(self) -> dict[str, str]:
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self._collector.http_endpoint,
            "OTEL_LOGGER_BATCH_SPANS": "1000000",
            "OTEL_LOGGER_HEARTBEAT_INTERVAL": "100",
            "OTEL_LOGGER_FLUSH_INTERVAL": "100",
            "STORY_OUTPUT": str(self._collector.output),
        }

    def _fork(self, story: str, scenario: str) -> int:
        # Started by the first test and not before, so that its environment is a clean one.
        self._zygote = self._zygote or subprocess.Popen(
            [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        told = {"scenario": scenario, "run_name": story, "folder": str(self.folder(story)), "environ": self._environ()}
        self._zygote.stdin.write(json.dumps(told) + "\n")
        self._zygote.stdin.flush()
        return os.waitstatus_to_exitcode(int(self._zygote.stdout.readline()))

    def _launch(self, story: str, scenario: str) -> int:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        first = free_row(2)
        with (self.folder(story) / "printed.txt").open("wb") as printed:
            process = subprocess.Popen(
                [*torchrun, "--max-restarts=1", str(PROGRAM), scenario, story],
                cwd=self.folder(story),
                env=os.environ | self._environ() | {"OMP_NUM_THREADS": "1", "STORY_PORTS": f"{first},{first + 1}"},
                stdout=printed,
                stderr=printed,
            )
            try:
                return process.wait(timeout=PROGRAM_SECONDS)
            finally:
                # Ends the ranks too; one that has ended takes no notice.
                process.terminate()
                process.wait()


@pytest.fixture(scope="module")
def theatre(collector_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    """One for all stories: the programs need not import Composer each for itself."""
    folder = tmp_path_factory.mktemp("stories")
    collector = Collector(collector_binary, folder / "collector", more_config=[AT_ONCE])
    collector.start()
    running = Theatre(collector, folder)
    yield running
    running.close()
    collector.stop()


@pytest.mark.parametrize("story", STORIES)
def test_the_story_of_a_run_is_the_one_that_is_written_down(
    theatre: Theatre, story: str, request: pytest.FixtureRequest
) -> None:
    """Spans, events, states, attempts and resources of a kind of training are those of its text, and nothing else."""
    path = EXPECTED / f"{story.replace(', ', '-').replace(' ', '-')}.txt"

    told = tell(theatre.play(story), story, str(theatre.folder(story)))

    if request.config.getoption("write_stories"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(told, "utf-8")
    expected = path.read_text("utf-8")
    changes = difflib.unified_diff(expected.splitlines(), told.splitlines(), "written down", "told now", lineterm="")
    assert expected == told, "\n".join(changes)
