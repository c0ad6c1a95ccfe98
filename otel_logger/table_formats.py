"""The formats of stored tables: their names, media types, file extensions, and what they need to be installed."""

import importlib.util

from otel_logger_exporters.errors import ConfigurationError

__all__ = ["JSONL", "PARQUET", "TABLE_FORMATS", "require_parquet", "table_extension", "table_media_type"]

JSONL = "jsonl"
PARQUET = "parquet"

TABLE_FORMATS = (JSONL, PARQUET)

# The suffix `+gzip` (RFC 8460) says what is stored. A content encoding would have browsers and some stores unpack on
# the way, and what arrives would no longer have the digest of what was stored.
_MEDIA_TYPES = {JSONL: "application/jsonl+gzip", PARQUET: "application/vnd.apache.parquet"}
# By the ending readers such as pandas know that they must unpack.
_EXTENSIONS = {JSONL: "jsonl.gz", PARQUET: "parquet"}


def table_media_type(table_format: str) -> str:
    """Return the media type of a stored table."""
    return _MEDIA_TYPES[table_format]


def table_extension(table_format: str) -> str:
    """Return the ending of the name of a stored table, without a dot before it."""
    return _EXTENSIONS[table_format]


def require_parquet(setting: str) -> None:
    """Raise ConfigurationError when Parquet, which `setting` asks for, cannot be written: pyarrow is not installed.

    pyarrow is looked for, not imported.
    """
    if importlib.util.find_spec("pyarrow") is None:
        msg = (
            f"{setting} needs pyarrow, which is not installed. "
            f'Run: pip install "otel-logger-destination[parquet]", or use {JSONL}'
        )
        raise ConfigurationError(msg)
