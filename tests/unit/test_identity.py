"""Which run a process writes, and which attempt at it: the rules of the design, case by case."""

import itertools
import os

import pytest

from otel_logger.folders import WriterFile
from otel_logger.identity import Checkpoint, Identity, Known, describe_process, launch_seed, settle
from otel_logger.ranks import Ranks

ALONE = Ranks()
TWO = tuple(Ranks(rank=rank, local_rank=rank, world_size=2, local_world_size=2) for rank in range(2))
EIGHT = tuple(Ranks(rank % 8, rank % 4, rank // 4, 8, 4) for rank in range(8))


def known(run_id, *, name="exp", attempt=1, rank=0, started=1, ended=False, alive=False):
    """A writer in the folder of runs."""
    return Known(
        WriterFile("aaaaaa", started, run_id, name, attempt, rank, ended_ns=started + 1 if ended else None), alive
    )


def settled(run_name="exp", *, run_id=None, ranks=ALONE, found=(), checkpoint=None, seed=None) -> Identity:
    """The identity of a writer `0f0f0f` whose random digits are `abcdef`."""
    return settle(
        run_name=run_name,
        run_id=run_id,
        writer="0f0f0f",
        ranks=ranks,
        known=found,
        checkpoint=checkpoint,
        seed=seed,
        draw=lambda: "abcdef",
    )


CRASHED = known("exp-1")
ENDED = known("exp-1", ended=True)
LIVE = known("exp-1", alive=True)
OURS = Checkpoint("exp-9", "exp", 4)
OTHERS = Checkpoint("base-9", "base", 4)

CASES = {
    # name: (arguments, run id, attempt, parent)
    "the first run of a name": ({}, "exp-abcdef", 1, None),
    "an argument": ({"run_id": "mine"}, "mine", 1, None),
    "an argument before a checkpoint": ({"run_id": "mine", "checkpoint": OURS}, "mine", 1, "exp-9"),
    "an argument before a restart": ({"run_id": "mine", "found": [CRASHED]}, "mine", 1, None),
    "an argument that is the checkpoint's": ({"run_id": "exp-9", "checkpoint": OURS}, "exp-9", 5, None),
    "an argument that is another name's": ({"run_id": "base-9", "checkpoint": OTHERS}, "base-9", 5, None),
    "an argument for a run that crashed": ({"run_id": "exp-1", "found": [CRASHED]}, "exp-1", 2, None),
    "an argument for a run that ended": ({"run_id": "exp-1", "found": [ENDED]}, "exp-1", 2, None),
    "a checkpoint of our name": ({"checkpoint": OURS}, "exp-9", 5, None),
    "a checkpoint of another name": ({"checkpoint": OTHERS}, "exp-abcdef", 1, "base-9"),
    "a checkpoint before a restart": ({"checkpoint": OURS, "found": [CRASHED]}, "exp-9", 5, None),
    "a checkpoint older than the folder": (
        {"checkpoint": OURS, "found": [known("exp-9", attempt=6, ended=True)]},
        "exp-9",
        7,
        None,
    ),
    "a checkpoint of another name beside a restart": (
        {"checkpoint": OTHERS, "found": [CRASHED]},
        "exp-1",
        2,
        "base-9",
    ),
    "a restart": ({"found": [CRASHED]}, "exp-1", 2, None),
    "a restart after several attempts": (
        {"found": [known("exp-1", attempt=1), known("exp-1", attempt=3, started=5), known("exp-1", attempt=2)]},
        "exp-1",
        4,
        None,
    ),
    "a run that ended is not restarted": ({"found": [ENDED]}, "exp-abcdef", 1, None),
    "a run that lives is not restarted": ({"found": [LIVE]}, "exp-abcdef", 1, None),
    "a run of another name is not restarted": ({"found": [known("base-1", name="base")]}, "exp-abcdef", 1, None),
    "a run that was never settled is not restarted": (
        {"found": [known(None), known(None, name=None)]},
        "exp-abcdef",
        1,
        None,
    ),
    "the newest of several that crashed": (
        {"found": [known("exp-2", started=9), known("exp-3", started=5)]},
        "exp-2",
        2,
        None,
    ),
    "a crash before one that ended since": (
        {"found": [CRASHED, known("exp-2", started=9, ended=True)]},
        "exp-abcdef",
        1,
        None,
    ),
    "a crash after an attempt that ended": (
        {"found": [ENDED, known("exp-1", attempt=2, started=9)]},
        "exp-1",
        3,
        None,
    ),
    "a crash beside another run that lives": (
        {"found": [CRASHED, known("exp-2", started=9, alive=True)]},
        "exp-1",
        2,
        None,
    ),
    "one rank ended, another crashed": (
        {"ranks": TWO[0], "found": [known("exp-1", ended=True), known("exp-1", rank=1)], "seed": "s"},
        "exp-1",
        2,
        None,
    ),
    "one rank crashed, another still lives": (
        {"ranks": TWO[0], "found": [known("exp-1"), known("exp-1", rank=1, alive=True)], "seed": "s"},
        "exp-043a71",
        1,
        None,
    ),
    "several ranks without a seed": ({"ranks": TWO[0]}, "exp", 1, None),
    "several ranks with one": ({"ranks": TWO[0], "seed": "s"}, "exp-043a71", 1, None),
    "an odd name": ({"run_name": "../é/\ud800"}, "../é/\ud800-abcdef", 1, None),
}


@pytest.mark.parametrize(("arguments", "run_id", "attempt", "parent"), CASES.values(), ids=CASES.keys())
def test_identity(arguments, run_id, attempt, parent):
    """Argument, checkpoint, restart, and a new id are considered in this order; attempts count on."""
    identity = settled(**arguments)
    assert (run_id, attempt, parent) == (identity.run_id, identity.attempt, identity.parent_id)


def test_the_order_of_what_is_found_does_not_matter():
    """The folder may be listed in any order."""
    found = [
        known("exp-1", attempt=1, ended=True),
        known("exp-1", attempt=2, started=4),
        known("exp-2", started=3, alive=True),
        known("base-1", name="base", started=9),
    ]
    assert {("exp-1", 3)} == {
        (identity.run_id, identity.attempt)
        for identity in (settled(found=order) for order in itertools.permutations(found))
    }


def restart(order, found, seed):
    """The identities of ranks that settle one after another, each seeing those before it alive."""
    found, identities = list(found), {}
    for number, rank in enumerate(order):
        identity = settled(ranks=EIGHT[rank], found=found, seed=seed)
        identities[rank] = identity
        found.append(known(identity.run_id, attempt=identity.attempt, rank=rank, started=100 + number, alive=True))
    return {(identity.run_id, identity.attempt) for identity in identities.values()}


@pytest.mark.parametrize("order", [range(8), range(7, -1, -1), (3, 1, 4, 0, 5, 2, 6, 7)])
@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], ("exp-63054d", 1)),
        ([known("exp-1", rank=rank, started=rank) for rank in range(8)], ("exp-1", 2)),
        ([known("exp-1", rank=rank, started=rank, ended=rank % 2 == 0) for rank in range(8)], ("exp-1", 2)),
        ([known("exp-1", rank=rank, started=rank, ended=True) for rank in range(8)], ("exp-63054d", 1)),
        ([known("exp-1", rank=0, attempt=3)], ("exp-1", 4)),
        ([known("exp-63054d", rank=rank, ended=True) for rank in range(8)], ("exp-63054d", 2)),
    ],
    ids=["first", "crashed", "some ended", "ended", "a rank's writer alone", "ended under one seed"],
)
def test_ranks_agree_without_talking(order, found, expected):
    """Ranks that settle in any order, seeing those before them alive, name one run and one attempt."""
    assert {expected} == restart(order, found, "launch 7")


