"""Cells of tables as JSON, made in bounded pieces, so that no cell keeps other threads from running.

A cell is what `otel_logger.table_copies` makes of a user's value: None, bool, int, float, str, bytes, datetime, date,
time, tuples and dictionaries of these, an array with `tolist`, or a `Deferred`.
"""

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time
from typing import Any

__all__ = ["ATOMS", "Deferred", "are_light", "as_utf8", "json_pieces", "json_text", "kind_of", "string_text", "text_of"]

# Readers take larger ones for floats, or refuse the line.
_INTEGERS = range(-(2**63), 2**64)
_PIECE = 4096
_LIGHT = 2**22
# JSON allows them inside strings, but to `str.splitlines` each ends a line.
_LINE_ENDS = (("\x85", "\\u0085"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029"))
_LIST = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode

string_text: Callable[[str], str] = json.JSONEncoder(ensure_ascii=False).encode
"""Return a string as JSON."""


class Deferred:
    """A cell whose value is made in the background, since making it takes long or waits for a device."""

    __slots__ = ()

    hint: str | None = None
    """What stands for it in a preview, or None: its value."""

    @property
    def kind(self) -> str:
        """What kind of cell it is; see `kind_of`."""
        return kind_of(self.resolve())

    def resolve(self) -> object:
        """Return the cell that it stands for. Never raises."""
        raise NotImplementedError


def kind_of(cell: object) -> str:
    """Return what kind of cell this is.

    `null`, `boolean`, `integer`, `number` (a float), `string`, `datetime`, `date`, `time`, `bytes`, `image` (a data
    URI), `array` (lists too), or `object` (a dictionary).
    """
    if type(cell) in ATOMS:
        return ATOMS[type(cell)]
    if isinstance(cell, Deferred):
        return cell.kind
    return "object" if isinstance(cell, dict) else "array"


def json_text(cell: object) -> str:
    """Return a cell as JSON.

    Numbers, strings, booleans, None, lists and dictionaries are themselves, NaN and infinities the strings "NaN",
    "Infinity" and "-Infinity", integers beyond 64 bits strings, arrays lists, dates and times ISO 8601, bytes base64.
    """
    text = _TEXTS.get(type(cell))
    return text(cell) if text is not None else "".join(json_pieces(cell))


def json_pieces(cell: object) -> Iterator[str]:
    """Return a cell as JSON, see `json_text`, in pieces that are each made within about a millisecond."""
    text = _TEXTS.get(type(cell))
    if text is not None:
        yield text(cell)
    elif isinstance(cell, (list, tuple)):
        yield from _list_pieces(cell)
    elif isinstance(cell, dict):
        yield from _object_pieces(cell)
    elif isinstance(cell, Deferred):
        yield from json_pieces(cell.resolve())
    elif hasattr(cell, "tolist"):
        yield from _array_pieces(cell)
    else:
        yield string_text(text_of(cell))


def as_utf8(text: str) -> bytes:
    """Return JSON as bytes that end a line nowhere, whoever splits them."""
    if text.isascii():
        return text.encode("ascii")
    for character, escaped in _LINE_ENDS:
        text = text.replace(character, escaped)
    # Half a surrogate pair is no UTF-8, but written with a backslash it is JSON.
    return text.encode("utf-8", "backslashreplace")


def text_of(value: object) -> str:
    """Return the text of any value; of one that has none, its class."""
    try:
        return str.__str__(str(value))
    except Exception:  # a broken __str__ is no reason to lose a cell
        return f"<{type(value).__name__}>"


def are_light(columns: Iterable[Sequence[object]]) -> bool:
    """Tell whether columns are atoms alone, of a few megabytes at most, so that they can be written at once."""
    size = 0
    for cells in columns:
        kinds = set(map(type, cells))
        if not kinds <= ATOMS.keys():
            return False
        if str in kinds or bytes in kinds:
            size += sum(len(cell) for cell in cells if isinstance(cell, (str, bytes)))
    return size <= _LIGHT


def _list_pieces(cells: list[Any] | tuple[Any, ...]) -> Iterator[str]:
    yield "["
    for start in range(0, len(cells), _PIECE):
        if start:
            yield ", "
        piece = cells[start : start + _PIECE]
        text = _plain_list(piece)
        if text is not None:
            yield text[1:-1]
            continue
        for index, cell in enumerate(piece):
            if index:
                yield ", "
            yield from json_pieces(cell)
    yield "]"


def _plain_list(cells: list[Any] | tuple[Any, ...]) -> str | None:
    """Return a list that the encoder writes as we do, and at once, or None."""
    kinds = set(map(type, cells))
    if kinds == {int}:
        return _LIST(cells) if min(cells) in _INTEGERS and max(cells) in _INTEGERS else None
    if not kinds <= {float, bool, type(None)}:
        return None
    try:
        return _LIST(cells)
    except ValueError:  # a number that is not finite
        return None


def _object_pieces(cells: dict[str, Any]) -> Iterator[str]:
    separator = "{"
    for key, cell in cells.items():
        yield f"{separator}{string_text(key)}: "
        yield from json_pieces(cell)
        separator = ", "
    yield "{}" if separator == "{" else "}"


def _array_pieces(array: Any) -> Iterator[str]:
    if getattr(getattr(array, "dtype", None), "kind", "") in ("m", "M"):
        # Nanoseconds would come as bare integers.
        array = array.astype(str)
    shape = tuple(array.shape)
    # A row of a matrix is a matrix again.
    if math.prod(shape) <= _PIECE or len(array[0].shape) == len(shape):
        yield from json_pieces(array.tolist())
        return
    inner = math.prod(shape[1:])
    step = max(1, _PIECE // inner)
    yield "["
    for start in range(0, shape[0], step):
        if start:
            yield ", "
        if inner > _PIECE:
            yield from _array_pieces(array[start])
        else:
            yield json_text(array[start : start + step].tolist())[1:-1]
    yield "]"


def _integer_text(value: int) -> str:
    if value in _INTEGERS:
        return str(value)
    try:
        return f'"{value}"'
    except ValueError:  # Python refuses thousands of digits
        return f'"{hex(value)}"'


def _number_text(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _boolean_text(value: bool) -> str:
    return "true" if value else "false"


def _null_text(value: None) -> str:
    return "null"


def _bytes_text(value: bytes) -> str:
    return f'"{base64.b64encode(value).decode("ascii")}"'


def _time_text(value: datetime | date | time) -> str:
    return f'"{value.isoformat()}"'


_TEXTS: dict[type, Callable[[Any], str]] = {
    str: string_text,
    int: _integer_text,
    float: _number_text,
    bool: _boolean_text,
    type(None): _null_text,
    bytes: _bytes_text,
    datetime: _time_text,
    date: _time_text,
    time: _time_text,
}

ATOMS: dict[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
    bytes: "bytes",
    datetime: "datetime",
    date: "date",
    time: "time",
}
"""The types of cells that nobody can change, and their kinds."""
