"""Payloads of records that are not rows: framed OTLP, resources and hyperparameters.

The format is described in docs/segment-format.md.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Frame", "ResourceRecord", "pack_hyperparameters", "unpack_hyperparameters"]

_COUNT = struct.Struct("<I")
_BOUND = 1


@dataclass(frozen=True, slots=True)
class Frame:
    """Encoded OTLP as recorded: a ScopeLogs or ScopeSpans message and how many items it holds."""

    items: int
    body: bytes

    def pack(self) -> bytes:
        """Return the payload of an OTLP record."""
        return _COUNT.pack(self.items) + self.body

    @classmethod
    def unpack(cls, payload: memoryview) -> "Frame":
        """Return the frame in the payload of an OTLP record."""
        return cls(_COUNT.unpack_from(payload)[0], bytes(payload[_COUNT.size :]))


@dataclass(frozen=True, slots=True)
class ResourceRecord:
    """An OTLP Resource message, and whether it is `bound`: final, hyperparameters included."""

    message: bytes
    bound: bool

    def pack(self) -> bytes:
        """Return the payload of a resource record."""
        return _COUNT.pack(_BOUND if self.bound else 0) + self.message

    @classmethod
    def unpack(cls, payload: memoryview) -> "ResourceRecord":
        """Return the resource in the payload of a resource record."""
        return cls(bytes(payload[_COUNT.size :]), bool(_COUNT.unpack_from(payload)[0] & _BOUND))


def pack_hyperparameters(nested: Mapping[str, Any], time_ns: int) -> bytes:
    """Return the payload of a hyperparameters record: all that are known, nested and redacted, at a time (ns)."""
    return json.dumps({"time_ns": time_ns, "hyperparameters": nested}, default=str).encode()


def unpack_hyperparameters(payload: memoryview) -> tuple[dict[str, Any], int]:
    """Return the hyperparameters of a record, nested, and its time (ns)."""
    content = json.loads(bytes(payload))
    return content["hyperparameters"], content["time_ns"]
