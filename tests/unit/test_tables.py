"""Tables: copied as they are now, every row a JSON line, and no cell is so bad that it costs its neighbours."""

import array
import base64
import dataclasses
import datetime
import decimal
import enum
import gzip
import io
import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_logger.table_files import write_table
from otel_logger.tables import column_names, preview, snapshot_table


class Level(enum.IntEnum):
    """A number with a name."""

    HIGH = 3


class Unspeakable:
    """An object that has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@dataclasses.dataclass
class Answer:
    """An object with fields."""

    text: str
    scores: list[float]


class NotATime(datetime.datetime):
    """What pandas has for no time: a datetime that is none."""

    def isoformat(self, *args: Any) -> str:
        """The text of pandas' NaT."""
        return "NaT"


class Nanoseconds(datetime.datetime):
    """A datetime of pandas, which has nanoseconds."""

    nanosecond = 7

    def isoformat(self, *args: Any) -> str:
        """The text of a pandas Timestamp."""
        return super().isoformat(*args) + ".000000007"


class NAType:
    """What pandas has for no value."""


NAType.__module__ = "pandas._libs.missing"


class Tensor:
    """What this package uses of a torch tensor."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def tolist(self) -> Any:
        """Plain numbers, as torch gives them."""
        return self.value


def lines(columns: object, rows: object) -> list[dict[str, Any]]:
    """The rows of a table, written and read again."""
    file = io.BytesIO()
    write_table(snapshot_table(columns, rows), file, "jsonl")
    written = gzip.decompress(file.getvalue())
    assert written.endswith(b"\n")
    return [json.loads(line) for line in written.decode("utf-8").splitlines()[1:]]


def cell(value: object) -> Any:
    """A single cell encoded and read again."""
    ((got,),) = [line.values() for line in lines(["c"], [[value]])]
    return got


CYCLE: list[object] = [1]
CYCLE.append(CYCLE)
DEEP: list[object] = []
for _ in range(5000):
    DEEP = [DEEP]


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
        ([2**64, 1], [str(2**64), 1]),
        (np.array(["2024-01-02T03:04:05.6"], "M8[ns]"), ["2024-01-02T03:04:05.600000000"]),
        (np.array([1.5], np.longdouble), [1.5]),
        (np.array([(1, "a")], "i4, U1"), [[1, "a"]]),
        (np.array([[1, 2]]).view(np.matrix), [[1, 2]]),
        (np.datetime64("2024-01-02"), "2024-01-02"),
        (np.datetime64("2024-01-02T03:04:05", "ns"), "2024-01-02T03:04:05"),
        (np.datetime64("2024-01-02T03:04:05.000000001", "ns"), "2024-01-02T03:04:05.000000001"),
        (np.datetime64("NaT"), None),
        (np.timedelta64(2, "s"), "2 seconds"),
        (NotATime(2024, 1, 1), None),
        (NAType(), None),
        (Nanoseconds(2024, 1, 2), "2024-01-02T00:00:00.000000007"),
        (Answer("a", [1.5]), {"text": "a", "scores": [1.5]}),
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
    columns, rows = ["a", "a", "a_2", "a", 7, "column_7"], [[1, 2, 3, 4, 5, 6, 7], [1]]
    assert ["a", "a_3", "a_2", "a_4", "7", "column_7", "column_7_2"] == column_names(snapshot_table(columns, rows))
    first, second = lines(columns, rows)
    assert [1, 2, 3, 4, 5, 6, 7] == list(first.values())
    assert [1] + [None] * 6 == list(second.values())


def test_no_column_has_the_name_of_the_schema() -> None:
    """The line that tells the columns is no row, whatever they are called."""
    columns = ["otel_logger.table", "otel_logger.table", "otel_logger.table_2"]
    expected = ["otel_logger.table_3", "otel_logger.table_4", "otel_logger.table_2"]
    assert expected == column_names(snapshot_table(columns, []))


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
    assert 20_000 == len(set(column_names(snapshot_table(["a"] * 20_000, []))))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([5], [[5]]),
        (["abc"], [["abc"]]),
        ([{"a": 1}], [[{"a": 1}]]),
        ([None, [1]], [[None], [1]]),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([["2024-01-02"]], "M8[D]"), [["2024-01-02"]]),
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
    columns = ["a", "b", "c", "d", "e"]
    inner, values, several, buffer = {"x": [1]}, np.array([1]), [1, 2], bytearray(b"a")
    rows = [[inner, values, several, buffer, {}], [{"x": 1}, np.array([2]), [3], bytearray(b"b"), {"y": 1}]]
    table = snapshot_table(columns, rows)
    inner["x"].append(2)
    values[0] = 9
    rows[1][0]["x"] = 2
    several.append(3)
    rows[1][2].append(4)
    buffer += b"c"
    rows[1][4]["y"] = 2
    rows[0].append(3)
    rows.append([4])
    columns.append("c")
    expected = [
        '{"a": {"x": [1]}, "b": [1], "c": [1, 2], "d": "YQ==", "e": {}}',
        '{"a": {"x": 1}, "b": [2], "c": [3], "d": "Yg==", "e": {"y": 1}}',
    ]
    assert expected == preview(table).splitlines()


def test_a_table_knows_about_how_large_it_is() -> None:
    """The bytes of arrays count, and cells by their number, of whatever row is the longest."""
    assert 64 * 2 * 3 + 8000 == snapshot_table(["a"], [[1, 2, np.zeros(1000)], [1]]).size


class Frame:
    """What this package uses of a data frame of pandas, or by the names of its methods of polars and pyarrow."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Column(list[Any]):
    """A column of a batch of pyarrow."""

    def to_pylist(self) -> list[Any]:
        """Its cells."""
        return list(self)


