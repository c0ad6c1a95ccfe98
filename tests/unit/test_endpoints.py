"""OTEL_EXPORTER_OTLP_* is read as the specification says, and refused with a remedy where it cannot be."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_logger_exporters.endpoint_urls import is_loopback
from otel_logger_exporters.endpoints import Endpoint, endpoint_from_environ, has_endpoint
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.signals import Signal
from tests.certificates import encrypted_key, make_pair

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"
OWN = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
PRINTABLE = [chr(code) for code in range(0x20, 0x7F)]


def _environ(**variables):
    return {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in variables.items()}


def _endpoint(signal=Signal.METRICS, **variables):
    return endpoint_from_environ(_environ(**variables), signal)[0]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Give two pairs of a key and its certificate."""
    folder = tmp_path_factory.mktemp("pem")
    return make_pair(folder, "one", "DNS:c"), make_pair(folder, "two", "DNS:c")


def _refusal(**variables):
    with pytest.raises(ConfigurationError) as caught:
        _endpoint(**variables)
    return str(caught.value)


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://c:4318", "http://c:4318/v1/metrics"),
        ("http://c:4318/", "http://c:4318/v1/metrics"),
        ("https://c/otlp", "https://c/otlp/v1/metrics"),
        ("https://c/otlp//", "https://c/otlp/v1/metrics"),
        ("HTTPS://c/otlp?k=v#f", "https://c/otlp/v1/metrics?k=v"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/metrics"),
    ],
)
def test_general_endpoint_is_a_base(base, url):
    """The signal's path is appended to the general endpoint, after its own path."""
    assert _endpoint(ENDPOINT=base).url == url


@pytest.mark.parametrize(
    ("own", "url"),
    [
        ("http://c:4318", "http://c:4318/"),
        ("http://c:4318/", "http://c:4318/"),
        ("https://c/api/otlp?k=v", "https://c/api/otlp?k=v"),
        ("https://c/v1/metrics/", "https://c/v1/metrics/"),
    ],
)
def test_own_endpoint_is_used_as_it_is(own, url):
    """A signal's own endpoint gets nothing appended but the slash of an empty path."""
    assert _endpoint(METRICS_ENDPOINT=own, ENDPOINT="http://elsewhere:4318").url == url


@pytest.mark.parametrize("signal", Signal)
def test_each_signal_has_its_path(signal):
    """The default endpoint is the specification's localhost with the signal's path."""
    assert _endpoint(signal).url == f"http://localhost:4318/v1/{signal.value}"


def test_grpc_default_is_port_4317():
    """With gRPC named and no endpoint, the specification's localhost:4317 is used without TLS."""
    endpoint = _endpoint(PROTOCOL="grpc")
    assert (endpoint.url, endpoint.insecure) == ("http://localhost:4317", True)


@pytest.mark.parametrize(
    ("url", "protocol"),
    [
        ("http://c:4317", "grpc"),
        ("http://c:4318", "http/protobuf"),
        ("https://c", "http/protobuf"),
        ("http://c:9999", "http/protobuf"),
        ("c:4317", "grpc"),
    ],
)
def test_protocol_is_guessed_by_port(url, protocol):
    """Port 4317 means gRPC, every other HTTP, when no protocol is given."""
    assert _endpoint(ENDPOINT=url).protocol == protocol


def test_given_protocol_beats_the_guess():
    """A protocol that is given counts, in any case and with blanks."""
    assert _endpoint(ENDPOINT="http://c:4317", PROTOCOL=" HTTP/Protobuf ").protocol == "http/protobuf"


@pytest.mark.parametrize(
    ("variables", "url", "insecure"),
    [
        ({"ENDPOINT": "c:4317"}, "https://c:4317", False),
        ({"ENDPOINT": "c:4317", "INSECURE": "TRUE"}, "http://c:4317", True),
        ({"ENDPOINT": "c:4317", "INSECURE": "true", "METRICS_INSECURE": "false"}, "https://c:4317", False),
        ({"ENDPOINT": "http://c:4317", "INSECURE": "false"}, "http://c:4317", True),
        ({"ENDPOINT": "https://c:4317", "INSECURE": "true"}, "https://c:4317", False),
        ({"ENDPOINT": "[::1]:4317"}, "https://[::1]:4317", False),
        ({"ENDPOINT": "c:9", "PROTOCOL": "grpc"}, "https://c:9", False),
    ],
)
def test_insecure_counts_without_scheme_only(variables, url, insecure):
    """The scheme decides about TLS; a bare host:port of gRPC asks the INSECURE variable, which is false by default."""
    endpoint = _endpoint(**variables)
    assert (endpoint.url, endpoint.insecure) == (url, insecure)


