"""Fixtures of the contract tests of transports: each protocol, a server of it, and transports that are closed."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from otel_logger_exporters.signals import Signal
from otel_logger_exporters.transports import Transport, open_transport
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
