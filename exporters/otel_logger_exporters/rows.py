"""Rows, the form in which metrics are recorded: a time, a step, and values in the order of a schema.

The format is described in docs/segment-format.md. An instance of `Schema` packs rows of its own; `RowReader` turns
the records of one segment back into rows.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from otel_logger_exporters.records import Kind, Record

__all__ = ["NO_STEP", "Row", "RowReader", "Schema", "time_and_step"]

NO_STEP = -(2**63)
"""The step of a row that has none."""

FLOAT = "d"
INTEGER = "q"

_FIXED = struct.Struct("<I4xqq")
_SCHEMA_HEAD = struct.Struct("<II")
_KEY_SIZE = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Row:
    """One call as recorded: `keys` and `values` in step, time in ns since the epoch, step or None."""

    keys: tuple[str, ...]
    values: tuple[float | int, ...]
    time_ns: int
    step: int | None


class Schema:
    """The columns of rows: their keys, and for each whether it holds a float (`d`) or a 64-bit integer (`q`)."""

    __slots__ = ("_packer", "identifier", "keys", "kinds")

    def __init__(self, identifier: int, keys: Sequence[str], kinds: str) -> None:
        self.identifier = identifier
        self.keys = tuple(keys)
        self.kinds = kinds
        self._packer = struct.Struct(f"<I4xqq{kinds}")

    def pack_row(self, time_ns: int, step: int, values: Iterable[float | int]) -> bytes:
        """Return a row's payload; `step` is NO_STEP for none."""
        return self._packer.pack(self.identifier, time_ns, step, *values)

    def unpack_row(self, payload: memoryview) -> Row:
        """Return the row in `payload`."""
        _, time_ns, step, *values = self._packer.unpack(payload)
        return Row(self.keys, tuple(values), time_ns, None if step == NO_STEP else step)

    def pack(self) -> bytes:
        """Return the schema's own payload, to stand before the first of its rows in each segment."""
        keys = [key.encode() for key in self.keys]
        parts = [_SCHEMA_HEAD.pack(self.identifier, len(keys)), self.kinds.encode("ascii")]
        parts += [_KEY_SIZE.pack(len(key)) + key for key in keys]
        return b"".join(parts)

    @classmethod
    def unpack(cls, payload: memoryview) -> "Schema":
        """Return the schema in `payload`; ValueError or struct.error for one that makes no sense."""
        identifier, count = _SCHEMA_HEAD.unpack_from(payload)
        offset = _SCHEMA_HEAD.size
        kinds = bytes(payload[offset : offset + count]).decode("ascii")
        if kinds.strip(FLOAT + INTEGER):
            # To `struct` they would be types too, or numbers.
            msg = f"{kinds[:10]!r} are no types of columns"
            raise ValueError(msg)
        offset += count
        keys = []
        for _ in range(count):
            (size,) = _KEY_SIZE.unpack_from(payload, offset)
            offset += _KEY_SIZE.size
            keys.append(bytes(payload[offset : offset + size]).decode())
            offset += size
        return cls(identifier, keys, kinds)


class RowReader:
    """Reads the rows of one segment: a schema counts from where it stands until one of the same identifier follows."""

    def __init__(self, schemas: Mapping[int, Schema] | None = None) -> None:
        self._schemas = dict(schemas or {})

    def copy(self) -> "RowReader":
        """Return a reader that knows the schemas taken so far, and goes its own way from here."""
        return RowReader(self._schemas)

    def take(self, record: Record) -> Row | None:
        """Return the row that `record` holds, or None when it holds none (a schema is remembered).

        A record that is whole and yet makes no sense, as one of a later version might, is none.
        """
        try:
            if record.kind == Kind.SCHEMA:
                schema = Schema.unpack(record.payload)
                self._schemas[schema.identifier] = schema
            elif record.kind == Kind.ROW:
                (identifier, _, _) = _FIXED.unpack_from(record.payload)
                if (schema_of_row := self._schemas.get(identifier)) is not None:
                    return schema_of_row.unpack_row(record.payload)
        except (struct.error, ValueError):
            pass
        return None

    def rows(self, records: Iterable[Record]) -> Iterator[Row]:
        """Yield the rows among `records`."""
        for record in records:
            if (row := self.take(record)) is not None:
                yield row


def time_and_step(row: Record) -> tuple[int, int | None]:
    """Return the time (ns) and the step of a row, which needs no schema; struct.error for one that makes no sense."""
    _, time_ns, step = _FIXED.unpack_from(row.payload)
    return time_ns, None if step == NO_STEP else step
