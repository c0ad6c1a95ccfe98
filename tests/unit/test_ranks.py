"""The place of a process among the ranks is what its launcher says."""

import pytest

from otel_logger.ranks import Ranks
from otel_logger_exporters.errors import ConfigurationError


def test_a_process_alone():
    """Without a launcher's variables the process is rank 0 of one."""
    assert Ranks(0, 0, 0, 1, 1) == Ranks.from_environ({})


def test_torchrun():
    """The variables of torchrun give every number; the node is its GROUP_RANK."""
    environ = {"RANK": "11", "LOCAL_RANK": "3", "GROUP_RANK": "1", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}
    assert Ranks(11, 3, 1, 16, 8) == Ranks.from_environ(environ)


def test_composer():
    """Composer's launcher says NODE_RANK, which counts before GROUP_RANK."""
    environ = {"RANK": "1", "LOCAL_RANK": "1", "NODE_RANK": "2", "GROUP_RANK": "9", "WORLD_SIZE": "2"}
    assert Ranks(1, 1, 2, 2, 2) == Ranks.from_environ(environ)


def test_blank_is_unset():
    """An empty variable counts as unset, and blanks around a number do not matter."""
    assert Ranks(rank=3, world_size=4, local_world_size=4) == Ranks.from_environ(
        {"RANK": " 3 ", "WORLD_SIZE": "4", "LOCAL_RANK": "", "NODE_RANK": "  "}
    )


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"])
@pytest.mark.parametrize("value", ["-1", "1.0", "a", "0x1", "٣", "²", "1_0", "9" * 5000, "None"])
def test_what_is_no_number_is_refused(name, value):
    """A variable that is no whole number is named with its value and the remedy."""
    with pytest.raises(ConfigurationError) as caught:
        Ranks.from_environ({name: value})
    assert str(caught.value) == (
        f"{name}={value!r} is not a whole number. The launcher sets it; unset it for a process that runs alone."
    )


@pytest.mark.parametrize(
    ("ranks", "senders"),
    [
        (Ranks(0, 0, 0, 4, 2), {"zero", "node", "all"}),
        (Ranks(1, 1, 0, 4, 2), {"all"}),
        (Ranks(2, 0, 1, 4, 2), {"node", "all"}),
        (Ranks(3, 1, 1, 4, 2), {"all"}),
    ],
)
def test_who_sends(ranks, senders):
    """`zero` is rank 0 of all, `node` the first of each node, `all` everyone."""
    assert senders == {which for which in ("zero", "node", "all") if ranks.sends(which)}


SLURM = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"SLURM_NTASKS": "8", "SLURM_NTASKS_PER_NODE": "4"}, Ranks(5, 1, 1, 8, 4)),
        ({"SLURM_NTASKS": "8", "SLURM_TASKS_PER_NODE": "4(x2)"}, Ranks(5, 1, 1, 8, 4)),
        ({"SLURM_NTASKS": "7", "SLURM_TASKS_PER_NODE": "4,3"}, Ranks(5, 1, 1, 7, 3)),
        ({"SLURM_NTASKS": "11", "SLURM_TASKS_PER_NODE": "4(x2),3"}, Ranks(5, 1, 1, 11, 4)),
        ({"SLURM_NTASKS": "11", "SLURM_NODEID": "2", "SLURM_TASKS_PER_NODE": "4(x2),3"}, Ranks(5, 1, 2, 11, 3)),
        ({"SLURM_NTASKS": "64", "SLURM_STEP_NUM_TASKS": "6"}, Ranks(5, 1, 1, 6, 6)),
        (
            {"SLURM_NTASKS": "8", "SLURM_STEP_TASKS_PER_NODE": "2(x4)", "SLURM_TASKS_PER_NODE": "8"},
            Ranks(5, 1, 1, 8, 2),
        ),
        ({"SLURM_NTASKS": "8"}, Ranks(5, 1, 1, 8, 8)),
        ({"SLURM_NTASKS": "8", "WORLD_SIZE": "99", "NODE_RANK": "9"}, Ranks(5, 1, 1, 8, 8)),
        ({"SLURM_NTASKS": "8", "RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "0"}, Ranks(2, 0, 0, 3, 3)),
        ({"SLURM_NTASKS": "8", "LOCAL_RANK": "2", "WORLD_SIZE": "3"}, Ranks(2, 2, 0, 3, 3)),
    ],
)
def test_a_step_of_slurm(environ, expected):
    """What srun says to each task counts where no launcher in it says otherwise; the step before the job."""
    assert expected == Ranks.from_environ(SLURM | environ)


