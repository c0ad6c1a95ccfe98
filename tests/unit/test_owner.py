"""A folder is owned for as long as its writer lives, and looking does not change that."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

import otel_logger_exporters
from otel_logger_exporters.owner import Owner, is_owned

ROOT = Path(otel_logger_exporters.__file__).parents[1]

CHILD = """
import sys
from pathlib import Path
from otel_logger_exporters.owner import Owner
owner = Owner(Path(sys.argv[1]))
print("owned", flush=True)
sys.stdin.read()
"""


def test_a_folder_is_owned_until_it_is_released(tmp_path):
    """From construction to release, which may come twice."""
    assert not is_owned(tmp_path)
    owner = Owner(tmp_path)
    assert is_owned(tmp_path)
    assert is_owned(tmp_path)
    owner.release()
    owner.release()
    assert not is_owned(tmp_path)


def test_a_folder_that_is_not_there_is_not_owned(tmp_path):
    """Neither is one that no writer ever had."""
    assert not is_owned(tmp_path / "absent")


def test_two_who_look_at_once_do_not_see_each_other(tmp_path):
    """The ranks of a restarted job all look at the dead writer's folder in the same moment, and must agree."""
    Owner(tmp_path).release()
    other = os.open(tmp_path / "owner.lock", os.O_RDWR)
    try:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert not is_owned(tmp_path)
    finally:
        os.close(other)


def test_a_released_folder_can_be_owned_again(tmp_path):
    """The lock file stays, and is no obstacle."""
    Owner(tmp_path).release()
    owner = Owner(tmp_path)
    assert is_owned(tmp_path)
    owner.release()


@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_the_death_of_the_owner_frees_the_folder(tmp_path, end):
    """However a process ends, its folder is not owned after it."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
    ) as child:
        assert b"owned\n" == child.stdout.readline()
        assert is_owned(tmp_path)
        getattr(child, end)()
        child.wait()
    assert not is_owned(tmp_path)


def test_closing_an_inherited_descriptor_leaves_the_folder_to_the_parent(tmp_path):
    """The child of a fork abandons, and the parent still owns; as with any other duplicate of the descriptor."""
    owner = Owner(tmp_path)
    os.close(os.dup(owner._file))
    assert is_owned(tmp_path)
    owner.abandon()
    assert not is_owned(tmp_path)


def test_the_lock_is_for_the_owner_alone(tmp_path):
    """Nobody else on the machine may hold it."""
    owner = Owner(tmp_path)
    assert 0o600 == (tmp_path / "owner.lock").stat().st_mode & 0o777
    owner.release()
