"""What OpenSSL says of a handshake is told in plain words, with the variable and the file to look at."""

import ssl
from dataclasses import replace

import pytest

from otel_logger_exporters.endpoints import endpoint_from_environ
from otel_logger_exporters.signals import Signal
from otel_logger_exporters.tls import tls_problem

ENDPOINT, _ = endpoint_from_environ({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c:4318"}, Signal.METRICS)
CA = "OTEL_EXPORTER_OTLP_CERTIFICATE"
CERTIFICATE, KEY = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_KEY"


def _distrust(code, message="of OpenSSL"):
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, message
    return error


def _error(reason):
    error = ssl.SSLError(1, f"[SSL: {reason}] {reason.lower()} (_ssl.c:1006)")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (9, "the server's certificate is not valid yet, or the clock of this machine is behind"),
        (10, "the server's certificate has expired"),
        *[
            (
                code,
                "no authority that this machine knows has signed the server's certificate: "
                f"give the one that has in {CA}",
            )
            for code in (2, 18, 19, 20, 21)
        ],
        (62, "the server's certificate is for another name: of OpenSSL"),
        (23, "the server's certificate is not accepted: of OpenSSL"),
    ],
)
def test_why_a_server_is_not_trusted(code, problem):
    """Each of the reasons that OpenSSL numbers has its words; the rest are told in OpenSSL's."""
    assert problem == tls_problem(_distrust(code), ENDPOINT)


@pytest.mark.parametrize(
    ("reason", "without", "having"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "asks for", "certificate required"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", "probably asks for", "handshake failure"),
        ("TLSV1_ALERT_UNKNOWN_CA", "asks for", "unknown ca"),
        ("SSLV3_ALERT_BAD_CERTIFICATE", "asks for", "bad certificate"),
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", "asks for", "certificate expired"),
    ],
)
def test_why_a_server_does_not_trust_us(reason, without, having):
    """What a server says of our certificate depends on whether we showed one."""
    showing = replace(ENDPOINT, client_certificate="/x/c.pem", client_key="/x/c.key")

    assert (
        f"the server {without} a client's certificate: set {CERTIFICATE} and {KEY}",
        f"the server does not accept our certificate /x/c.pem ({CERTIFICATE}): {having}",
    ) == (tls_problem(_error(reason), ENDPOINT), tls_problem(_error(reason), showing))


@pytest.mark.parametrize("reason", ["WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"])
def test_a_port_that_does_not_speak_tls(reason):
    """OpenSSL's words for it change with its versions."""
    assert (
        "the port does not speak TLS; if it is meant to be without, write http://c:4318 in OTEL_EXPORTER_OTLP_ENDPOINT"
    ) == tls_problem(_error(reason), ENDPOINT)


def test_what_has_no_words_is_told_as_it_is():
    """An unknown error is better than none; a file that cannot be read is told as that."""
    assert "[SSL: UNSUPPORTED_PROTOCOL]" in tls_problem(_error("UNSUPPORTED_PROTOCOL"), ENDPOINT)
    assert tls_problem(FileNotFoundError(2, "No such file or directory", "/x/ca.pem"), ENDPOINT).startswith(
        "a certificate file cannot be read: "
    )
