"""Tables as files: what was written is read back, whatever the format, and what is cut off is never taken for whole."""

import base64
import datetime
import gzip
import importlib.util
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pyarrow import parquet

from otel_logger import table_parquet
from otel_logger.table_files import read_table, write_table
from otel_logger.table_formats import TABLE_FORMATS, require_parquet, table_extension, table_media_type
from otel_logger.tables import preview, snapshot_table
from otel_logger_exporters.errors import ConfigurationError


class Stamp(datetime.datetime):
    """A datetime of pandas."""


UTC = datetime.timezone.utc
BERLIN = datetime.timezone(datetime.timedelta(hours=2))


def written(columns: object, rows: object, table_format: str = "jsonl") -> bytes:
    """The file of a table."""
    file = io.BytesIO()
    write_table(snapshot_table(columns, rows), file, table_format)
    return file.getvalue()


def back(columns: object, rows: object, table_format: str) -> tuple[list[str], list[list[object]]]:
    """A table written and read again."""
    return read_table(io.BytesIO(written(columns, rows, table_format)))


def test_json_lines_begin_with_the_columns() -> None:
    """The first line tells each column's name and kind and the number of rows; each row is an object with them all."""
    expected = (
        b'{"otel_logger.table": {"version": 1, "rows": 2, "columns": [{"name": "prompt", "kind": "string"}, '
        b'{"name": "50 % \\"off\\"", "kind": "number"}]}}\n'
        b'{"prompt": "hi", "50 % \\"off\\"": 0.5}\n{"prompt": null, "50 % \\"off\\"": 2}\n'
    )
    packed = written(["prompt", '50 % "off"'], [["hi", 0.5], [None, 2]])
    assert expected == gzip.decompress(packed)
    assert (["prompt", '50 % "off"'], [["hi", 0.5], [None, 2]]) == read_table(io.BytesIO(expected))


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_equal_tables_become_equal_bytes(table_format: str) -> None:
    """No time or name is in the file: a table that is written again is the same blob."""
    table = ["a", "b"], [[1, "x"], [2, [1, 2]]]
    assert written(*table, table_format) == written(*table, table_format)


def test_the_header_of_gzip_has_no_time_and_no_name(tmp_path: Path) -> None:
    """Else the bytes of a table would depend on when and where it was written."""
    with (tmp_path / "table.jsonl.gz").open("w+b") as file:
        write_table(snapshot_table(["a"], [[1]]), file, "jsonl")
        file.seek(0)
        assert b"\x1f\x8b\x08" + bytes(5) == file.read(8)


COLUMNS = {
    "booleans": ("boolean", "bool", [True, None, False]),
    "integers": ("integer", "int64", [1, -(2**63), 2**63 - 1]),
    "wide": ("integer", "string", [2**64, 1, -(10**40)]),
    "numbers": ("number", "double", [1.5, math.inf, 3, None]),
    "exact": ("number", "string", [1.5, 2**53 + 1, 2**70]),
    "strings": ("string", "string", ["a", "", "ö\u2028\n", None]),
    "bytes": ("bytes", "binary", [b"\xff", b""]),
    "dates": ("date", "date32[day]", [datetime.date(2024, 1, 2), None]),
    "times": ("time", "time64[us]", [datetime.time(1, 2, 3, 4)]),
    "zoned_times": ("time", "string", [datetime.time(1, 2, tzinfo=UTC)]),
    "moments": ("datetime", "timestamp[us]", [datetime.datetime(2024, 1, 2, 3, 4, 5, 6), Stamp(2024, 1, 3)]),
    "zoned": ("datetime", "timestamp[us, tz=UTC]", [datetime.datetime(2024, 1, 2, tzinfo=BERLIN)]),
    "partly_zoned": ("datetime", "string", [datetime.datetime(2024, 1, 2, tzinfo=UTC), datetime.datetime(2024, 1, 2)]),
    "nothing": ("null", "null", [None, None]),
    "arrays": ("array", "string", [[1, [2.5]], [], None]),
    "objects": ("object", "string", [{"a": [1], "b": {}}, {}]),
    "mixed": ("mixed", "string", [1, "a", None, True, [1], {"a": "b"}]),
}


