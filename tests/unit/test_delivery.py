"""A consignment is stored once, as the rules of names have it, and its record says what became of it."""

import hashlib
from dataclasses import replace

import pytest

from otel_logger import conventions as names
from otel_logger.delivery import Carrier, Standing, is_earlier, span_of
from otel_logger_exporters.blob_meta import BlobCorruptError, BlobForbiddenError, BlobMeta, BlobUnavailableError
from otel_logger_exporters.consignments import UNLISTED, Consignment, Parcel
from otel_logger_exporters.file_store import FileBlobStore
from otel_logger_exporters.items import Severity

NOW = 1_700_000_000_000_000_000
UID = "0f" * 16
FILE = Consignment(UID, "dir/a.pt", NOW, names.EVENT_FILE, (Parcel("1-0", 5, "x/y", "pt"),), is_file=True)
DIGEST = hashlib.sha256(b"bytes").hexdigest()


class _Case:
    def __init__(self, folder):
        self.folder = folder / "staged"
        self.folder.mkdir()
        self.manifest = self.folder / "1.json"
        self.store = FileBlobStore(folder / "blobs")

    def deliver(self, consignment=FILE, *, store=None, data=b"bytes", **carrier):
        if data is not None:
            for parcel in consignment.parcels:
                (self.folder / parcel.path).write_bytes(data)
        made = Carrier(**{"store": store or self.store, "run_id": "r", "attempt": 2, **carrier})
        return made.deliver(self.manifest, consignment, lambda: NOW + 2_500_000_000)

    def there(self, name="dir/a.pt", data=b"there", **known):
        path = self.folder.parent / "there"
        path.write_bytes(data)
        meta = BlobMeta("r", 1, hashlib.sha256(data).hexdigest(), len(data), "x/y", name, "before", NOW - 10)
        self.store.put_file(name, path, replace(meta, **known))

    def stored(self, name="dir/a.pt"):
        target = self.folder.parent / "back"
        self.store.copy_to(name, target)
        return target.read_bytes()


@pytest.fixture
def case(tmp_path):
    """A store with nothing in it, and a folder in which things wait."""
    return _Case(tmp_path)


def test_a_file_is_stored_under_its_name(case):
    """The record has where, what and how long it took; the browsable URL where a template is set."""
    delivered = case.deliver(url_template="https://x/{name}")
    uri = case.store.uri + "/files/dir/a.pt"
    assert (b"bytes", None, Severity.INFO) == (case.stored(), delivered.reason, delivered.severity)
    assert {
        names.NAME: "dir/a.pt",
        names.FILE_NAME: "a.pt",
        names.FILE_SIZE: 5,
        names.BLOB_SIZE: 5,
        names.BLOB_MEDIA_TYPE: "x/y",
        names.BLOB_DIGEST: f"sha256:{DIGEST}",
        names.BLOB_URI: uri,
        names.URL_FULL: "https://x/files/dir/a.pt",
        names.BLOB_OUTCOME: names.OUTCOME_STORED,
        names.BLOB_DURATION: 2.5,
    } == delivered.attributes
    meta = case.store.meta("dir/a.pt")
    assert ("r", 2, DIGEST, UID, NOW) == (meta.run_id, meta.attempt, meta.sha256, meta.upload, meta.time_ns)


def test_objects_are_stored_by_their_content(case):
    """The main one is the record's link, others are listed by their role, and some nowhere."""
    parcels = tuple(
        Parcel(f"1-{index}", 1, "image/png", "png", hashlib.sha256(data).hexdigest(), role)
        for index, (data, role) in enumerate([(b"m", ""), (b"1", "role"), (b"u", UNLISTED), (b"2", "role")])
    )
    given = replace(FILE, is_file=False, name="pictures", parcels=parcels)
    for parcel, data in zip(parcels, (b"m", b"1", b"u", b"2"), strict=True):
        (case.folder / parcel.path).write_bytes(data)
    attributes = case.deliver(given, data=None).attributes
    uris = {parcel.path: f"{case.store.uri}/sha256/{parcel.sha256[:2]}/{parcel.sha256}.png" for parcel in parcels}
    assert (uris["1-0"], [uris["1-1"], uris["1-3"]]) == (attributes[names.BLOB_URI], attributes["role"])
    assert 4 == len(list((case.store.root / "sha256").rglob("*.png")))
    # Again, after somebody died before he could say so: nothing waits any more.
    again = case.deliver(given, data=None)
    assert (None, attributes) == (again.reason, again.attributes)


