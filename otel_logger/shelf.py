"""The shelf: files that are uploaded and downloaded by name, from their private copy to the blob store and back."""

import contextlib
import errno
import itertools
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from otel_logger_exporters.blob_files import copy_stream, make_private_folder, sha256_file, temporary_file
from otel_logger_exporters.blob_meta import BlobMeta
from otel_logger_exporters.blob_names import blob_name
from otel_logger_exporters.blob_store import BlobStore

__all__ = ["Shelf", "Staged", "Stores"]


@dataclass(frozen=True, slots=True)
class Staged:
    """A private copy that waits for the store: its remote name as given, where it is within the writer's folder."""

    name: str
    mapped: str
    file: str
    overwrite: bool


class Stores(Protocol):
    """Which blob stores there are at a moment."""

    def writing(self) -> BlobStore | None:
        """Return the store to write to, or None while that is not settled."""
        ...

    def reading(self) -> list[BlobStore]:
        """Return the stores to look into, the likeliest first."""
        ...


class Shelf:
    """Stages uploads, knows the names that wait, and reads files back. Thread-safe."""

    def __init__(self, folder: Callable[[], Path], stores: Stores, may_replace: Callable[[BlobMeta], bool]) -> None:
        self._folder = folder
        self._stores = stores
        self._may_replace = may_replace
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._waiting: dict[str, list[Staged]] = {}

    def stage(self, remote_file_name: str, file_path: str | Path, *, overwrite: bool) -> Staged:
        """Copy a file to the writer's folder, where nobody changes it; symbolic links are followed.

        FileNotFoundError when there is no such file, FileExistsError when the name is taken and `overwrite` is false;
        other errors of the disk as OSError.
        """
        mapped = blob_name(remote_file_name)
        path = Path(file_path)
        if not path.is_file():
            what = "it is not a file" if path.exists() else "there is no such file"
            msg = f"cannot upload {str(path)!r} as {remote_file_name!r}: {what}"
            raise FileNotFoundError(errno.ENOENT, msg)
        if not overwrite:
            self._refuse_taken(remote_file_name, mapped)
        staged = Staged(remote_file_name, mapped, f"{next(self._numbers):08d}", overwrite)
        while not self._copy(path, staged):
            pass
        with self._lock:
            self._waiting.setdefault(mapped, []).append(staged)
        return staged

    def _copy(self, source: Path, staged: Staged) -> bool:
        """Make the private copy; return False when the folder was renamed from under it, before the copy was begun.

        A folder that is renamed later takes the copy with it.
        """
        copy = self.path(staged)
        try:
            make_private_folder(copy.parent)
            shutil.copyfile(source, copy)
        except OSError as error:
            now = self.path(staged)
            if isinstance(error, FileNotFoundError) and now != copy and source.is_file():
                return False
            now.unlink(missing_ok=True)
            raise
        now = self.path(staged)
        if now != copy and copy.exists():
            # The name that the folder had was made anew for it.
            make_private_folder(now.parent)
            copy.replace(now)
        with contextlib.suppress(FileNotFoundError):
            now.chmod(0o600)
        return True

    def path(self, staged: Staged) -> Path:
        """Return where a private copy is now."""
        return self._folder() / "staged" / staged.file

    def store(self, staged: Staged, store: BlobStore, run_id: str | None, attempt: int) -> tuple[str, BlobMeta]:
        """Move a private copy into the store; return its URI and what is known of it."""
        path = self.path(staged)
        meta = BlobMeta(run_id, attempt, sha256_file(path), path.stat().st_size, media_type(staged.name), staged.name)
        uri = store.put_file(staged.name, path, meta, overwrite=True, move=True)
        self.forget(staged)
        return uri, meta

    def forget(self, staged: Staged) -> None:
        """Let a name go that no longer waits."""
        with self._lock:
            waiting = self._waiting.get(staged.mapped, [])
            if staged in waiting:
                waiting.remove(staged)
            if not waiting:
                self._waiting.pop(staged.mapped, None)

    def fetch(
        self, remote_file_name: str, destination: str | Path, *, overwrite: bool, progress: Callable[[int], None] | None
    ) -> None:
        """Write a file to `destination`, whole or not at all: the last staged of its name, else from the stores.

        FileNotFoundError when no store has it, FileExistsError when the destination is there and `overwrite` is false.
        """
        target = Path(destination)
        if not overwrite and os.path.lexists(target):
            msg = f"{str(target)!r} exists; pass overwrite=True to replace it with {remote_file_name!r}"
            raise FileExistsError(errno.EEXIST, msg)
        if target.exists() and not target.is_file():
            msg = f"{str(target)!r} is no file, and is not replaced by {remote_file_name!r}"
            raise OSError(errno.EINVAL, msg)
        if (source := self._open_staged(blob_name(remote_file_name))) is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            with source, temporary_file(target.absolute().parent, 0o666) as (path, file):
                copy_stream(source, file, progress)
                file.close()
                path.replace(target.absolute())
            return
        for store in (stores := self._stores.reading()):
            if store.exists(remote_file_name):
                store.copy_to(remote_file_name, target, progress)
                return
        looked = ", ".join(store.uri for store in stores) or "no store: nothing has been written yet"
        msg = f"there is no file {remote_file_name!r} in {looked}"
        raise FileNotFoundError(errno.ENOENT, msg)

    def size(self, remote_file_name: str) -> int | None:
        """Return the bytes of a stored or staged file, for a progress bar; None when it is not known."""
        with self._lock:
            waiting = self._waiting.get(blob_name(remote_file_name))
            try:
                if waiting:
                    return self.path(waiting[-1]).stat().st_size
            except FileNotFoundError:
                # Moved into the store at this moment.
                pass
        for store in self._stores.reading():
            if store.exists(remote_file_name):
                meta = store.meta(remote_file_name)
                return meta.size if meta is not None else None
        return None

    def abandon(self) -> None:
        """Take a new lock in the child of a fork, where the parent's may be held for ever; it may still download."""
        self._lock = threading.RLock()

    def _open_staged(self, mapped: str) -> BinaryIO | None:
        # Opened under the lock: from then on the store may rename it, the descriptor stays.
        with self._lock:
            waiting = self._waiting.get(mapped)
            try:
                return self.path(waiting[-1]).open("rb") if waiting else None
            except FileNotFoundError:
                return None

    def _refuse_taken(self, name: str, mapped: str) -> None:
        store = self._stores.writing()
        with self._lock:
            if mapped in self._waiting:
                where = "waits to be stored"
            elif store is not None and store.exists(name) and not self._is_replaceable(store, name):
                where = f"is in {store.uri}"
            else:
                return
        msg = f"a file {name!r} {where} already; pass overwrite=True to replace it"
        raise FileExistsError(errno.EEXIST, msg)

    def _is_replaceable(self, store: BlobStore, name: str) -> bool:
        meta = store.meta(name)
        return meta is not None and self._may_replace(meta)


_MEDIA_TYPES = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".png": "image/png",
    ".symlink": "text/plain",
    ".txt": "text/plain",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


def media_type(name: str) -> str:
    """Return the media type of a file by its extension; a checkpoint's is `application/octet-stream`."""
    return _MEDIA_TYPES.get(os.path.splitext(name)[1].lower(), "application/octet-stream")
