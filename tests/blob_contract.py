"""What every blob store keeps to: one suite, which `tests/contracts` and `tests/integration` run against each of them.

from tests.blob_contract import BlobStoreContract, desk, size

class TestSomeStore(BlobStoreContract):
    @pytest.fixture
    def place(self) -> Place:
        ...  # a store of this test alone, and a way to it behind the store's back
"""

from __future__ import annotations

import errno
import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from otel_logger_exporters.blob_files import sha256_file
from otel_logger_exporters.blob_meta import BlobCorruptError, BlobForbiddenError, BlobMeta, BlobUnavailableError
from otel_logger_exporters.blob_store import BlobStore, MayReplace

__all__ = ["MIB", "SMALL", "BlobStoreContract", "Place", "describe", "desk", "nothing_left_at", "size", "write_random"]

MIB = 2**20

SMALL = 1000
LARGE = 17 * MIB
"""More than any store sends in one request."""

CHUNK = MIB

ODD_NAMES = [
    "",
    "ends/in/..",
    "../up/x.pt",
    "../../../../../../../../tmp/x",
    "a/../../b",
    "/abs/x",
    "//twice//slashes/",
    "./dot/./x",
    "back\\slash\\..\\x",
    "C:\\windows",
    "nul\0line\nbell\a",
    "%2e%2e/%2F/%41",
    "q?uery=1&x#fragment+plus space",
    "..hidden/.tmp-x/~/x",
    "münchen/☃/\N{GRINNING FACE}/x",
    "e\N{COMBINING ACUTE ACCENT}",
    "half\udc80a pair",
    "x" * 5000,
    "/".join(["part"] * 1000),
    "☃" * 500,
    "a: b; c, \"d\" 'e' <f> {g} [h] |i| $j `k` *l",
]
"""Names of which each is a place of its own."""


class Place(Protocol):
    """A store under test, and what lies there as somebody sees who does not go through it."""

    store: BlobStore
    prefix: str
    """What all keys of the store begin with; what else is in the place is not the store's."""

    def all_keys(self) -> set[str]:
        """All keys in the place, also those that are not the store's."""
        ...

    def read(self, key: str) -> bytes:
        """The bytes of a key."""
        ...

    def overwrite(self, key: str, data: bytes) -> None:
        """Put other bytes in the place of a key's, with all that is kept beside them as it was where it can be."""
        ...

    def media_type(self, key: str) -> str | None:
        """What the place itself says of a key's media type; None where places know no such thing."""
        ...


def describe(path: Path, name: str, upload: str, attempt: int = 1, run_id: str = "run-1") -> BlobMeta:
    """What truly describes a file, as one upload of it."""
    size = path.stat().st_size
    return BlobMeta(run_id, attempt, sha256_file(path), size, "application/x-test", name, upload, 1_700_000_000_123_456)


def write_random(path: Path, size: int, seed: int = 0) -> Path:
    """Write a file of bytes that look random, the same for the same seed."""
    block = hashlib.shake_128(b"%d" % seed).digest(CHUNK)
    with path.open("wb") as file:
        for start in range(0, size, CHUNK):
            # Blocks differ, so that parts in the wrong order are another file.
            file.write((start.to_bytes(8, "little") + block[8:])[: size - start])
    return path


class Desk:
    """Stores bytes by way of files in a folder of its own, each upload under an id of its own."""

    def __init__(self, store: BlobStore, folder: Path) -> None:
        self.store = store
        self._folder = folder
        self._count = 0

    def file(self, data: bytes) -> Path:
        """A new file of these bytes."""
        self._count += 1
        path = self._folder / f"source-{self._count}"
        path.write_bytes(data)
        return path

    def put(self, name: str, data: bytes, *, upload: str = "", **options: object) -> BlobMeta:
        """Store bytes under a name and return what was said of them."""
        path = self.file(data)
        meta = describe(path, name, upload or f"upload-{self._count}")
        self.store.put_file(name, path, meta, **options)  # type: ignore[arg-type]
        return meta

    def get(self, name: str) -> bytes:
        """The bytes under a name."""
        path = self._folder / "got"
        self.store.copy_to(name, path)
        return path.read_bytes()


