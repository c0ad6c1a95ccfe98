"""Media types of files, told by their names."""

import os

from otel_logger_exporters.blob_meta import DEFAULT_MEDIA_TYPE

__all__ = ["media_type"]

_MEDIA_TYPES = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".png": "image/png",
    ".symlink": "text/plain",
    ".txt": "text/plain",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


def media_type(name: str) -> str:
    """Return the media type of a file by its extension; a checkpoint's is `application/octet-stream`."""
    return _MEDIA_TYPES.get(os.path.splitext(name)[1].lower(), DEFAULT_MEDIA_TYPE)
