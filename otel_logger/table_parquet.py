"""Tables as Parquet. The only module that imports pyarrow, and only when such a table is written or read.

A column of one kind is typed: `boolean` as bool, `integer` as int64, `number` as double, `string` and `image` as
string, `bytes` as binary, `date` as date32, `time` as time64[us], `datetime` as timestamp[us], in UTC if all of its
times have a zone. Any other, `mixed`, `array` and `object` among them, holds each cell's JSON as a string, as JSON
lines have it; so does one of integers beyond 64 bits or, beside floats, beyond what a double holds exactly, and one in
which only some times have a zone. The metadata have the schema, under the key `otel_logger.table`.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from otel_logger.table_cells import Deferred, are_light, as_utf8, json_text
from otel_logger.table_schema import TableSchema, restored
from otel_logger.tables import RESERVED_NAME, Table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read_parquet", "write_parquet"]

# Readers read a row group at a time.
_GROUP_ROWS = 2**16
_GROUP_BYTES = 2**25
_PIECE_BYTES = 2**22

_INT64 = range(-(2**63), 2**63)
_EXACT = range(-(2**53), 2**53 + 1)

_Form = tuple[Any, Callable[[Any], object]]
"""The type of a column, and what makes its values of cells."""


def write_parquet(table: Table, file: BinaryIO) -> None:
    """Write a table, a few rows at a time; equal tables become equal bytes. For a background thread."""
    import pyarrow as pa
    from pyarrow import parquet

    schema = TableSchema.of(table)
    forms = [_form(kind, _cells(table, index)) for index, kind in enumerate(schema.kinds)]
    fields = [(_writable(name), kind) for name, (kind, _) in zip(schema.names, forms, strict=True)]
    arrow = pa.schema(fields, metadata={RESERVED_NAME: as_utf8(schema.to_json())})
    with parquet.ParquetWriter(file, arrow, compression="zstd") as writer:
        for group in _groups(_batches(table, forms, arrow)):
            writer.write_table(pa.Table.from_batches(group, arrow))


def read_parquet(file: BinaryIO) -> tuple[list[str], list[list[object]]]:
    """Read columns and rows of what `write_parquet` wrote; ValueError when it is cut off or damaged."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        source = parquet.ParquetFile(file)
        schema = TableSchema.from_json((source.schema_arrow.metadata or {}).get(RESERVED_NAME.encode(), b""))
        rows: list[list[object]] = []
        for batch in source.iter_batches(batch_size=1024):
            columns = [_read(kind, column) for kind, column in zip(schema.kinds, batch.columns, strict=True)]
            rows.extend(map(list, zip(*columns, strict=True)))
    except (pa.ArrowException, OSError) as error:
        msg = f"the table is cut off or damaged ({type(error).__name__}: {error})"
        raise ValueError(msg) from None
    # Parquet has no rows where there are no columns.
    return list(schema.names), rows if schema.names else [[] for _ in range(schema.rows)]


def _cells(table: Table, index: int) -> Iterator[Any]:
    """Return the cells of a column that are something."""
    columns = (chunk.columns(max(index + 1, chunk.width))[index] for chunk in table.rows.chunks)
    return (cell for cells in columns for cell in cells if cell is not None)


def _form(kind: str, cells: Iterator[Any]) -> _Form:
    import pyarrow as pa

    if kind in ("string", "image"):
        return pa.string(), _text
    if kind == "integer" and all(cell in _INT64 for cell in map(_value, cells)):
        return pa.int64(), _value
    if kind == "number" and all(type(cell) is float or cell in _EXACT for cell in map(_value, cells)):
        return pa.float64(), _value
    if kind == "datetime":
        zoned = {cell.tzinfo is not None for cell in cells}
        if len(zoned) == 1:
            return pa.timestamp("us", tz="UTC" if zoned == {True} else None), _value
    if kind == "time" and all(cell.tzinfo is None for cell in cells):
        return pa.time64("us"), _value
    plain = {"boolean": pa.bool_(), "bytes": pa.binary(), "date": pa.date32(), "null": pa.null()}
    return (plain[kind], _value) if kind in plain else (pa.string(), _json)


def _batches(table: Table, forms: list[_Form], arrow: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa

    for columns in _pieces(table, [make for _, make in forms]):
        arrays = [pa.array(cells, kind) for cells, (kind, _) in zip(columns, forms, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=arrow)


def _pieces(table: Table, makers: list[Callable[[Any], object]]) -> Iterator[list[list[object]]]:
    """Return the values of the columns, of some rows after others: of fewer where they are large."""
    for chunk in table.rows.chunks:
        columns = chunk.columns(len(makers))
        step = len(chunk) if are_light(columns) else 1
        values: list[list[object]] = [[] for _ in makers]
        size = 0
        for start in range(0, len(chunk), step):
            for column, made, make in zip(columns, values, makers, strict=True):
                cells = column[start : min(start + step, len(chunk))]
                made += [None if cell is None else make(cell) for cell in cells]
                if step == 1 and isinstance(made[-1], (str, bytes)):
                    size += len(made[-1])
            if size >= _PIECE_BYTES:
                yield values
                values, size = [[] for _ in makers], 0
        yield values


def _groups(batches: Iterable["pa.RecordBatch"]) -> Iterator[list["pa.RecordBatch"]]:
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        group.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group


def _value(cell: Any) -> Any:
    return cell.resolve() if isinstance(cell, Deferred) else cell


def _text(cell: Any) -> str:
    return _writable(_value(cell))


def _json(cell: Any) -> str:
    return as_utf8(json_text(cell)).decode("utf-8")


def _writable(text: str) -> str:
    # Half a surrogate pair is no UTF-8.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _read(kind: str, column: Any) -> list[object]:
    cells: list[object] = column.to_pylist()
    if str(column.type) != "string" or kind in ("string", "image"):
        return cells
    return [cell if cell is None else restored(kind, json.loads(str(cell))) for cell in cells]
