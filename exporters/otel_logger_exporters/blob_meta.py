"""What is known of a blob beside its bytes, and how a sidecar keeps it."""

import json
from dataclasses import asdict, dataclass, fields

__all__ = [
    "DEFAULT_MEDIA_TYPE",
    "BlobCorruptError",
    "BlobForbiddenError",
    "BlobMeta",
    "BlobUnavailableError",
    "decode_sidecar",
    "encode_sidecar",
]

DEFAULT_MEDIA_TYPE = "application/octet-stream"
"""Of bytes that nothing more is known of."""

_SHOWN = 100
"""Characters of a run id in a message."""


class BlobCorruptError(OSError):
    """Bytes are not those that were announced: the digest or the size differs, or nothing tells them."""


class BlobUnavailableError(OSError):
    """The store cannot be reached, answers with a fault of its own, or is full: the same may go well later."""


class BlobForbiddenError(OSError):
    """The store refuses who asks, or is not there at all: somebody has to mend the configuration or the rights."""


@dataclass(frozen=True, slots=True)
class BlobMeta:
    """What is known of a blob beside its bytes.

    `name` is the remote name as given, `sha256` is hexadecimal. `upload` tells one upload from all others, however
    often it is tried; `time_ns` is when it was asked for.
    """

    run_id: str | None
    attempt: int
    sha256: str
    size: int
    media_type: str
    name: str
    upload: str = ""
    time_ns: int = 0

    @property
    def written_by(self) -> str:
        """Who has written the blob, for people to read."""
        if self.run_id is None:
            return "somebody else"
        run_id = self.run_id if len(self.run_id) <= _SHOWN else f"{self.run_id[:_SHOWN]}..."
        return f"run {run_id!r}, attempt {self.attempt}"


def encode_sidecar(meta: BlobMeta, previous: list[BlobMeta]) -> bytes:
    """A sidecar: the blob's own fields, and under `previous` those of the blobs that it replaces, newest first."""
    content = {**asdict(meta), "previous": [asdict(known) for known in previous]}
    # ASCII, so that a lone surrogate in a name survives.
    return json.dumps(content, ensure_ascii=True).encode("ascii") + b"\n"


def decode_sidecar(data: bytes) -> list[BlobMeta]:
    """All blobs that a sidecar tells of, its own first; ValueError when it is no sidecar."""
    try:
        content = json.loads(data)
        return [_decode_meta(known) for known in (content, *content.get("previous", []))]
    except (KeyError, TypeError, AttributeError) as error:
        msg = f"no blob's sidecar: {error!r}"
        raise ValueError(msg) from error


def _decode_meta(content: dict[str, object]) -> BlobMeta:
    given = {field.name: content[field.name] for field in fields(BlobMeta) if field.name in content}
    values = {"upload": "", "time_ns": 0} | given
    # Those without a default are asked for by name, and missing ones told so.
    if not (isinstance(values["sha256"], str) and isinstance(values["size"], int)):
        msg = f"sha256 {values['sha256']!r}, size {values['size']!r}"
        raise TypeError(msg)
    return BlobMeta(**values)  # type: ignore[arg-type]
