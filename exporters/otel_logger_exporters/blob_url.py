"""The setting that names a blob store, read and judged without touching what it names."""

import os
from urllib.parse import unquote_to_bytes

from otel_logger_exporters.errors import ConfigurationError

__all__ = ["BLOB_STORE_VARIABLE", "parse_file_store"]

BLOB_STORE_VARIABLE = "OTEL_LOGGER_BLOB_STORE"

_PLANNED_SCHEMES = ("s3", "gs", "az", "memory")


def parse_file_store(url: str) -> str:
    """The absolute path of the folder that a `file://` URL names; ConfigurationError for anything else."""
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator:
        remedy = f"write file://{_shown(url)}" if url.startswith("/") else "write file:///absolute/path"
        raise _misconfigured(url, f"is not a URL: {remedy}")
    if scheme in _PLANNED_SCHEMES:
        raise _misconfigured(url, f"names a {scheme} store, which is not available yet: use file:///absolute/path")
    if scheme != "file":
        raise _misconfigured(url, "has an unknown scheme: use file:///absolute/path")
    host, slash, path = rest.partition("/")
    if host.lower() not in ("", "localhost") or not slash:
        raise _misconfigured(url, "is not an absolute path: a file URL has three slashes, file:///absolute/path")
    if "?" in path or "#" in path:
        raise _misconfigured(url, "has a query or a fragment: write %3F for ? and %23 for # in a path")
    folder = os.fsdecode(unquote_to_bytes(path))
    if "\0" in folder:
        raise _misconfigured(url, "contains %00: a path has no NUL")
    absolute = os.path.abspath("/" + folder.lstrip("/"))
    if absolute == "/":
        raise _misconfigured(url, "names no folder: use file:///absolute/path")
    return absolute


def _misconfigured(url: str, problem: str) -> ConfigurationError:
    msg = f"{BLOB_STORE_VARIABLE}={_shown(url)!r} {problem}"
    return ConfigurationError(msg)


def _shown(url: str) -> str:
    # URLs of object stores carry keys as user information, and signatures as queries. The keys contain slashes and
    # question marks as they like, so all before the last @ goes; only a path of ours may have one.
    scheme, separator, rest = url.partition("://")
    if scheme.lower() != "file" and "@" in rest:
        rest = "***@" + rest.rpartition("@")[2]
    rest, question, _ = rest.partition("?")
    return f"{scheme}{separator}{rest}{'?***' if question else ''}"
