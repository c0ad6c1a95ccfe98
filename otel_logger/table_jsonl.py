"""Tables as JSON lines in gzip: a line that tells the columns, then for each row an object with all of them in order.

Read by `otel-logger`'s `read_table`, or with any reader of JSON lines that is told to skip one line, such as pandas:

    with gzip.open(path) as lines:
        next(lines)
        pandas.read_json(lines, lines=True)
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import BinaryIO

from otel_logger.table_cells import are_light, as_utf8, json_pieces, json_text, string_text
from otel_logger.table_schema import TableSchema, restored
from otel_logger.tables import Table

__all__ = ["read_jsonl", "write_jsonl"]

_LEVEL = 4
_ROWS = 128
_BATCH = 2**17


def write_jsonl(table: Table, file: BinaryIO) -> None:
    """Write a table, a few rows at a time; equal tables become equal bytes. For a background thread.

    Cells are as `table_cells.json_text` has them, missing ones null.
    """
    # Without time and name, which would make the bytes differ.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=file, mtime=0) as packed:
        for batch in _batches(_pieces(table)):
            packed.write(batch)


def read_jsonl(file: BinaryIO) -> tuple[list[str], list[list[object]]]:
    """Read columns and rows of what `write_jsonl` wrote, in gzip or unpacked; ValueError when a part is missing."""
    unpacked: BinaryIO = gzip.GzipFile(fileobj=file, mode="rb") if _is_gzip(file) else file  # type: ignore[assignment]
    try:
        return _read(unpacked)
    except (EOFError, OSError, zlib.error, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
        msg = f"the table is cut off or damaged ({type(error).__name__}: {error})"
        raise ValueError(msg) from None


def _read(lines: Iterable[bytes]) -> tuple[list[str], list[list[object]]]:
    iterator = iter(lines)
    schema = TableSchema.from_json(next(iterator, b""))
    columns = list(zip(schema.names, schema.kinds, strict=True))
    rows: list[list[object]] = []
    for line in iterator:
        row = json.loads(line)
        rows.append([restored(kind, row[name]) for name, kind in columns])
    if len(rows) != schema.rows:
        msg = f"the table is cut off or damaged ({len(rows)} of {schema.rows} rows)"
        raise ValueError(msg)
    return list(schema.names), rows


def _is_gzip(file: BinaryIO) -> bool:
    start = file.tell()
    magic = file.read(2)
    file.seek(start)
    return magic == b"\x1f\x8b"


def _batches(pieces: Iterable[bytes]) -> Iterator[bytes]:
    batch: list[bytes] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece)
        if size >= _BATCH:
            yield b"".join(batch)
            batch, size = [], 0
    yield b"".join(batch)


def _pieces(table: Table) -> Iterator[bytes]:
    schema = TableSchema.of(table)
    yield as_utf8(schema.to_json()) + b"\n"
    keys = [string_text(name) for name in schema.names]
    template = "{" + ", ".join(f"{key.replace('%', '%%')}: %s" for key in keys) + "}\n"
    rows = iter(table.rows)
    while chunk := list(islice(rows, _ROWS)):
        columns = list(zip_longest(*chunk, [None] * len(keys)))
        if are_light(columns):
            texts = [map(json_text, cells[: len(chunk)]) for cells in columns]
            lines = zip(*texts, strict=True) if texts else iter([()] * len(chunk))
            yield from map(as_utf8, map(template.__mod__, lines))
        else:
            for row in chunk:
                yield from _row_pieces(keys, row)


def _row_pieces(keys: Sequence[str], row: Sequence[object]) -> Iterator[bytes]:
    separator = "{"
    for index, key in enumerate(keys):
        yield as_utf8(f"{separator}{key}: ")
        for piece in json_pieces(row[index] if index < len(row) else None):
            yield as_utf8(piece)
        separator = ", "
    yield b"}\n" if keys else b"{}\n"
