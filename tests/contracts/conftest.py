"""Fixtures of the contract tests.

Of transports: each protocol, a server of it, and transports that are closed. Of deaths: children beside collectors."""

import contextlib
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_logger_exporters.signals import Signal
from otel_logger_exporters.transports import Transport, open_transport
from tests.children import COLLECTORS, ENOUGH, HEAD, OPEN, Begin, Child, Collector
from tests.exports import AGENT, PROTOCOLS, make_endpoint
from tests.otlp_server import OtlpServer


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    """Give each of the protocols."""
    return str(request.param)


@pytest.fixture
def server(protocol: str) -> Iterator[OtlpServer]:
    """Give a running server of the protocol."""
    with OtlpServer(protocol) as running:
        yield running


@pytest.fixture
def connect(protocol: str) -> Iterator[Callable[..., Transport]]:
    """Give a function that opens transports to an address and closes them in the end."""
    opened: list[Transport] = []

    def connect_to(url: str, signal: Signal = Signal.METRICS, **variables: Any) -> Transport:
        opened.append(open_transport(make_endpoint(url, protocol, signal, **variables), AGENT))
        return opened[-1]

    yield connect_to
    for transport in opened:
        transport.close()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Return a function that begins a program, with a logger, beside a collector of its own."""
    with contextlib.ExitStack() as stack:

        def run(
            program: str,
            kind: str = "up",
            protocol: str = "http/protobuf",
            *,
            opening: str = OPEN,
            **environ: str,
        ) -> tuple[Child, Collector]:
            collector = stack.enter_context(Collector(kind, protocol))
            folder = tmp_path / kind
            folder.mkdir()
            text = HEAD + opening + textwrap.dedent(program)
            child = stack.enter_context(Child(text, folder, collector.environ | environ))
            child.wait_for("folder")
            return child, collector

        yield run


@pytest.fixture
def begin_with_each(begin: Begin) -> Callable[..., list[tuple[Child, Collector]]]:
    """Return a function that begins a program beside a collector of each kind, and waits until each has logged."""

    def run(program: str, kinds: Iterable[str] = COLLECTORS) -> list[tuple[Child, Collector]]:
        begun = [begin(program, kind, COLLECTORS[kind]) for kind in kinds]
        for child, collector in begun:
            child.wait_for("step", ENOUGH)
            collector.wait_until_used()
        return begun

    return run
