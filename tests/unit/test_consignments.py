"""What waits for the store is on disk as it was given, and what is damaged or hostile there harms nobody."""

import json
import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_logger_exporters.consignments import (
    UNLISTED,
    Consignment,
    Parcel,
    consignments_in,
    discard,
    parcel_path,
    set_aside,
    sweep,
    unreadable_in,
)

PARCEL = Parcel("00000001-0", 7, "image/png", "png", "ab" * 32)
ONE = Consignment("0f" * 16, "a", 5, "training.image", (PARCEL,))
FILE = replace(ONE, is_file=True, name="a.pt", parcels=(replace(PARCEL, sha256=None),))

TEXT = st.text(st.characters(), max_size=8)
WORD = st.text("0123456789abcxyz", min_size=1, max_size=8)
PARCELS = st.builds(
    Parcel,
    st.sampled_from(["00000001-0", "x", "/abs/.hidden/x-1"]),
    st.integers(0, 2**63 - 1),
    TEXT,
    st.sampled_from(["png", "jsonl.gz", "bin"]),
    st.none() | st.just("ab" * 32),
    st.sampled_from(["", UNLISTED, "training.image.uris"]),
)
CONSIGNMENTS = st.builds(
    Consignment,
    uid=WORD,
    name=TEXT,
    time_ns=st.integers(0, 2**63 - 1),
    event=st.sampled_from(["training.file", "x"]),
    parcels=st.lists(PARCELS, min_size=1, max_size=3).map(tuple),
    overwrite=st.booleans(),
    step=st.none() | st.integers(-(2**63), 2**63 - 1),
    attributes=st.none() | st.dictionaries(TEXT, TEXT | st.integers() | st.booleans() | st.lists(TEXT, max_size=2)),
    body=st.none() | TEXT,
    trace_id=st.integers(0, 2**128 - 1),
    span_id=st.integers(0, 2**64 - 1),
    trace_flags=st.integers(0, 255),
    store=st.none() | TEXT,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CONSIGNMENTS)
def test_what_is_written_is_read(tmp_path, consignment):
    """Every name, number and text comes back as it was, lone surrogates too."""
    path = consignment.write(tmp_path, "00000001")
    assert (consignment, 0o600) == (Consignment.read(path), path.stat().st_mode & 0o777)
    assert [(path, consignment)] == list(consignments_in(tmp_path))
    assert ["00000001.json"] == os.listdir(tmp_path)


def test_consignments_come_in_the_order_of_their_calls(tmp_path):
    """By their numbers, whatever the order of the folder."""
    for number in ("00000010", "00000002", "00000001"):
        replace(ONE, name=number).write(tmp_path, number)
    assert ["00000001", "00000002", "00000010"] == [consignment.name for _, consignment in consignments_in(tmp_path)]


def test_a_folder_that_is_not_there_holds_none(tmp_path):
    """So is one whose writer has stored everything."""
    (tmp_path / "file").touch()
    for folder in (tmp_path / "none", tmp_path / "file"):
        assert ([], []) == (list(consignments_in(folder)), unreadable_in(folder))
        sweep(folder)


def test_a_torn_manifest_is_passed_over(tmp_path):
    """Whatever a power failure has left of it; it is told as one that cannot be read, and those beside it are."""
    path = replace(ONE, step=5, attributes={"a": [1, 2.5, None]}, body="x").write(tmp_path, "00000001")
    whole = path.read_bytes()
    other = FILE.write(tmp_path, "00000002")
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        assert [(other, FILE)] == list(consignments_in(tmp_path)), end
    assert [path] == unreadable_in(tmp_path)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=40) | st.recursive(st.none() | st.integers(), st.lists).map(lambda x: json.dumps(x).encode()))
def test_bytes_that_are_no_manifest_are_passed_over(tmp_path, data):
    """Nothing that a file can hold is raised."""
    (tmp_path / "00000001.json").write_bytes(data)
    assert [] == list(consignments_in(tmp_path))


