"""The blob store in a bucket or in memory: what is put comes back, who may replace it, and what goes wrong."""

import dataclasses
import errno
import hashlib
import itertools
import os
import re
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import obstore.exceptions
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from obstore.store import AzureStore, GCSStore, S3Store

from otel_logger_exporters.blob_meta import (
    BlobCorruptError,
    BlobForbiddenError,
    BlobMeta,
    BlobUnavailableError,
)
from otel_logger_exporters.blob_names import blob_name
from otel_logger_exporters.blob_probe import ProbeStep, probe
from otel_logger_exporters.blob_store import BlobStore, open_blob_store
from otel_logger_exporters.blob_url import BlobUrl
from otel_logger_exporters.file_store import FileBlobStore
from otel_logger_exporters.object_claims import CLAIM_LIFETIME, ObjectClaims
from otel_logger_exporters.object_client import SMALL_BYTES, ObjectClient, StoredObject
from otel_logger_exporters.object_errors import (
    ObjectChangedError,
    ObjectMissingError,
    UnsupportedConditionError,
    translated,
)
from otel_logger_exporters.object_meta import encode_attributes
from otel_logger_exporters.object_options import VARIABLES
from tests.certificates import make_pair
from tests.moto_server import MotoServer

NAMES = ("a/b.pt", "../up/x y.pt", "#?%&+=.txt", "ü/日本.png", "n" * 3000, "", "a\udc80\n\\b", "/lead", "~x")
NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoServer]:
    """A double of S3 with the bucket `bucket`."""
    server = MotoServer()
    server.make_bucket("bucket")
    yield server
    server.close()


@pytest.fixture(params=["memory", "s3"])
def store(request: pytest.FixtureRequest) -> BlobStore:
    """An empty store, in memory and in S3."""
    if request.param == "memory":
        return memory()
    return in_s3(request.getfixturevalue("moto"))


def memory() -> BlobStore:
    """An empty store in memory."""
    return open_blob_store(f"memory://test-{next(NUMBERS)}", {})


def in_s3(moto: MotoServer, **environ: str) -> BlobStore:
    """An empty store in S3."""
    return open_blob_store(f"s3://bucket/team/{next(NUMBERS)}", {**moto.environ, **environ})


def meta_of(data: bytes, name: str = "x", upload: str = "u1", **fields: object) -> BlobMeta:
    """What truly describes some bytes."""
    meta = BlobMeta(
        "run-1", 1, hashlib.sha256(data).hexdigest(), len(data), "image/png", name, upload, 1_700_000_000_000
    )
    return dataclasses.replace(meta, **fields)


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., str]:
    """Puts bytes into a store under a name, by way of a file."""

    def put_bytes(
        store: BlobStore,
        name: str,
        data: bytes,
        may_replace: Callable[[BlobMeta], bool] | None = None,
        move: bool = False,
        **fields: object,
    ) -> str:
        source = tmp_path / "source"
        source.write_bytes(data)
        return store.put_file(name, source, meta_of(data, name, **fields), may_replace=may_replace, move=move)

    return put_bytes


def never(_: BlobMeta) -> bool:
    """Refuses to replace anything."""
    return False


def of_earlier_attempt(stored: BlobMeta) -> bool:
    """Allows attempt 2 of the run to replace what earlier ones wrote."""
    return stored.run_id == "run-1" and stored.attempt < 2


def content(store: BlobStore, name: str, folder: Path) -> bytes:
    """The bytes of a stored file."""
    store.copy_to(name, folder / "content")
    return (folder / "content").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_file_comes_back_with_all_that_is_known_of_it(
    store: BlobStore, tmp_path: Path, put: Callable[..., str], name: str
) -> None:
    """Bytes, name, run, attempt, upload, time and media type come back, and the URI is the key as it is."""
    data = b"weights" * 1000
    told: list[int] = []
    assert store.meta(name) is None
    assert f"{store.uri}/files/{blob_name(name)}" == put(store, name, data)
    got = store.copy_to(name, tmp_path / "new/folder/out", told.append)
    assert data == (tmp_path / "new/folder/out").read_bytes()
    assert meta_of(data, name) == got == store.meta(name)
    assert len(data) == sum(told)


@given(st.text(st.characters()), st.none() | st.text(st.characters()), st.text(st.characters()))
@example("", "", "")
@example("ü" * 400, "日本" * 500, "u" * 600)
def test_any_name_and_any_run_id_come_back(
    tmp_path_factory: pytest.TempPathFactory, name: str, run_id: str | None, upload: str
) -> None:
    """No name, run id or upload is too odd or too long to be known again."""
    source = tmp_path_factory.getbasetemp() / "one-byte"
    source.write_bytes(b"1")
    meta = meta_of(b"1", name, run_id=run_id, upload=upload)
    store = memory()
    store.put_file(name, source, meta, may_replace=never)
    assert meta == store.meta(name)