def test_path_of_a_grpc_endpoint_is_left_out_and_told():
    """gRPC has no use for a path; a note says that it is not used."""
    endpoint, notes = endpoint_from_environ(_environ(ENDPOINT="http://c:4317/v1/metrics"), Signal.METRICS)
    assert endpoint.url == "http://c:4317"
    assert notes == (f"the path in {BASE} is left out: gRPC has fixed paths",)


def test_own_variable_wins_everywhere(pairs):
    """Every variable of the signal's own beats the general one, and an empty one does not."""
    general, own = pairs
    variables = {
        "ENDPOINT": ("http://g:1", "https://o:2/p"),
        "HEADERS": ("a=g", "a=o"),
        "PROTOCOL": ("grpc", "http/protobuf"),
        "COMPRESSION": ("none", "gzip"),
        "TIMEOUT": ("1000", "2000"),
        "CERTIFICATE": (str(general.certificate), str(own.certificate)),
        "CLIENT_KEY": (str(general.key), str(own.key)),
        "CLIENT_CERTIFICATE": (str(general.certificate), str(own.certificate)),
    }
    both = {name: values[0] for name, values in variables.items()}
    both |= {f"METRICS_{name}": values[1] for name, values in variables.items()}
    files = {
        "certificate": str(own.certificate),
        "client_key": str(own.key),
        "client_certificate": str(own.certificate),
    }
    expected = Endpoint(
        Signal.METRICS, "https://o:2/p", "http/protobuf", (("a", "o"),), "gzip", 2.0, insecure=False, **files
    )
    assert _endpoint(**both) == expected
    emptied = {name: "" if name.startswith("METRICS_") else value for name, value in both.items()}
    assert _endpoint(**emptied).url == "http://g:1"
    assert _endpoint(**emptied).headers == (("a", "g"),)
    assert {f"OTEL_EXPORTER_OTLP_METRICS_{name}" for name in variables} == {
        _endpoint(**both).variable(name) for name in variables
    }
    assert "OTEL_EXPORTER_OTLP_HEADERS" == _endpoint(**emptied).variable("HEADERS")


def test_whether_an_endpoint_is_given():
    """An endpoint is given by either variable, by an empty one it is not."""
    assert has_endpoint({BASE: "http://c:4318"}, Signal.LOGS)
    assert has_endpoint({OWN: "http://c:4318"}, Signal.METRICS)
    assert not has_endpoint({OWN: "http://c:4318"}, Signal.LOGS)
    assert not has_endpoint({BASE: " "}, Signal.LOGS)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"ENDPOINT": "c:9999"}, f"{BASE}='c:9999' has no scheme, which http/protobuf needs: write http://c:9999"),
        ({"ENDPOINT": "c"}, f"{BASE}='c' has no scheme, which http/protobuf needs: write http://c"),
        ({"ENDPOINT": "c", "PROTOCOL": "grpc"}, f"{BASE}='c' has no scheme and no port: give host:port"),
        ({"ENDPOINT": "c:4318", "PROTOCOL": "http/protobuf"}, "has no scheme"),
        ({"ENDPOINT": "ftp://c"}, f"{BASE}='ftp://c' has the scheme 'ftp': give http://... or https://..."),
        ({"ENDPOINT": "unix:/run/otlp.sock"}, "has the scheme 'unix'"),
        ({"ENDPOINT": "unix:///run/otlp.sock", "PROTOCOL": "grpc"}, "has the scheme 'unix'"),
        ({"ENDPOINT": "http://"}, "names no valid host"),
        ({"ENDPOINT": "http://:4318"}, "names no valid host"),
        ({"ENDPOINT": "http://a b:4318"}, "names no valid host"),
        ({"ENDPOINT": "http://a..b:4318"}, "names no valid host"),
        ({"ENDPOINT": "http://[1.2.3.4]:4318"}, f"{BASE}='http://[1.2.3.4]:4318' "),
        ({"ENDPOINT": "http://c:0"}, "names no valid host and port"),
        ({"ENDPOINT": "http://c:65536"}, "the port is a number from 1 to 65535"),
        ({"ENDPOINT": "http://c:http"}, "the port is a number from 1 to 65535"),
        ({"ENDPOINT": "http://[::1:4318"}, "IPv6 stands in brackets"),
        ({"METRICS_ENDPOINT": "c:1"}, f"{OWN}='c:1' has no scheme"),
        ({"PROTOCOL": "http/json"}, "='http/json' is not supported: give http/protobuf or grpc"),
        ({"PROTOCOL": "udp"}, "='udp' is not understood: give http/protobuf or grpc"),
        ({"COMPRESSION": "zstd"}, "='zstd' is not understood: give none or gzip"),
        ({"INSECURE": "yes"}, "='yes' is not understood: give true or false"),
        ({"CERTIFICATE": "/no/such.pem"}, "='/no/such.pem' cannot be read (No such file or directory): give the path"),
        ({"CERTIFICATE": "/"}, "='/' cannot be read (Is a directory)"),
    ],
)
def test_mistakes_are_refused_with_a_remedy(variables, message):
    """The message names the variable, quotes its value and says what would be right."""
    refusal = _refusal(**variables)
    assert message in refusal
    assert refusal.startswith("OTEL_EXPORTER_OTLP_")


