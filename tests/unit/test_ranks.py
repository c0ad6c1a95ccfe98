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