@given(
    st.text(st.characters(), max_size=2000),
    st.text(st.characters(), max_size=2000),
    st.text(st.characters(), max_size=2000),
    st.text(),
)
def test_metadata_are_what_every_store_takes(name: str, run_id: str, upload: str, media_type: str) -> None:
    """All names are plain identifiers, all values visible ASCII, and their sum is less than the 2 KB of S3."""
    meta = meta_of(b"1", name, run_id=run_id, upload=upload, attempt=10**9, media_type=media_type, time_ns=2**63 - 1)
    attributes = encode_attributes(meta, lambda text: None)
    content_type = attributes.pop("Content-Type")
    assert sum(len(key) + len(value) for key, value in attributes.items()) < 2000
    assert all(re.fullmatch("[a-z][a-z0-9]*", key) for key in attributes)
    assert all(re.fullmatch("[!-~]+", value) for value in attributes.values())
    assert re.fullmatch(r"[!-~ ]+/[!-~ ]+", content_type)


def test_metadata_of_texts_of_any_length_are_within_bounds() -> None:
    """However long name, run id and upload are, there is no length at which they are too long together."""
    sizes = []
    for length in range(1, 1500):
        meta = meta_of(b"1", "n" * length, run_id="r" * length, upload="u" * length, attempt=10**9, time_ns=2**63 - 1)
        attributes = encode_attributes(meta, lambda text: None)
        sizes.append(sum(len(key) + len(value) for key, value in attributes.items() if key != "Content-Type"))
    assert max(sizes) < 2000


def test_what_is_stored_can_be_read_by_other_tools(moto: MotoServer, put: Callable[..., str]) -> None:
    """An object has its media type, and its metadata as headers."""
    uri = put(in_s3(moto), "a b/x.png", b"png", run_id="run ü")
    headers = moto.headers(uri.removeprefix("s3://").replace(" ", "%20"))
    assert "image/png" == headers["content-type"]
    assert "run%20%C3%BC" == headers["x-amz-meta-otelloggerrun"]
    assert hashlib.sha256(b"png").hexdigest() == headers["x-amz-meta-otelloggersha256"]


def test_the_last_put_wins_where_nobody_asks(store: BlobStore, tmp_path: Path, put: Callable[..., str]) -> None:
    """Without `may_replace` what is there is replaced, with all that is known of it."""
    put(store, "x", b"1")
    put(store, "x", b"22", upload="u2", run_id="other")
    assert b"22" == content(store, "x", tmp_path)
    assert meta_of(b"22", upload="u2", run_id="other") == store.meta("x")


def test_what_may_not_be_replaced_stays(store: BlobStore, tmp_path: Path, put: Callable[..., str]) -> None:
    """The error names the file, where it is, and who wrote it; the source stays where it is, too."""
    uri = put(store, "x", b"1")
    with pytest.raises(FileExistsError) as caught:
        put(store, "x", b"22", never, move=True, upload="u2")
    assert "'x' is already in the blob store" in str(caught.value)
    assert f"{uri}, written by run 'run-1', attempt 1; pass overwrite=True" in str(caught.value)
    assert b"1" == content(store, "x", tmp_path)
    assert b"22" == (tmp_path / "source").read_bytes()


def test_a_later_attempt_may_replace(store: BlobStore, tmp_path: Path, put: Callable[..., str]) -> None:
    """What an earlier attempt of the run wrote is replaced, what the same or another run wrote is not."""
    put(store, "x", b"1")
    put(store, "x", b"22", of_earlier_attempt, attempt=2, upload="u2")
    assert b"22" == content(store, "x", tmp_path)
    with pytest.raises(FileExistsError):
        put(store, "x", b"333", of_earlier_attempt, attempt=2, upload="u3")


@pytest.mark.parametrize("may_replace", [None, never])
def test_the_same_upload_is_stored_once(
    store: BlobStore, tmp_path: Path, put: Callable[..., str], may_replace: Callable[[BlobMeta], bool] | None
) -> None:
    """An upload whose end nobody heard is found stored, and its source goes where it is to move."""
    uri = put(store, "x", b"1", may_replace)
    assert uri == put(store, "x", b"2", may_replace, move=True)
    assert b"1" == content(store, "x", tmp_path)
    assert not (tmp_path / "source").exists()


