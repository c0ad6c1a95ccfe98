"""Consignments: what is to be stored with the log record that will tell of it, as it waits on disk.

    staged/<number>-<n>     the bytes of one parcel: an image, a table, the private copy of a file
    staged/<number>.json    the manifest of a consignment: what its parcels are, and the record

Numbers grow in the order of the calls. A manifest is renamed into its place when all its parcels are whole, and is the
last that is deleted: parcels without one are of a call that never returned. The record's identity is fixed here, so
that whoever delivers a consignment, and however often, tells of it as the same.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from otel_logger_exporters.blob_files import write_private
from otel_logger_exporters.private_copy import remove_copy

__all__ = ["UNLISTED", "Consignment", "Parcel", "consignments_in", "discard", "parcel_path", "sweep"]

UNLISTED = "-"

_VERSION = 1
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Parcel:
    """One blob of a consignment: where its bytes are, and what is known of them.

    `path` is relative to the folder of the manifest, or absolute. `sha256` is None while nobody has read it. `role` is
    the attribute of the record that lists its URI; the main one's is empty, and `UNLISTED` has none.
    """

    path: str
    size: int
    media_type: str
    extension: str
    sha256: str | None = None
    role: str = ""


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
        """Read a manifest; ValueError when it is none, OSError when it is not there."""
        try:
            content = json.loads(path.read_bytes())
            if content["version"] != _VERSION:
                msg = f"version {content['version']!r}"
                raise ValueError(msg)
            values = {field.name: content[field.name] for field in fields(cls)}
            parcels = tuple(Parcel(**parcel) for parcel in values.pop("parcels"))
            consignment = cls(**values, parcels=parcels)
            consignment._check()
        except (KeyError, TypeError, AttributeError, RecursionError, ValueError) as error:
            msg = f"{str(path)!r} is no manifest of otel_logger: {error!r}"
            raise ValueError(msg) from error
        return consignment

    def _check(self) -> None:
        texts = [self.uid, self.name, self.event, self.body or "", self.store or ""]
        numbers = [self.time_ns, self.step or 0, self.trace_id, self.span_id, self.trace_flags]
        for parcel in self.parcels:
            texts += [parcel.path, parcel.media_type, parcel.extension, parcel.sha256 or "", parcel.role]
            numbers.append(parcel.size)
        is_typed = all(type(text) is str for text in texts) and all(type(number) is int for number in numbers)
        is_plain = self.uid.isalnum() and all(parcel.extension.isalnum() for parcel in self.parcels)
        if not (is_typed and is_plain and self.parcels and isinstance(self.attributes, dict | None)):
            msg = "a field is of another type"
            raise TypeError(msg)


def parcel_path(manifest: Path, parcel: Parcel) -> Path:
    """Where the bytes of a parcel are."""
    return manifest.parent / parcel.path


def consignments_in(folder: Path) -> Iterator[tuple[Path, Consignment]]:
    """The manifests in a folder with what they say, in the order of the calls; what is no manifest is passed over."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIX) and not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        # Another process may have delivered it meanwhile.
        with suppress(ValueError, FileNotFoundError):
            yield folder / name, Consignment.read(folder / name)


def discard(manifest: Path, consignment: Consignment) -> None:
    """Delete a consignment that is delivered, its manifest last; OSError if that cannot be."""
    for parcel in consignment.parcels:
        remove_copy(parcel_path(manifest, parcel))
    manifest.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Delete what belongs to no manifest, in a folder whose writer is dead, and the folder if nothing is left in it."""
    named = {parcel.path for _, consignment in consignments_in(folder) for parcel in consignment.parcels}
    with suppress(FileNotFoundError, NotADirectoryError):
        for entry in list(os.scandir(folder)):
            if entry.name not in named and not entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)
        with suppress(OSError):
            folder.rmdir()
