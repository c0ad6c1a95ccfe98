"""How much of the disk a writer may take: the floor that is left to others, and the order of loss near the bound."""

import errno
from pathlib import Path

import pytest

from otel_logger_exporters.space import Class, OverLimitError, Space

GIB = 2**30
FOLDER = Path("folder")


def refusal(space, size):
    """Return the error with which a file of this size is refused, or None."""
    try:
        space.make_room(FOLDER, size)
    except OSError as error:
        return error
    return None


def space_of(free, total, **options):
    """Return the space on a file system of so many free bytes, and so many in all."""
    return Space(free=lambda folder: (free, total), **options)


def test_a_file_that_leaves_the_floor_is_let_through():
    """Up to the last byte."""
    space = space_of(1000, 5000, min_free=300)
    assert refusal(space, 700) is None
    assert errno.ENOSPC == refusal(space, 701).errno


def test_a_refusal_says_what_is_free_what_is_to_stay_so_and_what_to_do():
    """The setting and both remedies are named."""
    expected = (
        "1000 bytes are free, and 300 are to stay so (OTEL_LOGGER_MIN_FREE_BYTES): free some, or name another folder "
        "in OTEL_LOGGER_DIR"
    )
    assert expected == refusal(space_of(1000, 5000, min_free=300), 900).strerror


@pytest.mark.parametrize(
    ("total", "floor"),
    [(100, 5), (10 * GIB, GIB // 2), (20 * GIB, GIB), (1000 * GIB, GIB)],
    ids=["tiny", "10 GiB", "20 GiB", "1 TiB"],
)
def test_the_floor_is_a_share_of_a_small_disk_and_a_gibibyte_of_a_large_one(total, floor):
    """Where the user sets none."""
    assert refusal(space_of(floor + 7, total), 7) is None
    assert refusal(space_of(floor + 7, total), 8) is not None


def test_without_a_floor_all_may_be_taken():
    """Zero is a floor too."""
    assert refusal(space_of(10, 10**9, min_free=0), 10) is None


@pytest.mark.parametrize("floor", [None, GIB])
def test_a_file_system_that_does_not_say_how_large_it_is_is_taken_at_its_word(floor):
    """Some of FUSE report zeros, which is no reason to record nothing."""
    assert refusal(space_of(0, 0, min_free=floor), GIB) is None


def test_the_folder_is_asked_about():
    """Which may be on another disk than the program."""
    asked = []

    def free(folder):
        asked.append(folder)
        return 10**12, 10**12

    Space(free=free).make_room(FOLDER, 1)
    assert [FOLDER] == asked


def test_this_machines_disk_is_asked_where_nobody_is_given(tmp_path):
    """A file larger than any disk is refused, a byte is not."""
    space = Space(min_free=0)
    space.make_room(tmp_path, 1)
    with pytest.raises(OSError, match="bytes are free"):
        space.make_room(tmp_path, 2**62)


ORDER = [Class.MINOR, Class.SPANS, Class.RANK_METRICS, Class.METRICS, Class.EVENTS]


@pytest.mark.parametrize(
    ("unsent", "given_up"),
    [(0, 0), (799, 0), (800, 1), (849, 1), (850, 2), (900, 3), (949, 3), (950, 4), (999, 4), (1000, 5), (5000, 5)],
)
def test_what_matters_least_is_given_up_first(unsent, given_up):
    """Batch spans, other spans, metrics of ranks but zero, metrics, and events last."""
    assert ORDER[:given_up] == list(Space(max_unsent=1000).refusals(unsent))


def test_a_refusal_says_how_much_waits_and_in_which_order_is_given_up():
    """One reason for all classes, with the setting."""
    (reason,) = set(Space(max_unsent=1000).refusals(1000).values())
    expected = (
        "1000 bytes wait for the endpoint, and OTEL_LOGGER_JOURNAL_MAX_BYTES=1000 is nearly reached; given up in this "
        "order: batch spans and program logs, other spans, metrics of ranks but zero, metrics, events"
    )
    assert expected == reason


def test_without_a_bound_nothing_is_refused():
    """What has no endpoint waits for none."""
    assert {} == Space().refusals(2**62)


def test_a_refusal_is_an_error_of_the_disk_of_its_own():
    """Whoever counts losses tells it from a full disk."""
    assert issubclass(OverLimitError, OSError)