HOSTILE = {
    "version": [0, 2, None, "1", 1.5],
    "uid": ["", "../x", "a/b", "a" * 65, 5, None, "\u00b2"],
    "name": [None, 5, ["a"]],
    "time_ns": [-1, 2**63, 1.0, True, None, "5"],
    "event": [None, 5, "\ud800"],
    "parcels": [[], None, {}, "x", [None], [{}], [5]],
    "is_file": [None, 1, "yes"],
    "overwrite": [None, 0],
    "step": [2**63, -(2**63) - 1, 1.5, True, "1"],
    "attributes": [[], "x", 5],
    "body": [0, False, [], {}],
    "trace_id": [-1, 2**128, None, 1.0],
    "span_id": [-1, 2**64, None],
    "trace_flags": [-1, 256, None],
    "store": [5, False, []],
}
HOSTILE_PARCEL = {
    "path": ["", ".", "..", "../x", "a/b", "a\0b", "/a\0b", "/\ud800", 5, None],
    "size": [-1, 2**63, 1.5, True, None],
    "media_type": [None, 5],
    "extension": ["", "../x", "a/b", ".", "a..b", "a" * 65, None, "\u00e9"],
    "sha256": ["", "../../x", "AB" * 32, "ab" * 31, 5],
    "role": [None, 5],
}


@pytest.mark.parametrize(
    ("name", "index"), [(name, index) for name, values in HOSTILE.items() for index in range(len(values))]
)
def test_a_manifest_of_another_kind_is_passed_over(tmp_path, name, index):
    """Of another version or with a value that no writer writes: nothing is delivered by it, and nothing raised."""
    path = ONE.write(tmp_path, "00000001")
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {name: HOSTILE[name][index]}))
    assert ([], [path]) == (list(consignments_in(tmp_path)), unreadable_in(tmp_path))


@pytest.mark.parametrize(
    ("name", "index"), [(name, index) for name, values in HOSTILE_PARCEL.items() for index in range(len(values))]
)
def test_a_manifest_with_a_strange_parcel_is_passed_over(tmp_path, name, index):
    """No parcel leads out of its folder or out of the store."""
    path = ONE.write(tmp_path, "00000001")
    content = json.loads(path.read_bytes())
    content["parcels"][0][name] = HOSTILE_PARCEL[name][index]
    path.write_text(json.dumps(content))
    assert ([], [path]) == (list(consignments_in(tmp_path)), unreadable_in(tmp_path))


def test_a_file_is_one_parcel(tmp_path):
    """Two under one name would be one too many."""
    path = replace(FILE, parcels=(PARCEL, PARCEL)).write(tmp_path, "00000001")
    assert [path] == unreadable_in(tmp_path)


def test_what_is_not_even_a_file_is_passed_over(tmp_path):
    """A folder in a manifest's place, deep nesting, huge numbers."""
    (tmp_path / "00000001.json").mkdir()
    (tmp_path / "00000002.json").write_text("[" * 100_000)
    (tmp_path / "00000003.json").write_text("9" * 10_000)
    assert ([], 3) == (list(consignments_in(tmp_path)), len(unreadable_in(tmp_path)))


def test_what_is_delivered_is_deleted(tmp_path):
    """The manifest and its parcels, also when some of them are gone; what it has no right to stays."""
    (tmp_path / "staged").mkdir()
    (tmp_path / "victim").touch()
    (tmp_path / "staged" / "00000001-0").touch()
    given = replace(ONE, parcels=(PARCEL, replace(PARCEL, path="gone"), replace(PARCEL, path=str(tmp_path / "victim"))))
    path = given.write(tmp_path / "staged", "00000001")
    assert tmp_path / "victim" == parcel_path(path, given.parcels[2])
    discard(path, given)
    assert ([], True) == (os.listdir(tmp_path / "staged"), (tmp_path / "victim").exists())


def test_what_no_manifest_names_is_swept_away(tmp_path):
    """Of calls that never returned; what a manifest names stays, also one that cannot be read or is set aside."""
    for name in ("1-0", "2-0", "2-1", "3-0", "4-0", ".tmp-12"):
        (tmp_path / name).touch()
    for number in ("1", "3", "4"):
        ONE.write(tmp_path, number)
    (tmp_path / "3.json").write_text("{}")
    set_aside(tmp_path / "4.json")
    sweep(tmp_path)
    assert ["1-0", "1.json", "3-0", "3.json", "4-0", "4.failed"] == sorted(os.listdir(tmp_path))
    assert ["1"] == [path.stem for path, _ in consignments_in(tmp_path)]
    for name in os.listdir(tmp_path):
        (tmp_path / name).unlink()
    sweep(tmp_path)
    assert not tmp_path.exists()
