"""Fixtures and rules of the tests against real Composer and a real Collector."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from collector import Collector, find_binary

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
