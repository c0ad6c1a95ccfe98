"""What goes wrong at an object store, as the errors that a `BlobStore` raises: by what would help."""

import contextlib
import errno
import re
from collections.abc import Iterator

from otel_logger_exporters.blob_meta import BlobForbiddenError, BlobUnavailableError

__all__ = ["ObjectChangedError", "ObjectMissingError", "UnsupportedConditionError", "translated"]


class ObjectChangedError(OSError):
    """A condition on what is stored does not hold: it is there already, or is another by now."""


class ObjectMissingError(OSError):
    """There is no such object."""


class UnsupportedConditionError(OSError):
    """The store does not know conditions on what is stored."""


REMEDIES = {
    "s3": "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN (or AWS_PROFILE, with boto3 installed), "
    "AWS_REGION, AWS_ENDPOINT_URL, and that they may get, put, list and delete in the bucket",
    "gs": "check GOOGLE_APPLICATION_CREDENTIALS (or GOOGLE_SERVICE_ACCOUNT), and that they may get, create, list and "
    "delete objects in the bucket",
    "az": "check AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (or AZURE_STORAGE_SAS_TOKEN, or "
    "AZURE_CLIENT_ID, AZURE_TENANT_ID and their secret), and that they may read, write, list and delete in the container",
    "memory": "report this",
}
"""What to do about a refusal, by the scheme of the store's URL."""

# Codes in the bodies of answers, or words of obstore itself, before which somebody has to mend something. Their HTTP
# statuses do not tell: S3 answers 400 to an expired token, and 404 to an object that may be there tomorrow.
_FORBIDDEN = re.compile(
    "NoSuchBucket|ContainerNotFound|BucketNotFound|The specified bucket does not exist|InvalidBucketName"
    "|AccessDenied|AccountIsDisabled|AllAccessDisabled|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken"
    "|InvalidToken|InvalidClientTokenId|TokenRefreshRequired|AuthorizationHeaderMalformed|AuthenticationFailed"
    "|InvalidAuthenticationInfo|AuthorizationFailure|RequestTimeTooSkewed|PermanentRedirect|IllegalLocationConstraint"
    "|redirect without LOCATION|UnknownIssuer|invalid peer certificate|certificate verify failed|InvalidCertificate"
    "|Missing(SecretAccessKey|AccessKeyId|AccessKey|BucketName|Account|ContainerName)|169\\.254\\.|metadata\\.google"
    "|InvalidObjectState|MethodNotAllowed"
)
# A store that is full says so with many statuses, some of which mean a refusal elsewhere.
_FULL = re.compile("QuotaExceeded|StorageFull|InsufficientStorage|OutOfCapacity|status code: 507", re.IGNORECASE)
_NO_CONDITIONS = re.compile("status code: 501|NotImplemented|not implemented", re.IGNORECASE)
_MISSING_PLACE = re.compile("NoSuchBucket|ContainerNotFound|BucketNotFound|The specified bucket does not exist")

_QUERY = re.compile(r"(https?://[^\s?\"]*)\?[^\s\"]*")
_USER = re.compile(r"(https?://)[^\s/@\"]*@")
_XML = {tag: re.compile(f"<{tag}>(.*?)</{tag}>", re.DOTALL) for tag in ("Code", "Message")}
_CERTIFICATE = re.compile(r"invalid peer certificate: \w+|UnknownIssuer|certificate verify failed")

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


def _told(error: Exception, what: str, scheme: str, is_conditional: bool) -> OSError:
    # By names, so that nothing has to be imported for it; all but a few of obstore's come as GenericError.
    kind = type(error).__name__
    text = str(error)
    line = f"{what}: {_line(text)}"
    if isinstance(error, BlobForbiddenError):
        return error
    if _FULL.search(text):
        return BlobUnavailableError(errno.ENOSPC, f"{line}; the store is full")
    if kind in ("AlreadyExistsError", "PreconditionError"):
        return ObjectChangedError(errno.EEXIST, line)
    if is_conditional and (kind == "NotSupportedError" or _NO_CONDITIONS.search(text)):
        return UnsupportedConditionError(errno.ENOTSUP, line)
    if kind in ("NotFoundError", "FileNotFoundError") and not _MISSING_PLACE.search(text):
        return ObjectMissingError(errno.ENOENT, line)
    if kind in ("PermissionDeniedError", "UnauthenticatedError", "UnknownConfigurationKeyError") or (
        _FORBIDDEN.search(text)
    ):
        return BlobForbiddenError(errno.EACCES, f"{line}; {REMEDIES[scheme]}")
    if kind in ("ValueError", "InvalidPathError", "TypeError"):
        return OSError(errno.EINVAL, line)
    if isinstance(error, OSError) and kind != "FileNotFoundError" and error.errno is not None:
        # A local file that cannot be read: no store would change that.
        return error
    return BlobUnavailableError(errno.EIO, line)


def _line(text: str) -> str:
    """What an error says in one line, without what obstore adds for its developers, bodies and secrets."""
    head, _, rest = text.partition("\n\nDebug source:")
    found = {tag: pattern.search(text) for tag, pattern in _XML.items()}
    told = ": ".join(match[1] for match in found.values() if match is not None and match[1])
    head, _, _ = head.partition("<?xml")
    head, _, _ = head.partition("<Error>")
    certificate = _CERTIFICATE.search(rest)
    parts = [head.strip().rstrip(":-. ")] + [told] * bool(told) + [certificate[0]] * bool(certificate)
    line = " ".join(": ".join(parts).split())
    line = _USER.sub(r"\1***@", _QUERY.sub(r"\1?***", line))
    return line if len(line) <= _TOLD else f"{line[:_TOLD]}..."