STANDINGS = [
    # known run, attempt, time; overwrite; late
    ("r", 1, -5, False, False, Standing.REPLACED),
    ("r", 1, -5, True, True, Standing.REPLACED),
    ("r", 1, +5, False, True, Standing.REPLACED),
    ("r", 2, -5, False, False, Standing.KEPT),
    ("r", 2, -5, True, False, Standing.REPLACED),
    ("r", 2, -5, False, True, Standing.KEPT),
    ("r", 2, -5, True, True, Standing.REPLACED),
    ("r", 2, +5, True, False, Standing.REPLACED),
    ("r", 2, +5, True, True, Standing.NEWER),
    ("r", 3, -5, False, False, Standing.NEWER),
    ("r", 3, +5, True, True, Standing.NEWER),
    ("s", 1, -5, False, False, Standing.KEPT),
    ("s", 9, -5, True, False, Standing.REPLACED),
    ("s", 9, +5, False, True, Standing.KEPT),
    ("s", 1, +5, True, True, Standing.NEWER),
    ("s", 1, -5, True, True, Standing.REPLACED),
    (None, 0, -5, False, False, Standing.KEPT),
    (None, 0, -5, True, False, Standing.REPLACED),
    (None, 0, +5, True, True, Standing.NEWER),
]


@pytest.mark.parametrize(("run_id", "attempt", "since", "overwrite", "is_late", "expected"), STANDINGS)
def test_what_becomes_of_a_name_that_is_taken(case, run_id, attempt, since, overwrite, is_late, expected):
    """An attempt replaces those before it and none after it; else overwriting counts, and for late ones the time."""
    case.there(run_id=run_id, attempt=attempt, time_ns=NOW + since)
    given = replace(FILE, overwrite=overwrite)
    carrier = Carrier(case.store, "r", 2, is_late=is_late, started_ns=NOW - 100)
    assert expected is carrier.standing(given, case.store.meta("dir/a.pt"))
    if expected is Standing.NEWER and not is_late:
        # What overwrites is stored without a look.
        given = replace(given, overwrite=False)
    delivered = case.deliver(given, is_late=is_late, started_ns=NOW - 100)
    outcome = {
        Standing.REPLACED: names.OUTCOME_STORED,
        Standing.KEPT: names.OUTCOME_CONFLICT,
        Standing.NEWER: names.OUTCOME_SUPERSEDED,
    }[expected]
    assert outcome == delivered.attributes[names.BLOB_OUTCOME]
    assert (b"bytes" if expected is Standing.REPLACED else b"there") == case.stored()
    assert (expected is not Standing.KEPT) == delivered.is_stored
    assert (expected is Standing.KEPT) == delivered.is_conflict


@pytest.mark.parametrize(
    ("attempt", "time_ns", "expected"), [(1, 0, True), (2, 0, False), (2, 5, True), (2, 15, False)]
)
def test_an_earlier_attempt_is_known_by_its_number_or_its_time(attempt, time_ns, expected):
    """Two machines that have not each other's folders count alike."""
    known = BlobMeta("r", attempt, "", 0, "", "a", time_ns=time_ns)
    assert expected is is_earlier(known, 2, 10)


def test_a_replaced_attempt_is_told(case):
    """A resumed run writes its checkpoints again, which its record says."""
    case.there()
    assert 1 == case.deliver(replace(FILE, overwrite=False)).attributes[names.BLOB_REPLACED_ATTEMPT]


def test_what_a_name_cannot_have_is_kept_beside_it(case):
    """Both files can be had, the record is an error and says where the bytes are; so again, when it is told again."""
    case.there(run_id="s")
    for _ in range(2):
        delivered = case.deliver(replace(FILE, overwrite=False))
        kept = f"{case.store.uri}/conflicts/dir/a.pt/{UID}"
        assert (b"there", Severity.ERROR, kept) == (
            case.stored(),
            delivered.severity,
            delivered.attributes[names.BLOB_URI],
        )
        assert delivered.reason == delivered.attributes[names.BLOB_REASON]
        assert "is already in the blob store" in delivered.reason
        assert delivered.reason.endswith(f"its bytes are kept in {kept}")
        assert not delivered.is_left
        assert b"bytes" == (case.store.root / "conflicts/dir/a.pt" / UID).read_bytes()