def test_who_is_replaced_meanwhile_decides_again(store: BlobStore, tmp_path: Path, put: Callable[..., str]) -> None:
    """Of two that replace one file at the same moment the slower one learns of the faster."""
    put(store, "x", b"1")
    (tmp_path / "mine").write_bytes(b"333")
    seen = []

    def may_replace(stored: BlobMeta) -> bool:
        if not seen:
            put(store, "x", b"22", upload="u2", attempt=2)
        seen.append(stored.upload)
        return of_earlier_attempt(stored)

    with pytest.raises(FileExistsError, match="attempt 2"):
        store.put_file("x", tmp_path / "mine", meta_of(b"333", upload="u3", attempt=2), may_replace=may_replace)
    assert ["u1", "u2"] == seen
    assert b"22" == content(store, "x", tmp_path)


@pytest.mark.parametrize("size", [1, SMALL_BYTES + 1], ids=["small", "large"])
def test_of_many_writers_of_one_new_name_one_wins(tmp_path: Path, size: int) -> None:
    """Several threads store one name: one of them succeeds, and the others are told."""
    store = memory()
    outcomes: list[str] = []

    def write(n: int) -> None:
        source = tmp_path / f"source-{n}"
        source.write_bytes(bytes([n]) * size)
        meta = meta_of(source.read_bytes(), upload=f"u{n}")
        try:
            store.put_file("x", source, meta, may_replace=never)
            outcomes.append(f"u{n}")
        except FileExistsError:
            pass

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = store.copy_to("x", tmp_path / "out")
    assert [stored.upload] == outcomes


@pytest.fixture(scope="module")
def large() -> bytes:
    """Bytes of a file that goes up in parts."""
    return os.urandom(1 << 20) * ((SMALL_BYTES >> 20) + 1)


def claim_of(store: BlobStore, name: str = "x") -> StoredObject | None:
    """The claim of a name."""
    return client_of(store).look(f"claims/{blob_name(name)}")


def client_of(store: BlobStore) -> ObjectClient:
    """Single requests to a store."""
    return store._client  # type: ignore[attr-defined]


def test_a_large_file_goes_up_in_parts(moto: MotoServer, tmp_path: Path, put: Callable[..., str], large: bytes) -> None:
    """A file of many parts is as a small one, with all that is known of it."""
    store = in_s3(moto)
    put(store, "x", large)
    assert meta_of(large) == store.copy_to("x", tmp_path / "out") == store.meta("x")
    assert large == (tmp_path / "out").read_bytes()


def test_who_may_replace_a_large_file_is_decided_as_for_a_small_one(put: Callable[..., str], large: bytes) -> None:
    """Nothing but an earlier attempt's is replaced, and the claims are gone afterwards."""
    store = memory()
    put(store, "x", large, never)
    with pytest.raises(FileExistsError, match="attempt 1"):
        put(store, "x", large, never, upload="u2")
    put(store, "x", large[1:], of_earlier_attempt, upload="u3", attempt=2)
    assert meta_of(large[1:], upload="u3", attempt=2) == store.meta("x")
    assert claim_of(store) is None


def test_who_waits_for_a_claim_is_told_whose_it_is(tmp_path: Path, put: Callable[..., str], large: bytes) -> None:
    """While another stores a large file of the name nobody else does, large or small; its own next try goes on."""
    store = memory()
    claims = store._claims  # type: ignore[attr-defined]
    claims.win("x", meta_of(large), never)
    for data in (large, b"small"):
        with pytest.raises(FileExistsError) as caught:
            put(store, "x", data, never, upload="u2", run_id="other")
        assert "'x' is being stored at" in str(caught.value)
        assert f"{store.uri}/files/x by run 'run-1', attempt 1 since 20" in str(caught.value)
        assert f"or delete {store.uri}/claims/x if that upload will never end" in str(caught.value)
        assert store.meta("x") is None
    put(store, "x", large, never)
    assert claim_of(store) is None


def test_a_later_attempt_takes_a_claim_over(put: Callable[..., str], large: bytes) -> None:
    """The claim of an attempt that is dead keeps no later one of its run from the name."""
    store = memory()
    store._claims.win("x", meta_of(large), never)  # type: ignore[attr-defined]
    put(store, "x", large, of_earlier_attempt, upload="u2", attempt=2)
    assert ("u2", None) == (store.meta("x").upload, claim_of(store))  # type: ignore[union-attr]


