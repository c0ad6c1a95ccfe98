"""Redaction: which hyperparameters are secrets, and what stands in their place.

The rules are the ones of docs/conventions.md, "Redaction".
"""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

__all__ = ["REDACTED", "Redactor"]

REDACTED = "[redacted]"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
_SECRET_ENDINGS = (
    "token",
    "secret",
    "password",
    "passwd",
    "pwd",
    "apikey",
    "privatekey",
    "accesskey",
    "credential",
    "credentials",
    "authorization",
    "bearer",
    "dsn",
)
_VOCABULARY = frozenset(
    (
        *("audio", "begin", "beginning", "bos", "cls", "decoder", "end", "eod", "eom", "eos", "eot", "image", "mask"),
        *("pad", "padding", "prefix", "sep", "sot", "special", "start", "stop", "suffix", "unk", "unknown", "video"),
        "vocab",
    )
)
"""Words before `token` that make it an entry of a tokenizer's vocabulary: `pad_token`, `decoder_start_token`."""

_SECRET_VALUES = re.compile(
    r"""
      [a-z][a-z0-9+.\-]*://[^/\s:@]*:[^/\s@]+@               # a URL with a password
    | \b(?:hf|ghp)_(?=[a-z]*\d)[a-z0-9]{16,}                # Hugging Face, GitHub; not a model's name (hf_t5_base_v2)
    | \bsk-(?=[\w\-]*\d)[\w\-]{8,}                         # OpenAI and kin
    | \bAKIA[0-9A-Z]{12,}                                    # AWS
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY(?:[ ]BLOCK)?-----    # PEM
    | \beyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*                   # JWT
    """,
    re.VERBOSE | re.IGNORECASE,
)


class Redactor:
    """Replaces secrets among hyperparameters by `[redacted]`.

    A string is a secret when the last word of its key is one (`token`, `secret`, `api_key`, ...; entries of a
    tokenizer's vocabulary such as `pad_token` are not), when it looks like one (a URL with a password, a PEM key, a
    JWT, keys of well-known services), or when its key matches a pattern in `also`. Keys that match a pattern in
    `allow` are never redacted. Patterns are shell globs over the dotted key or its last part, in any case.
    """

    def __init__(self, also: Sequence[str] = (), allow: Sequence[str] = ()) -> None:
        self._also = tuple(pattern.lower() for pattern in also)
        self._allow = tuple(pattern.lower() for pattern in allow)

    def redact(self, key: str, value: Any) -> Any:
        """Return `value`, plain data logged under `key`, with every secret string in it replaced."""
        if isinstance(value, Mapping):
            return {name: self.redact(f"{key}.{name}" if key else str(name), item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.redact(key, item) for item in value]
        if isinstance(value, (str, bytes)) and self._is_secret(key, value):
            return REDACTED
        return value

    def _is_secret(self, key: str, value: str | bytes) -> bool:
        if _matches(key, self._allow):
            return False
        content = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        return _matches(key, self._also) or _names_secret(key) or _SECRET_VALUES.search(content) is not None


def _matches(key: str, patterns: Sequence[str]) -> bool:
    names = (key.lower(), key.lower().rpartition(".")[2])
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _names_secret(key: str) -> bool:
    words = [word.lower() for word in _WORD.findall(key)]
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "token" and before in _VOCABULARY:
        return False
    return last.endswith(_SECRET_ENDINGS) or (last == "key" and before in {"api", "private", "access"})