FRAMES = {
    "pandas": Frame(columns=["a", "b"], itertuples=lambda index, name: iter([(1, 2), (3, 4)])),
    "polars": Frame(columns=["a", "b"], iter_rows=lambda: iter([(1, 2), (3, 4)])),
    "pyarrow": Frame(
        columns=[Column([1, 3]), Column([2, 4])],
        column_names=["a", "b"],
        to_batches=lambda max_chunksize: [Frame(columns=[Column([1, 3]), Column([2, 4])])],
    ),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
@pytest.mark.parametrize(("columns", "expected"), [(None, ["a", "b"]), (["c", "d"], ["c", "d"])])
def test_rows_may_be_a_data_frame(frame: Frame, columns: object, expected: list[str]) -> None:
    """Its rows are taken, and its columns where none are given."""
    table = snapshot_table(columns, frame)
    assert (expected, [(1, 2), (3, 4)]) == (column_names(table), list(table.rows))


class Device:
    """A device that tells what was done with its tensors."""

    def __init__(self) -> None:
        self.waits = 0
        self.kept: list[list[Any]] = []
        self.error: Exception | None = None

    def keep(self, tensors: list[Any]) -> tuple[list[Any], Any]:
        """Copy tensors, which can be fetched once they have been waited for."""
        if self.error is not None:
            raise self.error
        self.kept.append(tensors)
        return [DeviceTensor(tensor.value) for tensor in tensors], self.wait

    def wait(self) -> None:
        """Wait for the copies."""
        self.waits += 1


class DeviceTensor:
    """A tensor on a device: reading it where it is fails the test."""

    class device:
        """Where it is."""

        type = "cuda"

    dtype = "torch.float32"

    def __init__(self, value: Any) -> None:
        self.value = value
        self.shape = np.shape(value)

    def detach(self) -> "DeviceTensor":
        """The same."""
        return self

    def numel(self) -> int:
        """How many numbers."""
        return int(np.size(self.value))

    def element_size(self) -> int:
        """Bytes of one."""
        return 4

    def cpu(self) -> Any:
        """The values on the host."""
        if isinstance(self.value, Exception):
            raise self.value
        return np.array(self.value)

    def __str__(self) -> str:
        pytest.fail("the text of a tensor waits for its device")

    tolist = item = clone = __str__


DeviceTensor.__module__, DeviceTensor.__name__ = "torch", "Tensor"


def test_tensors_on_a_device_are_waited_for_when_they_are_read() -> None:
    """The call copies them all at once where they are; they are fetched with the first look at them, and only once."""
    device = Device()
    rows = [[DeviceTensor([1.0, 2.0]), 1], [[DeviceTensor(0.5)], {DeviceTensor(2)}]]
    table = snapshot_table(["a", "b"], rows, device.keep)
    assert (1, 3, 0) == (len(device.kept), len(device.kept[0]), device.waits)
    expected = '{"a": [1.0, 2.0], "b": 1}\n{"a": [0.5], "b": [2]}\n'
    assert [expected, expected] == [preview(table), preview(table)]
    assert 1 == device.waits


def test_a_tensor_that_cannot_be_read_costs_itself() -> None:
    """Whether the copy or the fetching fails, the cell says so, and its neighbours are there."""
    device = Device()
    lost = DeviceTensor(RuntimeError("device lost"))
    table = snapshot_table(["a", "b"], [[lost, DeviceTensor(0.5)]], device.keep)
    assert {"a": "<Tensor of shape () not read: RuntimeError: device lost>", "b": 0.5} == json.loads(preview(table))
    lost.detach = device.wait  # type: ignore[method-assign]
    table = snapshot_table(["a", "b"], [[lost, 1]], device.keep)
    assert json.loads(preview(table))["a"].startswith("<Tensor of shape () not read: AttributeError")
    device.error = MemoryError("full")
    table = snapshot_table(["a", "b"], [[DeviceTensor([1.0]), 1]], device.keep)
    assert {"a": "<Tensor of shape (1,) not read: MemoryError: full>", "b": 1} == json.loads(preview(table))


class Large:
    """An array that fails the test when much of it is asked for at once."""

    dtype = np.dtype("f8")

    def __init__(self, values: Any) -> None:
        self.values = values
        self.shape = values.shape
        self.nbytes = 0

    def copy(self) -> "Large":
        """The same."""
        return self

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> "Large":
        return Large(self.values[index])

    def tolist(self) -> Any:
        """A few values."""
        assert self.values.size <= 2**14
        return self.values.tolist()


@pytest.mark.parametrize("shape", [(100_000,), (4, 30_000), (5_000, 4), (3, 0)])
def test_large_arrays_are_written_in_pieces(shape: tuple[int, ...]) -> None:
    """No single call converts so much that other threads stand still; nothing is lost between the pieces."""
    values = np.arange(np.prod(shape)).reshape(shape) / 2
    assert values.tolist() == cell(Large(values))
    assert values.tolist() == cell(values.tolist())


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
    """Importing the modules loads neither NumPy nor Pillow nor pyarrow."""
    heavy = "{'numpy', 'PIL', 'pyarrow', 'torch'}"
    code = f"import otel_logger.table_files, sys; sys.exit(bool({heavy} & sys.modules.keys()))"
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