@pytest.mark.parametrize(
    "url",
    [
        "http://user:geheim@c:4318",
        "http://geheim@c:4318",
        "user:geheim@c:4317",
        "http://user:geh/eim@c:4318",
        "http://user:geh?eim@c",
        "ftp://user:geheim@c",
        "http://c:99999/?key=geheim",
        "http://a b/?key=x@geheim",
    ],
)
def test_secrets_in_a_url_are_never_quoted(url):
    """A user in the URL is refused, and neither that nor any other refusal shows a password or a query."""
    refusal = _refusal(ENDPOINT=url)
    assert "geh" not in refusal
    assert "eim" not in refusal


def test_user_in_a_url_belongs_in_the_headers():
    """The remedy for a user in the URL names the variable of headers."""
    assert _refusal(METRICS_ENDPOINT="http://user:geheim@c:4318") == (
        f"{OWN} has a user in the URL: set OTEL_EXPORTER_OTLP_METRICS_HEADERS to "
        "authorization=Basic%20<base64 of user:password>"
    )


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("", ()),
        ("k=v", (("k", "v"),)),
        (" Authorization = Basic%20a%2Cb== , x-t=1,", (("authorization", "Basic a,b=="), ("x-t", "1"))),
        ("k=", (("k", ""),)),
        ("k=1,K=2", (("k", "2"),)),
        ("k=a;b=c", (("k", "a;b=c"),)),
        ("k=100%", (("k", "100%"),)),
    ],
)
def test_headers_are_pairs_with_percent_encoded_values(text, headers):
    """Names are trimmed and lowered, values decoded, empty pairs left out, the last of a name counts."""
    assert _endpoint(HEADERS=text).headers == headers


@given(st.dictionaries(st.sampled_from(["a", "x-key", "authorization"]), st.text(alphabet=PRINTABLE)))
def test_headers_survive_the_environment(headers):
    """Any printable value, percent-encoded, is read back as it was."""
    text = ",".join(f"{name}={quote(value, safe='')}" for name, value in headers.items())
    assert dict(_endpoint(HEADERS=text).headers) == headers


@pytest.mark.parametrize("text", ["a=1,geheim", "a=1,ge heim=x", "a=1,=geheim", "a=1,k=geheim%0Ax", "a=1,k=geheim%FF"])
def test_malformed_headers_are_named_by_position(text):
    """What is wrong with headers is told by position alone, for it may be a key."""
    refusal = _refusal(HEADERS=text)
    assert "pair 2" in refusal
    assert refusal.startswith("OTEL_EXPORTER_OTLP_HEADERS")
    assert "heim" not in refusal


def test_grpc_takes_fewer_header_names_than_http():
    """A name that HTTP allows and gRPC does not is refused for gRPC only."""
    assert _endpoint(HEADERS="a!=1").headers == (("a!", "1"),)
    assert "pair 1" in _refusal(HEADERS="a!=1", PROTOCOL="grpc")


def test_timeout_is_in_milliseconds():
    """The timeout is whole milliseconds, ten seconds by default."""
    assert _endpoint().timeout == 10.0
    assert _endpoint(TIMEOUT="500").timeout == 0.5


def test_small_timeout_is_read_as_seconds_and_told():
    """A timeout below 500 is seconds, and a note says so."""
    endpoint, notes = endpoint_from_environ(_environ(TIMEOUT="30"), Signal.METRICS)
    assert endpoint.timeout == 30.0
    assert notes == ("OTEL_EXPORTER_OTLP_TIMEOUT=30 is read as 30 s (milliseconds start at 500)",)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "soon", "86400001"])
def test_impossible_timeout_is_refused(text):
    """A timeout that is zero, negative, no number or beyond a day is refused."""
    assert _refusal(TIMEOUT=text) == (
        f"OTEL_EXPORTER_OTLP_TIMEOUT={text!r} is not understood: give whole milliseconds, from 1 to 86400000"
    )


def test_client_key_and_certificate_come_together(pairs):
    """Half a client certificate is refused, naming both variables."""
    key, certificate = str(pairs[0].key), str(pairs[0].certificate)
    assert _refusal(CLIENT_KEY=key) == (
        "OTEL_EXPORTER_OTLP_CLIENT_KEY is set without OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: "
        "a client certificate needs both"
    )
    assert _refusal(METRICS_CLIENT_CERTIFICATE=certificate).startswith(
        "OTEL_EXPORTER_OTLP_METRICS_CLIENT_CERTIFICATE is set without OTEL_EXPORTER_OTLP_CLIENT_KEY:"
    )
    assert _endpoint(CLIENT_KEY=key, METRICS_CLIENT_CERTIFICATE=certificate).client_key == key


