"""The schema of a stored table: its columns in order, what is in each, and how many rows there are.

It is the first line of JSON lines, and in the metadata of Parquet, as JSON in this form:

    {"otel_logger.table": {"version": 1, "rows": 2, "columns": [{"name": "a", "kind": "string"}]}}

No row has such a key: a column of this name is renamed.
"""

import base64
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any

from otel_logger.table_cells import ATOMS, kind_of
from otel_logger.tables import RESERVED_NAME, Table, column_names

__all__ = ["MIXED", "TableSchema", "restored"]

VERSION = 1
MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class TableSchema:
    """What a stored table says of itself."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    """What is in each column: a kind as of `table_cells.kind_of`, or `mixed`. Cells that are None or missing do not
    count, integers beside floats are `number`."""
    rows: int

    @classmethod
    def of(cls, table: Table) -> "TableSchema":
        """Return the schema of a table. All cells are looked at."""
        names = column_names(table)
        found: list[set[str]] = [set() for _ in names]
        for chunk in table.rows.chunks:
            for kinds, cells in zip(found, chunk.columns(len(names)), strict=True):
                kinds |= _kinds(cells)
        return cls(tuple(names), tuple(map(_common, found)), len(table.rows))

    def to_json(self) -> str:
        """Return it as one line."""
        columns = [{"name": name, "kind": kind} for name, kind in zip(self.names, self.kinds, strict=True)]
        return json.dumps(
            {RESERVED_NAME: {"version": VERSION, "rows": self.rows, "columns": columns}}, ensure_ascii=False
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> "TableSchema":
        """Read it again; ValueError when it is none, or of a version that is not known here."""
        try:
            schema = json.loads(text)[RESERVED_NAME]
            version, rows, columns = schema["version"], schema["rows"], schema["columns"]
            found = cls(tuple(c["name"] for c in columns), tuple(c["kind"] for c in columns), rows)
        except (ValueError, KeyError, TypeError, IndexError):
            msg = "not a table of otel_logger: it does not begin with the schema"
            raise ValueError(msg) from None
        if version != VERSION:
            msg = f"a table of version {version!r}, of which only {VERSION} is known: install a newer otel_logger"
            raise ValueError(msg)
        return found


def restored(kind: str, cell: Any) -> object:
    """Return what JSON has of a cell as it was in its column: a date as a date, a NaN as a float."""
    restore = _RESTORE.get(kind)
    return restore(cell) if restore is not None and isinstance(cell, str) else cell


def _kinds(cells: Iterable[object]) -> set[str]:
    types = set(map(type, cells))
    if types <= ATOMS.keys():
        return {ATOMS[kind] for kind in types}
    return {kind_of(cell) for cell in cells}


def _common(kinds: set[str]) -> str:
    kinds = kinds - {"null"}
    if kinds == {"integer", "number"}:
        return "number"
    if len(kinds) > 1:
        return MIXED
    return kinds.pop() if kinds else "null"


_RESTORE: dict[str, Callable[[str], object]] = {
    "integer": lambda text: int(text, 0),
    "number": lambda text: float(text) if text in ("NaN", "Infinity", "-Infinity") else int(text, 0),
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "bytes": base64.b64decode,
}