def test_a_copy_that_was_stored_before_is_known(case):
    """Who died between the store and the record is followed by one who has the same record, digest and all."""
    first = case.deliver()
    assert not (case.folder / "1-0").exists()
    again = case.deliver(data=None, is_late=True)
    assert (None, first.attributes) == (again.reason, again.attributes)


def test_a_copy_that_is_nowhere_is_told(case):
    """Somebody deleted what waited."""
    delivered = case.deliver(data=None)
    assert (names.OUTCOME_FAILED, False) == (delivered.attributes[names.BLOB_OUTCOME], delivered.is_left)
    assert names.BLOB_DIGEST not in delivered.attributes


class _Refusing(FileBlobStore):
    """A store that fails with an error, where it is told to also beside the name."""

    def __init__(self, root, error, *, everywhere=False):
        super().__init__(root)
        self.error, self.everywhere = error, everywhere

    def put_file(self, *arguments, **keywords):
        raise self.error

    def put_object(self, *arguments, **keywords):
        raise self.error

    def put_conflict(self, *arguments, **keywords):
        if self.everywhere:
            raise self.error
        return super().put_conflict(*arguments, **keywords)


@pytest.mark.parametrize("kind", [BlobUnavailableError, BlobForbiddenError])
@pytest.mark.parametrize("is_file", [True, False])
def test_what_may_go_well_later_is_raised(case, kind, is_file):
    """The courier tries again, and what waits stays."""
    given = FILE if is_file else replace(FILE, is_file=False, parcels=(replace(FILE.parcels[0], sha256=DIGEST),))
    with pytest.raises(kind):
        case.deliver(given, store=_Refusing(case.store.root, kind(5, "later"), everywhere=True))
    assert b"bytes" == (case.folder / "1-0").read_bytes()


def test_a_file_that_its_name_refuses_is_kept_among_the_conflicts(case):
    """An error that will not pass costs the name, not the bytes."""
    delivered = case.deliver(store=_Refusing(case.store.root, OSError(36, "File name too long")))
    assert names.OUTCOME_FAILED == delivered.attributes[names.BLOB_OUTCOME]
    assert (False, b"bytes") == (delivered.is_left, (case.store.root / "conflicts/dir/a.pt" / UID).read_bytes())


@pytest.mark.parametrize("is_file", [True, False])
def test_what_no_store_takes_is_left_on_disk(case, is_file):
    """The record says where."""
    given = FILE if is_file else replace(FILE, is_file=False, parcels=(replace(FILE.parcels[0], sha256=DIGEST),))
    delivered = case.deliver(given, store=_Refusing(case.store.root, OSError(22, "Bad request"), everywhere=True))
    where = case.folder / "1-0" if is_file else case.folder
    assert (True, f"Bad request; its bytes stay in {str(where)!r}") == (delivered.is_left, delivered.reason)
    assert b"bytes" == (case.folder / "1-0").read_bytes()


def test_what_was_damaged_is_not_kept(case):
    """Bytes that are not those of the call are worth nothing."""
    delivered = case.deliver(replace(FILE, parcels=(replace(FILE.parcels[0], size=6),)))
    assert (names.OUTCOME_FAILED, False) == (delivered.attributes[names.BLOB_OUTCOME], delivered.is_left)
    damaged = _Refusing(case.store.root, BlobCorruptError(5, "torn"), everywhere=True)
    assert not case.deliver(store=damaged).is_left


def test_an_odd_name_is_told_as_it_can_be(case):
    """A lone surrogate, which UTF-8 cannot carry, is its escape in the record."""
    attributes = case.deliver(replace(FILE, name="d/\ud800")).attributes
    assert ("d/\\ud800", "\\ud800") == (attributes[names.NAME], attributes[names.FILE_NAME])


def test_the_span_is_that_of_the_call():
    """Which may have been over for long."""
    span = span_of(replace(FILE, trace_id=5, span_id=6, trace_flags=1))
    assert (5, 6, True, False) == (span.trace_id, span.span_id, span.trace_flags.sampled, span.is_remote)