def test_files_that_are_no_certificates_are_refused(pairs, tmp_path):
    """What is in the files is looked at: no certificate, no key, a key of another certificate, one with a password."""
    one, two = pairs
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
    own = {"CLIENT_KEY": str(one.key), "CLIENT_CERTIFICATE": str(one.certificate)}
    name = "OTEL_EXPORTER_OTLP_CLIENT"

    assert _refusal(CERTIFICATE=str(nothing)) == (
        f"OTEL_EXPORTER_OTLP_CERTIFICATE={str(nothing)!r} holds no certificate: "
        "give a PEM file of the authorities to trust"
    )
    assert _refusal(**{**own, "CLIENT_CERTIFICATE": str(two.certificate)}) == (
        f"{name}_KEY={str(one.key)!r} is not the key of the certificate in {name}_CERTIFICATE={str(two.certificate)!r}"
    )
    assert _refusal(**{**own, "CLIENT_KEY": str(nothing)}) == (
        f"{name}_KEY={str(nothing)!r} and {name}_CERTIFICATE={str(one.certificate)!r} are not understood: "
        "give PEM files of a private key and of its certificate"
    )
    assert _refusal(**{**own, "CLIENT_KEY": str(encrypted_key(tmp_path, one))}).endswith(
        "encrypted.key' is encrypted: give a key without a password"
    )


@pytest.mark.parametrize(
    ("variables", "compression", "is_asked"),
    [
        ({"ENDPOINT": "http://c:4318"}, "gzip", False),
        ({"ENDPOINT": "http://c:4317"}, "gzip", False),
        ({"ENDPOINT": "http://10.0.0.7:4318"}, "gzip", False),
        ({}, "none", False),
        ({"ENDPOINT": "http://127.0.0.1:4318"}, "none", False),
        ({"ENDPOINT": "http://[::1]:4317"}, "none", False),
        ({"ENDPOINT": "http://c:4318", "COMPRESSION": "none"}, "none", True),
        ({"ENDPOINT": "http://c:4318", "METRICS_COMPRESSION": "none"}, "none", True),
        ({"ENDPOINT": "http://c:4318", "COMPRESSION": "gzip"}, "gzip", True),
        ({"COMPRESSION": " GZIP "}, "gzip", True),
        ({"ENDPOINT": "http://c:4318", "COMPRESSION": " "}, "gzip", False),
    ],
)
def test_what_leaves_this_machine_is_compressed(variables, compression, is_asked):
    """Unless it is said otherwise requests are compressed, but not to this machine itself."""
    endpoint = _endpoint(**variables)
    assert (endpoint.compression, endpoint.is_compression_asked) == (compression, is_asked)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *[(host, True) for host in ("localhost", "LocalHost.", "a.localhost", "127.0.0.1", "127.8.9.10", "::1")],
        *[(host, True) for host in ("0.0.0.0", "::", "::ffff:127.0.0.1")],
        *[(host, False) for host in ("localhost.org", "mylocalhost", "10.0.0.1", "fe80::1", "::ffff:10.0.0.1", "")],
    ],
)
def test_what_is_this_machine(host, expected):
    """This machine is known by what is written alone, without looking a name up."""
    assert expected == is_loopback(host)


def test_proxy_is_part_of_the_endpoint_and_of_its_description():
    """The proxy comes from the same environment, and is named where people read, without its password."""
    environ = {"HTTPS_PROXY": "http://user:geheim@p:3128", **_environ(ENDPOINT="https://c/otlp")}
    endpoint, _ = endpoint_from_environ(environ, Signal.METRICS)
    assert endpoint.proxy is not None
    assert "c:443 (http/protobuf) through the proxy p:3128 (HTTPS_PROXY)" == endpoint.describe()
    assert "geheim" not in repr(endpoint)
    assert endpoint_from_environ({**environ, "NO_PROXY": "c"}, Signal.METRICS)[0].proxy is None


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://c/otlp?k=geheim", "c:443 (http/protobuf)"),
        ("http://c", "c:80 (http/protobuf)"),
        ("http://[::1]:4317", "[::1]:4317 (grpc)"),
    ],
)
def test_description_is_address_and_protocol(url, address):
    """What people read has host, port and protocol, and nothing that could be a secret."""
    endpoint = _endpoint(ENDPOINT=url, HEADERS="authorization=geheim")
    assert endpoint.describe() == address
    assert repr(endpoint) == f"<Endpoint of metrics: {address}>"
