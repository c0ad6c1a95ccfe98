"""Redaction: which hyperparameters are secrets, and what stands in their place.

The rules are the ones of docs/conventions.md, "Redaction".
"""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

__all__ = ["REDACTED", "Redactor"]

REDACTED = "[redacted]"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
_SECRET_ENDINGS = (
    "token",
    "secret",
    "password",
    "passphrase",
    "passwd",
    "pwd",
    "apikey",
    "privatekey",
    "accesskey",
    "secretkey",
    "credential",
    "credentials",
    "authorization",
    "bearer",
    "dsn",
)
_VOCABULARY = frozenset(
    (
        *("audio", "begin", "beginning", "blank", "boi", "bos", "cls", "decoder", "delimiter", "end", "eod", "eoi"),
        *("eom", "eos", "eot", "image", "mask", "newline", "null", "pad", "padding", "per", "placeholder", "prefix"),
        *("sep", "separator", "sot", "special", "start", "stop", "suffix", "unk", "unknown", "video", "vocab"),
    )
)
"""Words before `token` that make it an entry of a tokenizer's vocabulary: `pad_token`, `decoder_start_token`."""

_SECRET_VALUES = re.compile(
    r"""
      (?<=[A-Za-z0-9+.\-])://[^/\s:@]*:(?!\d+[?\#…])[^/\s@]+[@…] # a URL with a password; not host:80?q=a@b
    | \bhf_(?:[A-Za-z0-9]{30}|(?=[A-Za-z]{0,99}\d)[A-Za-z0-9]{16})     # Hugging Face; not a model's name: hf_t5_base
    | \bgh[oprsu]_(?:[A-Za-z0-9]{30}|(?=[A-Za-z]{0,99}\d)[A-Za-z0-9]{16})                                  # GitHub
    | \bgithub_pat_[A-Za-z0-9_]{16}
    | \bsk-(?:proj|svcacct|admin|ant|or|lf)-(?=[\w\-]{0,99}\d)[\w\-]{8}                            # OpenAI and kin
    | \bsk-(?:\w{1,20}-){0,3}(?=[A-Za-z]{0,99}\d)[A-Za-z0-9]{16}            # not a model's name: sk-learn-model-2024
    | \bAKIA[0-9A-Z]{12}                                                                                      # AWS
    | -----BEGIN[ ][A-Z ]{0,40}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----                                                 # PEM
    | \beyJ[\w\-]{8,600}\.[\w\-]{8,8192}\.                                                                   # JWT
    """,
    re.VERBOSE,
)
"""Each alternative looks only so far ahead that a text of any kind is searched in a time that grows with its length."""

_MARKS = ("://", "hf_", "gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_pat_", "sk-", "AKIA", "-----BEGIN", "eyJ")
"""Without one of these there is nothing to search for, which is found out a hundred times faster."""

_LONGEST_KEY = 128
"""Characters at the end of a key that are looked at for the words of a secret."""

_KEY = re.compile(r"""(?<![\w.\-])([\w.\-]{1,128})["']?\s?[=:](?!=)\s?""")
_VALUE = re.compile(r"""["']?(?:(?:[Bb]earer|[Bb]asic)\s)?([^\s"',;&(){}\[\]]+)""")
"""A key and its value in free text: `key=value`, `key: value`, `"key": "value"`, `Authorization: Bearer value`."""


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
            redacted: dict[str, Any] = {}
            for name, item in value.items():
                place = f"{key}.{name}" if key else str(name)
                redacted[self._shown(place, name, redacted)] = self.redact(place, item)
            return redacted
        if isinstance(value, (list, tuple)):
            return [self.redact(key, item) for item in value]
        if isinstance(value, (str, bytes)) and self._is_secret(key, value):
            return REDACTED
        return value

    def redact_text(self, value: str) -> str:
        """Return free text without secrets: `[redacted]` if it looks like one, else with those that it names replaced.

        Named is what follows a key that names a secret: `password=...`, `"api_key": "..."`.
        """
        if (redacted := self.redact("", value)) != value:
            return str(redacted)
        parts, done = [], 0
        for key in _KEY.finditer(value):
            is_secret = key.end() >= done and self.redact(key[1], "value") == REDACTED
            if is_secret and (secret := _VALUE.match(value, key.end())) is not None:
                parts += [value[done : secret.start(1)], REDACTED]
                done = secret.end()
        return "".join([*parts, value[done:]])

    def _is_secret(self, key: str, value: str | bytes) -> bool:
        if self._allow and _matches(key, self._allow):
            return False
        content = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        return (
            _names_secret(key[-_LONGEST_KEY:])
            or (bool(self._also) and _matches(key, self._also))
            or _looks_secret(content)
        )

    def _shown(self, place: str, name: Any, taken: Mapping[str, Any]) -> Any:
        """Return the name of an entry, or what stands for one that is itself a secret, apart from those `taken`."""
        if not isinstance(name, str) or not _looks_secret(name):
            return name
        if self._allow and _matches(place, self._allow):
            return name
        number = 1
        while (shown := REDACTED if number == 1 else f"{REDACTED} {number}") in taken:
            number += 1
        return shown


def _looks_secret(value: str) -> bool:
    return any(mark in value for mark in _MARKS) and _SECRET_VALUES.search(value) is not None


def _matches(key: str, patterns: Sequence[str]) -> bool:
    names = (key.lower(), key.lower().rpartition(".")[2])
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


@lru_cache(maxsize=4096)
def _names_secret(key: str) -> bool:
    words = [word.lower() for word in _WORD.findall(key)]
    # What is numbered is of the same kind: `api_key_2`, `password1`.
    while words and words[-1].isdigit():
        words.pop()
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "token" and before in _VOCABULARY:
        return False
    return last.endswith(_SECRET_ENDINGS) or (last == "key" and before in {"api", "private", "access", "secret"})
