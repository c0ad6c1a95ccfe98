"""Certificate files, looked into when they are configured: what is wrong with them is told before the first request."""

from pathlib import Path
from typing import TYPE_CHECKING

from otel_logger_exporters.errors import ConfigurationError

if TYPE_CHECKING:
    import ssl

__all__ = ["check_authorities", "check_client"]


def check_authorities(variable: str, path: str) -> None:
    """Raise ConfigurationError unless a file holds certificates to trust."""
    try:
        _context().load_verify_locations(path)
    except (OSError, ValueError):
        msg = f"{variable}={path!r} holds no certificate: give a PEM file of the authorities to trust"
        raise ConfigurationError(msg) from None


def check_client(key_variable: str, key: str, certificate_variable: str, certificate: str) -> None:
    """Raise ConfigurationError unless the files hold a private key, without a password, and the certificate of it."""
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        _context().load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        if "KEY_VALUES_MISMATCH" in (getattr(error, "reason", None) or ""):
            msg = f"{key_variable}={key!r} is not the key of the certificate in {certificate_variable}={certificate!r}"
        elif b"ENCRYPTED" in Path(key).read_bytes():
            msg = f"{key_variable}={key!r} is encrypted: give a key without a password"
        else:
            msg = (
                f"{key_variable}={key!r} and {certificate_variable}={certificate!r} are not understood: "
                "give PEM files of a private key and of its certificate"
            )
        raise ConfigurationError(msg) from None


def _context() -> "ssl.SSLContext":
    # Ten milliseconds that most loggers need not pay.
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
