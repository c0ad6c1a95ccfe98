"""Tables as files: written in one of the formats, and read back whatever it is."""

from typing import BinaryIO

from otel_logger.table_formats import PARQUET
from otel_logger.table_jsonl import read_jsonl, write_jsonl
from otel_logger.tables import Table

__all__ = ["read_table", "write_table"]


def write_table(table: Table, file: BinaryIO, table_format: str) -> None:
    """Write a table to a file that is open for writing, in a format of `TABLE_FORMATS`; equal tables, equal bytes.

    Memory stays flat and other threads run: rows are converted and written a few at a time. Tensors that are still on
    a device are waited for. OSError as the file raises it.
    """
    if table_format == PARQUET:
        from otel_logger.table_parquet import write_parquet

        write_parquet(table, file)
    else:
        write_jsonl(table, file)


def read_table(file: BinaryIO) -> tuple[list[str], list[list[object]]]:
    """Read the columns and rows of a stored table, whatever its format; `file` is open for reading and can be seeked.

    Rows have a cell for each column, None where there was none. Cells come back as they were where all of a column are
    of one kind (numbers, strings, bytes, dates and times); arrays come back as lists, images as data URIs; in columns
    of mixed kinds what JSON does not know is text. ValueError when the file is no such table, cut off or damaged:
    never a part of it. ModuleNotFoundError for Parquet where pyarrow is not installed.
    """
    start = file.tell()
    magic = file.read(4)
    file.seek(start)
    if magic == b"PAR1":
        from otel_logger.table_parquet import read_parquet

        return read_parquet(file)
    return read_jsonl(file)
