"""What an object store is opened with: the variables of its provider, and bounds of time.

The variables come from a mapping; obstore itself looks into the process's environment as well, for those of its own
that the mapping does not have. Proxies are the process's alone: its HTTP client reads HTTPS_PROXY, HTTP_PROXY and
NO_PROXY when it is made.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from otel_logger_exporters.blob_url import BLOB_STORE_VARIABLE, BlobUrl
from otel_logger_exporters.endpoint_urls import has_valid_host
from otel_logger_exporters.errors import ConfigurationError

__all__ = ["VARIABLES", "check_options", "client_options", "provider_options", "retry_options", "wants_profile"]

CONNECT_SECONDS = 5
"""A store that does not take a connection in this time is down."""

REQUEST_SECONDS = 300
"""For one request, its body included: all that is under way at once (96 MiB) at 320 KB a second."""

RETRIES = 3
RETRY_SECONDS = 30
"""Retries within one request, for what passes by itself; longer outages wait on disk, and the next try begins anew."""

BACKOFF_SECONDS = (0.2, 5)
"""The first and the longest pause between retries."""

VARIABLES: dict[str, dict[str, str]] = {
    "s3": {
        "AWS_ACCESS_KEY_ID": "access_key_id",
        "AWS_SECRET_ACCESS_KEY": "secret_access_key",
        "AWS_SESSION_TOKEN": "session_token",
        "AWS_REGION": "region",
        "AWS_DEFAULT_REGION": "default_region",
        "AWS_ENDPOINT_URL": "endpoint",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "web_identity_token_file",
        "AWS_ROLE_ARN": "role_arn",
        "AWS_ROLE_SESSION_NAME": "role_session_name",
        "AWS_ENDPOINT_URL_STS": "endpoint_url_sts",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "container_credentials_relative_uri",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": "container_credentials_full_uri",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "container_authorization_token_file",
        "AWS_METADATA_ENDPOINT": "metadata_endpoint",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "virtual_hosted_style_request",
        "AWS_UNSIGNED_PAYLOAD": "unsigned_payload",
        "AWS_SKIP_SIGNATURE": "skip_signature",
        "AWS_REQUEST_PAYER": "request_payer",
        "AWS_SERVER_SIDE_ENCRYPTION": "server_side_encryption",
        "AWS_SSE_KMS_KEY_ID": "sse_kms_key_id",
        "AWS_SSE_BUCKET_KEY_ENABLED": "sse_bucket_key_enabled",
        "AWS_SSE_CUSTOMER_KEY_BASE64": "sse_customer_key_base64",
        "AWS_CHECKSUM_ALGORITHM": "checksum_algorithm",
    },
    "gs": {
        "GOOGLE_APPLICATION_CREDENTIALS": "application_credentials",
        "GOOGLE_SERVICE_ACCOUNT": "service_account",
        "GOOGLE_SERVICE_ACCOUNT_PATH": "service_account",
        "GOOGLE_SERVICE_ACCOUNT_KEY": "service_account_key",
        "GOOGLE_BASE_URL": "base_url",
        "GOOGLE_BEARER_TOKEN": "bearer_token",
        "GOOGLE_SKIP_SIGNATURE": "skip_signature",
    },
    "az": {
        "AZURE_STORAGE_ACCOUNT_NAME": "account_name",
        "AZURE_STORAGE_ACCOUNT_KEY": "account_key",
        "AZURE_STORAGE_SAS_TOKEN": "sas_key",
        "AZURE_STORAGE_SAS_KEY": "sas_key",
        "AZURE_STORAGE_TOKEN": "token",
        "AZURE_STORAGE_ENDPOINT": "endpoint",
        "AZURE_STORAGE_USE_EMULATOR": "use_emulator",
        "AZURE_CLIENT_ID": "client_id",
        "AZURE_CLIENT_SECRET": "client_secret",
        "AZURE_TENANT_ID": "tenant_id",
        "AZURE_AUTHORITY_HOST": "authority_host",
        "AZURE_FEDERATED_TOKEN_FILE": "federated_token_file",
        "AZURE_IDENTITY_ENDPOINT": "msi_endpoint",
        "AZURE_OBJECT_ID": "object_id",
        "AZURE_MSI_RESOURCE_ID": "msi_resource_id",
        "AZURE_USE_AZURE_CLI": "use_azure_cli",
        "AZURE_SKIP_SIGNATURE": "skip_signature",
    },
    "memory": {},
}
"""For each scheme the variables that are handed on, and what obstore calls them."""

_ENDPOINT_OF_S3 = "AWS_ENDPOINT_URL_S3"
_ENDPOINT_OPTIONS = ("endpoint", "base_url", "msi_endpoint", "metadata_endpoint", "endpoint_url_sts")


def provider_options(url: BlobUrl, environ: Mapping[str, str]) -> dict[str, str]:
    """What obstore is to know of a provider, by its own names; variables that are empty count as unset."""
    options = {}
    for variable, option in VARIABLES[url.scheme].items():
        value = environ.get(variable, "").strip()
        if value:
            options[option] = value
    if url.scheme == "s3" and (endpoint := environ.get(_ENDPOINT_OF_S3, "").strip()):
        options["endpoint"] = endpoint  # the endpoint of one service goes before that of all
    return options


def client_options(url: BlobUrl, options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, Any]:
    """How requests are made: with bounds of time, in the clear only where an endpoint is `http://`."""
    client: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "timeout": timedelta(seconds=REQUEST_SECONDS),
        "user_agent": "otel_logger",
    }
    if any(options.get(name, "").lower().startswith("http://") for name in _ENDPOINT_OPTIONS):
        client["allow_http"] = True
    if url.scheme == "s3" and (bundle := environ.get("AWS_CA_BUNDLE", "").strip()):
        client["root_certificate"] = Path(bundle).read_bytes()
    return client


def retry_options() -> dict[str, Any]:
    """How often a request is tried again."""
    first, longest = BACKOFF_SECONDS
    return {
        "max_retries": RETRIES,
        "retry_timeout": timedelta(seconds=RETRY_SECONDS),
        "backoff": {"init_backoff": timedelta(seconds=first), "max_backoff": timedelta(seconds=longest), "base": 2},
    }


def wants_profile(url: BlobUrl, environ: Mapping[str, str]) -> bool:
    """Whether the keys are in the files of AWS's own tools, which obstore does not read."""
    return url.scheme == "s3" and bool(environ.get("AWS_PROFILE")) and not environ.get("AWS_ACCESS_KEY_ID")


