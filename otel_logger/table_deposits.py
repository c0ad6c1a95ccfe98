"""Tables on their way into the blob store."""

from typing import Any

from otel_logger import conventions as names
from otel_logger.deposits import Deposits, Moment
from otel_logger.staging import Content

__all__ = ["log_table"]


def log_table(deposits: Deposits, columns: Any, rows: Any, name: str, step: int | None) -> None:
    """Copy a table now, and store it in the background. Never raises."""
    from otel_logger.tables import snapshot_table

    moment = deposits.moment(step)
    try:
        table = snapshot_table(columns, rows)
    except Exception as error:
        deposits.lose("table", 1, f"Table {name!r} is lost: {error}")
        return
    if not deposits.bench.put(lambda: _store(deposits, table, name, moment), size=table.size):
        deposits.lose("table", 1, f"Table {name!r} is lost: {deposits.no_room}")


def _store(deposits: Deposits, table: Any, name: str, moment: Moment) -> None:
    from otel_logger.table_files import write_table
    from otel_logger.table_formats import table_extension, table_media_type
    from otel_logger.tables import preview

    table_format = deposits.settings.table_format
    content = Content(
        lambda file: write_table(table, file, table_format),
        table_media_type(table_format),
        table_extension(table_format),
    )
    shape = {names.TABLE_ROWS: len(table.rows), names.TABLE_COLUMNS: len(table.columns)}
    deposits.keep(names.EVENT_TABLE, name, [content], shape, preview(table), moment)