@pytest.mark.parametrize(
    "environ",
    [
        {"SLURM_NTASKS": "8", "SLURM_STEP_ID": ""},
        {"SLURM_NTASKS": "8", "SLURM_STEP_ID": "4294967290"},
        {"SLURM_NTASKS": "8", "SLURM_STEP_ID": "4294967291"},
        {"SLURM_NTASKS": "8", "SLURM_STEP_ID": "interactive"},
        {"SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
        {"SLURM_NTASKS": "1", "SLURM_PROCID": "0"},
        {"SLURM_NTASKS": "8", "SLURM_PROCID": ""},
    ],
)
def test_a_shell_of_slurm_is_alone(environ):
    """A batch script, an interactive shell or a step of one task is no rank of the job's tasks."""
    assert Ranks() == Ranks.from_environ(SLURM | environ)


@pytest.mark.parametrize("value", ["4(x2", "four", "4x2", "4(x2),", "-1", "", "4(x99999999999)"])
def test_a_list_of_tasks_that_is_none_is_refused(value):
    """A list in another form is named with its value; an empty one is unset."""
    environ = SLURM | {"SLURM_NTASKS": "8", "SLURM_TASKS_PER_NODE": value}
    if not value:
        assert 8 == Ranks.from_environ(environ).local_world_size
        return
    with pytest.raises(ConfigurationError) as caught:
        Ranks.from_environ(environ)
    assert str(caught.value).startswith(f"SLURM_TASKS_PER_NODE={value!r} is not understood: Slurm writes the tasks of")


def test_a_million_nodes_are_counted_without_being_listed():
    """A list is not expanded: its counts may be anything."""
    environ = SLURM | {"SLURM_NTASKS": "8", "SLURM_NODEID": "999999998", "SLURM_TASKS_PER_NODE": "4(x999999999),3"}
    assert 4 == Ranks.from_environ(environ).local_world_size


OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, Ranks(5, 1, 1, 8, 4)),
        (OPEN_MPI, Ranks(5, 0, 0, 8, 8)),
        # The daemon that starts them is a task of Slurm's.
        (OPEN_MPI | SLURM | {"SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}, Ranks(5, 0, 0, 8, 8)),
        ({"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}, Ranks(5, 1, 1, 8, 4)),
        ({"PMI_RANK": "5"}, Ranks()),
        (OPEN_MPI | {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, Ranks(1, 1, 0, 2, 2)),
    ],
)
def test_mpi(environ, expected):
    """mpirun's word counts before that of Slurm, in which it runs, and after a launcher's of training."""
    assert expected == Ranks.from_environ(environ)


@pytest.mark.parametrize(
    ("environ", "name", "size"),
    [
        (SLURM | {"SLURM_NTASKS": "5"}, "SLURM_PROCID", "SLURM_NTASKS"),
        (OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "5"}, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ({"PMI_RANK": "5", "PMI_SIZE": "5"}, "PMI_RANK", "PMI_SIZE"),
    ],
)
def test_a_rank_that_there_is_not_is_refused(environ, name, size):
    """Of five there is no sixth: the variables are of two launches."""
    with pytest.raises(ConfigurationError) as caught:
        Ranks.from_environ(environ)
    assert str(caught.value).startswith(f"{name}=5, but {size}=5: ranks count from 0")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"LOCAL_RANK": "3", "NODE_RANK": "0", "WORLD_SIZE": "4"}, Ranks(3, 3, 0, 4, 4)),
        ({"LOCAL_RANK": "1", "NODE_RANK": "2", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "2"}, Ranks(5, 1, 2, 8, 2)),
        ({"LOCAL_RANK": "1"}, Ranks(0, 1, 0, 1, 1)),
        ({"WORLD_SIZE": "4"}, Ranks(0, 0, 0, 4, 4)),
    ],
)
def test_lightning(environ, expected):
    """Lightning says node and local rank, and leaves the rank to be counted."""
    assert expected == Ranks.from_environ(environ)


def test_a_rank_that_cannot_be_counted_is_refused():
    """On a second node the rank is known only with the number of processes of the first."""
    with pytest.raises(ConfigurationError, match=r"^LOCAL_RANK=1 of node 2, but neither RANK nor LOCAL_WORLD_SIZE"):
        Ranks.from_environ({"LOCAL_RANK": "1", "NODE_RANK": "2", "WORLD_SIZE": "8"})
