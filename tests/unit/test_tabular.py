"""A table is columns by name, read as columns, rows or a selection."""

import pytest

from otel_logger.tabular import Table

ROWS = [{"key": "a", "step": 0, "x": 1}, {"key": "b", "step": 0, "x": 2}, {"key": "a", "step": 1, "x": 3}]


def test_rows_become_columns_and_back():
    """A table has the named columns in their order, and yields its rows as dicts."""
    table = Table.of(("step", "key"), ROWS)
    assert {"step": [0, 0, 1], "key": ["a", "b", "a"]} == table.columns
    assert ["a", "b", "a"] == table["key"]
    assert [{"step": row["step"], "key": row["key"]} for row in ROWS] == list(table) == list(table)
    assert 3 == len(table)


def test_rows_may_come_once():
    """The rows may be a generator."""
    assert 3 == len(Table.of(("key",), (row for row in ROWS)))


def test_a_selection_is_a_table():
    """`where` keeps the rows that have all the values, with every column."""
    table = Table.of(("key", "step", "x"), ROWS)
    assert [1, 3] == table.where(key="a")["x"]
    assert [3] == table.where(key="a", step=1)["x"]
    assert (0, {"key", "step", "x"}) == (len(table.where(key="c")), set(table.where(key="c").columns))
    assert table.columns == table.where().columns


def test_an_empty_table():
    """No rows are columns of none; no columns are no rows."""
    assert (0, [], {"a": []}) == (len(Table.of("a", [])), list(Table.of("a", [])), Table.of("a", []).columns)
    assert (0, []) == (len(Table({})), list(Table({})))


def test_a_row_without_a_value_is_an_error():
    """Every row has every column."""
    with pytest.raises(KeyError):
        Table.of(("key", "absent"), ROWS)


def test_columns_of_unequal_length_do_not_iterate():
    """Rows that would be incomplete are not made up."""
    with pytest.raises(ValueError, match="zip"):
        list(Table({"a": [1, 2], "b": [1]}))


def test_what_it_looks_like():
    """A table tells its size and its columns."""
    assert "<Table of 3 rows: key, x>" == repr(Table.of(("key", "x"), ROWS))
