"""Tables: every row is a JSON line, and no cell is so bad that it costs its neighbours."""

import array
import base64
import datetime
import decimal
import enum
import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_logger.tables import Table, column_names, encode_jsonl, preview, snapshot_table


class Level(enum.IntEnum):
    """A number with a name."""

    HIGH = 3


class Unspeakable:
    """An object that has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no")


class Tensor:
    """What this package uses of a torch tensor."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def tolist(self) -> Any:
        """Plain numbers, as torch gives them."""
        return self.value


def lines(columns: object, rows: object) -> list[dict[str, Any]]:
    """A table encoded and read again."""
    encoded = encode_jsonl(snapshot_table(columns, rows))
    assert encoded == b"" or encoded.endswith(b"\n")
    return [json.loads(line) for line in encoded.decode("utf-8").splitlines()]


def cell(value: object) -> Any:
    """A single cell encoded and read again."""
    ((got,),) = [line.values() for line in lines(["c"], [[value]])]
    return got


CYCLE: list[object] = [1]
CYCLE.append(CYCLE)
DEEP: list[object] = []
for _ in range(5000):
    DEEP = [DEEP]


def test_each_row_is_one_object_with_all_columns() -> None:
    """Rows become objects, one per line, their keys the columns in order."""
    assert b'{"prompt": "hi", "score": 0.5}\n{"prompt": null, "score": 2}\n' == encode_jsonl(
        snapshot_table(["prompt", "score"], [["hi", 0.5], [None, 2]])
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (None, None),
        (1.5, 1.5),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (2**64 - 1, 2**64 - 1),
        (2**64, str(2**64)),
        pytest.param(-(10**5000), hex(-(10**5000)), id="huge"),
        (Level.HIGH, 3),
        (np.int8(-3), -3),
        (np.float32(0.5), 0.5),
        (np.float64("nan"), "NaN"),
        (np.longdouble("inf"), "Infinity"),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([1.0, np.inf]), [1.0, "Infinity"]),
        (np.array(["2024-01-02T03:04:05.6"], "M8[ns]"), ["2024-01-02T03:04:05.600000000"]),
        (np.datetime64("2024-01-02"), "2024-01-02"),
        (np.array([None, {1}], object), [None, [1]]),
        (array.array("i", [1, 2]), [1, 2]),
        (Tensor(0.5), 0.5),
        (Tensor([1, 2]), [1, 2]),
        (datetime.datetime(2024, 1, 2, 3, 4, tzinfo=datetime.timezone.utc), "2024-01-02T03:04:00+00:00"),
        (datetime.date(2024, 1, 2), "2024-01-02"),
        (datetime.time(1, 2), "01:02:00"),
        ({"a": [1, (2, {"b": b"x"})]}, {"a": [1, [2, {"b": "eA=="}]]}),
        ({1: "a", "1": "b"}, {"1": "a", "1_2": "b"}),
        ({3, 1, 2}, [1, 2, 3]),
        (bytearray(b"ab"), base64.b64encode(b"ab").decode()),
        (memoryview(b"ab"), base64.b64encode(b"ab").decode()),
        (decimal.Decimal("1.10"), "1.10"),
        (pathlib.Path("a/b"), "a/b"),
        (1 + 2j, "(1+2j)"),
        (Unspeakable(), "<Unspeakable>"),
        ([Unspeakable(), 1], ["<Unspeakable>", 1]),
        ("a\ud800b\n\u2028\x85", "a\ud800b\n\u2028\x85"),
        ("größe", "größe"),
        (CYCLE, [1, "..."]),
    ],
)
def test_cells_become_json_by_the_documented_rule(value: object, expected: object) -> None:
    """Every kind of cell has its form in JSON."""
    got = cell(value)
    assert expected == got
    assert type(expected) is type(got)


def test_a_cell_nested_without_end_is_cut() -> None:
    """Depth is bounded, so that no cell exhausts the stack."""
    assert '"..."' in json.dumps(cell(DEEP))


def test_columns_of_one_name_are_told_apart() -> None:
    """The first keeps its name, the others get the first number that no column has; ragged rows lose nothing."""
    table = snapshot_table(["a", "a", "a_2", "a", 7, "column_7"], [[1, 2, 3, 4, 5, 6, 7], [1]])
    assert ["a", "a_3", "a_2", "a_4", "7", "column_7", "column_7_2"] == column_names(table)
    first, second = (json.loads(line) for line in encode_jsonl(table).splitlines())
    assert [1, 2, 3, 4, 5, 6, 7] == list(first.values())
    assert [1] + [None] * 6 == list(second.values())


