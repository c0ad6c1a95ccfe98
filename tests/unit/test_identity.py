"""Which run a process writes, and which attempt at it: the rules of the design, case by case."""

import itertools
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_logger.folders import WriterFile
from otel_logger.identity import Checkpoint, Identity, Known, settle
from otel_logger.launcher import LaunchMark
from otel_logger.ranks import Ranks

ALONE = Ranks()
TWO = tuple(Ranks(rank=rank, local_rank=rank, world_size=2, local_world_size=2) for rank in range(2))
EIGHT = tuple(Ranks(rank % 8, rank % 4, rank // 4, 8, 4) for rank in range(8))


def known(
    run_id,
    *,
    name="exp",
    attempt=1,
    rank=0,
    started=1,
    ended=False,
    alive=False,
    parent=None,
    outcome=None,
    launch=None,
):
    """A writer in the folder of runs."""
    return Known(
        WriterFile(
            "aaaaaa",
            started,
            run_id,
            name,
            attempt,
            rank,
            parent,
            ended_ns=started + 1 if ended or outcome else None,
            outcome=outcome,
            launch=None if launch is None else str(launch),
        ),
        alive,
    )


def settled(
    run_name="exp",
    *,
    run_id=None,
    ranks=ALONE,
    found=(),
    checkpoint=None,
    seed=None,
    parent=None,
    launch=None,
    restarts=0,
) -> Identity:
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
        parent_id=parent,
        launch=launch,
        restarts=restarts,
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


def mark(launch=0, *, host="a", restarts=0):
    """The mark of a launch by its number, whose processes have one seed."""
    return LaunchMark("seed", restarts, host, f"{host}{launch}")


FORK = known("exp-2", parent="exp-1", started=9)

NEW_CASES = {
    # name: (arguments, run id, attempt, parent)
    "a run that was found lost": ({"found": [known("exp-1", outcome="lost")]}, "exp-1", 2, None),
    "a run that was preempted": ({"found": [known("exp-1", outcome="preempted")]}, "exp-1", 2, None),
    "a run that failed": ({"found": [known("exp-1", outcome="failed")]}, "exp-abcdef", 1, None),
    "a count of restarts with an argument": ({"run_id": "mine", "restarts": 2}, "mine", 3, None),
    "a count of restarts with a seed": ({"ranks": TWO[0], "seed": "s", "restarts": 2}, "exp-043a71", 3, None),
    "a count of restarts below what is known": (
        {"found": [known("exp-1", attempt=7)], "restarts": 2},
        "exp-1",
        8,
        None,
    ),
    "a count of restarts above what is known": ({"found": [CRASHED], "restarts": 4}, "exp-1", 5, None),
    "a count of restarts of a run that is made up": ({"restarts": 2}, "exp-abcdef", 1, None),
    "a fork": ({"parent": "exp-1", "found": [ENDED]}, "exp-abcdef", 1, "exp-1"),
    "a fork of a run that crashed": ({"parent": "exp-1", "found": [CRASHED]}, "exp-abcdef", 1, "exp-1"),
    "a fork with an id": ({"parent": "exp-1", "run_id": "mine", "found": [CRASHED]}, "mine", 1, "exp-1"),
    "a fork by ranks": ({"parent": "exp-1", "ranks": TWO[0], "seed": "s"}, "exp-17bab6", 1, "exp-1"),
    "a fork by ranks without a seed": ({"parent": "exp-1", "ranks": TWO[0]}, "exp-046580", 1, "exp-1"),
    "a fork that is restarted": ({"parent": "exp-1", "found": [CRASHED, FORK]}, "exp-2", 2, "exp-1"),
    "another fork": ({"parent": "exp-0", "found": [CRASHED, FORK]}, "exp-abcdef", 1, "exp-0"),
    "a fork that is restarted without saying so": ({"found": [CRASHED, FORK]}, "exp-2", 2, "exp-1"),
    "a fork from its parent's checkpoint": ({"parent": "exp-9", "checkpoint": OURS}, "exp-abcdef", 1, "exp-9"),
    "a fork from its own checkpoint": ({"parent": "exp-1", "checkpoint": OURS}, "exp-9", 5, "exp-1"),
    "a fork from another's checkpoint": ({"parent": "exp-1", "checkpoint": OTHERS}, "exp-abcdef", 1, "exp-1"),
    "a live run beside a process alone": ({"run_id": "r", "found": [known("r", alive=True)]}, "r", 2, None),
    "a rank that comes when another is dead": (
        {
            "ranks": EIGHT[2],
            "run_id": "r",
            "launch": mark(),
            "found": [
                known("r", rank=0, attempt=2, alive=True, launch=mark()),
                known("r", rank=1, attempt=2, launch=mark()),
                known("r", rank=2, attempt=1, launch=mark(9)),
            ],
        },
        "r",
        2,
        None,
    ),
    "a rank that comes when all others are over": (
        {"ranks": EIGHT[2], "launch": mark(), "found": [known("exp-1", rank=0, attempt=3, ended=True, launch=mark())]},
        "exp-1",
        3,
        None,
    ),
    "a rank of another node": (
        {
            "ranks": EIGHT[4],
            "run_id": "r",
            "launch": mark(host="b"),
            "found": [known("r", rank=0, attempt=4, alive=True, launch=mark(restarts=1))],
        },
        "r",
        4,
        None,
    ),
    "a second launch beside a live one": (
        {"ranks": EIGHT[3], "run_id": "r", "launch": mark(1), "found": [known("r", rank=0, alive=True, launch=mark())]},
        "r",
        2,
        None,
    ),
    "a launch beside one that has restarted a run": (
        {
            "ranks": EIGHT[0],
            "seed": "s",
            "launch": mark(1),
            "found": [
                known("exp-1", rank=0, launch=mark(9)),
                known("exp-1", rank=1, attempt=2, alive=True, launch=mark()),
            ],
        },
        "exp-043a71",
        1,
        None,
    ),
    "a rank that is opened again": (
        {"ranks": EIGHT[0], "run_id": "r", "launch": mark(), "found": [known("r", rank=0, ended=True, launch=mark())]},
        "r",
        2,
        None,
    ),
}


@pytest.mark.parametrize(("arguments", "run_id", "attempt", "parent"), NEW_CASES.values(), ids=NEW_CASES.keys())
def test_restarts_forks_and_launches(arguments, run_id, attempt, parent):
    """Forks are new runs, launchers' counts are the least, and ranks of one launch share its attempt."""
    identity = settled(**arguments)
    assert (run_id, attempt, parent) == (identity.run_id, identity.attempt, identity.parent_id)


def test_a_live_twin_is_found():
    """A live writer of the same run and rank is told of, the last one; one of another rank or run is not."""
    twin = known("r", attempt=2, started=5, alive=True)
    found = [
        known("r", alive=True),
        twin,
        known("r", rank=1, alive=True),
        known("q", alive=True),
        known("r", started=9),
    ]
    assert (twin, 3) == (settled(run_id="r", found=found).twin, settled(run_id="r", found=found).attempt)
    assert settled(run_id="r", found=[known("r"), known("r", rank=1, alive=True)]).twin is None


HOSTS = "ab"


@st.composite
def histories(draw):
    """Launches one after another, each of ranks that settle in some order, some of which die or end on the way."""
    steps = []
    for launch in range(draw(st.integers(1, 5))):
        order = draw(st.permutations(range(8)))
        # What a launch leaves behind is dead when the next one begins, but for a process that lingers.
        steps.append(
            (
                launch,
                order,
                draw(st.sets(st.integers(0, 7))),
                draw(st.sets(st.integers(0, 7), max_size=1)),
                draw(st.sets(st.integers(0, 7), max_size=7)),
                draw(st.sampled_from(["crash", "end", "preempt"])),
            )
        )
    return steps


@settings(max_examples=100, deadline=None)
@given(histories(), st.booleans(), st.booleans())
def test_ranks_agree_whatever_happened(history, is_named, counts):
    """In any history attempts of a rank grow, no two writers are one instance, and the ranks of a launch agree."""
    found, instances, attempts, started = [], [], defaultdict(list), 0
    for launch, order, die_at_once, linger, never_come, ending in history:
        present, identities = [], set()
        for rank in order:
            # Who counts restarts tells launches apart; otherwise ranks know that by those that were there before.
            if counts and rank in never_come:
                continue
            started += 1
            node = HOSTS[rank // 4]
            launched = mark(launch, host=node, restarts=launch if counts else 0)
            identity = settle(
                run_name="exp",
                run_id="r" if is_named else None,
                writer=f"{started:06x}",
                ranks=EIGHT[rank],
                known=[*found, *present],
                checkpoint=None,
                seed="s",
                draw=lambda: "abcdef",
                launch=launched,
                restarts=launch if counts else 0,
            )
            identities.add((identity.run_id, identity.attempt))
            instances.append(identity.instance_id)
            attempts[identity.run_id, rank].append(identity.attempt)
            writer = known(
                identity.run_id,
                attempt=identity.attempt,
                rank=rank,
                started=started,
                launch=launched,
                alive=rank not in die_at_once,
            )
            present.append(writer)
        assert 1 == len(identities)
        outcome = {"crash": None, "end": "finished", "preempt": "preempted"}[ending]
        for item in present:
            w = item.writer
            found.append(
                known(
                    w.run_id,
                    attempt=w.attempt,
                    rank=w.rank,
                    started=w.started_ns,
                    launch=w.launch,
                    alive=item.alive and w.rank in linger,
                    outcome=None if not item.alive else outcome,
                )
            )
    assert len(instances) == len(set(instances))
    assert all(earlier < later for row in attempts.values() for earlier, later in itertools.pairwise(row))
