"""What goes wrong at an object store, as the errors that a `BlobStore` raises: by what would help."""

import contextlib
import errno
import re
from collections.abc import Iterator

from otel_logger_exporters.blob_meta import BlobForbiddenError, BlobUnavailableError

__all__ = ["ObjectChangedError", "ObjectMissingError", "UnsupportedConditionError", "translated", "unopened"]


class ObjectChangedError(OSError):
    """A condition on what is stored does not hold: it is there already, or is another by now."""


class ObjectMissingError(OSError):
    """There is no such object."""


class UnsupportedConditionError(OSError):
    """The store does not know conditions on what is stored."""


REMEDIES = {
    "s3": "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN (or AWS_PROFILE, with boto3), "
    "AWS_REGION and AWS_ENDPOINT_URL, and that they may get, put, delete and list objects in the bucket",
    "gs": "check GOOGLE_APPLICATION_CREDENTIALS (or GOOGLE_SERVICE_ACCOUNT), and that they may get, create, delete and "
    "list objects in the bucket",
    "az": "check AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (or AZURE_STORAGE_SAS_TOKEN, or "
    "AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET), and that they may read, write, delete and list blobs "
    "in the container",
    "memory": "memory takes anything: this is a defect of otel_logger",
}
"""What to do about a refusal, by the scheme of the store's URL."""

# Codes in the bodies of answers, or words of obstore itself. The HTTP statuses do not tell: S3 answers 400 to an
# expired token, and 404 both where there is no object and where there is no bucket.
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|InvalidBucketName|The specified bucket does not exist")
_NOT_TRUSTED = re.compile("InvalidCertificate|invalid peer certificate")
_FORBIDDEN = re.compile(
    "AccessDenied|AccountIsDisabled|AllAccessDisabled|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken"
    "|InvalidToken|InvalidClientTokenId|TokenRefreshRequired|AuthorizationHeaderMalformed|AuthenticationFailed"
    "|InvalidAuthenticationInfo|AuthorizationFailure|RequestTimeTooSkewed|PermanentRedirect|IllegalLocationConstraint"
    "|redirect without LOCATION|MethodNotAllowed|XAdminUserNotFound"
    # There are no credentials: obstore has asked the machine it runs on, as the last thing it knows.
    "|Missing(SecretAccessKey|AccessKeyId|AccessKey|Account)|169\\.254\\.|metadata\\.google"
)
# A store that is full says so with many statuses, some of which mean a refusal elsewhere.
_FULL = re.compile("QuotaExceeded|StorageFull|InsufficientStorage|OutOfCapacity|status code: 507", re.IGNORECASE)
# Stores over a file system, where a name cannot be a file and a folder; their status is that of a failed condition.
_IS_FOLDER = re.compile("ExistingObjectIsDirectory|XMinioObjectExistsAsDirectory")
_IN_FILE = re.compile("ObjectParentIsFile|XMinioParentIsObject")
_NO_CONDITIONS = re.compile("status code: 501|NotImplemented", re.IGNORECASE)

_MEND_TRUST = "set AWS_CA_BUNDLE (for s3) or SSL_CERT_FILE to the PEM file of the authority that signed its certificate"
_MEND_BUCKET = "make it, or correct OTEL_LOGGER_BLOB_STORE and the endpoint"

_QUERY = re.compile(r"(https?://[^\s?\"]*)\?[^\s\"]*")
_USER = re.compile(r"(https?://)[^\s/@\"]*@")
_DURATION = re.compile(r" in [\d.]+[nµm]?s\b(?:, after \d+ retries)?(?:, max_retries: \d+)?(?:, retry_timeout: \w+)?")
_XML = [re.compile(f"<{tag}>(.+?)</{tag}>", re.DOTALL) for tag in ("Code", "Message")]
# In what obstore adds for its developers; the first that is there says most.
_CAUSES = [
    re.compile(pattern)
    for pattern in (
        r"InvalidCertificate\(\s*(\w+)",
        r'message: "([^"]+)"',
        r'error: "([^"]+)"',
        r"\b(TimedOut)\b",
    )
]

