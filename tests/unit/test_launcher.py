"""What tells the processes of one launch from those of another: the seed, the counts of restarts, the mark."""

import os

import pytest

from otel_logger.launcher import LaunchMark, Restarts, describe_process, launch_mark, launch_seed
from otel_logger.ranks import Ranks

ONE_NODE = Ranks(0, 0, 0, 4, 4)
TWO_NODES = Ranks(0, 0, 0, 8, 4)
MASTER = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "LOCAL_WORLD_SIZE": "4"}
K8S = {"OTEL_RESOURCE_ATTRIBUTES": "a=b, k8s.job.uid = 0ab-1 ,c=d"}
SLURM = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}
ELASTIC = {"TORCHELASTIC_RUN_ID": "job"}


@pytest.mark.parametrize(
    ("environ", "ranks", "parent", "seed"),
    [
        ({}, ONE_NODE, "9 1", None),
        (ELASTIC | SLURM | K8S | MASTER, ONE_NODE, "9 1", "torchelastic job"),
        ({"TORCHELASTIC_RUN_ID": "none"} | SLURM, ONE_NODE, None, "slurm 77 0"),
        ({"TORCHELASTIC_RUN_ID": ""} | SLURM, ONE_NODE, None, "slurm 77 0"),
        (SLURM | K8S, TWO_NODES, None, "slurm 77 0"),
        (SLURM | {"SLURM_RESTART_COUNT": "3"}, TWO_NODES, None, "slurm 77 0"),
        ({"SLURM_JOB_ID": "77"}, TWO_NODES, None, "slurm 77 "),
        (K8S | MASTER, TWO_NODES, "9 1", "k8s 0ab-1"),
        ({"K8S_JOB_UID": " 9cd "} | K8S, TWO_NODES, "9 1", "k8s 9cd"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "my.k8s.job.uid=1"}, ONE_NODE, None, None),
        (MASTER, ONE_NODE, "9 1", "node 10.0.0.1:29500 9 1"),
        (MASTER, ONE_NODE, None, None),
        (MASTER, TWO_NODES, "9 1", None),
        ({"MASTER_PORT": "1", "MASTER_ADDR": "10.0.0.1"}, ONE_NODE, "9 1", None),
        ({"MASTER_PORT": "1", "MASTER_ADDR": "127.0.0.1"}, ONE_NODE, "9 1", "node 127.0.0.1:1 9 1"),
        ({"MASTER_PORT": "1"}, ONE_NODE, "9 1", None),
    ],
)
def test_the_seed_of_a_launch(environ, ranks, parent, seed):
    """The first of torchelastic, Slurm, Kubernetes and the launcher's process on the only node counts."""
    assert seed == launch_seed(environ, ranks, parent)


def test_a_process_is_described_by_its_start():
    """A process is told from a later one of its number, and one that is not there has no description."""
    own = describe_process(os.getpid())
    assert own is None or own.startswith(f"{os.getpid()} ")
    assert own == describe_process(os.getpid())
    assert describe_process(2**30) is None


@pytest.mark.parametrize(
    ("environ", "count", "total"),
    [
        ({}, None, 0),
        ({"TORCHELASTIC_RESTART_COUNT": "2"}, 2, 2),
        ({"SLURM_RESTART_COUNT": "3"}, 3, 3),
        # torchrun begins to count anew in a job that Slurm has started again.
        ({"TORCHELASTIC_RESTART_COUNT": "0", "SLURM_RESTART_COUNT": "3"}, 0, 3),
        ({"TORCHELASTIC_RESTART_COUNT": "2", "SLURM_RESTART_COUNT": "3"}, 2, 5),
        ({"TORCHELASTIC_RESTART_COUNT": "x", "SLURM_RESTART_COUNT": "-3"}, None, 0),
        ({"SLURM_RESTART_COUNT": "9" * 5000}, None, 0),
    ],
)
def test_restarts_are_counted_by_who_started_the_program(environ, count, total):
    """The nearest launcher's count is told; together they are how many attempts there were at least."""
    restarts = Restarts.from_environ(environ)
    assert (count, total) == (restarts.count, restarts.total)


