"""TLS to an endpoint: whom we trust and what we show, and in plain words why a handshake failed."""

import ssl

from otel_logger_exporters.deadline import Deadline
from otel_logger_exporters.endpoint_urls import GRPC
from otel_logger_exporters.endpoints import Endpoint
from otel_logger_exporters.responses import shortened
from otel_logger_exporters.sockets import PunctualContext

__all__ = ["certificate_problem", "client_context", "proxy_context", "tls_problem"]

# X509_V_ERR_* of OpenSSL.
_EXPIRED = 10
_NOT_YET = 9
_UNTRUSTED = (2, 18, 19, 20, 21)
_OTHER_NAME = (62, 63, 64)

_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")
"""What OpenSSL makes of a server that answers a handshake with something else, in several of its versions."""

_ABOUT_OURS = (
    *("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "UNSUPPORTED_CERTIFICATE", "CERTIFICATE_REVOKED"),
    *("CERTIFICATE_EXPIRED", "CERTIFICATE_UNKNOWN", "UNKNOWN_CA", "ACCESS_DENIED", "HANDSHAKE_FAILURE"),
)
"""Alerts with which a server refuses the certificate that we show, or that we show none."""


def client_context(endpoint: Endpoint, deadline: Deadline, authorities: str | None = None) -> PunctualContext:
    """Return the context for an endpoint; raises OSError or ValueError when a file has changed and is no good now.

    `authorities` is a file of those to trust where the endpoint names none, in place of the system's.
    """
    context = PunctualContext.keeping(deadline)
    # So that the file may hold the server's own certificate, as it does for gRPC.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if (trusted := endpoint.certificate or authorities) is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(trusted)
    if endpoint.client_certificate is not None:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(endpoint.client_certificate, endpoint.client_key, password="")
    return context


def proxy_context(deadline: Deadline) -> PunctualContext:
    """Return the context for a proxy that is spoken to by TLS: the certificate files are about the endpoint."""
    context = PunctualContext.keeping(deadline)
    context.load_default_certs()
    return context


def tls_problem(error: Exception, endpoint: Endpoint) -> str:
    """Return why TLS with an endpoint failed and what to look at: a variable, a file."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _distrust(error, endpoint)
    reason = getattr(error, "reason", None) or ""
    if any(word in reason for word in _NO_TLS):
        variable = endpoint.variable("ENDPOINT")
        return (
            f"the port does not speak TLS; if it is meant to be without, write http://{endpoint.address} in {variable}"
        )
    if "ALERT" in reason and any(word in reason for word in _ABOUT_OURS):
        return certificate_problem(endpoint, reason.partition("ALERT_")[2])
    if isinstance(error, (FileNotFoundError, PermissionError, ValueError)) or "PEM" in reason or "X509" in str(error):
        return f"a certificate file cannot be read: {shortened(str(error))}"
    return shortened(str(error))


def _distrust(error: ssl.SSLCertVerificationError, endpoint: Endpoint) -> str:
    variable = endpoint.variable("CERTIFICATE")
    if error.verify_code == _EXPIRED:
        return "the server's certificate has expired"
    if error.verify_code == _NOT_YET:
        return "the server's certificate is not valid yet, or the clock of this machine is behind"
    if error.verify_code in _OTHER_NAME:
        return f"the server's certificate is for another name: {error.verify_message}"
    if error.verify_code not in _UNTRUSTED:
        return f"the server's certificate is not accepted: {error.verify_message}"
    if endpoint.certificate is not None:
        return f"no authority in {endpoint.certificate} ({variable}) has signed the server's certificate"
    known = "gRPC knows (it has a list of its own)" if endpoint.protocol == GRPC else "this machine knows"
    return f"no authority that {known} has signed the server's certificate: give the one that has in {variable}"


def certificate_problem(endpoint: Endpoint, alert: str) -> str:
    """Return what is wrong with the certificate that we show, or that we show none; `alert` is what the server said."""
    variable = endpoint.variable("CLIENT_CERTIFICATE")
    if endpoint.client_certificate is not None:
        said = f": {alert.lower().replace('_', ' ')}" if alert else ""
        return f"the server does not accept our certificate {endpoint.client_certificate} ({variable}){said}"
    wants = "probably asks for" if "HANDSHAKE" in alert else "asks for"
    return f"the server {wants} a client's certificate: set {variable} and {endpoint.variable('CLIENT_KEY')}"
