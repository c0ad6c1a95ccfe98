"""A table of columns, small enough to need no library, plain enough for any."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["Table"]


class Table:
    """Columns of equal length by name.

    `table["step"]` is a column (a list), `len(table)` the number of rows, iterating yields each row as a dict.
    `pandas.DataFrame(table.columns)` takes it as it is; polars wants columns of one type, which not all are.
    """

    __slots__ = ("columns",)

    def __init__(self, columns: Mapping[str, list[Any]]) -> None:
        self.columns = dict(columns)

    @classmethod
    def of(cls, names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> "Table":
        """Return the table of `rows`, each with a value for every name."""
        columns: dict[str, list[Any]] = {name: [] for name in names}
        for row in rows:
            for name, column in columns.items():
                column.append(row[name])
        return cls(columns)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.columns.values()), []))

    def __getitem__(self, name: str) -> list[Any]:
        """Return a column."""
        return self.columns[name]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dict."""
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def where(self, **equal: Any) -> "Table":
        """Return the rows whose columns have these values: `run.metrics.where(key="loss")`."""
        return Table.of(list(self.columns), (row for row in self if all(row[k] == v for k, v in equal.items())))

    def __repr__(self) -> str:
        """Return the shape and the names of the columns."""
        return f"<Table of {len(self)} rows: {', '.join(self.columns)}>"
