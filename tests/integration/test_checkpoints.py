"""Real Composer, killed again and again: each time it goes on from its newest checkpoint, which it has from us alone.

Each attempt has an empty folder for its own checkpoints: what it goes on from comes out of the blob store, or out of
what an earlier attempt still had on disk for the store when it was killed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import pytest

from otel_logger_exporters.object_client import SMALL_BYTES

pytest.importorskip("composer", reason="mosaicml is not installed: `make test-all` installs it")

from resuming import EVERY, LATEST
from s3 import S3Server
from saga import Child, Nursery, Saga, Warehouse, in_a_bucket, in_a_folder

pytestmark = [pytest.mark.composer, pytest.mark.timeout(300)]

FIRST_CHECKPOINT = 1 + EVERY + 2
"""Lines that an attempt has noted when its first checkpoint is accepted: what it loaded, two batches, two uploads."""

BY_AUTORESUME: dict[str, Any] = {}
BY_LOAD_PATH = {"load_path": LATEST}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """One for all attempts."""
    running = Nursery()
    yield running
    running.close()


@pytest.fixture
def uninterrupted(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Child:
    """The training that nobody kills, which is over."""
    if nursery.uninterrupted is None:
        folder = tmp_path_factory.mktemp("uninterrupted")
        nursery.uninterrupted = Saga(nursery, folder, in_a_folder(folder / "store")).begin()
        nursery.uninterrupted.end()
    return nursery.uninterrupted


@pytest.fixture(params=["file", *(pytest.param(name, marks=pytest.mark.s3) for name in ("s3", "s3-large"))])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    """A blob store of each kind, and one whose checkpoints are so large that they go up in parts."""
    if request.param == "file":
        return in_a_folder(tmp_path / "store")
    ballast = SMALL_BYTES if request.param == "s3-large" else 0
    return in_a_bucket(request.getfixturevalue("s3_server"), ballast)


def test_a_training_that_is_killed_goes_on_from_its_newest_checkpoint(
    nursery: Nursery, uninterrupted: Child, warehouse: Warehouse, tmp_path: Path
) -> None:
    """At random moments, and for sure between the return of an upload and its arrival in the store.

    It resumes by `autoresume` and by `load_path`, never from a checkpoint older than the newest that was accepted; is
    not refused the names that it used itself; and comes to the weights of an uninterrupted training. All that it has
    uploaded is stored, and told by one record each.
    """
    saga = Saga(nursery, tmp_path, warehouse)
    ways = cycle([BY_AUTORESUME, BY_LOAD_PATH])
    random = Random(5)
    # A checkpoint is there when it is resumed for the first time.
    for first in (FIRST_CHECKPOINT, 0, 0):
        newest = saga.newest
        child = saga.begin(is_doomed=True, **next(ways))
        lines = random.randint(first, first + 5)
        child.wait_until(lambda child=child, lines=lines: len(child.notes) >= lines)
        time.sleep(random.uniform(0, 0.1))
        child.kill()
        # What was accepted by a call that had not returned is newer.
        assert child.loaded in (None, newest, newest + EVERY)
    slack = EVERY
    with ExitStack() as outages:
        for outage in warehouse.outages:
            newest = saga.newest
            child = saga.begin(halt_after=outage.uploads, **next(ways))
            child.wait_for("loaded")
            outages.close()
            assert child.loaded in range(newest, newest + slack + 1)
            child.wait_for("holds")
            outages.enter_context(outage.of_store())
            child.let_go_on()
            child.wait_for("halts")
            child.kill()
            if not outage.outlives:
                outages.close()
            assert outage.uploads == len(child.uploads)
            assert set(child.uploads) <= saga.not_stored()
            slack = 0
        newest, without_run = saga.newest, saga.without_run()
        child = saga.begin(**next(ways))
        child.end()
        assert newest == child.loaded
        # The logger that is only there to load from was never closed.
        assert saga.without_run() <= without_run
    saga.check_end(uninterrupted)


@pytest.mark.s3
def test_on_another_machine_it_goes_on_from_the_newest_checkpoint_that_is_stored(
    nursery: Nursery, uninterrupted: Child, s3_server: S3Server, tmp_path: Path
) -> None:
    """Where nothing is left of the disk before, the bucket has what it takes: what it names as the newest is there.

    So it is for who was killed when the checkpoint was stored and the file that names it was not, and for who had both
    on a disk that is lost.
    """
    saga = Saga(nursery, tmp_path, in_a_bucket(s3_server), moves=True)
    ways = cycle([BY_AUTORESUME, BY_LOAD_PATH])
    child = saga.begin(is_doomed=True, **next(ways))
    child.wait_until(lambda: saga.named() > 0)
    time.sleep(Random(7).uniform(0, 0.1))
    child.kill()
    for outage in (None, *saga.warehouse.outages[1:2]):
        named = saga.named()
        child = saga.begin(halt_after=1 if outage is None else outage.uploads, **next(ways))
        child.wait_for("holds")
        with outage.of_store() if outage is not None else nullcontext():
            child.let_go_on()
            child.wait_for("halts")
            if outage is None:
                child.wait_until(lambda child=child: not saga.not_stored() & set(child.uploads))
            child.kill()
        assert named <= child.loaded == saga.named()
    named = saga.named()
    child = saga.begin(**next(ways))
    child.end()
    assert named == child.loaded
    saga.check_end(uninterrupted)
