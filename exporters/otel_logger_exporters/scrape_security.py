"""Who may scrape, and by what certificate the endpoint is known: TLS, clients' certificates, a user with a password."""

import base64
import binascii
import hmac
import ssl
from dataclasses import dataclass, field

from otel_logger_exporters.certificates import check_authorities, check_client
from otel_logger_exporters.errors import ConfigurationError

__all__ = ["ScrapeSecurity"]


@dataclass(frozen=True, slots=True)
class ScrapeSecurity:
    """PEM files of the server's certificate and key, of the authorities of clients, and `user:password`; or None.

    `variables` are the names of the settings that these come from, for messages. ConfigurationError at construction
    for files that cannot be used.
    """

    certificate: str | None = None
    key: str | None = None
    client_ca: str | None = None
    auth: str | None = field(default=None, repr=False)
    variables: tuple[str, str, str] = ("certificate", "key", "client_ca")

    def __post_init__(self) -> None:
        """Look into the files."""
        for_certificate, for_key, for_authorities = self.variables
        for variable, path in zip(self.variables, (self.certificate, self.key, self.client_ca), strict=True):
            if path is not None:
                _check_readable(variable, path)
        if self.certificate is not None and self.key is not None:
            check_client(for_key, self.key, for_certificate, self.certificate)
        elif self.certificate is not None or self.key is not None:
            given, missing = (for_certificate, for_key) if self.key is None else (for_key, for_certificate)
            msg = f"{given} is set without {missing}: TLS needs both"
            raise ConfigurationError(msg)
        elif self.client_ca is not None:
            msg = f"{for_authorities} is set without {for_certificate} and {for_key}: clients show certificates in TLS"
            raise ConfigurationError(msg)
        if self.client_ca is not None:
            check_authorities(for_authorities, self.client_ca)

    @property
    def scheme(self) -> str:
        """`https` with a certificate, else `http`."""
        return "http" if self.certificate is None else "https"

    def context(self) -> ssl.SSLContext | None:
        """Return what TLS needs, None without TLS; raises OSError or ValueError when a file is no good any more."""
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(self.certificate, self.key, password="")
        if self.client_ca is not None:
            context.load_verify_locations(self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def admits(self, authorization: str | None) -> bool:
        """Tell whether a request with this header may have the page; in a time that does not depend on the password."""
        if self.auth is None:
            return True
        scheme, _, credentials = (authorization or "").partition(" ")
        try:
            given = base64.b64decode(credentials.strip(), validate=True) if scheme.lower() == "basic" else b""
        except (binascii.Error, ValueError):
            given = b""
        return hmac.compare_digest(given, self.auth.encode())


def _check_readable(variable: str, path: str) -> None:
    try:
        with open(path, "rb") as file:
            file.read(1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        msg = f"{variable}={path!r} cannot be read ({reason}): give the path of a readable PEM file"
        raise ConfigurationError(msg) from None