@given(
    st.lists(st.sampled_from(["a", "a_2", "a_3", "a_2_2", "", "column_2", "column_5"]), max_size=9), st.integers(0, 9)
)
def test_names_are_always_distinct_and_first_ones_kept(columns: list[str], width: int) -> None:
    """Whatever the names, each cell has its own, and the first of each name is that name."""
    names = column_names(snapshot_table(columns, [range(width)]))
    assert max(len(columns), width) == len(names) == len(set(names))
    for name in set(columns):
        assert name == names[columns.index(name)]


def test_many_columns_of_one_name_are_no_burden() -> None:
    """Naming is linear in the number of columns."""
    assert 20_000 == len(set(column_names(Table(("a",) * 20_000, ()))))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([5], [[5]]),
        (["abc"], [["abc"]]),
        ([{"a": 1}], [[{"a": 1}]]),
        ([None, [1]], [[None], [1]]),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        ([map(abs, [-1]), (2,)], [[1], [2]]),
        ([np.array(1.5)], [[1.5]]),
        (iter([[1]]), [[1]]),
        ([[]], [[None]]),
        ([], []),
    ],
)
def test_rows_need_not_be_lists(rows: object, expected: list[list[object]]) -> None:
    """Any collection is a row, anything else a row of one cell."""
    columns = ["c"]
    assert expected == [list(line.values()) for line in lines(columns, rows)]


@pytest.mark.parametrize("rows", [None, 5, "abc", {"a": [1]}])
def test_what_has_no_rows_is_no_table(rows: object) -> None:
    """The error names the type and what would be right."""
    with pytest.raises(ValueError, match=f"not a table: rows of {type(rows).__name__}; use a list of lists"):
        snapshot_table(["a"], rows)


def test_rows_that_fail_when_read_are_no_table() -> None:
    """An exception of the user's iterator becomes a ValueError that quotes it."""
    with pytest.raises(ValueError, match=r"cannot be read \(ZeroDivisionError: division by zero\)"):
        snapshot_table(["a"], (1 / n for n in (1, 0)))


def test_a_snapshot_does_not_change_with_its_source() -> None:
    """Neither lists nor what is in the cells is shared with the caller."""
    columns, inner, values = ["a", "b"], {"x": [1]}, np.array([1])
    rows = [[inner, values]]
    table = snapshot_table(columns, rows)
    inner["x"].append(2)
    values[0] = 9
    rows[0].append(3)
    rows.append([4])
    columns.append("c")
    assert Table(("a", "b"), (({"x": [1]}, [1]),)) == table


@pytest.mark.parametrize(
    ("columns", "expected"), [(None, []), ("a", ["a"]), (np.array(["a", "b"]), ["a", "b"]), (5, ["5"])]
)
def test_columns_need_not_be_a_list(columns: object, expected: list[str]) -> None:
    """No columns, one, and any collection of them are understood."""
    assert expected == column_names(snapshot_table(columns, []))


JSON_VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters()),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.lists(st.lists(JSON_VALUES, min_size=2, max_size=2), max_size=4))
def test_what_json_knows_comes_back(rows: list[list[Any]]) -> None:
    """Reading the lines gives the cells again, and each line ends only at its end, whoever splits them."""
    assert rows == [list(line.values()) for line in lines(["a", "b"], rows)]


@settings(max_examples=60)
@given(st.lists(st.lists(JSON_VALUES, max_size=3), max_size=6), st.integers(0, 5), st.integers(0, 400))
def test_a_preview_is_whole_lines_within_its_bounds(rows: list[list[Any]], count: int, limit: int) -> None:
    """Any limit gives valid JSON lines, no more rows and no more bytes than were asked for."""
    text = preview(snapshot_table(["a"], rows), count, limit)
    assert len(text.encode("utf-8")) <= limit
    assert len([json.loads(line) for line in text.splitlines()]) <= count


def test_a_preview_shows_the_first_rows_and_cuts_long_cells() -> None:
    """Ten rows by default, long strings and long lists shortened to 200 characters."""
    table = snapshot_table(["n", "text", "list"], [[n, "x" * 1000, [1] * 1000] for n in range(50)])
    shown = [json.loads(line) for line in preview(table).splitlines()]
    assert list(range(10)) == [line["n"] for line in shown]
    assert "x" * 200 + "…" == shown[0]["text"]
    assert "[1, 1, " in shown[0]["list"]
    assert len(preview(table, rows=1000).encode("utf-8")) <= 8192


def test_a_preview_of_a_row_too_wide_shows_its_first_columns() -> None:
    """Not even one row fits: the columns that do are shown."""
    table = snapshot_table([f"c{n}" for n in range(2000)], [range(2000)])
    (line,) = preview(table, limit=100).splitlines()
    assert {f"c{n}": n for n in range(len(json.loads(line)))} == json.loads(line)
    assert "" == preview(table, limit=5)


def test_tables_need_no_numpy() -> None:
    """Importing the module loads neither NumPy nor Pillow."""
    code = "import otel_logger.tables, sys; sys.exit('numpy' in sys.modules or 'PIL' in sys.modules)"
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
