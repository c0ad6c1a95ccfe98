"""Fixtures and rules of the tests against real Composer and real servers."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from collector import Collector, find_binary
from s3 import S3Server

HERE = Path(__file__).resolve().parent

# Imported here once, because importing it warns, which would be an error in the first test module that does.
if importlib.util.find_spec("composer") is not None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("composer")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks everything in this folder `integration`."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def collector_binary() -> Path:
    """The Collector's program; the test is skipped, with the cure, where it is not built."""
    return binary_of("collector")


@pytest.fixture(scope="session")
def prometheus_binary() -> Path:
    """Prometheus' program, `promtool` beside it; the test is skipped, with the cure, where it is not built."""
    return binary_of("prometheus")


@pytest.fixture(scope="session")
def s3_binary() -> Path:
    """The S3 server's program; the test is skipped, with the cure, where it is not built."""
    return binary_of("versitygw")


@pytest.fixture
def s3_server(s3_binary: Path, tmp_path: Path) -> Iterator[S3Server]:
    """A running S3 server with an empty bucket, of this test alone."""
    with S3Server(tmp_path / "s3", s3_binary) as running:
        yield running


@pytest.fixture
def collector(collector_binary: Path, tmp_path: Path) -> Iterator[Collector]:
    """A running Collector with `collector-config/base.yaml`, of this test alone."""
    running = Collector(collector_binary, tmp_path / "collector")
    running.start()
    yield running
    running.stop()


def binary_of(server: str) -> Path:
    """The program of a server that `make servers` builds; skips where it is not built."""
    binary, reason = find_binary(server)
    if binary is None:
        pytest.skip(reason)
    return binary
