"""Real processes under real launchers: ranks of a launch share run and attempt, whatever becomes of each other."""

import subprocess
import sys
from pathlib import Path

LAUNCHER = """
import os, subprocess, sys
worker = '''
import os, signal
from otel_logger import OTelLogger
log = OTelLogger(run_name="exp")
log.log_metrics({"loss": 1.0}, 1)
print(log.run_id, log.state_dict()["attempt"], flush=True)
if os.environ["ENDING"] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
log.close()
'''
for rank, ending in (word.split(":") for word in sys.argv[1:]):
    environ = {**os.environ, "RANK": rank, "LOCAL_RANK": rank, "ENDING": ending}
    subprocess.run([sys.executable, "-c", worker], env=environ)
"""


def launch(folder: Path, *ranks: str, **environ: str) -> list[tuple[str, str]]:
    """Run ranks one after another under a launcher, and return the run and the attempt that each has made."""
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, *ranks],
        env={
            "OTEL_LOGGER_DIR": str(folder),
            "WORLD_SIZE": "3",
            "LOCAL_WORLD_SIZE": "3",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500",
            **environ,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    found = [line.split() for line in done.stdout.splitlines()]
    assert len(ranks) == len(found), done.stderr
    return [(run_id, attempt) for run_id, attempt in found]


def test_a_rank_that_comes_late_is_of_the_same_attempt(tmp_path: Path) -> None:
    """Also where those before it are dead, or over; the launch that follows is the next attempt for all."""
    first = launch(tmp_path, "0:killed", "1:closed", "2:killed")
    second = launch(tmp_path, "2:closed", "0:killed")

    assert [(first[0][0], "1")] * 3 == first
    assert [(first[0][0], "2")] * 2 == second


def test_a_launcher_that_counts_is_believed_on_an_empty_disk(tmp_path: Path) -> None:
    """Of two nodes one is new: both make the same attempt at the same run."""
    elastic = {"TORCHELASTIC_RUN_ID": "job"}
    first = launch(tmp_path / "old", "0:killed", **elastic, TORCHELASTIC_RESTART_COUNT="0")
    again = launch(tmp_path / "old", "0:closed", **elastic, TORCHELASTIC_RESTART_COUNT="1")
    new = launch(tmp_path / "new", "1:closed", **elastic, TORCHELASTIC_RESTART_COUNT="1")

    assert [(first[0][0], "1")] == first
    assert [(first[0][0], "2")] == again == new


AT_ONCE = """
import sys
from otel_logger import OTelLogger
print("ready", flush=True)
sys.stdin.readline()
log = OTelLogger(run_name="exp")
log.log_metrics({"loss": 1.0}, 1)
print(log.run_id, log.state_dict()["attempt"], flush=True)
sys.stdin.readline()
"""


def test_processes_that_start_at_once_are_attempts_of_their_own(tmp_path: Path) -> None:
    """A launcher that says no ranks, and one run id for all: each is told of those before it."""
    environ = {"OTEL_LOGGER_DIR": str(tmp_path), "OTEL_LOGGER_RUN_ID": "r"}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", AT_ONCE],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for child in children:
        assert child.stdout is not None
        assert "ready\n" == child.stdout.readline()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    found = [child.stdout.readline().split() for child in children if child.stdout is not None]
    warned = ["Another process writes run 'r' as rank 0 too" in child.communicate("\n")[1] for child in children]

    assert [["r", str(attempt)] for attempt in range(1, 5)] == sorted(found)
    assert [False, True, True, True] == sorted(warned)