@pytest.fixture(params=[SMALL, LARGE], ids=["small", "large"])
def size(request: pytest.FixtureRequest) -> int:
    """Return the size of a file that is sent in one request, and of one that is sent in many."""
    return int(request.param)


@pytest.fixture
def desk(place: Place, tmp_path: Path) -> Desk:
    """Return what stores bytes in the place."""
    folder = tmp_path / "desk"
    folder.mkdir()
    return Desk(place.store, folder)


def never(_: BlobMeta) -> bool:
    """Nothing may be replaced."""
    return False


def at_once(actions: Iterable[Callable[[], object]]) -> list[object]:
    """What each action returned or raised, all begun at the same moment in threads of their own."""
    todo = list(actions)
    outcomes: list[object] = [None] * len(todo)
    start = threading.Barrier(len(todo))

    def run(index: int) -> None:
        start.wait()
        try:
            outcomes[index] = todo[index]()
        except OSError as error:
            outcomes[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(todo))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def put_aside(store: BlobStore, may_replace: MayReplace | None, path: Path, meta: BlobMeta) -> Callable[[], str]:
    """What stores a file when it is called."""
    return lambda: store.put_file(meta.name, path, meta, may_replace=may_replace)


def assert_one_won(outcomes: list[object], metas: list[BlobMeta], store: BlobStore, out: Path) -> None:
    """Hold that one put went through, and is what is there; all others were told that there is one."""
    lost = ["FileExistsError"] * (len(outcomes) - 1)
    assert [*lost, "str"] == sorted(type(outcome).__name__ for outcome in outcomes), outcomes
    (winner,) = (meta for meta, outcome in zip(metas, outcomes, strict=True) if isinstance(outcome, str))
    assert winner == store.copy_to(winner.name, out)
    assert winner.sha256 == sha256_file(out)