def check_options(url: BlobUrl, environ: Mapping[str, str]) -> None:
    """Raise ConfigurationError for variables that no store could be opened with."""
    variables = dict(VARIABLES[url.scheme])
    if url.scheme == "s3":
        variables[_ENDPOINT_OF_S3] = "endpoint"
        _check_keys(url, environ)
        bundle = environ.get("AWS_CA_BUNDLE", "").strip()
        if bundle and not Path(bundle).is_file():
            msg = f"AWS_CA_BUNDLE={bundle!r} is no file: give one of certificates in PEM, or unset it"
            raise ConfigurationError(msg)
    if url.scheme == "az" and not (
        environ.get("AZURE_STORAGE_ACCOUNT_NAME") or environ.get("AZURE_STORAGE_USE_EMULATOR")
    ):
        msg = f"{BLOB_STORE_VARIABLE}={url.uri()!r} needs a storage account: set AZURE_STORAGE_ACCOUNT_NAME"
        raise ConfigurationError(msg)
    for variable, option in variables.items():
        value = environ.get(variable, "").strip()
        if option in _ENDPOINT_OPTIONS and value:
            _check_endpoint(variable, value)


def _check_keys(url: BlobUrl, environ: Mapping[str, str]) -> None:
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    given = [name for name in names if environ.get(name, "").strip()]
    if len(given) == 1:
        missing = next(name for name in names if name not in given)
        msg = f"{given[0]} is set and {missing} is not: {BLOB_STORE_VARIABLE}={url.uri()!r} needs both, or neither"
        raise ConfigurationError(msg)


def _check_endpoint(variable: str, value: str) -> None:
    # ValueError: of a port that is none, at which obstore panics, or brackets.
    with suppress(ValueError):
        parts = urlsplit(value)
        if parts.scheme in ("http", "https") and has_valid_host(parts) and parts.port != 0:
            return
    host = value.rpartition("@")[2].rpartition("://")[2].partition("?")[0]
    msg = f"{variable}={host!r} is no URL of a host: write https://host:port, or http:// where it speaks no TLS"
    raise ConfigurationError(msg)