def test_launches_are_told_apart():
    """Two launches of one name are two runs; the same launch is one."""
    one, again, other = (settled(ranks=TWO[0], seed=seed).run_id for seed in ("a", "a", "b"))
    assert one == again
    assert one != other


def test_a_seed_of_any_bytes():
    """The environment may hold what is no UTF-8."""
    assert settled(ranks=TWO[0], seed="torchelastic \udcff").run_id.startswith("exp-")


def test_a_run_id_that_is_the_name_alone_is_told():
    """Where nothing tells launches apart, the note says so with the remedy; otherwise there is none."""
    assert settled(ranks=TWO[0]).note == (
        "The run id is the run name alone ('exp'), because nothing tells the ranks of this launch from those of "
        "another: set OTEL_LOGGER_RUN_ID to one value on all ranks to tell runs of this name apart."
    )
    assert settled().note is None
    assert settled(ranks=TWO[0], seed="s").note is None
    assert settled(ranks=TWO[0], run_id="x").note is None


def test_instances_are_unique():
    """The instance id has run, rank, attempt and the writer's own digits."""
    assert settled(ranks=TWO[1], run_id="r", found=[known("r", attempt=2)]).instance_id == "r/1/3/0f0f0f"


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
        ({"SLURM_JOB_ID": "77"}, TWO_NODES, None, "slurm 77 "),
        (K8S | MASTER, TWO_NODES, "9 1", "k8s 0ab-1"),
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
    """The first of torchelastic, SLURM, Kubernetes and the launcher's process on the only node counts."""
    assert seed == launch_seed(environ, ranks, parent)


def test_a_process_is_described_by_its_start():
    """A process is told from a later one of its number, and one that is not there has no description."""
    own = describe_process(os.getpid())
    assert own is None or own.startswith(f"{os.getpid()} ")
    assert own == describe_process(os.getpid())
    assert describe_process(2**30) is None
