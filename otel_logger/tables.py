"""Tables as users pass them: copied on the caller's thread, named and shown on a background thread.

What a table is stored as is in `table_files.py`. No cell is so bad that it costs its table: what JSON does not know is
written as text.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice, repeat, zip_longest
from typing import Any

from otel_logger.devices import keep_on_device
from otel_logger.table_cells import Deferred, as_utf8, json_pieces, string_text, text_of
from otel_logger.table_copies import CellCopies, unique
from otel_logger.table_tensors import Keep

__all__ = ["PREVIEW_BYTES", "RESERVED_NAME", "Rows", "Table", "column_names", "preview", "snapshot_table"]

PREVIEW_BYTES = 8192

RESERVED_NAME = "otel_logger.table"
"""The name that no column has, so that the line that tells the columns is no row; see `table_schema.py`."""

_PREVIEW_CELL = 200
# Calls that are no bytecode hold the interpreter's lock until they return: they are given this much at once.
_ROWS = 1024
_CELLS = 2**14
_BYTES_PER_CELL = 64
# Kinds of arrays whose cells their lists have as they are.
_LISTED = tuple("biufUSO")


class Chunk:
    """Some rows of a table, as columns where all are of one length; iterating gives the rows.

    Columns are few objects for many cells: each row would be one more for the garbage collector, which a training that
    holds millions of its own notices.
    """

    __slots__ = ("_columns", "_count", "_rows")

    def __init__(self, count: int, columns: Sequence[Sequence[object]], rows: Sequence[Sequence[object]] = ()) -> None:
        self._count = count
        self._columns = columns
        self._rows = rows

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._count

    def __iter__(self) -> Iterator[Sequence[object]]:
        """Return the rows, each as long as it is."""
        if self._rows:
            return iter(self._rows)
        return zip(*self._columns, strict=True) if self._columns else repeat((), self._count)

    @property
    def width(self) -> int:
        """Cells of the longest row."""
        return max(map(len, self._rows), default=len(self._columns))

    def columns(self, width: int) -> list[Sequence[object]]:
        """Return `width` columns, None where a row has no cell."""
        if self._rows:
            return [cells[: self._count] for cells in zip_longest(*self._rows, [None] * width)]
        return [*self._columns, *repeat([None] * self._count, width - len(self._columns))]


class Rows:
    """The rows of a table in chunks; iterating gives the rows one by one.

    Chunks keep other threads running: a million rows are given back a chunk at a time.
    """

    __slots__ = ("_count", "chunks", "width")

    def __init__(self, chunks: Iterable[Chunk] = ()) -> None:
        self.chunks: list[Chunk] = []
        self.width = 0
        """Cells of the longest row."""
        self._count = 0
        for chunk in chunks:
            self.chunks.append(chunk)
            self.width = max(self.width, chunk.width)
            self._count += len(chunk)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._count

    def __iter__(self) -> Iterator[Sequence[object]]:
        """Return the rows, first to last."""
        return chain.from_iterable(self.chunks)

    def __del__(self) -> None:
        """Give the memory back in pieces."""
        while self.chunks:
            self.chunks.pop()


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table that nobody changes any more: its columns as given, and rows of whatever length they have."""

    columns: tuple[str, ...]
    rows: Rows
    size: int = 0
    """About how many bytes it holds."""


def snapshot_table(columns: object, rows: object, keep: Keep = keep_on_device) -> Table:
    """Copy a table so that later changes of its lists, and of what is in its cells, do not reach the copy.

    A row that is a string, a dictionary or no collection is one cell. `rows` may also be a data frame of pandas or
    polars or a table of pyarrow, whose columns are taken where `columns` is None or empty, or an array. Arrays, tensors
    and images in cells are copied as they are; tensors on a device stay there, copied by `keep`, and are waited for
    when they are first read. ValueError when `rows` is nothing that has rows.
    """
    names = tuple(text_of(column) for column in _items(columns)) or _frame_columns(rows)
    copies = CellCopies()
    copied = Rows(_chunks(_rows(rows), copies))
    copies.keep_on_device(keep)
    return Table(names, copied, copies.size + _BYTES_PER_CELL * len(copied) * max(1, len(names), copied.width))


def column_names(table: Table) -> list[str]:
    """The names under which a table's cells are written, each of them once.

    Cells beyond the last column are in `column_<n>`, counted from 1. Of equal names the first keeps it, each other gets
    the first of `name_2`, `name_3`... that no column has. A column named `otel_logger.table` is `otel_logger.table_2`.
    """
    extra = [f"column_{n}" for n in range(len(table.columns) + 1, table.rows.width + 1)]
    return unique([*table.columns, *extra], frozenset({RESERVED_NAME}))