def test_who_has_won_a_claim_looks_once_more(tmp_path: Path, put: Callable[..., str], large: bytes) -> None:
    """A file that was stored while its name was being claimed stays, and the claim is dropped."""
    store = memory()
    store._claims.win("x", meta_of(large, upload="dead"), never)  # type: ignore[attr-defined]
    (tmp_path / "large").write_bytes(large)

    def may_replace(stored: BlobMeta) -> bool:
        if stored.upload == "dead":
            put(store, "x", b"faster", upload="u2", attempt=2)
        return of_earlier_attempt(stored)

    with pytest.raises(FileExistsError, match="attempt 2"):
        store.put_file("x", tmp_path / "large", meta_of(large, upload="u3", attempt=2), may_replace=may_replace)
    assert b"faster" == content(store, "x", tmp_path)
    assert claim_of(store) is None


def test_a_source_that_is_refused_leaves_no_claim(tmp_path: Path, large: bytes) -> None:
    """A large file that is not what was announced is not stored, and its name is free for others."""
    store = memory()
    (tmp_path / "source").write_bytes(large)
    with pytest.raises(BlobCorruptError, match="were announced"):
        store.put_file("x", tmp_path / "source", meta_of(large + b"1"), may_replace=never)
    with pytest.raises(FileNotFoundError):
        store.put_file("x", tmp_path / "nothing", meta_of(large), may_replace=never)
    assert (None, None) == (store.meta("x"), claim_of(store))


def test_who_may_not_delete_stores_large_files_all_the_same(
    monkeypatch: pytest.MonkeyPatch, put: Callable[..., str], large: bytes
) -> None:
    """A claim that cannot be deleted stays, and keeps neither its own upload nor the next attempt's from the name."""

    def refuse(self: ObjectClient, path: str) -> None:
        raise BlobForbiddenError(errno.EACCES, "AccessDenied")

    monkeypatch.setattr(ObjectClient, "delete", refuse)
    store = memory()
    put(store, "x", large, never)
    put(store, "x", large[1:], of_earlier_attempt, upload="u2", attempt=2)
    assert meta_of(large[1:], upload="u2", attempt=2) == store.meta("x")
    assert claim_of(store) is not None


class FakeClient:
    """A store of claims whose clock is set by hand."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.objects: dict[str, StoredObject] = {}

    def look(self, path: str) -> StoredObject | None:
        """What is there."""
        return self.objects.get(path)

    def put(self, path: str, data: bytes, attributes: dict[str, str]) -> None:
        """Store it at the clock's time."""
        self.objects[path] = StoredObject(attributes, len(data), self.now, None, None)

    def put_instead(self, path: str, data: bytes, attributes: dict[str, str], of: StoredObject | None) -> None:
        """Store it where `of` is."""
        assert of == self.objects.get(path)
        self.put(path, data, attributes)

    def delete(self, path: str) -> None:
        """Delete it."""
        del self.objects[path]


@pytest.mark.parametrize("age", [CLAIM_LIFETIME - timedelta(seconds=1), CLAIM_LIFETIME])
def test_a_claim_ends_after_a_day_by_the_store_s_clock(age: timedelta) -> None:
    """A claim that nobody has dropped is another's a day later; what time it is here does not matter."""
    client = FakeClient(datetime(2001, 1, 1, tzinfo=timezone.utc))
    claims = ObjectClaims(
        client,  # type: ignore[arg-type]
        lambda meta: {"upload": meta.upload},
        lambda stored, name: meta_of(b"", name, stored.attributes["upload"]),
        str,
    )
    claims.win("x", meta_of(b"", upload="dead"), never)
    client.now += age
    if age < CLAIM_LIFETIME:
        with pytest.raises(FileExistsError):
            claims.win("x", meta_of(b"", upload="next"), never)
    else:
        claims.win("x", meta_of(b"", upload="next"), never)
    holder = "dead" if age < CLAIM_LIFETIME else "next"
    assert {"claims/x": holder} == {path: stored.attributes["upload"] for path, stored in client.objects.items()}


def test_an_object_is_stored_once_under_its_digest(store: BlobStore, tmp_path: Path) -> None:
    """The same bytes are one object; what somebody else has put there in another size is replaced."""
    digest = hashlib.sha256(b"png").hexdigest()
    path = f"sha256/{digest[:2]}/{digest}.png"
    client_of(store).put(path, b"half", {})
    for _ in range(2):
        (tmp_path / "source").write_bytes(b"png")
        assert f"{store.uri}/{path}" == store.put_object(tmp_path / "source", meta_of(b"png"), "png", move=True)
        assert not (tmp_path / "source").exists()
    assert b"png" == client_of(store).read(path)


