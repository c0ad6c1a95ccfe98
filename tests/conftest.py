"""Rules for all tests: a clean environment, and skips that can be made to count as failures."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

# What OpenTelemetry, launchers, schedulers and object stores set, which the code under test reads: a test passes on a
# laptop, in a cluster job and in CI, or on none of them.
CLEARED_PREFIXES = ("OTEL_", "TORCHELASTIC_", "SLURM_", "MASTER_", "KUBERNETES_", "AWS_", "GOOGLE_", "AZURE_")
CLEARED_NAMES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "GROUP_RANK",
    "TRACEPARENT",
    "TRACESTATE",
    "BAGGAGE",
    "COMPOSER_RUN_NAME",
    "RUN_NAME",
)

# The first import of Composer and torch alone takes several seconds, on a busy machine many.
COMPOSER_TIMEOUT_SECONDS = 180

# Its assertions are those of the test modules that run it.
pytest.register_assert_rewrite("tests.blob_contract")

SKIPPED = pytest.StashKey[list[str]]()
SKIPPED_MODULES = pytest.StashKey[list[str]]()


@pytest.fixture(autouse=True)
def clean_environment() -> Iterator[None]:
    """Removes for each test what the surroundings say of telemetry and ranks."""
    # Not the `monkeypatch` fixture: tests with hypothesis may not use one that is made anew for each test.
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(CLEARED_PREFIXES) or name in CLEARED_NAMES:
                patch.delenv(name)
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--fail-on-skip` and `--write-stories`."""
    parser.addoption(
        "--fail-on-skip",
        action="store_true",
        help="a skipped test fails the run: where everything is installed, nothing has a reason to be skipped",
    )
    parser.addoption(
        "--write-stories",
        action="store_true",
        help="write the stories of tests/integration/test_stories.py anew, where they are to be other ones from now on",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Starts the list of skipped tests."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As a shell without job control starts what it puts into the background; programs of tests inherit that, and
        # then no SIGINT ends them.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[SKIPPED], config.stash[SKIPPED_MODULES] = [], []
    config.pluginmanager.register(SkipLedger(config.stash[SKIPPED], config.stash[SKIPPED_MODULES]), "skip-ledger")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes over which modules a worker of pytest-xdist has skipped; each worker has seen them all."""
    skipped = node.config.stash[SKIPPED]
    skipped += [line for line in getattr(node, "workeroutput", {}).get("skipped_modules", ()) if line not in skipped]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives tests with Composer what its import needs, or skips them, with the cure, where it is absent."""
    composer_is_here = importlib.util.find_spec("composer") is not None
    for item in items:
        if item.get_closest_marker("composer") is None:
            continue
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(COMPOSER_TIMEOUT_SECONDS))
        # Composer's own imports and calls warn; only what our modules cause stays an error.
        item.add_marker(pytest.mark.filterwarnings("default", "error:::otel_logger"))
        if not composer_is_here:
            item.add_marker(pytest.mark.skip(reason="mosaicml is not installed: `make test-all` installs it"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails a run that would pass but for its skips."""
    if hasattr(session.config, "workeroutput"):
        # Of modules that are skipped whole the controller of pytest-xdist hears nothing by itself.
        session.config.workeroutput["skipped_modules"] = session.config.stash[SKIPPED_MODULES]
    elif session.config.getoption("fail_on_skip") and session.config.stash[SKIPPED] and session.exitstatus in (0, 5):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Says which tests were skipped and why, when that is a failure."""
    skipped = config.stash[SKIPPED]
    if config.getoption("fail_on_skip") and skipped:
        terminalreporter.section(f"{len(skipped)} skipped, which --fail-on-skip makes a failure", red=True)
        for line in skipped:
            terminalreporter.line(line)


class SkipLedger:
    """Notes each skipped test or module with its reason."""

    def __init__(self, skipped: list[str], modules: list[str]) -> None:
        self._skipped = skipped
        self._modules = modules

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes a skipped test; one that is expected to fail and does is none."""
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped.append(f"{report.nodeid}: {reason_of(report)}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Notes a module that was skipped whole."""
        if report.skipped:
            line = f"{report.nodeid}: {reason_of(report)}"
            self._skipped.append(line)
            self._modules.append(line)


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a report is a skip, in the words of the test."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)
