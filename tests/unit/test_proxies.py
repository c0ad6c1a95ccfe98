"""Proxies are found in the environment as curl, Requests, Go and gRPC find them; their passwords are never shown."""

from base64 import b64decode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.proxies import Proxy, proxy_from_environ

HTTP, GRPC = "http/protobuf", "grpc"


def _proxy(environ, *, protocol=HTTP, scheme="http", host="collector.example", port=4318):
    return proxy_from_environ(environ, protocol, scheme, host, port)


def _refusal(environ, **where):
    with pytest.raises(ConfigurationError) as caught:
        _proxy(environ, **where)
    return str(caught.value)


def _is_proxied(no_proxy, host, port=4318):
    return _proxy({"http_proxy": "p:1", "no_proxy": no_proxy}, host=host, port=port) is not None


@pytest.mark.parametrize(
    ("environ", "where", "variable"),
    [
        ({"http_proxy": "p:1", "https_proxy": "q:1"}, {}, "http_proxy"),
        ({"http_proxy": "p:1", "https_proxy": "q:1"}, {"scheme": "https"}, "https_proxy"),
        ({"HTTP_PROXY": "p:1"}, {}, "HTTP_PROXY"),
        ({"HTTP_PROXY": "p:1", "http_proxy": "q:1"}, {}, "http_proxy"),
        ({"HTTP_PROXY": "p:1", "ALL_PROXY": "q:1"}, {}, "HTTP_PROXY"),
        ({"ALL_PROXY": "q:1"}, {}, "ALL_PROXY"),
        ({"all_proxy": "q:1"}, {"scheme": "https"}, "all_proxy"),
        ({"HTTPS_PROXY": "p:1"}, {}, None),
        ({"HTTP_PROXY": "p:1"}, {"scheme": "https"}, None),
        ({"HTTP_PROXY": "p:1", "http_proxy": ""}, {}, None),
        ({"HTTP_PROXY": " ", "ALL_PROXY": "q:1"}, {}, None),
        ({}, {}, None),
        ({"grpc_proxy": "p:1", "https_proxy": "q:1"}, {"protocol": GRPC}, "grpc_proxy"),
        ({"https_proxy": "p:1", "http_proxy": "q:1"}, {"protocol": GRPC}, "https_proxy"),
        ({"HTTP_PROXY": "p:1"}, {"protocol": GRPC, "scheme": "https"}, "HTTP_PROXY"),
        ({"ALL_PROXY": "p:1"}, {"protocol": GRPC}, "ALL_PROXY"),
        ({"grpc_proxy": "p:1"}, {}, None),
    ],
)
def test_which_variable_counts(environ, where, variable):
    """That of the scheme, small before capitals, then the one for all; gRPC's own order; set to nothing means none."""
    proxy = _proxy(environ, **where)
    assert variable == (proxy.variable if proxy else None)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://p:3128", "http://p:3128"),
        ("p:3128", "http://p:3128"),
        ("p", "http://p:80"),
        ("https://p", "https://p:443"),
        ("HTTP://P.Example:3128/", "http://p.example:3128"),
        ("http://[::1]:3128", "http://[::1]:3128"),
        ("http://user:pa%40ss@p:3128", "http://p:3128"),
    ],
)
def test_url_of_a_proxy(text, url):
    """A scheme and a port may be left out, as curl and Requests let them."""
    assert url == _proxy({"http_proxy": text}).url


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("http://user:pa%40ss%2Fw%25@p:1", "user:pa@ss/w%"),
        ("user:secret@p:1", "user:secret"),
        ("http://user@p:1", "user:"),
        ("http://us%C3%A9r:p@p:1", "usér:p"),
        ("http://user:a@b@p:1", "user:a@b"),
    ],
)
def test_user_and_password_become_a_header(text, pair):
    """User and password are percent-decoded and sent as Basic credentials."""
    kind, _, credentials = _proxy({"http_proxy": text}).authorization.partition(" ")
    assert ("Basic", pair) == (kind, b64decode(credentials).decode())


