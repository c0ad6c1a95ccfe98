"""The setting that names a blob store, read and judged without touching what it names."""

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from otel_logger_exporters.errors import ConfigurationError

__all__ = ["BLOB_STORE_VARIABLE", "PREFIX_BYTES", "BlobUrl", "parse_blob_store", "parse_file_store"]

BLOB_STORE_VARIABLE = "OTEL_LOGGER_BLOB_STORE"

# A key of S3 holds 1,024 bytes; a mapped name takes 800 of them, what says its kind and its upload under 70.
PREFIX_BYTES = 150

_FORMS = {
    "file": "file:///absolute/path",
    "s3": "s3://bucket/prefix",
    "gs": "gs://bucket/prefix",
    "az": "az://container/prefix",
    "memory": "memory://name",
}
_USUAL = "use file:///absolute/path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"
# What of a URL's place could be a host goes where each provider looks for it.
_ENDPOINTS = {"s3": "AWS_ENDPOINT_URL", "gs": "GOOGLE_BASE_URL", "az": "AZURE_STORAGE_ENDPOINT"}
_PLACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


@dataclass(frozen=True, slots=True)
class BlobUrl:
    """What names a blob store: of a `file` store `place` is the absolute path of its folder, of others the bucket,
    container or name, and `prefix` what all its keys begin with, without slashes around it.
    """

    scheme: str
    place: str
    prefix: str = ""

    @property
    def lasts(self) -> bool:
        """Whether what is stored outlives the process that stores it."""
        return self.scheme != "memory"

    def key(self, path: str) -> str:
        """The key of what is at a path inside the store."""
        return f"{self.prefix}/{path}" if self.prefix else path

    def uri(self, path: str = "") -> str:
        """The URI of what is at a path inside the store, or of the store; not of a `file` store.

        The key stands there as it is, not percent-encoded: so the providers' own tools take it.
        """
        return f"{self.scheme}://{self.place}/{self.key(path)}".rstrip("/")


def parse_blob_store(url: str) -> BlobUrl:
    """What a URL names: a folder, a bucket with a prefix, or memory; ConfigurationError where it names none."""
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator:
        remedy = f"write file://{_shown(url)}" if url.startswith("/") else f"write {_FORMS['file']}"
        raise _misconfigured(url, f"is not a URL: {remedy}")
    if scheme not in _FORMS:
        raise _misconfigured(url, f"has an unknown scheme: {_USUAL}")
    if scheme == "file":
        return BlobUrl("file", _folder(url, rest))
    return _bucket(url, scheme, rest)


def parse_file_store(url: str) -> str:
    """The absolute path of the folder that a `file://` URL names; ConfigurationError for anything else."""
    parsed = parse_blob_store(url)
    if parsed.scheme != "file":
        raise _misconfigured(url, f"names no folder: use {_FORMS['file']}")
    return parsed.place


def _folder(url: str, rest: str) -> str:
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


def _bucket(url: str, scheme: str, rest: str) -> BlobUrl:
    form = _FORMS[scheme]
    if "@" in rest or "?" in rest or "#" in rest:
        what = "credentials or an account" if "@" in rest else "a query or a fragment"
        where = "the provider's own variables" if scheme in _ENDPOINTS else "nowhere"
        raise _misconfigured(url, f"has {what} in it: write {form} alone; credentials belong in {where}")
    place, _, prefix = rest.partition("/")
    if scheme in _ENDPOINTS and ":" in place:
        raise _misconfigured(url, f"has a host in it: write {form}, and the host in {_ENDPOINTS[scheme]}")
    if not _PLACE.fullmatch(place):
        what = form.partition("://")[2].partition("/")[0]
        raise _misconfigured(url, f"has no {what} of letters, digits, '.', '_' and '-': use {form}")
    prefix = prefix.strip("/")
    parts = prefix.split("/") if prefix else []
    if any(part in ("", ".", "..") for part in parts) or not prefix.isprintable() or "\\" in prefix:
        raise _misconfigured(url, f"has a prefix that is none: use {form}, without empty parts, '.', '..' or '\\'")
    size = len(prefix.encode("utf-8", "surrogatepass"))
    if size > PREFIX_BYTES:
        raise _misconfigured(url, f"has a prefix of {size} bytes: use one of {PREFIX_BYTES} at most")
    return BlobUrl(scheme, place, prefix)


def _misconfigured(url: str, problem: str) -> ConfigurationError:
    msg = f"{BLOB_STORE_VARIABLE}={_shown(url)!r} {problem}"
    return ConfigurationError(msg)


def _shown(url: str) -> str:
    # URLs of object stores carry keys as user information, and signatures as queries. The keys contain slashes and
    # question marks as they like, so all before the last @ goes; only a path of ours may have one.
    scheme, separator, rest = url.partition("://")
    if scheme.lower() != "file":
        if "@" in rest:
            rest = "***@" + rest.rpartition("@")[2]
        rest, number, _ = rest.partition("#")
        rest += "#***" if number else ""
    rest, question, _ = rest.partition("?")
    return f"{scheme}{separator}{rest}{'?***' if question else ''}"