def test_a_large_object_is_not_sent_again(tmp_path: Path, large: bytes) -> None:
    """A large object that is there is left as it is."""
    store = memory()
    (tmp_path / "source").write_bytes(large)
    path = store.put_object(tmp_path / "source", meta_of(large), "bin").removeprefix(f"{store.uri}/")
    first = client_of(store).look(path)
    store.put_object(tmp_path / "source", meta_of(large, upload="u2"), "bin")
    assert first == client_of(store).look(path)


def test_a_conflict_is_kept_beside(store: BlobStore, tmp_path: Path, put: Callable[..., str]) -> None:
    """What could not be stored under its name is kept by its upload, and the name keeps what it has."""
    put(store, "a/x", b"1")
    (tmp_path / "source").write_bytes(b"22")
    uri = store.put_conflict("a/x", tmp_path / "source", meta_of(b"22", "a/x", "u2"), move=True)
    assert f"{store.uri}/conflicts/a/x/u2" == uri
    assert b"22" == client_of(store).read("conflicts/a/x/u2")
    assert b"1" == content(store, "a/x", tmp_path)


@pytest.mark.parametrize("data", [b"other", b"longer than said"])
def test_a_source_that_changed_is_not_stored(store: BlobStore, tmp_path: Path, data: bytes) -> None:
    """Bytes that are not the announced ones are refused, and what is no regular file is."""
    (tmp_path / "source").write_bytes(data)
    with pytest.raises(BlobCorruptError, match=r"bytes.* were announced"):
        store.put_file("x", tmp_path / "source", meta_of(b"12345"), move=True)
    with pytest.raises(OSError, match="it is not a regular file"):
        store.put_file("x", tmp_path, meta_of(b""))
    assert data == (tmp_path / "source").read_bytes()
    assert store.meta("x") is None


def test_a_missing_file_is_said_to_be_missing(store: BlobStore, tmp_path: Path, put: Callable[..., str]) -> None:
    """FileNotFoundError quotes the name and the store, and nothing is made at the destination."""
    put(store, "a/b", b"w")
    for name in ("nothing", "a", "a/b/c"):
        with pytest.raises(FileNotFoundError, match=f"no file {name!r} in the blob store {store.uri}"):
            store.copy_to(name, tmp_path / "new/out")
        assert store.meta(name) is None
    assert not (tmp_path / "new").exists()


def test_what_somebody_else_put_there_is_known_by_its_size_alone(store: BlobStore, tmp_path: Path) -> None:
    """An object without our metadata cannot be checked, and counts as present."""
    client_of(store).put("files/x", b"1234", {})
    meta = store.meta("x")
    assert meta is not None
    assert (None, "", 4, "x") == (meta.run_id, meta.sha256, meta.size, meta.name)
    with pytest.raises(BlobCorruptError, match=r"its 4 bytes cannot be checked; store it again by upload_file"):
        store.copy_to("x", tmp_path / "out/x")
    assert not (tmp_path / "out").exists()


def test_a_corrupt_file_is_never_handed_out(store: BlobStore, tmp_path: Path, put: Callable[..., str]) -> None:
    """Bytes that differ from their digest raise; the destination keeps what it had, with nothing beside it."""
    put(store, "x", b"weights")
    stored = client_of(store).look("files/x")
    assert stored is not None
    client_of(store).put("files/x", b"WEIGHTS", stored.attributes)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/x").write_bytes(b"old")
    with pytest.raises(BlobCorruptError, match=r"files/x has 7 bytes, sha256 .*but its metadata say 7 bytes"):
        store.copy_to("x", tmp_path / "out/x")
    assert [b"old"] == [path.read_bytes() for path in (tmp_path / "out").iterdir()]


def test_an_empty_file_comes_back(store: BlobStore, tmp_path: Path, put: Callable[..., str]) -> None:
    """A file of no bytes is a file."""
    put(store, "x", b"")
    assert b"" == content(store, "x", tmp_path)


def test_a_progress_that_raises_leaves_nothing(tmp_path: Path, put: Callable[..., str]) -> None:
    """An exception in the middle of a copy takes the unfinished file with it."""
    store = memory()
    put(store, "x", b"w")

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.copy_to("x", tmp_path / "out/x", interrupt)
    assert [] == list((tmp_path / "out").iterdir())