@pytest.mark.parametrize(
    ("no_proxy", "host"),
    [
        ("*", "anything.example"),
        ("collector.example", "collector.example"),
        ("example", "collector.example"),
        (".example", "collector.example"),
        (".collector.example", "collector.example"),
        ("*.example", "a.b.example"),
        ("EXAMPLE", "Collector.Example."),
        ("a, b.c , example", "collector.example"),
        ("a example", "collector.example"),
        ("collector.example:4318", "collector.example"),
        ("10.0.0.0/8", "10.1.2.3"),
        ("10.1.2.3", "10.1.2.3"),
        ("10.1.2.3/8", "10.200.0.1"),
        ("fd00::/8", "fd12::1"),
        ("FD12:0::1", "fd12::1"),
        ("[fd12::1]", "fd12::1"),
        ("[fd12::1]:4318", "fd12::1"),
    ],
)
def test_exceptions(no_proxy, host):
    """An exception is `*`, a name or one below it, an address, a network, each with or without a port."""
    assert not _is_proxied(no_proxy, host)


@pytest.mark.parametrize(
    ("no_proxy", "host"),
    [
        ("", "collector.example"),
        ("ample", "collector.example"),
        ("collector.example:4317", "collector.example"),
        ("a.collector.example", "collector.example"),
        ("10.0.0.0/8", "11.1.2.3"),
        ("10.0.0.0/8", "collector.example"),
        ("1.2.3", "10.1.2.3"),
        ("fd00::/8", "10.1.2.3"),
        ("[fd12::1]:4317", "fd12::1"),
        ("10.0.0.0/nonsense,/8,:,.", "10.1.2.3"),
    ],
)
def test_what_is_no_exception(no_proxy, host):
    """A part of a label, another port, another network: none of these is an exception, nor is what makes no sense."""
    assert _is_proxied(no_proxy, host)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_this_machine_is_never_reached_through_a_proxy(host):
    """A proxy would look for the Collector on its own machine; not even a proxy that makes no sense is looked at."""
    assert _proxy({"http_proxy": "nonsense://"}, host=host) is None


def test_grpc_has_exceptions_of_its_own():
    """`no_grpc_proxy` stands in place of `no_proxy` for gRPC, and for gRPC alone."""
    environ = {"http_proxy": "p:1", "no_proxy": "*", "no_grpc_proxy": "elsewhere"}
    assert _proxy(environ) is None
    assert _proxy(environ, protocol=GRPC) is not None


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        (
            "socks5://p:1080",
            {},
            "all_proxy='socks5://p:1080' has the scheme 'socks5': http/protobuf goes through proxies of http or https "
            "alone. Give http://host:port, or add collector.example to NO_PROXY",
        ),
        ("https://p:1", {"protocol": GRPC}, "has the scheme 'https': grpc goes through proxies of http alone."),
        ("http://", {}, "all_proxy='http://' names no valid host and port of a proxy: give http://host:port"),
        ("http://p:0", {}, "names no valid host and port"),
        ("http://a b:1", {}, "names no valid host and port"),
        ("http://p:99999", {}, "is no URL of a proxy: give http://host:port"),
        ("http://[::1:1", {}, "is no URL of a proxy"),
        ("p:port", {}, "is no URL of a proxy"),
    ],
)
def test_mistakes_are_refused_with_a_remedy(text, where, message):
    """The message names the variable, quotes its value and says what would be right."""
    refusal = _refusal({"all_proxy": text}, **where)
    assert message in refusal
    assert refusal.startswith("all_proxy=")


@pytest.mark.parametrize(
    "text",
    [
        "socks5://user:geheim@p:1080",
        "user:geheim@p:port",
        "http://user:geh/eim@p:1",
        "http://user:geh://eim@p:1",
        "http://user:geheim@:1",
        "http://p:port/?key=geheim",
        "http://geheim@p:99999",
    ],
)
def test_passwords_are_never_quoted(text):
    """No refusal shows a user, a password or a query."""
    refusal = _refusal({"all_proxy": text})
    assert "geh" not in refusal
    assert "eim" not in refusal


def test_a_proxy_shows_no_password():
    """Neither what people read nor what a debugger shows has the credentials."""
    proxy = _proxy({"HTTP_PROXY": "http://user:geheim@p:3128"})
    assert "p:3128 (HTTP_PROXY)" == proxy.describe()
    assert "Basic" not in repr(proxy)
    assert Proxy("HTTP_PROXY", "http", "p", 3128, proxy.authorization) == proxy


@settings(max_examples=30)
@given(st.text(max_size=30), st.text(max_size=30))
def test_whatever_the_variables_hold_is_understood_or_refused(text, no_proxy):
    """No value raises anything but ConfigurationError."""
    try:
        _proxy({"http_proxy": text, "no_proxy": no_proxy})
    except ConfigurationError:
        pass
