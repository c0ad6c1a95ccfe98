"""What is known of a blob, as the metadata of the object that holds it: so the two are one, and replaced together.

Stores agree on little: S3 takes 2 KB in all, HTTP headers are ASCII without surrounding blanks, Azure wants names that
are identifiers in C#, and proxies drop those with an underscore. Texts are therefore percent-encoded, and one that is
too long (or empty, which some stores drop) is stored as an object of its own, `texts/<sha256>`, before the object that
names it by its digest. It never changes, so nothing can come between the two.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from urllib.parse import quote, unquote

from otel_logger_exporters.blob_meta import DEFAULT_MEDIA_TYPE, BlobMeta

__all__ = ["decode_attributes", "encode_attributes", "text_path"]

CONTENT_TYPE = "Content-Type"

# Three texts of this size, the digest and two numbers, and all their names, are under 2,000 bytes.
TEXT_BYTES = 512

_PREFIX = "otellogger"
_DIGEST_MARK = "sha256:"  # no encoded text has a colon
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(; *[A-Za-z0-9_.-]+=[A-Za-z0-9_.-]+)*")


def text_path(data: bytes) -> str:
    """Where in a store the object of a long text is."""
    return f"texts/{hashlib.sha256(data).hexdigest()}"


def encode_attributes(meta: BlobMeta, keep: Callable[[bytes], object]) -> dict[str, str]:
    """The attributes of a blob's object; `keep` is given each text that has to be stored at its `text_path`."""
    # What is no media type would be no header either.
    media_type = meta.media_type if _MEDIA_TYPE.fullmatch(meta.media_type) else DEFAULT_MEDIA_TYPE
    attributes = {
        CONTENT_TYPE: media_type,
        f"{_PREFIX}sha256": meta.sha256,
        f"{_PREFIX}attempt": str(meta.attempt),
        f"{_PREFIX}time": str(meta.time_ns),
    }
    for field, text in (("run", meta.run_id), ("name", meta.name), ("upload", meta.upload)):
        if text is not None:
            attributes[_PREFIX + field] = _encode(text, keep)
    return attributes


def decode_attributes(attributes: Mapping[str, str], name: str, size: int, read: Callable[[str], bytes]) -> BlobMeta:
    """What an object's attributes tell; of one without ours only the size. `read` reads the text at a path.

    `name` is the name that is asked for: it is not read where the object's is the same.
    """
    # Stores write the names of headers as they like.
    known = {key.lower(): value for key, value in attributes.items()}
    media_type = known.get(CONTENT_TYPE.lower(), DEFAULT_MEDIA_TYPE)
    digest = known.get(f"{_PREFIX}sha256", "")
    if not digest:
        return BlobMeta(None, 0, "", size, media_type, name)

    def text(field: str) -> str | None:
        value = known.get(_PREFIX + field)
        if value is None or not value.startswith(_DIGEST_MARK):
            return None if value is None else unquote(value, errors="surrogatepass")
        return _decoded(value, name, read)

    stored_name = text("name")
    return BlobMeta(
        run_id=text("run"),
        attempt=_number(known.get(f"{_PREFIX}attempt")),
        sha256=digest,
        size=size,
        media_type=media_type,
        name=name if stored_name is None else stored_name,
        upload=text("upload") or "",
        time_ns=_number(known.get(f"{_PREFIX}time")),
    )


def _encode(text: str, keep: Callable[[bytes], object]) -> str:
    encoded = quote(text, safe="", errors="surrogatepass")
    if 0 < len(encoded) <= TEXT_BYTES:
        return encoded
    data = text.encode("utf-8", "surrogatepass")
    if data:
        keep(data)
    return _DIGEST_MARK + hashlib.sha256(data).hexdigest()


def _decoded(value: str, name: str, read: Callable[[str], bytes]) -> str:
    digest = value.removeprefix(_DIGEST_MARK)
    for text in ("", name):
        data = text.encode("utf-8", "surrogatepass")
        if hashlib.sha256(data).hexdigest() == digest:
            return text
    return read(f"texts/{digest}").decode("utf-8", "surrogatepass")


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 20 else 0
