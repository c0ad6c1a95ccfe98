"""Consignments: what is to be stored with the log record that will tell of it, as it waits on disk.

    staged/<number>-<n>     the bytes of one parcel: an image, a table, the private copy of a file
    staged/<number>.json    the manifest of a consignment: what its parcels are, and the record
    staged/<number>.failed  the manifest of one that no store will take, whose parcels stay where they are

Numbers grow in the order of the calls. A manifest is renamed into its place when all its parcels are whole, and is the
last that is deleted: parcels without one are of a call that never returned. The record's identity is fixed here, so
that whoever delivers a consignment, and however often, tells of it as the same.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from otel_logger_exporters.blob_files import write_private
from otel_logger_exporters.private_copy import is_trusted_copy, remove_copy

__all__ = [
    "UNLISTED",
    "Consignment",
    "Parcel",
    "consignments_in",
    "discard",
    "parcel_path",
    "set_aside",
    "sweep",
    "unreadable_in",
]

UNLISTED = "-"
"""The role of a parcel that no attribute of the record lists."""

_VERSION = 1
_SUFFIX = ".json"
_SET_ASIDE = ".failed"

_SIZES = range(2**63)
_STEPS = range(-(2**63), 2**63)
_DIGEST = re.compile(r"[0-9a-f]{64}")
_WORD = re.compile(r"[0-9A-Za-z]{1,64}")
_EXTENSION = re.compile(r"(?=.{1,64}$)[0-9A-Za-z]+(\.[0-9A-Za-z]+)*")
"""What becomes a part of a path in a store."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """One blob of a consignment: where its bytes are, and what is known of them.

    `path` is a name in the folder of the manifest, or absolute. `sha256` is None while nobody has read it. `role` is
    the attribute of the record that lists its URI; the main one's is empty, and `UNLISTED` has none.
    """

    path: str
    size: int
    media_type: str
    extension: str
    sha256: str | None = None
    role: str = ""

    def _check(self) -> None:
        for text in (self.media_type, self.role):
            _expect(type(text) is str, text)
        _expect(type(self.size) is int and self.size in _SIZES, self.size)
        _expect(type(self.extension) is str and _EXTENSION.fullmatch(self.extension), self.extension)
        _expect(self.sha256 is None or (type(self.sha256) is str and _DIGEST.fullmatch(self.sha256)), self.sha256)
        _expect(type(self.path) is str and b"\0" not in os.fsencode(self.path), self.path)
        is_name = self.path not in ("", os.curdir, os.pardir) and os.path.basename(self.path) == self.path
        _expect(os.path.isabs(self.path) or is_name, self.path)


@dataclass(frozen=True, slots=True)
class Consignment:
    """What is to be stored, and the record that tells of it.

    `uid` tells this upload from all others, and is its record's. A file has a remote `name`, under which its one parcel
    is stored; without `is_file` parcels are named by their content, and `name` is what the user calls them. `store` is
    the URI of the store it was meant for, None for that in the run's folder.
    """

    uid: str
    name: str
    time_ns: int
    event: str
    parcels: tuple[Parcel, ...]
    is_file: bool = False
    overwrite: bool = True
    step: int | None = None
    attributes: Mapping[str, Any] | None = None
    body: str | None = None
    trace_id: int = 0
    span_id: int = 0
    trace_flags: int = 0
    store: str | None = None

    @property
    def size(self) -> int:
        """Bytes of all parcels."""
        return sum(parcel.size for parcel in self.parcels)

    def write(self, folder: Path, number: str) -> Path:
        """Write the manifest and return its path; OSError if the disk does not take it."""
        path = folder / f"{number}{_SUFFIX}"
        content = {"version": _VERSION, **asdict(self)}
        # ASCII, so that a lone surrogate in a name survives.
        write_private(path, json.dumps(content, ensure_ascii=True).encode("ascii"))
        return path

    @classmethod
    def read(cls, path: Path) -> "Consignment":
        """Read a manifest; ValueError when it is none, OSError when it cannot be read."""
        try:
            content = json.loads(path.read_bytes())
            _expect(content["version"] == _VERSION, content["version"])
            values = {field.name: content[field.name] for field in fields(cls)}
            parcels = tuple(Parcel(**parcel) for parcel in values.pop("parcels"))
            consignment = cls(**values, parcels=parcels)
            consignment._check()
        except (KeyError, TypeError, AttributeError, RecursionError, ValueError) as error:
            msg = f"{str(path)!r} is no manifest of otel_logger: {error!r}"
            raise ValueError(msg) from error
        return consignment

    def _check(self) -> None:
        _expect(type(self.uid) is str and _WORD.fullmatch(self.uid), self.uid)
        for text in (self.name, self.event, *(text for text in (self.body, self.store) if text is not None)):
            _expect(type(text) is str, text)
        self.event.encode()
        for flag in (self.is_file, self.overwrite):
            _expect(type(flag) is bool, flag)
        _expect(self.step is None or (type(self.step) is int and self.step in _STEPS), self.step)
        for number, bits in ((self.time_ns, 63), (self.trace_id, 128), (self.span_id, 64), (self.trace_flags, 8)):
            _expect(type(number) is int and number in range(2**bits), number)
        _expect(self.attributes is None or isinstance(self.attributes, dict), self.attributes)
        _expect(len(self.parcels) == 1 if self.is_file else self.parcels, self.parcels)
        for parcel in self.parcels:
            parcel._check()


def parcel_path(manifest: Path, parcel: Parcel) -> Path:
    """Where the bytes of a parcel are."""
    return manifest.parent / parcel.path


def consignments_in(folder: Path) -> Iterator[tuple[Path, Consignment]]:
    """The manifests in a folder with what they say, in the order of the calls; what is no manifest is passed over.

    OSError where the folder is there and cannot be listed.
    """
    for path in _manifests(folder):
        try:
            consignment = Consignment.read(path)
        except (ValueError, OSError):
            # Another process may have delivered it meanwhile.
            continue
        yield path, consignment


def unreadable_in(folder: Path) -> list[Path]:
    """The manifests that cannot be read: of a later version, or damaged by a power failure; OSError as before."""
    found = []
    for path in _manifests(folder):
        try:
            Consignment.read(path)
        except FileNotFoundError:
            continue
        except (ValueError, OSError):
            found.append(path)
    return found


def discard(manifest: Path, consignment: Consignment) -> None:
    """Delete a consignment that is delivered, its manifest last; OSError if that cannot be."""
    for parcel in consignment.parcels:
        path = parcel_path(manifest, parcel)
        # A manifest is data, and may name anything.
        if is_trusted_copy(path, manifest.parent):
            remove_copy(path)
    manifest.unlink(missing_ok=True)


def set_aside(manifest: Path) -> None:
    """Leave a consignment where it is, which nobody is to deliver any more; OSError if that cannot be."""
    manifest.rename(manifest.with_suffix(_SET_ASIDE))


def sweep(folder: Path) -> None:
    """Delete what belongs to no manifest, in a folder whose writer is dead, and the folder if nothing is left in it."""
    with suppress(FileNotFoundError, NotADirectoryError):
        entries = list(os.scandir(folder))
        # By their numbers: a manifest that cannot be read keeps its parcels too.
        numbers = {os.path.splitext(entry.name)[0] for entry in entries if entry.name.endswith((_SUFFIX, _SET_ASIDE))}
        for entry in entries:
            is_kept = entry.name.partition("-")[0] in numbers or os.path.splitext(entry.name)[0] in numbers
            if not is_kept and entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)
        with suppress(OSError):
            folder.rmdir()


def _manifests(folder: Path) -> list[Path]:
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder / name for name in sorted(names) if name.endswith(_SUFFIX) and not name.startswith(".")]


def _expect(is_right: object, value: object) -> None:
    if not is_right:
        msg = f"{value!r:.100}"
        raise TypeError(msg)