def test_a_copy_of_what_is_replaced_meanwhile_begins_again(tmp_path: Path) -> None:
    """Who reads a file of several pieces while it is replaced gets the new one, whole."""
    store = memory()
    old, new = b"1" * (65 << 20), b"2" * 10
    (tmp_path / "old").write_bytes(old)
    (tmp_path / "new").write_bytes(new)
    store.put_file("x", tmp_path / "old", meta_of(old))
    replaced = []

    def replace(_: int) -> None:
        if not replaced:
            replaced.append(store.put_file("x", tmp_path / "new", meta_of(new, upload="u2")))

    assert "u2" == store.copy_to("x", tmp_path / "out", replace).upload
    assert new == (tmp_path / "out").read_bytes()


def test_a_name_in_memory_is_one_store() -> None:
    """Two stores of one name see the same files, those of another do not."""
    first, second = (open_blob_store("memory://shared-name", {}) for _ in range(2))
    other = open_blob_store("memory://other-name", {})
    client_of(first).put("files/x", b"1", {})
    assert [True, True, False] == [store.meta("x") is not None for store in (first, second, other)]


def test_the_mapping_goes_before_the_process_s_environment(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process's environment says beside the mapping is not asked, and an endpoint for S3 alone wins."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    assert in_s3(moto).meta("x") is None
    assert in_s3(moto, AWS_ENDPOINT_URL="http://127.0.0.1:9", AWS_ENDPOINT_URL_S3=moto.url).meta("x") is None


def test_a_profile_gives_the_keys(moto: MotoServer, tmp_path: Path) -> None:
    """With AWS_PROFILE the keys come from the files of AWS's own tools; a profile that is none is told."""
    (tmp_path / "credentials").write_text("[mine]\naws_access_key_id = a\naws_secret_access_key = b\n")
    environ = {
        "AWS_ENDPOINT_URL": moto.url,
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
    }
    assert open_blob_store("s3://bucket", {**environ, "AWS_PROFILE": "mine"}).meta("x") is None
    with pytest.raises(BlobForbiddenError, match=r"AWS_PROFILE='other' gives no credentials: .*check the profile"):
        open_blob_store("s3://bucket", {**environ, "AWS_PROFILE": "other"}).meta("x")


VALUES = {"checksum_algorithm": "SHA256", "server_side_encryption": "AES256", "service_account_key": '{"type": "x"}'}


@pytest.mark.parametrize(
    ("scheme", "kind", "needed"),
    [
        ("s3", S3Store, {"access_key_id": "a", "secret_access_key": "b"}),
        ("gs", GCSStore, {}),
        ("az", AzureStore, {"account_name": "a"}),
    ],
)
def test_every_variable_that_is_handed_on_is_known(scheme: str, kind: type, needed: dict[str, str]) -> None:
    """obstore refuses a store with an option that it does not know, so each is one that it does."""
    unknown = []
    for option in VARIABLES[scheme].values():
        try:
            kind("bucket", config={**needed, option: VALUES.get(option, "true")})
        except obstore.exceptions.UnknownConfigurationKeyError:
            unknown.append(option)
        except obstore.exceptions.BaseError:
            pass  # the value is none, which the option's reader has said
    assert [] == unknown


def test_a_bucket_that_is_not_there_has_to_be_made(moto: MotoServer, tmp_path: Path) -> None:
    """A missing bucket is not a missing file: the error names it, and says what to do."""
    store = open_blob_store("s3://nothing/x", moto.environ)
    (tmp_path / "source").write_bytes(b"1")
    for call in (
        lambda: store.meta("x"),
        lambda: store.copy_to("x", tmp_path / "out"),
        lambda: store.put_file("x", tmp_path / "source", meta_of(b"1")),
        lambda: store.put_object(tmp_path / "source", meta_of(b"1"), "bin"),
    ):
        with pytest.raises(BlobForbiddenError) as caught:
            call()
        assert "s3://nothing/x/" in str(caught.value)
        assert "NoSuchBucket" in str(caught.value)
        assert str(caught.value).endswith("make it, or correct OTEL_LOGGER_BLOB_STORE and the endpoint")
        assert "\n" not in str(caught.value)


def test_a_store_that_cannot_be_reached_is_tried_again_later() -> None:
    """Where nobody listens, the error says so in one line, and that it may go well another time."""
    environ = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    with pytest.raises(BlobUnavailableError, match=r"s3://bucket/files/x: .*http://127.0.0.1:9.*Connection refused$"):
        open_blob_store("s3://bucket", environ).meta("x")


def test_a_value_that_opens_no_store_has_to_be_mended() -> None:
    """A variable that obstore cannot read is told with the remedy, and is no outage."""
    environ = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_SERVER_SIDE_ENCRYPTION": "rot13"}
    with pytest.raises(BlobForbiddenError, match=r"^\[Errno 22\] cannot open s3://bucket: .*rot13.*; check AWS_"):
        open_blob_store("s3://bucket", environ).meta("x")


S3_BODY = '<?xml version="1.0"?>\n<Error><Code>{}</Code><Message>Why.\nIndeed.</Message><Key>hidden</Key></Error>'
ANSWER = "Generic S3 error: Error performing PUT http://user:hidden@s/b/x?sig=hidden in 3.5ms, after 3 retries - "


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        ("GenericError(503 SlowDown)", BlobUnavailableError, "503 Slow"),
        ("GenericError(500 InternalError)", BlobUnavailableError, "InternalError: Why. Indeed."),
        ("GenericError(507 XMinioStorageFull)", BlobUnavailableError, "the store is full"),
        ("PermissionDeniedError(403 QuotaExceeded)", BlobUnavailableError, "the store is full"),
        ("PermissionDeniedError(403 AccessDenied)", BlobForbiddenError, "AccessDenied: Why. Indeed.; check AWS_"),
        ("UnauthenticatedError(401 Unauthorized)", BlobForbiddenError, "check AWS_ACCESS_KEY_ID"),
        ("GenericError(400 ExpiredToken)", BlobForbiddenError, "AWS_SESSION_TOKEN"),
        ("GenericError(400 AuthorizationHeaderMalformed)", BlobForbiddenError, "AWS_REGION"),
        ("GenericError(301 PermanentRedirect)", BlobForbiddenError, "AWS_REGION"),
        ("FileNotFoundError(404 NoSuchBucket)", BlobForbiddenError, "make it, or correct OTEL_LOGGER_BLOB_STORE"),
        ("FileNotFoundError(404 NoSuchKey)", ObjectMissingError, "NoSuchKey"),
        ("AlreadyExistsError(412 PreconditionFailed)", ObjectChangedError, "PreconditionFailed"),
        ("PreconditionError(412 PreconditionFailed)", ObjectChangedError, "PreconditionFailed"),
        ("GenericError(501 NotImplemented)", UnsupportedConditionError, "NotImplemented"),
        ("NotSupportedError(x)", UnsupportedConditionError, "x"),
        ("ValueError(Could not parse path)", OSError, "Could not parse path"),
        ("PanicException(x)", BlobUnavailableError, "obstore failed inside"),
    ],
)
def test_what_goes_wrong_is_told_by_what_would_help(error: str, kind: type, told: str) -> None:
    """Errors of obstore become ours, by their kind or the code in the answer: in one line, without secrets."""
    name, _, text = error.removesuffix(")").partition("(")
    status, _, code = text.partition(" ")
    if status.isdecimal():
        text = f"{ANSWER}Server returned non-2xx status code: {text}: {S3_BODY.format(code)}"
    known = {"PanicException": type("PanicException", (BaseException,), {}), "ValueError": ValueError}
    known["FileNotFoundError"] = FileNotFoundError
    raised = known.get(name) or getattr(obstore.exceptions, name)
    with (
        pytest.raises(OSError, match=r"^\[Errno \d+\] cannot store s3://b/x: ") as caught,
        translated("cannot store s3://b/x", "s3", is_conditional=True),
    ):
        raise raised(f"{text}\n\nDebug source:\nGeneric {{ hidden }}")
    assert kind is type(caught.value)
    assert told in str(caught.value)
    assert not {"\n", "hidden", "3.5ms"} & set(re.findall(r"\n|hidden|3\.5ms", str(caught.value)))