def test_each_kind_of_column_comes_back_from_either_format() -> None:
    """The schema tells each column's kind, Parquet has its type, and the cells are what they were."""
    height = max(len(cells) for _, _, cells in COLUMNS.values())
    rows = [[cells[n] if n < len(cells) else None for _, _, cells in COLUMNS.values()] for n in range(height)]
    for table_format in TABLE_FORMATS:
        assert (list(COLUMNS), rows) == back(COLUMNS, rows, table_format)
    lines = gzip.decompress(written(COLUMNS, rows)).splitlines()
    schema = json.loads(lines[0])["otel_logger.table"]
    stored = parquet.read_table(io.BytesIO(written(COLUMNS, rows, "parquet"))).schema
    assert [kind for kind, _, _ in COLUMNS.values()] == [column["kind"] for column in schema["columns"]]
    assert [kind for _, kind, _ in COLUMNS.values()] == [str(field.type) for field in stored]
    assert schema == json.loads(stored.metadata[b"otel_logger.table"])["otel_logger.table"]


NUMBERS = st.one_of(st.none(), st.integers(), st.floats(allow_nan=False))
TEXTS = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"])))


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.tuples(NUMBERS, TEXTS, st.one_of(st.none(), st.datetimes()), st.binary(max_size=3))))
def test_cells_come_back_whatever_they_are(table_format: str, rows: list[tuple[Any, ...]]) -> None:
    """Columns of one kind are read as they were written: the very numbers, texts, moments and bytes."""
    columns = ["number", "text", "moment", "bytes"]
    assert (columns, [list(row) for row in rows]) == back(columns, rows, table_format)


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
@pytest.mark.parametrize(
    ("columns", "rows"), [([], []), (["a"], []), ([], [[], []]), (["a", "b"], [[1], [], [1, 2, 3], [None]])]
)
def test_tables_without_columns_or_rows_or_with_ragged_ones(table_format: str, columns: Any, rows: Any) -> None:
    """Rows come back with a cell for each column, and as many of them."""
    width = max([len(columns), *map(len, rows)])
    names = [*columns, *[f"column_{n}" for n in range(len(columns) + 1, width + 1)]]
    assert (names, [[*row, *[None] * (width - len(row))] for row in rows]) == back(columns, rows, table_format)


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_a_table_of_many_rows_comes_back_in_order(table_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks, batches and row groups lose nothing between them, also where cells are large."""
    monkeypatch.setattr(table_parquet, "_GROUP_ROWS", 2000)
    rows = [[n, f"row {n}", n / 7, n % 2] for n in range(5000)]
    rows[3][1] = "x" * 5_000_000
    assert rows == back(["a", "b", "c", "d"], rows, table_format)[1]


def test_nan_comes_back_as_a_number() -> None:
    """In a column of numbers it is one again; among texts it is a text."""
    for table_format in TABLE_FORMATS:
        ((number, text), _) = back(["a", "b"], [[math.nan, math.nan], [1, "a"]], table_format)[1]
        assert math.isnan(number)  # type: ignore[arg-type]
        assert "NaN" == text


@pytest.mark.parametrize("unpack", [False, True])
def test_json_lines_that_are_cut_off_are_an_error(unpack: bool) -> None:
    """Wherever the file ends too early, in gzip or unpacked, no part of it is taken for the table."""
    whole = written(["a", "b"], [[1, "x"], [2, None], [3, "y\u2028"]])
    expected = read_table(io.BytesIO(whole))
    whole = gzip.decompress(whole) if unpack else whole
    # The very last byte of lines is their end, without which nothing is missing.
    for length in range(len(whole) - unpack):
        with pytest.raises(ValueError, match=r"cut off or damaged|not a table of otel_logger"):
            read_table(io.BytesIO(whole[:length]))
    assert expected == read_table(io.BytesIO(whole))


def test_parquet_that_is_cut_off_is_an_error() -> None:
    """Wherever the file ends too early, no part of it is taken for the table."""
    whole = written(["a", "b"], [[1, "x"], [2, None]], "parquet")
    for length in [*range(0, len(whole), 37), len(whole) - 1]:
        with pytest.raises(ValueError, match=r"cut off or damaged|not a table of otel_logger"):
            read_table(io.BytesIO(whole[:length]))


def test_other_files_are_no_tables() -> None:
    """JSON lines without our schema are refused, and so is a schema of a later version, which is named."""
    for text in (b'{"a": 1}\n', b"[1]\n", b'{"otel_logger.table": 1}\n'):
        with pytest.raises(ValueError, match="not a table of otel_logger"):
            read_table(io.BytesIO(text))
    with pytest.raises(ValueError, match="of version 2, of which only 1 is known"):
        read_table(io.BytesIO(b'{"otel_logger.table": {"version": 2, "rows": 0, "columns": []}}\n'))
    with pytest.raises(ValueError, match="cut off or damaged"):
        read_table(
            io.BytesIO(
                b'{"otel_logger.table": {"version": 1, "rows": 1, "columns": [{"name": "a", "kind": "null"}]}}\n{}\n'
            )
        )


def test_half_a_surrogate_pair_does_not_cost_the_table() -> None:
    """JSON has it as it was, Parquet, whose strings are UTF-8, as an escape."""
    assert [["a\ud800"]] == back(["c\udfff"], [["a\ud800"]], "jsonl")[1]
    assert [["a\\ud800"]] == back(["c\udfff"], [["a\ud800"]], "parquet")[1]


class Shown:
    """What shows itself in notebooks as PNG."""

    def __init__(self, png: Any) -> None:
        self._png = png

    def _repr_png_(self) -> Any:
        return self._png

    def __str__(self) -> str:
        return "shown"


def decoded(uri: Any) -> Image.Image:
    """The image of a data URI."""
    head, _, data = uri.partition(",")
    assert "data:image/png;base64" == head
    return Image.open(io.BytesIO(base64.b64decode(data)))


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_images_are_data_uris(table_format: str) -> None:
    """An image is kept without loss as it was in the call; colours that PNG does not know become RGB."""
    picture = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    pixels = np.array(picture)
    rows = [[picture, Image.new("CMYK", (2, 3)), Shown(b"png"), Shown((b"png", {})), Shown(None)]]
    table = snapshot_table(list("abcde"), rows)
    picture.paste((0, 0, 0), (0, 0, 4, 4))
    file = io.BytesIO()
    write_table(table, file, table_format)
    file.seek(0)
    ((kept, converted, *shown),) = read_table(file)[1]
    assert np.array_equal(pixels, np.array(decoded(kept)))
    assert ("RGB", (2, 3)) == (decoded(converted).mode, decoded(converted).size)
    assert ["data:image/png;base64,cG5n", "data:image/png;base64,cG5n", "shown"] == shown
    assert "data:image/png;base64,…" == json.loads(preview(table))["a"]


def test_a_large_image_is_made_smaller() -> None:
    """The PNG in a cell is a megabyte at most; one that cannot be made smaller is its text."""
    noise = np.random.default_rng(0).integers(0, 256, (800, 900, 3), dtype=np.uint8)
    ((kept, shown),) = back(["a", "b"], [[Image.fromarray(noise), Shown(b"x" * (2**20 + 1))]], "jsonl")[1]
    assert len(base64.b64decode(str(kept).partition(",")[2])) <= 2**20
    assert (506, 450) == decoded(kept).size
    assert "shown" == shown


def test_a_broken_image_does_not_cost_the_table() -> None:
    """An image that cannot be encoded is text that says why."""
    picture = Image.new("RGB", (2, 2))
    table = snapshot_table(["a", "b"], [[picture, 1]])
    ((cell, _),) = table.rows
    cell._image.close()
    file = io.BytesIO()
    write_table(table, file, "jsonl")
    assert '(ValueError: Operation on closed image)", "b": 1}' in gzip.decompress(file.getvalue()).decode()


def test_what_a_stored_table_is_called() -> None:
    """The media type and the ending tell the format and that it is packed."""
    assert [("jsonl.gz", "application/jsonl+gzip"), ("parquet", "application/vnd.apache.parquet")] == [
        (table_extension(table_format), table_media_type(table_format)) for table_format in TABLE_FORMATS
    ]


def test_parquet_without_pyarrow_is_an_error_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting is named, and the command that installs what it needs."""
    require_parquet("OTEL_LOGGER_TABLE_FORMAT='parquet'")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError) as caught:
        require_parquet("OTEL_LOGGER_TABLE_FORMAT='parquet'")
    assert (
        "OTEL_LOGGER_TABLE_FORMAT='parquet' needs pyarrow, which is not installed. "
        'Run: pip install "otel-logger-destination[parquet]", or use jsonl'
    ) == str(caught.value)