@contextmanager
def nothing_left_at(path: Path, content: bytes | None) -> Iterator[None]:
    """Hold that a copy that fails leaves its destination as it was, and nothing beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is not None:
        path.write_bytes(content)
    yield
    assert (set() if content is None else {path}) == set(path.parent.iterdir())
    assert content is None or content == path.read_bytes()


class BlobStoreContract:
    """The suite; who runs it says what `place` is."""

    def test_a_file_comes_back_with_what_was_said_of_it(self, place: Place, desk: Desk, tmp_path: Path) -> None:
        """Bytes and description are those that were put; progress tells of every byte; the URI is in the store."""
        path = write_random(tmp_path / "x.pt", SMALL)
        meta = describe(path, "run/ep1/x.pt", "u1", attempt=3)
        told: list[int] = []

        uri = place.store.put_file("run/ep1/x.pt", path, meta)

        assert meta == place.store.meta("run/ep1/x.pt")
        assert meta == place.store.copy_to("run/ep1/x.pt", tmp_path / "new" / "folder" / "out", told.append)
        assert path.read_bytes() == (tmp_path / "new/folder/out").read_bytes()
        assert SMALL == sum(told)
        assert f"{place.store.uri.rstrip('/')}/files/run/ep1/x.pt" == uri

    def test_the_media_type_is_said_at_the_place(self, place: Place, tmp_path: Path) -> None:
        """Who reads a blob without the store is told what it is, if the place can tell."""
        path = write_random(tmp_path / "x.png", SMALL)
        place.store.put_file("x.png", path, describe(path, "x.png", "u1"))
        assert place.media_type(f"{place.prefix}files/x.png") in (None, "application/x-test")

    def test_an_empty_file_is_a_file(self, desk: Desk) -> None:
        """No bytes are stored and come back like any others."""
        meta = desk.put("empty", b"")
        assert meta == desk.store.meta("empty")
        assert b"" == desk.get("empty")

    def test_a_large_file_comes_back_in_order(self, place: Place, tmp_path: Path) -> None:
        """40 MiB, which go and come in many pieces, are the same bytes."""
        path = write_random(tmp_path / "x.pt", 40 * MIB + 7)
        meta = describe(path, "x.pt", "u1")
        told: list[int] = []
        place.store.put_file("x.pt", path, meta)

        assert meta == place.store.copy_to("x.pt", tmp_path / "out", told.append)
        assert meta.sha256 == sha256_file(tmp_path / "out")
        assert meta.size == sum(told)

    def test_odd_names_stay_inside_and_apart(self, place: Place, desk: Desk) -> None:
        """Whatever a name is, its file comes back under it, and nothing lies outside the store."""
        before = place.all_keys()
        for number, name in enumerate(ODD_NAMES):
            desk.put(name, b"%d" % number)

        found = [desk.get(name) for name in ODD_NAMES]
        names = [meta.name for meta in map(desk.store.meta, ODD_NAMES) if meta is not None]

        assert [b"%d" % number for number in range(len(ODD_NAMES))] == found
        assert ODD_NAMES == names
        assert set() == {key for key in place.all_keys() - before if not key.startswith(place.prefix)}
        assert set() == {key for key in place.all_keys() if {"..", ".", ""} & set(key.split("/"))}

    def test_the_last_put_of_a_name_is_what_is_there(self, desk: Desk) -> None:
        """Without `may_replace` every put replaces the one before, bytes and description."""
        for number in range(5):
            meta = desk.put("latest", b"x" * number)
            assert (meta, b"x" * number) == (desk.store.meta("latest"), desk.get("latest"))

    def test_what_is_replaced_may_be_large_or_small(self, place: Place, desk: Desk, tmp_path: Path) -> None:
        """A file sent in one request replaces one sent in many, and the other way round."""
        large = write_random(tmp_path / "large", LARGE)
        meta = describe(large, "x", "large")
        for _ in range(2):
            small = desk.put("x", b"small")
            assert (small, b"small") == (desk.store.meta("x"), desk.get("x"))
            place.store.put_file("x", large, meta)
            assert meta == place.store.copy_to("x", tmp_path / "out")
            assert meta.sha256 == sha256_file(tmp_path / "out")

    def test_a_name_that_may_not_be_replaced_stays(self, place: Place, desk: Desk, tmp_path: Path, size: int) -> None:
        """FileExistsError names the file and the store; what was there stays, and the source with `move` too."""
        first = desk.put("run/x.pt", b"first")
        path = write_random(tmp_path / "second", size)
        meta = describe(path, "run/x.pt", "second")
        asked: list[BlobMeta] = []

        with pytest.raises(FileExistsError) as caught:
            place.store.put_file(
                "run/x.pt", path, meta, may_replace=lambda known: asked.append(known) is not None, move=True
            )

        assert "'run/x.pt'" in str(caught.value)
        assert place.store.uri in str(caught.value)
        assert errno.EEXIST == caught.value.errno
        assert {first} == set(asked)
        assert (first, b"first") == (desk.store.meta("run/x.pt"), desk.get("run/x.pt"))
        assert meta.sha256 == sha256_file(path)

    def test_a_name_that_may_be_replaced_is(self, place: Place, desk: Desk, tmp_path: Path, size: int) -> None:
        """`may_replace` is given what is known of the file that is there, and decides."""
        first = desk.put("x", b"first")
        path = write_random(tmp_path / "second", size)
        meta = describe(path, "x", "second", attempt=2)

        place.store.put_file("x", path, meta, may_replace=lambda known: known == first)

        assert meta == place.store.copy_to("x", tmp_path / "out")
        assert meta.sha256 == sha256_file(tmp_path / "out")

    def test_a_new_name_needs_no_leave(self, desk: Desk) -> None:
        """`may_replace` is not asked where there is nothing to replace."""
        desk.put("a", b"1", may_replace=never)
        desk.put("b", b"2", may_replace=never)
        assert (b"1", b"2") == (desk.get("a"), desk.get("b"))

    def test_the_same_upload_again_is_success(self, place: Place, tmp_path: Path, size: int) -> None:
        """An upload that is there already is not transferred, whatever `may_replace` says: seen by other bytes."""
        path = write_random(tmp_path / "x", size)
        meta = describe(path, "x", "u1")
        uri = place.store.put_file("x", path, meta, may_replace=never)
        write_random(path, size, seed=1)

        assert uri == place.store.put_file("x", path, meta, may_replace=never)
        assert path.exists()
        assert uri == place.store.put_file("x", path, meta, may_replace=never, move=True)
        assert not path.exists()
        assert meta == place.store.copy_to("x", tmp_path / "out")
        assert meta.sha256 == sha256_file(tmp_path / "out")

    def test_equal_bytes_are_not_the_same_upload(self, desk: Desk) -> None:
        """Another upload of the same bytes under the same name is another file: refused, or stored anew."""
        first = desk.put("x", b"same", upload="u1")
        with pytest.raises(FileExistsError):
            desk.put("x", b"same", upload="u2", may_replace=never)
        assert first == desk.store.meta("x")
        assert desk.put("x", b"same", upload="u2") == desk.store.meta("x")

    def test_uploads_without_an_id_are_never_the_same(self, place: Place, tmp_path: Path) -> None:
        """Two uploads of which neither says which it is are two."""
        path = write_random(tmp_path / "x", SMALL)
        place.store.put_file("x", path, describe(path, "x", ""))
        with pytest.raises(FileExistsError):
            place.store.put_file("x", path, describe(path, "x", ""), may_replace=never)

    def test_an_upload_is_the_same_under_its_name_only(self, desk: Desk) -> None:
        """One id under two names is two files."""
        desk.put("a", b"1", upload="u1")
        desk.put("b", b"2", upload="u1")
        assert (b"1", b"2") == (desk.get("a"), desk.get("b"))

    def test_moving_takes_the_source_away(self, place: Place, tmp_path: Path) -> None:
        """A source that is moved is gone, one that is copied is not."""
        for put in (
            lambda path, meta, move: place.store.put_file("x", path, meta, move=move),
            lambda path, meta, move: place.store.put_object(path, meta, "pt", move=move),
            lambda path, meta, move: place.store.put_conflict("x", path, meta, move=move),
        ):
            path = write_random(tmp_path / "source", SMALL)
            meta = describe(path, "x", "u1")
            put(path, meta, False)
            assert path.exists()
            put(path, meta, True)
            assert not path.exists()

    def test_a_source_that_is_not_as_announced_is_not_stored(self, place: Place, tmp_path: Path, size: int) -> None:
        """BlobCorruptError; nothing of it is in the place, and the source is where it was.

        Of a file that is moved, or is large, a store may look at the size alone.
        """
        path = write_random(tmp_path / "source", size)
        meta = describe(path, "x", "u1")
        before = place.all_keys()
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        for wrong, move in (
            *([(bytes(data), False)] if size == SMALL else []),
            (data[:-1], False),
            (data + b"+", False),
            (data[:-1], True),
        ):
            path.write_bytes(wrong)
            with pytest.raises(BlobCorruptError, match="were announced"):
                place.store.put_file("x", path, meta, move=move)
            with pytest.raises(BlobCorruptError, match="were announced"):
                place.store.put_object(path, meta, "pt", move=move)
            with pytest.raises(BlobCorruptError, match="were announced"):
                place.store.put_conflict("x", path, meta, move=move)
            assert wrong == path.read_bytes()
        assert place.store.meta("x") is None
        # A folder store has made its lock.
        assert set() == {key for key in place.all_keys() - before if not key.endswith("/.lock")}

    def test_a_source_that_is_not_as_announced_takes_nothing_away(self, desk: Desk, tmp_path: Path) -> None:
        """What is under the name stays as it is."""
        first = desk.put("x", b"first")
        path = write_random(tmp_path / "source", SMALL)
        meta = describe(path, "x", "u2")
        write_random(path, SMALL, seed=1)
        with pytest.raises(BlobCorruptError):
            desk.store.put_file("x", path, meta)
        assert (first, b"first") == (desk.store.meta("x"), desk.get("x"))

    def test_what_is_no_file_is_not_stored(self, place: Place, tmp_path: Path) -> None:
        """A source that is absent or a folder is an OSError of the source's, not the store's."""
        path = write_random(tmp_path / "source", SMALL)
        meta = describe(path, "x", "u1")
        path.unlink()
        with pytest.raises(FileNotFoundError):
            place.store.put_file("x", path, meta)
        path.mkdir()
        with pytest.raises(OSError, match="not a regular file") as caught:
            place.store.put_file("x", path, meta)
        assert not isinstance(caught.value, BlobUnavailableError | BlobForbiddenError)
        assert place.store.meta("x") is None

    def test_a_symlink_is_followed(self, place: Place, desk: Desk, tmp_path: Path) -> None:
        """What a link leads to is stored; moving takes the link alone away."""
        path = write_random(tmp_path / "real", SMALL)
        link = tmp_path / "link"
        link.symlink_to(path)
        place.store.put_file("x", link, describe(path, "x", "u1"), move=True)
        assert not link.is_symlink()
        assert path.read_bytes() == desk.get("x")

    def test_what_is_missing_is_said_to_be_missing(self, place: Place, desk: Desk, tmp_path: Path) -> None:
        """FileNotFoundError names the file and the store, and nothing is made at the destination."""
        desk.put("a/b", b"x")
        for name in ("nothing", "a", "a/b/c", "a/b.json", "../a/b"):
            assert place.store.meta(name) is None
            with pytest.raises(FileNotFoundError) as caught:
                place.store.copy_to(name, tmp_path / "new" / "out")
            assert repr(name) in str(caught.value)
            assert place.store.uri in str(caught.value)
        assert not (tmp_path / "new").exists()

    def test_looking_makes_nothing(self, place: Place) -> None:
        """Asking a store that was never written to leaves the place as it was."""
        before = place.all_keys()
        assert place.store.meta("x") is None
        assert before == place.all_keys()

    @pytest.mark.parametrize("content", [None, b"old"], ids=["new", "there"])
    def test_wrong_bytes_are_never_handed_out(
        self, place: Place, desk: Desk, tmp_path: Path, content: bytes | None
    ) -> None:
        """Bytes that are not those that were stored are an error, and the destination is as it was."""
        for wrong in (b"WEIGHTS", b"weight", b"weights+", b""):
            desk.put("x", b"weights")
            assert b"weights" == desk.get("x")
            place.overwrite(f"{place.prefix}files/x", wrong)
            with (
                nothing_left_at(tmp_path / "to" / "x", content),
                pytest.raises(BlobCorruptError, match=rf"{re.escape(place.store.uri)}.* store it again"),
            ):
                place.store.copy_to("x", tmp_path / "to" / "x")

    def test_what_somebody_else_put_there_is_neither_trusted_nor_lost(self, place: Place, desk: Desk) -> None:
        """Of a file without a description only the size is known; it counts as there, and can be replaced."""
        place.overwrite(f"{place.prefix}files/run/x", b"strange")
        known = desk.store.meta("run/x")
        assert known is not None
        assert (7, "", None, "") == (known.size, known.sha256, known.run_id, known.upload)
        with pytest.raises(BlobCorruptError):
            desk.get("run/x")
        asked: list[BlobMeta] = []
        with pytest.raises(FileExistsError):
            desk.put("run/x", b"ours", may_replace=lambda there: asked.append(there) is not None)
        assert {known} == set(asked)
        desk.put("run/x", b"ours")
        assert b"ours" == desk.get("run/x")

    def test_a_copy_replaces_what_is_at_its_destination(self, place: Place, desk: Desk, tmp_path: Path) -> None:
        """A file of the destination's name is another one afterwards, with nothing beside it."""
        desk.put("x", b"new")
        (tmp_path / "to").mkdir()
        (tmp_path / "to" / "x").write_bytes(b"old")
        place.store.copy_to("x", tmp_path / "to" / "x")
        assert b"new" == (tmp_path / "to" / "x").read_bytes()
        assert {tmp_path / "to" / "x"} == set((tmp_path / "to").iterdir())

    def test_a_progress_that_raises_leaves_nothing(self, place: Place, tmp_path: Path, size: int) -> None:
        """A copy that is interrupted takes what it had written with it, and the next one works."""
        path = write_random(tmp_path / "x", size)
        meta = describe(path, "x", "u1")
        place.store.put_file("x", path, meta)

        def interrupt(_: int) -> None:
            raise KeyboardInterrupt

        with nothing_left_at(tmp_path / "to" / "x", None), pytest.raises(KeyboardInterrupt):
            place.store.copy_to("x", tmp_path / "to" / "x", interrupt)
        assert meta == place.store.copy_to("x", tmp_path / "to" / "x")

    def test_an_object_is_stored_once(self, place: Place, tmp_path: Path) -> None:
        """Equal bytes are one object, named by its digest, whatever they are called and however often they come."""
        first, second = (write_random(tmp_path / name, SMALL) for name in ("a.png", "b.png"))
        meta = describe(first, "image/0", "u1")
        before = place.all_keys()

        uri = place.store.put_object(first, meta, "png")
        assert uri == place.store.put_object(second, describe(second, "image/1", "u2"), "png", move=True)

        (key,) = (key for key in place.all_keys() - before if not key.endswith("/.lock"))
        assert f"{place.prefix}sha256/{meta.sha256[:2]}/{meta.sha256}.png" == key
        assert f"{place.store.uri.rstrip('/')}/{key.removeprefix(place.prefix)}" == uri
        assert first.read_bytes() == place.read(key)
        assert place.media_type(key) in (None, "application/x-test")
        assert not second.exists()

    def test_a_large_object_is_stored_once(self, place: Place, tmp_path: Path) -> None:
        """Bytes that are sent in many requests are an object like others."""
        path = write_random(tmp_path / "a.bin", LARGE)
        meta = describe(path, "table", "u1")
        assert place.store.put_object(path, meta, "bin") == place.store.put_object(path, meta, "bin", move=True)
        assert path.exists() is False
        stored = place.read(f"{place.prefix}sha256/{meta.sha256[:2]}/{meta.sha256}.bin")
        assert meta.sha256 == hashlib.sha256(stored).hexdigest()

    def test_an_object_that_was_not_finished_is_stored_again(self, place: Place, tmp_path: Path) -> None:
        """An object of another size than its digest's bytes have does not count as stored."""
        path = write_random(tmp_path / "a.png", SMALL)
        meta = describe(path, "image/0", "u1")
        key = f"{place.prefix}sha256/{meta.sha256[:2]}/{meta.sha256}.png"
        place.store.put_object(path, meta, "png")
        place.overwrite(key, b"")
        place.store.put_object(path, meta, "png")
        assert path.read_bytes() == place.read(key)

    def test_a_conflict_is_kept_beside_what_is_there(self, place: Place, desk: Desk, tmp_path: Path, size: int) -> None:
        """What lost its name is kept under its upload's, each by itself; the name keeps what it has."""
        first = desk.put("run/x", b"first")
        paths = [write_random(tmp_path / f"late-{seed}", size, seed) for seed in (1, 2)]
        uris = [
            place.store.put_conflict("run/x", path, describe(path, "run/x", f"late-{number}"))
            for number, path in enumerate(paths)
        ]

        for number, path in enumerate(paths):
            key = f"{place.prefix}conflicts/run/x/late-{number}"
            assert path.read_bytes() == place.read(key)
            assert f"{place.store.uri.rstrip('/')}/conflicts/run/x/late-{number}" == uris[number]
        assert (first, b"first") == (desk.store.meta("run/x"), desk.get("run/x"))

    def test_a_conflict_is_kept_once(self, place: Place, tmp_path: Path) -> None:
        """The same conflict kept again is the same."""
        path = write_random(tmp_path / "late", SMALL)
        meta = describe(path, "../x", "late")
        uri = place.store.put_conflict("../x", path, meta)
        before = place.all_keys()
        assert uri == place.store.put_conflict("../x", path, meta, move=True)
        assert before == place.all_keys()
        assert place.store.meta("../x") is None

    def test_of_many_who_create_one_name_one_does(self, place: Place, tmp_path: Path, size: int) -> None:
        """Exactly one of several at one moment stores its file, the others are told that the name is taken."""
        paths = [write_random(tmp_path / f"source-{seed}", size, seed) for seed in range(5)]
        # Small files are over so soon that they meet only now and then.
        for name in [f"x-{number}" for number in range(8 if size == SMALL else 1)]:
            metas = [describe(path, name, f"u{seed}") for seed, path in enumerate(paths)]
            outcomes = at_once(map(partial(put_aside, place.store, never), paths, metas))
            assert_one_won(outcomes, metas, place.store, tmp_path / "out")

    def test_of_many_who_may_replace_one_file_one_does(
        self, place: Place, desk: Desk, tmp_path: Path, size: int
    ) -> None:
        """Leave to replace a file is none to replace what has come in its place: exactly one of several does."""
        first = desk.put("x", b"first")
        paths = [write_random(tmp_path / f"source-{seed}", size, seed) for seed in range(4)]
        metas = [describe(path, "x", f"u{seed}") for seed, path in enumerate(paths)]
        outcomes = at_once(map(partial(put_aside, place.store, lambda known: known == first), paths, metas))
        assert_one_won(outcomes, metas, place.store, tmp_path / "out")

    def test_what_comes_between_is_not_replaced(self, place: Place, desk: Desk, tmp_path: Path, size: int) -> None:
        """A file that comes after `may_replace` has agreed to another one is asked about, and stays if it has to."""
        first = desk.put("x", b"first")
        path = write_random(tmp_path / "source", size)
        asked: list[BlobMeta] = []

        def agree_to_first(known: BlobMeta) -> bool:
            asked.append(known)
            if len(asked) == 1:
                desk.put("x", b"between")
            return known == first

        with pytest.raises(FileExistsError):
            place.store.put_file("x", path, describe(path, "x", "u1"), may_replace=agree_to_first)
        assert [first, desk.store.meta("x")] == [asked[0], asked[-1]]
        assert b"between" == desk.get("x")

    def test_of_many_who_replace_one_name_one_is_last(self, place: Place, tmp_path: Path, size: int) -> None:
        """All succeed, and what is there in the end is one of them, whole, with its own description."""
        paths = [write_random(tmp_path / f"source-{seed}", size, seed) for seed in range(4)]
        metas = [describe(path, "x", f"u{seed}") for seed, path in enumerate(paths)]

        outcomes = at_once(map(partial(put_aside, place.store, None), paths, metas))

        assert ["str"] * 4 == [type(outcome).__name__ for outcome in outcomes], outcomes
        last = place.store.copy_to("x", tmp_path / "out")
        assert last in metas
        assert last.sha256 == sha256_file(tmp_path / "out")

    def test_who_reads_beside_a_writer_gets_one_or_the_other(self, place: Place, desk: Desk, tmp_path: Path) -> None:
        """While a name is replaced again and again, each copy is whole, and is what its description says.

        A store may ask to try again where it is replaced faster than it can be read.
        """
        sources = [write_random(tmp_path / f"source-{seed}", 5000 + seed, seed) for seed in range(4)]
        metas = [describe(path, "x", f"u{seed}") for seed, path in enumerate(sources)]
        place.store.put_file("x", sources[0], metas[0])
        copied: list[tuple[BlobMeta, str]] = []

        def write() -> None:
            for _ in range(5):
                for path, meta in zip(sources, metas, strict=True):
                    place.store.put_file("x", path, meta)

        def read() -> None:
            while len(copied) < 20:
                try:
                    meta = place.store.copy_to("x", tmp_path / "out")
                except BlobUnavailableError:
                    continue
                copied.append((meta, sha256_file(tmp_path / "out")))

        assert [None, None] == at_once([write, read])
        assert set() == {meta for meta, _ in copied} - set(metas)
        assert [meta.sha256 for meta, _ in copied] == [digest for _, digest in copied]

    def test_a_name_that_is_a_folder_of_another_harms_nobody(self, place: Place, desk: Desk) -> None:
        """It is stored too, or refused for ever where the place has folders; never "taken", never "try again"."""
        desk.put("a/b", b"first")
        for name in ("a", "a/b/c"):
            try:
                desk.put(name, b"second", may_replace=never)
            except (IsADirectoryError, NotADirectoryError) as error:
                told, found = str(error), None
            else:
                told, found = name, desk.get(name)
            assert name in told
            assert found in (None, b"second")
        assert b"first" == desk.get("a/b")
