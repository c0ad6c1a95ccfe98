"""Payloads of records that are not rows: framed OTLP, resources and hyperparameters.

The format is described in docs/segment-format.md. Unpacking raises ValueError for what makes no sense: that a record is
whole does not say that this version can read it.
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
        return cls(_number(payload), bytes(payload[_COUNT.size :]))


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
        return cls(bytes(payload[_COUNT.size :]), bool(_number(payload) & _BOUND))


def pack_hyperparameters(nested: Mapping[str, Any], time_ns: int) -> bytes:
    """Return the payload of a hyperparameters record: all that are known, nested and redacted, at a time (ns)."""
    return json.dumps({"time_ns": time_ns, "hyperparameters": nested}, default=str).encode()


def unpack_hyperparameters(payload: memoryview) -> tuple[dict[str, Any], int]:
    """Return the hyperparameters of a record, nested, and its time (ns)."""
    try:
        content = json.loads(bytes(payload))
        nested, time_ns = content["hyperparameters"], content["time_ns"]
    except (KeyError, TypeError, RecursionError) as error:
        msg = f"no hyperparameters: {error!r}"
        raise ValueError(msg) from error
    if type(nested) is not dict or type(time_ns) is not int:
        msg = f"hyperparameters are a {type(nested).__name__}, and their time a {type(time_ns).__name__}"
        raise ValueError(msg)
    return nested, time_ns


def _number(payload: memoryview) -> int:
    if len(payload) < _COUNT.size:
        msg = f"a payload of {len(payload)} bytes begins with no number"
        raise ValueError(msg)
    number: int = _COUNT.unpack_from(payload)[0]
    return number
