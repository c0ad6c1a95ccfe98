"""A real S3 server that dies, hangs, refuses, is full or is cut off: nothing wrong is stored, nothing wrong comes back.

What cannot be done is one of three errors: BlobUnavailableError, where trying again may help, BlobForbiddenError, where
somebody has to mend something, BlobCorruptError. What is there is always whole: the file before, or the file after.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest
from s3 import SECRET_KEY, S3Server, s3_environ
from small_disk import SmallDisk

from otel_logger_exporters.blob_files import sha256_file
from otel_logger_exporters.blob_meta import BlobForbiddenError, BlobMeta, BlobUnavailableError
from otel_logger_exporters.blob_store import BlobStore, open_blob_store
from tests.blob_contract import MIB, describe, nothing_left_at, write_random
from tests.faulty_proxy import REQUEST, RESPONSE, Fault, FaultyProxy

pytestmark = [pytest.mark.s3, pytest.mark.timeout(180)]

PATIENCE = 60.0
"""Seconds within which a store that is down, or refuses, is said to be."""

LARGE = 160 * MIB
"""So much that its upload takes a moment in which something can happen."""


@dataclass(frozen=True)
class Upload:
    """A file to store, and what is said of it."""

    path: Path
    meta: BlobMeta

    def into(self, store: BlobStore, may_replace: Callable[[BlobMeta], bool] | None = None) -> str:
        """Store it."""
        return store.put_file(self.meta.name, self.path, self.meta, may_replace=may_replace)

    def is_in(self, store: BlobStore, folder: Path) -> bool:
        """Whether this very file is what the store has under its name, by what it says and by what it hands out."""
        out = folder / "out"
        told = store.copy_to(self.meta.name, out)
        return (told, sha256_file(out)) == (self.meta, self.meta.sha256)


@pytest.fixture
def store(s3_server: S3Server) -> BlobStore:
    """Return a store on the running server."""
    return open_blob_store(f"{s3_server.url}/runs", s3_server.environ)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Return a disk of 128 MiB."""
    with SmallDisk(tmp_path, 128 * MIB) as mounted:
        yield mounted


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    """Return a thread in which something is done meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


def make(folder: Path, size: int, upload: str = "u1", name: str = "ep1/x.pt") -> Upload:
    """Return a file of this size, which is another for each `upload`."""
    path = write_random(folder / f"source-{upload}", size, seed=hash_of(upload))
    return Upload(path, describe(path, name, upload))


def hash_of(text: str) -> int:
    """A number for a text, the same in each process."""
    return int.from_bytes(text.encode(), "little")


def never(_: BlobMeta) -> bool:
    """Nothing may be replaced."""
    return False


def wait_until_parts_arrive(server: S3Server, put: Future[str]) -> None:
    """Wait until an upload in parts is under way, and not yet over."""
    deadline = time.monotonic() + PATIENCE
    while not server.parts:
        assert not put.done(), "too early: the file was stored before a part of it was seen"
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize("is_replaced", [False, True], ids=["new", "replaced"])
def test_a_server_that_is_killed_amid_an_upload(
    s3_server: S3Server, store: BlobStore, aside: ThreadPoolExecutor, tmp_path: Path, is_replaced: bool
) -> None:
    """The put fails within its bound, the name has what it had before, and the same put later does it.

    So it is for a file that may not replace another, too: what it had won before the server died is not lost to it.
    """
    old, new = make(tmp_path, 1000, "old"), make(tmp_path, LARGE, "new")
    if is_replaced:
        old.into(store)
    put = aside.submit(new.into, store, None if is_replaced else never)
    wait_until_parts_arrive(s3_server, put)
    s3_server.kill()
    began = time.monotonic()
    with pytest.raises(BlobUnavailableError, match="cannot store"):
        put.result()
    assert time.monotonic() - began < PATIENCE

    s3_server.start()
    if is_replaced:
        assert old.is_in(store, tmp_path)
    else:
        assert store.meta(new.meta.name) is None
        assert set() == {key for key in s3_server.keys if "/files/" in key}
    new.into(store, None if is_replaced else never)
    assert new.is_in(store, tmp_path)


def test_a_server_that_comes_back_at_once(
    s3_server: S3Server, store: BlobStore, aside: ThreadPoolExecutor, tmp_path: Path
) -> None:
    """A put during which the server is started anew goes through, or fails and goes through the second time."""
    upload = make(tmp_path, LARGE)
    put = aside.submit(upload.into, store)
    wait_until_parts_arrive(s3_server, put)
    s3_server.kill()
    s3_server.start()
    try:
        put.result()
    except BlobUnavailableError:
        upload.into(store)
    assert upload.is_in(store, tmp_path)


def test_a_server_that_is_down_is_said_to_be(s3_server: S3Server, store: BlobStore, tmp_path: Path) -> None:
    """Everything one can ask of it fails within the bound and as something to try again; then all of it works."""
    upload = make(tmp_path, 1000)
    upload.into(store)
    s3_server.stop()
    for ask in every_request(store, upload, tmp_path):
        began = time.monotonic()
        with pytest.raises(BlobUnavailableError) as caught:
            ask()
        assert time.monotonic() - began < PATIENCE
        assert_told_well(caught.value)
    s3_server.start()
    for ask in every_request(store, upload, tmp_path):
        ask()


def test_a_server_that_hangs_for_a_while(
    s3_server: S3Server, store: BlobStore, aside: ThreadPoolExecutor, tmp_path: Path
) -> None:
    """Requests that are answered late are answered: nothing is lost or stored twice."""
    upload = make(tmp_path, LARGE)
    put = aside.submit(upload.into, store)
    wait_until_parts_arrive(s3_server, put)
    os.kill(s3_server.pid, signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        put.result(timeout=1)
    os.kill(s3_server.pid, signal.SIGCONT)
    put.result()
    assert upload.is_in(store, tmp_path)


def faults_of(random: Random) -> list[Fault]:
    """Faults of connections that carry a file: each kind in each direction, at places of all magnitudes."""
    faults = []
    for what in ("refuse", "cut", "half close", "delay", "corrupt"):
        for direction in (REQUEST, RESPONSE):
            after = int(2 ** random.uniform(0, 24))
            faults.append(Fault(what, direction, after, random.uniform(0.05, 0.5), random.randrange(1, 256)))
    random.shuffle(faults)
    return faults


@pytest.mark.parametrize("seed", range(4))
def test_a_network_that_does_everything_networks_do(s3_server: S3Server, tmp_path: Path, seed: int) -> None:
    """Through any faults an upload is right or an error, a download is right or an error; without faults both work."""
    random = Random(seed)
    uploads = [make(tmp_path, size, f"u{size}", f"x{size}") for size in (1000, 20 * MIB)]
    for upload in uploads:
        with FaultyProxy(s3_server.address, faults_of(random)) as proxy:
            # A store of its own, so that there is a new connection for each fault.
            store = open_blob_store(f"{s3_server.url}/runs", s3_environ(proxy.port))
            attempt(lambda upload=upload, store=store: upload.into(store))
            hang_up_and(proxy, lambda upload=upload, store=store: attempt(lambda: upload.into(store)))
        direct = open_blob_store(f"{s3_server.url}/runs", s3_server.environ)
        assert direct.meta(upload.meta.name) in (None, upload.meta)
        upload.into(direct)
        assert upload.is_in(direct, tmp_path)
        with FaultyProxy(s3_server.address, faults_of(random)) as proxy:
            store = open_blob_store(f"{s3_server.url}/runs", s3_environ(proxy.port))
            for number in range(4):
                out = tmp_path / f"to-{upload.meta.name}-{number}" / "x"
                if attempt(lambda upload=upload, store=store, out=out: store.copy_to(upload.meta.name, out)):
                    assert upload.meta.sha256 == sha256_file(out)
                else:
                    assert [] == [*out.parent.iterdir()] if out.parent.exists() else True
                proxy.hang_up()


def attempt(action: Callable[[], object]) -> bool:
    """Whether it succeeded; anything but an OSError is a failure of the test."""
    try:
        action()
    except OSError as error:
        assert_told_well(error)
        return False
    return True


def hang_up_and(proxy: FaultyProxy, action: Callable[[], object]) -> None:
    """Do something over new connections."""
    proxy.hang_up()
    action()


@pytest.mark.parametrize("after", [0, 100_000])
def test_a_download_that_is_cut_again_and_again(
    s3_server: S3Server, store: BlobStore, tmp_path: Path, after: int
) -> None:
    """It is an error within the bound, and the destination has what it had; undisturbed it works."""
    upload = make(tmp_path, 20 * MIB)
    upload.into(store)
    cuts = [Fault("cut", RESPONSE, after=after)] * 1000
    with FaultyProxy(s3_server.address, cuts) as proxy:
        cut_off = open_blob_store(f"{s3_server.url}/runs", s3_environ(proxy.port))
        began = time.monotonic()
        with (
            nothing_left_at(tmp_path / "to" / "x", b"old"),
            pytest.raises(BlobUnavailableError) as caught,
        ):
            cut_off.copy_to(upload.meta.name, tmp_path / "to" / "x")
        assert time.monotonic() - began < PATIENCE
        assert_told_well(caught.value)
    assert upload.is_in(store, tmp_path)


def test_a_server_that_dies_amid_a_download(s3_server: S3Server, store: BlobStore, tmp_path: Path) -> None:
    """It is an error, nothing is left at the destination, and the next download works."""
    upload = make(tmp_path, LARGE)
    upload.into(store)
    begun = threading.Event()

    def die(_: int) -> None:
        if not begun.is_set():
            begun.set()
            s3_server.kill()

    with nothing_left_at(tmp_path / "to" / "x", None), pytest.raises(BlobUnavailableError):
        store.copy_to(upload.meta.name, tmp_path / "to" / "x", die)
    s3_server.start()
    assert upload.is_in(store, tmp_path)


@pytest.mark.parametrize("size", [1000, 20 * MIB], ids=["small", "large"])
def test_who_has_no_right_is_told_what_to_mend(s3_server: S3Server, tmp_path: Path, size: int) -> None:
    """With wrong keys, or without a bucket, everything is BlobForbiddenError: in one line, without a secret."""
    upload = make(tmp_path, size)
    right = s3_server.environ
    for url, environ, told in (
        (s3_server.url, right | {"AWS_SECRET_ACCESS_KEY": "wrong-but-secret"}, "AWS_SECRET_ACCESS_KEY"),
        (s3_server.url, right | {"AWS_ACCESS_KEY_ID": "nobody"}, "AWS_ACCESS_KEY_ID"),
        ("s3://missing", right, "s3://missing"),
    ):
        store = open_blob_store(f"{url}/runs", environ)
        for ask in every_request(store, upload, tmp_path):
            with pytest.raises(BlobForbiddenError, match=told) as caught:
                ask()
            assert_told_well(caught.value)
            assert "wrong-but-secret" not in str(caught.value)
    assert upload.path.exists()
    assert set() == s3_server.keys


@pytest.mark.parametrize("size", [1000, 20 * MIB], ids=["small", "large"])
def test_who_may_only_read_reads(s3_binary: Path, tmp_path: Path, size: int) -> None:
    """A server that takes nothing new hands out what is there, and says that writing is forbidden."""
    upload, another = make(tmp_path, size), make(tmp_path, size, "u2", "y")
    with S3Server(tmp_path / "s3", s3_binary) as server:
        upload.into(open_blob_store(server.url, server.environ))
    with S3Server(tmp_path / "s3", s3_binary, options=["--readonly"]) as server:
        store = open_blob_store(server.url, server.environ)
        before = server.keys
        for put in (
            lambda: another.into(store),
            lambda: another.into(store, never),
            lambda: store.put_object(another.path, another.meta, "pt", move=True),
            lambda: store.put_conflict("x", another.path, another.meta, move=True),
        ):
            with pytest.raises(BlobForbiddenError) as caught:
                put()
            assert_told_well(caught.value)
        assert another.path.exists()
        assert before == server.keys
        assert upload.is_in(store, tmp_path)


@pytest.mark.parametrize("size", [8 * MIB, 20 * MIB], ids=["small", "large"])
def test_a_server_that_is_full(s3_binary: Path, disk: SmallDisk, tmp_path: Path, size: int) -> None:
    """It is something to try again; what is there stays; and when there is space the same put goes through."""
    old = make(tmp_path, 1000, "old")
    new = make(tmp_path, size, "new")
    with S3Server(tmp_path / "s3", s3_binary, disk=disk) as server:
        store = open_blob_store(f"{server.url}/runs", server.environ)
        old.into(store)
        disk.fill(leave=5 * MIB)
        for may_replace in (None, lambda known: True):
            with pytest.raises(BlobUnavailableError) as caught:
                new.into(store, may_replace)
            assert_told_well(caught.value)
        assert old.is_in(store, tmp_path)
        other = replace(new, meta=replace(new.meta, name="other"))
        with pytest.raises(BlobUnavailableError):
            other.into(store, never)
        assert store.meta("other") is None
        disk.make_room()
        new.into(store)
        assert new.is_in(store, tmp_path)
        other.into(store, never)
        assert other.is_in(store, tmp_path)


def every_request(store: BlobStore, upload: Upload, folder: Path) -> list[Callable[[], object]]:
    """Everything one can ask of a store."""
    again = replace(upload.meta, upload="again")
    return [
        lambda: store.meta(upload.meta.name),
        lambda: store.put_file(upload.meta.name, upload.path, again),
        lambda: store.put_file("new", upload.path, upload.meta, may_replace=never),
        lambda: store.put_object(upload.path, upload.meta, "pt"),
        lambda: store.put_conflict(upload.meta.name, upload.path, upload.meta),
        lambda: store.copy_to(upload.meta.name, folder / "asked" / "x"),
    ]


def assert_told_well(error: OSError) -> None:
    """An error is one line for a user, with nothing in it that nobody may know."""
    text = "".join(traceback.format_exception(error))
    assert "\n" not in str(error)
    assert str(error).strip()
    assert SECRET_KEY not in text
    assert "Debug source" not in str(error)