def mark(*, seed="torchelastic s", restarts=0, host="a", parent="p", port="1"):
    """The mark of a process of several."""
    found = launch_mark(
        {"MASTER_PORT": port}, ONE_NODE, seed=seed, restarts=Restarts(restarts), host=host, parent=parent
    )
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("other", "dead", "alive"),
    [
        (mark(), True, True),
        (mark(parent="q"), False, False),
        (mark(port="2"), False, False),
        (mark(restarts=1), False, False),
        (mark(host="b", parent="q"), True, True),
        (mark(host="b", parent="q", restarts=1), False, True),
        (mark(host="b", parent="q", seed="torchelastic t"), False, False),
    ],
)
def test_a_mark_tells_launches_apart(other, dead, alive):
    """On one host by the launcher's process, on another by the seed."""
    assert (dead, alive) == (mark().is_of(other, alive=False), mark().is_of(other, alive=True))
    assert other == LaunchMark.parse(str(other))


@pytest.mark.parametrize("seed", [None, "node 127.0.0.1:1 9 1"])
@pytest.mark.parametrize(("other", "dead"), [({}, True), ({"parent": "q"}, False), ({"restarts": 1}, False)])
def test_without_a_seed_of_all_the_parent_tells_of_the_dead(seed, other, dead):
    """Who lives is of this launch, whoever has started it: each rank may have been started by hand."""
    ours, theirs = mark(seed=seed), mark(seed=seed, **other)
    assert (dead, True) == (ours.is_of(theirs, alive=False), ours.is_of(theirs, alive=True))


@pytest.mark.parametrize(
    ("seed", "other", "alive"),
    [
        (None, {"host": "b"}, True),
        (None, {"port": "2"}, False),
        ("node 127.0.0.1:1 9 1", {"host": "b"}, False),
        ("node 127.0.0.1:1 9 1", {"port": "2"}, False),
    ],
)
def test_without_a_seed_of_all_ranks_are_known_by_where_they_meet(seed, other, alive):
    """Two launches of one program on one machine, or each on one of its own, are two runs."""
    ours, theirs = mark(seed=seed), mark(seed=seed, **other)
    assert (False, alive) == (ours.is_of(theirs, alive=False), ours.is_of(theirs, alive=True))


def test_tasks_of_slurm_may_each_have_a_shell():
    """Job, step and count of restarts tell the launch; the parent does not."""
    ours, theirs = mark(seed="slurm 7 0"), mark(seed="slurm 7 0", parent="q", port="2")
    later = mark(seed="slurm 7 0", restarts=1)
    assert (True, True) == (ours.is_of(theirs, alive=False), ours.is_of(theirs, alive=True))
    assert not ours.is_of(later, alive=False)


def test_a_job_that_slurm_starts_again_is_another_launch():
    """torchrun counts anew in it, so that the sum of both counts may be what it was before."""
    marks = [
        launch_mark({}, ONE_NODE, seed="slurm 7 0", restarts=restarts, host=host, parent="p")
        for host in ("a", "b")
        for restarts in (Restarts(1, None), Restarts(0, 1))
    ]
    before, after, _, after_elsewhere = marks
    assert (False, False) == (after.is_of(before, alive=False), after_elsewhere.is_of(before, alive=True))
    assert after.is_of(after_elsewhere, alive=False)


def test_a_process_that_is_alone_has_no_mark():
    """It is a launch by itself."""
    assert launch_mark({}, Ranks(), seed="s", restarts=Restarts(), host="a", parent="p") is None


@pytest.mark.parametrize("text", [None, "", "a.b.c.d", "a.1.b", "a.1.b.c.d", "a.²³.b.c", "a." + "9" * 5000 + ".b.c"])
def test_what_is_no_mark_is_none(text):
    """Another version may write another form."""
    assert LaunchMark.parse(text) is None