def preview(table: Table, rows: int = 10, limit: int = PREVIEW_BYTES) -> str:
    """The first rows as JSON lines, as many whole ones as fit into `limit` bytes.

    A cell of over 200 characters is cut and becomes a string that ends in an ellipsis; of an image only that it is one
    is told. When not even the first row fits, it is cut behind the last column that does.
    """
    keys = [string_text(name) for name in column_names(table)]
    lines: list[bytes] = []
    for row in islice(table.rows, rows):
        cells = [*map(_shortened, row), *["null"] * (len(keys) - len(row))]
        members = [as_utf8(f"{key}: {cell}") for key, cell in zip(keys, cells, strict=True)]
        line = b"{%b}\n" % b", ".join(members)
        if len(line) > limit:
            if not lines:
                lines.append(_fitting(members, limit))
            break
        lines.append(line)
        limit -= len(line)
    return b"".join(lines).decode("utf-8")


def _items(value: object) -> Iterable[object]:
    if value is None:
        return ()
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        return (value,)
    return value


def _frame_columns(rows: Any) -> tuple[str, ...]:
    if _frame_rows(rows) is None:
        return ()
    # A table of pyarrow has its columns' content under the name that frames have for their names.
    found = getattr(rows, "column_names", None)
    return tuple(text_of(name) for name in (rows.columns if found is None else found))


def _frame_rows(rows: Any) -> Iterable[object] | None:
    """Return the rows of a data frame of pandas or polars, or of a table of pyarrow, or None."""
    if callable(getattr(rows, "itertuples", None)):
        plain: Iterable[object] = rows.itertuples(index=False, name=None)
        return plain
    if callable(getattr(rows, "iter_rows", None)):
        plain = rows.iter_rows()
        return plain
    if callable(getattr(rows, "to_batches", None)):
        batches = rows.to_batches(max_chunksize=_ROWS)
        return (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return None


def _rows(rows: object) -> Iterable[object]:
    frame = _frame_rows(rows)
    if frame is not None:
        return frame
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        msg = f"not a table: rows of {type(rows).__name__}; use a list of lists"
        raise ValueError(msg)
    if len(getattr(rows, "shape", ())) == 2 and getattr(getattr(rows, "dtype", None), "kind", "") in _LISTED:
        array: Any = rows
        return (row for start in range(0, len(array), _ROWS) for row in array[start : start + _ROWS].tolist())
    return rows


def _chunks(rows: Iterable[object], copies: CellCopies) -> Iterator[Chunk]:
    count = 16
    try:
        iterator = iter(rows)
        while piece := tuple(islice(iterator, count)):
            chunk = _chunk(piece, copies)
            count = max(1, min(_ROWS, _CELLS // max(1, chunk.width)))
            yield chunk
    except Exception as error:
        msg = f"not a table: its rows cannot be read ({type(error).__name__}: {error})"
        raise ValueError(msg) from None


def _chunk(rows: Sequence[Any], copies: CellCopies) -> Chunk:
    if not {list, tuple}.issuperset(map(type, rows)):
        rows = [row if isinstance(row, (list, tuple)) else _cells(row) for row in rows]
    columns = _columns(rows)
    if columns is None:
        return Chunk(len(rows), (), list(map(copies.column, map(tuple, rows))))
    return Chunk(len(rows), list(map(copies.column, columns)))


def _columns(rows: Sequence[Sequence[object]]) -> list[tuple[object, ...]] | None:
    """Return rows as columns, or None where they are of several lengths, or have more cells than there are rows."""
    lengths = set(map(len, rows))
    if len(lengths) > 1 or len(rows) < max(lengths):
        return None
    # Another thread may make a row longer meanwhile.
    with suppress(ValueError):
        return list(zip(*rows, strict=True))
    return None


def _cells(row: object) -> list[object]:
    if isinstance(row, Iterable) and not isinstance(row, (str, bytes, bytearray, Mapping)):
        try:
            return list(row)
        except Exception:  # an array without dimensions, or an iterator that fails: told by the one cell
            pass
    return [row]


def _shortened(cell: object) -> str:
    if isinstance(cell, Deferred) and cell.hint is not None:
        return string_text(cell.hint)
    if isinstance(cell, str):
        return string_text(cell if len(cell) <= _PREVIEW_CELL else f"{cell[:_PREVIEW_CELL]}…")
    text = ""
    for piece in json_pieces(cell):
        text += piece
        if len(text) > _PREVIEW_CELL:
            return string_text(f"{text[:_PREVIEW_CELL]}…")
    return text


def _fitting(members: Sequence[bytes], limit: int) -> bytes:
    size = len(b"{}\n")
    fitting: list[bytes] = []
    for member in members:
        size += len(member) + (len(b", ") if fitting else 0)
        if size > limit:
            break
        fitting.append(member)
    return b"{%b}\n" % b", ".join(fitting) if fitting else b""
