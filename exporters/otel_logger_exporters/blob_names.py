"""Where a remote file name lies inside a blob store: any name has a place, none lies outside."""

import hashlib
import unicodedata

__all__ = ["EMPTY_NAME", "NAME_BYTES", "PART_BYTES", "UP_PART", "blob_name"]

# File systems allow 255 bytes in a part; the rest is room for a sidecar's ".json" and for names of temporary files.
PART_BYTES = 200
# A key of S3 holds 1,024 bytes, and so does a whole path on macOS; the store's own prefix comes out of it too.
NAME_BYTES = 800
UP_PART = "__up__"
EMPTY_NAME = "__empty__"

_HEX = 8


def blob_name(remote_file_name: str) -> str:
    r"""Map a remote file name to its relative name inside a blob store; never raises, never leaves the store.

    The rules, in their order:

    * the name is split at `/`; empty parts and `.` are dropped, so a leading `/` is too;
    * each part `..` becomes `__up__` (it climbs nowhere, and keeps `../up/x.pt` apart from `up/x.pt`);
    * backslashes, control characters and lone surrogates are percent-encoded (`\` becomes `%5C`);
    * a part over 200 bytes of UTF-8 is cut, and `-` and 8 hex digits of its SHA-256 are put behind it;
    * a name over 800 bytes keeps its last part and as many of the first ones as fit; 8 hex digits of the name's
      SHA-256 stand for those between;
    * a name of which nothing is left is `__empty__`.

    Mapping a mapped name changes nothing. Few names share a place, and those on purpose or by looking like the result
    of a rule: `/a` and `a`, `..` and `__up__`, `\` and `%5C`.
    """
    parts = [_shortened(_encoded(part)) for part in remote_file_name.split("/") if part not in ("", ".")]
    name = "/".join(parts)
    if not name:
        return EMPTY_NAME
    if _size(name) <= NAME_BYTES:
        return name
    return _folded(parts, _digest(name))


def _encoded(part: str) -> str:
    if part == "..":
        return UP_PART
    return "".join(_encoded_character(character) for character in part)


def _encoded_character(character: str) -> str:
    # Surrogates, because half a pair is no UTF-8, which URIs, JSON and object stores all ask for.
    if character != "\\" and unicodedata.category(character) not in ("Cc", "Cs"):
        return character
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def _shortened(part: str) -> str:
    if _size(part) <= PART_BYTES:
        return part
    head = part.encode("utf-8")[: PART_BYTES - 1 - _HEX].decode("utf-8", "ignore")
    return f"{head}-{_digest(part)}"


def _folded(parts: list[str], digest: str) -> str:
    last = parts[-1]
    room = NAME_BYTES - _size(last) - _HEX - 1
    head: list[str] = []
    for part in parts[:-1]:
        room -= _size(part) + 1
        if room < 0:
            break
        head.append(part)
    return "/".join([*head, digest, last])


def _size(text: str) -> int:
    return len(text.encode("utf-8"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:_HEX]
