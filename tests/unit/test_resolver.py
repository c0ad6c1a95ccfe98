"""Names are looked up within a time, by one thread at most."""

import socket
import threading

import pytest

from otel_logger_exporters.resolver import Resolver

SOON = 0.02
PATIENCE = 5.0

FOUND = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 4318))]


class _Lookup:
    """Stands for getaddrinfo: answers when it is let, with what it is told to, and counts."""

    def __init__(self, *, waits=False):
        self.calls = []
        self.go = threading.Event()
        self.result = FOUND
        if not waits:
            self.go.set()

    def __call__(self, host, port, **options):
        self.calls.append((host, port))
        self.go.wait(PATIENCE)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def test_a_name_is_looked_up_each_time():
    """Addresses change: what was found is not kept."""
    lookup = _Lookup()
    resolver = Resolver(lookup)

    assert [FOUND, FOUND] == [resolver.resolve("c", 4318, PATIENCE) for _ in range(2)]
    assert [("c", 4318)] * 2 == lookup.calls


def test_a_slow_resolver_costs_the_time_given_and_is_asked_once():
    """A look-up that is late goes on; the next call takes its result."""
    lookup = _Lookup(waits=True)
    resolver = Resolver(lookup)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            resolver.resolve("c", 4318, SOON)
    assert 1 == len(lookup.calls)

    lookup.go.set()

    assert FOUND == resolver.resolve("c", 4318, PATIENCE)
    assert 1 == len(lookup.calls)


def test_a_late_failure_is_forgotten():
    """The network may be back: what came to nothing while nobody waited is tried anew."""
    lookup = _Lookup(waits=True)
    resolver = Resolver(lookup)
    lookup.result = socket.gaierror(socket.EAI_AGAIN, "later")
    with pytest.raises(TimeoutError):
        resolver.resolve("c", 4318, SOON)
    lookup.go.set()
    assert resolver._pending._done.wait(PATIENCE)
    lookup.result = FOUND

    assert FOUND == resolver.resolve("c", 4318, PATIENCE)


def test_another_host_is_not_answered_by_what_was_late():
    """A late look-up is for its own host and port alone."""
    lookup = _Lookup(waits=True)
    resolver = Resolver(lookup)
    with pytest.raises(TimeoutError):
        resolver.resolve("c", 4318, SOON)
    lookup.go.set()
    resolver.resolve("d", 4318, PATIENCE)

    assert [("c", 4318), ("d", 4318)] == lookup.calls


def test_failures_are_raised():
    """A name without an address raises what getaddrinfo raises; one that is no name at all does too."""
    lookup = _Lookup()
    lookup.result = socket.gaierror(socket.EAI_NONAME, "unknown")
    with pytest.raises(socket.gaierror, match="unknown"):
        Resolver(lookup).resolve("c", 4318, PATIENCE)

    lookup.result = UnicodeError("label too long")
    with pytest.raises(socket.gaierror, match="no valid name"):
        Resolver(lookup).resolve("c", 4318, PATIENCE)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_needs_no_thread(host):
    """An address in figures is not looked up anywhere, so that nothing can be late."""
    before = threading.active_count()
    seen = []
    Resolver(lambda *_, **__: seen.append(threading.active_count()) or FOUND).resolve(host, 4318, PATIENCE)

    assert [before] == seen


def test_without_a_thread_the_name_is_looked_up_all_the_same(monkeypatch):
    """At the interpreter's end, or at a container's limit, no thread can be started."""

    def refuse(self):
        msg = "can't start new thread"
        raise RuntimeError(msg)

    monkeypatch.setattr(threading.Thread, "start", refuse)

    assert FOUND == Resolver(_Lookup()).resolve("c", 4318, PATIENCE)
