"""Where remote file names lie in a blob store."""

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from otel_logger_exporters.blob_names import EMPTY_NAME, NAME_BYTES, PART_BYTES, blob_name

PARTS = st.one_of(
    st.text(st.characters(), max_size=8),
    st.sampled_from(["", ".", "..", "...", "__up__", "a\\b", "\0", "ü" * 150, "x" * 300, "\ud800", ".tmp-1", "~"]),
)
NAMES = st.lists(PARTS, max_size=12).map("/".join)


@given(NAMES)
@example("/".join(["y" * 199] * 9))
@example("a/" * 2000 + "z" * 400)
def test_every_name_lies_strictly_inside_the_store(name: str) -> None:
    """Whatever the name, its place is below the root, within the limits, and plain UTF-8 without control characters."""
    mapped = blob_name(name)
    assert os.path.normpath(f"/root/{mapped}") == f"/root/{mapped}"
    assert len(mapped.encode("utf-8")) <= NAME_BYTES
    for part in mapped.split("/"):
        assert part not in ("", ".", "..")
        assert len(part.encode("utf-8")) <= PART_BYTES
    assert not set(mapped) & {"\\", "\0", "\n", "\x7f", "\x85"}


@given(NAMES)
@example("x/" + "\ud800" * 100)
@example("/".join(["y" * 199] * 9))
def test_mapping_twice_is_mapping_once(name: str) -> None:
    """A mapped name is its own place."""
    assert blob_name(name) == blob_name(blob_name(name))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("run/ep0-ba4-rank0.pt", "run/ep0-ba4-rank0.pt"),
        ("/abs/x.pt", "abs/x.pt"),
        ("../up/x.pt", "__up__/up/x.pt"),
        ("a//./b/", "a/b"),
        ("a/../../b", "a/__up__/__up__/b"),
        ("..", "__up__"),
        ("...", "..."),
        ("a\\b\0c\n", "a%5Cb%00c%0A"),
        ("x\u0085\udc80", "x%C2%85%ED%B2%80"),
        ("größe 100%/µ", "größe 100%/µ"),
        ("", EMPTY_NAME),
        ("/./", EMPTY_NAME),
    ],
)
def test_names_are_mapped_by_the_rules(name: str, expected: str) -> None:
    """Ordinary names stay, dangerous ones become harmless."""
    assert expected == blob_name(name)


def test_a_long_part_is_cut_at_a_character_and_kept_apart_from_its_like() -> None:
    """Two parts that differ only behind the cut have two places."""
    first, second = blob_name("ü" * 200 + "1"), blob_name("ü" * 200 + "2")
    assert "ü" * 95 == first[:-9] == second[:-9]
    assert first != second


def test_a_long_name_keeps_its_ends() -> None:
    """The first folders and the file's own name stay readable; what is between is a digest."""
    mapped = blob_name("run/" + "deep/" * 400 + "x.pt").split("/")
    assert ["run", "deep"] == mapped[:2]
    assert "x.pt" == mapped[-1]
    assert 8 == len(mapped[-2])
    assert blob_name("run/" + "deep/" * 401 + "x.pt") != "/".join(mapped)


def test_a_part_leaves_room_for_a_suffix() -> None:
    """The longest part and `.json` behind it are still a file name."""
    assert len(f"{blob_name('x' * 999)}.json") <= 255