def test_a_certificate_that_nobody_trusts_is_named(tmp_path: Path) -> None:
    """The reason stands where obstore keeps it for its developers, and the remedy names the variables."""
    text = "error sending request\n\nDebug source:\nCustom {\n  error: InvalidCertificate(\n    UnknownIssuer,\n  ),\n}"
    with (
        pytest.raises(BlobForbiddenError, match=r"error sending request: UnknownIssuer; set AWS_CA_BUNDLE"),
        translated("cannot store x", "s3"),
    ):
        raise obstore.exceptions.GenericError(text)


class Nothing(BaseHTTPRequestHandler):
    """A store with nothing in it."""

    def do_GET(self) -> None:
        """Answer that there is no such object."""
        body = b"<Error><Code>NoSuchKey</Code></Error>"
        self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if self.command == "GET" else b"")

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_store_with_a_certificate_of_one_s_own_authority_is_trusted(tmp_path: Path) -> None:
    """AWS_CA_BUNDLE names the authorities that are trusted besides those of the system."""
    authority = make_pair(tmp_path, "authority", "DNS:authority")
    pair = make_pair(tmp_path, "server", "IP:127.0.0.1", issuer=authority)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Nothing) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        environ = {
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_ENDPOINT_URL": f"https://127.0.0.1:{server.server_port}",
            "AWS_CA_BUNDLE": str(authority.certificate),
        }
        try:
            assert open_blob_store("s3://bucket", environ).meta("x") is None
        finally:
            server.shutdown()
            thread.join()


