"""Tables as users pass them, and the JSON lines that they become.

`snapshot_table` copies on the caller's thread; `encode_jsonl` and `preview` do the rest on a background thread. No cell
is so bad that it costs its table: what JSON does not know is written as text.
"""

import base64
import json
import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import date, time
from typing import Any

__all__ = ["PREVIEW_BYTES", "Table", "column_names", "encode_jsonl", "preview", "snapshot_table"]

PREVIEW_BYTES = 8192

# Readers take larger ones for floats, or refuse the line.
_INTEGERS = range(-(2**63), 2**64)
_DEPTH = 32
_PREVIEW_CELL = 200
_UNCHANGEABLE = (str, int, float, bool, type(None), bytes)
# JSON allows them inside strings, but to `str.splitlines` each ends a line.
_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


@dataclass(frozen=True, slots=True)
class Table:
    """A table that nobody changes any more: its columns as given, and rows of whatever length they have."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


def snapshot_table(columns: object, rows: object) -> Table:
    """Copy a table so that later changes of its lists, and of what is in its cells, do not reach the copy.

    Tensors in cells are copied to the host. A row that is a string, a dictionary or no collection is one cell.
    ValueError when `rows` is nothing that has rows.
    """
    return Table(tuple(_text(column) for column in _items(columns)), tuple(_row(row) for row in _rows(rows)))


def column_names(table: Table) -> list[str]:
    """The names under which a table's cells are written, each of them once.

    Cells beyond the last column are in `column_<n>`, counted from 1. Of equal names the first keeps it, each other gets
    the first of `name_2`, `name_3`... that no column has.
    """
    width = max((len(row) for row in table.rows), default=0)
    extra = [f"column_{n}" for n in range(len(table.columns) + 1, width + 1)]
    return _unique([*table.columns, *extra])


def encode_jsonl(table: Table) -> bytes:
    """A table as JSON lines: for each row one object with all columns in their order (`pandas.read_json(lines=True)`).

    Missing cells are null. Numbers, strings, booleans, None, lists and dictionaries are themselves, NaN and infinities
    the strings "NaN", "Infinity" and "-Infinity", integers beyond 64 bits strings, values of NumPy and PyTorch lists
    and numbers, dates and times ISO 8601, bytes base64, sets sorted lists, anything else its `str()`. What contains
    itself, or is nested more than 32 deep, ends in "...". A table without rows is no bytes at all: its columns are in
    `Table.columns`.
    """
    names = column_names(table)
    return b"".join(_encode(_line(names, row)) + b"\n" for row in table.rows)


def preview(table: Table, rows: int = 10, limit: int = PREVIEW_BYTES) -> str:
    """The first rows as JSON lines, as many whole ones as fit into `limit` bytes.

    A cell of over 200 characters is cut and becomes a string that ends in an ellipsis. When not even the first row
    fits, it is cut behind the last column that does.
    """
    names = column_names(table)
    lines: list[bytes] = []
    for row in table.rows[:rows]:
        line = {name: _shortened(cell) for name, cell in _line(names, row).items()}
        encoded = _encode(line) + b"\n"
        if len(encoded) > limit:
            if not lines:
                lines.append(_fitting(line, limit))
            break
        lines.append(encoded)
        limit -= len(encoded)
    return b"".join(lines).decode("utf-8")


def _items(value: object) -> Iterable[object]:
    if value is None:
        return ()
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        return (value,)
    return value


def _rows(rows: object) -> list[object]:
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        msg = f"not a table: rows of {type(rows).__name__}; use a list of lists"
        raise ValueError(msg)
    try:
        return list(rows)
    except Exception as error:
        msg = f"not a table: its rows cannot be read ({type(error).__name__}: {error})"
        raise ValueError(msg) from None


def _row(row: object) -> tuple[object, ...]:
    if not isinstance(row, (list, tuple)):
        row = _cells(row)
    return tuple(cell if type(cell) in _UNCHANGEABLE else _plain(cell) for cell in row)


def _cells(row: object) -> list[object]:
    if isinstance(row, Iterable) and not isinstance(row, (str, bytes, bytearray, Mapping)):
        try:
            return list(row)
        except Exception:  # an array without dimensions, or an iterator that fails: told by the one cell
            pass
    return [row]


def _line(names: list[str], row: tuple[object, ...]) -> dict[str, object]:
    padded = [*row, *[None] * (len(names) - len(row))]
    return {name: _plain(cell) for name, cell in zip(names, padded, strict=True)}


def _encode(line: object) -> bytes:
    text = json.dumps(line, ensure_ascii=False, allow_nan=False).translate(_LINE_ENDS)
    # Half a surrogate pair is no UTF-8, but written with a backslash it is JSON.
    return text.encode("utf-8", "backslashreplace")


def _plain(value: object, within: tuple[int, ...] = ()) -> object:
    try:
        return _converted(value, within)
    except Exception:  # user code runs here: properties, iterators, __str__
        return _text(value)


def _converted(value: Any, within: tuple[int, ...]) -> object:
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return _integer(int(value))
    if isinstance(value, float):
        return _number(float(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if id(value) in within or len(within) >= _DEPTH:
        return "..."
    return _nested(value, (*within, id(value)))


def _nested(value: Any, within: tuple[int, ...]) -> object:
    if isinstance(value, Mapping):
        keys = _unique([_text(key) for key in value])
        return dict(zip(keys, [_plain(cell, within) for cell in value.values()], strict=True))
    if isinstance(value, (list, tuple)):
        return [_plain(cell, within) for cell in value]
    if isinstance(value, AbstractSet):
        return sorted((_plain(cell, within) for cell in value), key=_encode)
    if callable(getattr(value, "tolist", None)):
        return _array(value, within)
    return _text(value)


def _array(value: Any, within: tuple[int, ...]) -> object:
    # NumPy, PyTorch, pandas and `array` share this method; none of them is worth an import.
    if getattr(getattr(value, "dtype", None), "kind", "") in ("m", "M"):
        # Nanoseconds would come as bare integers.
        value = value.astype(str)
    plain = value.tolist()
    if type(plain) is type(value):
        # A long double is a list of itself.
        return _number(float(plain))
    return _plain(plain, within)


def _integer(value: int) -> int | str:
    if value in _INTEGERS:
        return value
    try:
        return str(value)
    except ValueError:  # Python refuses thousands of digits
        return hex(value)


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _text(value: object) -> str:
    try:
        return str.__str__(str(value))
    except Exception:  # a broken __str__ is no reason to lose a cell
        return f"<{type(value).__name__}>"


def _unique(names: list[str]) -> list[str]:
    taken = set(names)
    if len(taken) == len(names):
        return names
    result: list[str] = []
    uses: dict[str, int] = {}
    for name in names:
        uses[name] = uses.get(name, 0) + 1
        candidate = name
        while uses[name] > 1 and candidate in taken:
            candidate = f"{name}_{uses[name]}"
            uses[name] += candidate in taken
        taken.add(candidate)
        result.append(candidate)
    return result


def _shortened(cell: object) -> object:
    text = cell if isinstance(cell, str) else _encode(cell).decode("utf-8")
    return cell if len(text) <= _PREVIEW_CELL else f"{text[:_PREVIEW_CELL]}…"


def _fitting(line: dict[str, object], limit: int) -> bytes:
    fits = b""
    head: dict[str, object] = {}
    for name, cell in line.items():
        head[name] = cell
        encoded = _encode(head) + b"\n"
        if len(encoded) > limit:
            break
        fits = encoded
    return fits