_TOLD = 400


@contextlib.contextmanager
def translated(what: str, scheme: str, *, is_conditional: bool = False) -> Iterator[None]:
    """Raise what obstore raises as an OSError whose message begins with `what`, and as none of its own.

    A panic of its native code is one of these: no `Exception` at all, it would end the thread that uploads without a
    word. It becomes BlobUnavailableError, since the same file may well go through a store that is opened again.
    """
    try:
        yield
    except (ObjectChangedError, ObjectMissingError, UnsupportedConditionError, BlobUnavailableError):
        raise
    except Exception as error:
        raise _told(error, what, scheme, is_conditional) from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        msg = f"{what}: obstore failed inside: {_line(str(error))}"
        raise BlobUnavailableError(errno.EIO, msg) from None


def unopened(error: Exception, uri: str, scheme: str) -> BlobForbiddenError:
    """What to raise when a store cannot be opened: nothing was asked of it yet, so only its variables can be wrong."""
    return BlobForbiddenError(errno.EINVAL, f"cannot open {uri}: {_line(str(error))}; {REMEDIES[scheme]}")


def _told(error: Exception, what: str, scheme: str, is_conditional: bool) -> OSError:
    # By names, so that nothing has to be imported for it; all but a few of obstore's come as GenericError.
    kind, text = type(error).__name__, str(error)
    line = f"{what}: {_line(text)}"
    if isinstance(error, BlobForbiddenError):
        return error
    if _FULL.search(text):
        return BlobUnavailableError(errno.ENOSPC, f"{line}; the store is full")
    if _IS_FOLDER.search(text):
        return IsADirectoryError(errno.EISDIR, f"{line}; it is a folder of other files there: choose another name")
    if _IN_FILE.search(text):
        return NotADirectoryError(errno.ENOTDIR, f"{line}; a part of its path is a file there: choose another name")
    if kind in ("AlreadyExistsError", "PreconditionError"):
        return ObjectChangedError(errno.EEXIST, line)
    if is_conditional and (kind == "NotSupportedError" or _NO_CONDITIONS.search(text)):
        return UnsupportedConditionError(errno.ENOTSUP, line)
    if remedy := _remedy(kind, text, scheme):
        return BlobForbiddenError(errno.EACCES, f"{line}; {remedy}")
    if kind in ("NotFoundError", "FileNotFoundError"):
        return ObjectMissingError(errno.ENOENT, line)
    if kind in ("ValueError", "InvalidPathError", "TypeError"):
        return OSError(errno.EINVAL, line)
    if isinstance(error, OSError) and error.errno is not None:
        return error  # of a local file
    return BlobUnavailableError(errno.EIO, line)


def _remedy(kind: str, text: str, scheme: str) -> str | None:
    """What has to be mended before another try can go well, None where nothing has to."""
    if _NO_BUCKET.search(text):
        return _MEND_BUCKET
    if _NOT_TRUSTED.search(text):
        return _MEND_TRUST
    if kind in ("PermissionDeniedError", "UnauthenticatedError", "UnknownConfigurationKeyError"):
        return REMEDIES[scheme]
    return REMEDIES[scheme] if _FORBIDDEN.search(text) else None


def _line(text: str) -> str:
    """What an error says in one line, without what obstore adds for its developers, bodies and secrets."""
    head, _, rest = text.partition("\n\nDebug source:")
    parts = [head.partition("<?xml")[0].partition("<Error>")[0].strip().rstrip(":-. ")]
    parts += [found[1].strip() for pattern in _XML if (found := pattern.search(head)) is not None]
    if len(parts) == 1:
        parts += [found[1] for pattern in _CAUSES if (found := pattern.search(rest)) is not None][:1]
    line = _DURATION.sub("", " ".join(": ".join(parts).split()))
    line = _USER.sub(r"\1***@", _QUERY.sub(r"\1?***", line))
    return line if len(line) <= _TOLD else f"{line[:_TOLD]}..."