FORK = """
import os, sys
from otel_logger_exporters.blob_store import open_blob_store
store = open_blob_store("memory://x", {})
if sys.argv[1] == "used":
    store.meta("x")
child = os.fork()
if child == 0:
    try:
        print(store.meta("x"), flush=True)
    except OSError as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(store.meta("x"), flush=True)
"""


@pytest.mark.parametrize(("parent", "told"), [("used", "BlobForbiddenError"), ("unused", "None")])
def test_a_child_of_a_fork_never_hangs(parent: str, told: str) -> None:
    """A child whose parent has used a store is told so at once; one whose parent has not uses it."""
    done = subprocess.run([sys.executable, "-c", FORK, parent], capture_output=True, text=True, check=True, timeout=15)
    child, own = done.stdout.splitlines()
    assert told == child.split()[0]
    assert ("spawn" in child) is (parent == "used")
    assert "None" == own


def test_a_logger_is_made_without_loading_the_library(tmp_path: Path) -> None:
    """Construction of a logger whose blobs go to a bucket loads neither obstore nor boto3."""
    program = (
        "import sys; from otel_logger import OTelLogger; log = OTelLogger(run_name='x', "
        f"environ={{'OTEL_LOGGER_DIR': {str(tmp_path)!r}, 'OTEL_LOGGER_BLOB_STORE': 'memory://x'}}); "
        "print([m for m in ('obstore', 'boto3') if m in sys.modules]); log.close()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()


DONE = [ProbeStep(what, None) for what in ("write", "read", "conditional create", "delete")]


def test_a_probe_tries_everything_and_leaves_nothing(store: BlobStore) -> None:
    """A store that works is found to work, and has no file afterwards."""
    names = []
    put_file = store.put_file

    class Watched(type(store)):  # type: ignore[misc]
        def put_file(self, name: str, *args: object, **options: object) -> str:
            names.append(name)
            return put_file(name, *args, **options)  # type: ignore[arg-type]

    store.__class__ = Watched
    assert DONE == list(probe(store))
    assert [None] == [store.meta(name) for name in names]


def test_a_probe_of_a_folder_leaves_no_file(tmp_path: Path) -> None:
    """A folder that works is found to work, and keeps what it had alone."""
    store = FileBlobStore(tmp_path / "store")
    (tmp_path / "source").write_bytes(b"1")
    store.put_file("x", tmp_path / "source", meta_of(b"1"))
    assert DONE == list(probe(store))
    found = {path.relative_to(store.root) for path in store.root.rglob("*") if path.is_file()}
    assert {Path("files/x"), Path("meta/x.json"), Path(".lock")} == found


def test_a_probe_tells_what_fails(moto: MotoServer, tmp_path: Path) -> None:
    """What failed is told with its error: all where there is no bucket, one step where a store ignores conditions."""
    steps = list(probe(open_blob_store("s3://nothing", moto.environ)))
    assert [("write", BlobForbiddenError), ("delete", BlobForbiddenError)] == [(s.what, type(s.error)) for s in steps]

    class Careless(FileBlobStore):
        def put_new(self, name: str, source_path: str | Path, meta: BlobMeta) -> bool:
            self.put_file(name, source_path, meta)
            return True

    failed = [step for step in probe(Careless(tmp_path / "store")) if step.error is not None]
    assert ["conditional create"] == [step.what for step in failed]
    assert failed[0].error is not None
    assert errno.ENOTSUP == failed[0].error.errno


def test_a_store_without_conditions_is_asked_once(tmp_path: Path) -> None:
    """Where the store knows no conditions, what was looked for before decides."""

    class Plain(ObjectClient):
        asked = 0

        def _put(self, path: str, data: bytes, attributes: dict[str, str], mode: object) -> None:
            if mode != "overwrite":
                Plain.asked += 1
                raise UnsupportedConditionError(errno.ENOTSUP, "not implemented")
            super()._put(path, data, attributes, mode)

    client = Plain(BlobUrl("memory", f"test-{next(NUMBERS)}"), {})
    for data in (b"1", b"2"):
        client.put_instead("x", data, {}, client.look("x"))
    assert (1, b"2") == (Plain.asked, client.read("x"))
