"""URLs of blob stores: what they name, and what is said of those that name nothing."""

import pytest

from otel_logger_exporters.blob_store import open_blob_store
from otel_logger_exporters.blob_url import PREFIX_BYTES, BlobUrl, parse_blob_store, parse_file_store
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.file_store import FileBlobStore
from otel_logger_exporters.object_store import ObjectBlobStore


@pytest.mark.parametrize(
    ("url", "parsed"),
    [
        ("file:///abs/path", BlobUrl("file", "/abs/path")),
        ("FILE://LOCALHOST/abs/path/", BlobUrl("file", "/abs/path")),
        ("file:///with%20space/%C3%BC/%23", BlobUrl("file", "/with space/ü/#")),
        ("file:////a/./b/../c@d", BlobUrl("file", "/a/c@d")),
        ("s3://bucket", BlobUrl("s3", "bucket")),
        ("S3://my.bucket-1/", BlobUrl("s3", "my.bucket-1")),
        ("s3://bucket/team/runs/", BlobUrl("s3", "bucket", "team/runs")),
        ("s3://bucket/a b%20ü", BlobUrl("s3", "bucket", "a b%20ü")),
        ("gs://bucket_1/x", BlobUrl("gs", "bucket_1", "x")),
        ("az://container/x", BlobUrl("az", "container", "x")),
        ("memory://name", BlobUrl("memory", "name")),
    ],
)
def test_a_url_names_a_folder_or_a_bucket_and_a_prefix(url: str, parsed: BlobUrl) -> None:
    """Paths of `file` URLs are percent-decoded; prefixes are what is written, as providers' tools have it."""
    assert parsed == parse_blob_store(url)


def test_the_uri_of_what_is_stored_is_its_key_as_it_is() -> None:
    """Keys are put behind bucket and prefix, and are not percent-encoded."""
    assert "s3://bucket/team/files/a b#?%.pt" == BlobUrl("s3", "bucket", "team").uri("files/a b#?%.pt")
    assert "s3://bucket/files/x" == BlobUrl("s3", "bucket").uri("files/x")
    assert ["s3://bucket", "s3://bucket/team"] == [BlobUrl("s3", "bucket", p).uri() for p in ("", "team")]


@pytest.mark.parametrize(
    ("url", "shown", "problem"),
    [
        ("file://blobs", "file://blobs", "three slashes, file:///absolute/path"),
        ("file://./blobs", "file://./blobs", "three slashes, file:///absolute/path"),
        ("file://", "file://", "three slashes, file:///absolute/path"),
        ("file:/blobs", "file:/blobs", "is not a URL: write file:///absolute/path"),
        ("/data/blobs", "/data/blobs", "is not a URL: write file:///data/blobs"),
        ("", "", "is not a URL: write file:///absolute/path"),
        ("file:///", "file:///", "names no folder"),
        ("file:///run#1", "file:///run#1", "write %3F for ? and %23 for #"),
        ("file:///a?b=c", "file:///a?***", "write %3F for ? and %23 for #"),
        ("file:///a%00", "file:///a%00", "contains %00"),
        ("az://container/c?sig=secret", "az://container/c?***", "a query or a fragment in it: write az://container/"),
        ("s3://bucket/x#secret", "s3://bucket/x#***", "a query or a fragment in it: write s3://bucket/prefix"),
        (
            "S3://key:se/c?ret@bucket/x",
            "S3://***@bucket/x",
            "credentials or an account in it: write s3://bucket/prefix",
        ),
        ("s3://minio:9000/bucket", "s3://minio:9000/bucket", "write s3://bucket/prefix, and the host in AWS_ENDPOINT_"),
        ("s3://", "s3://", "has no bucket"),
        ("gs:///x", "gs:///x", "has no bucket"),
        ("az://a b/x", "az://a b/x", "has no container"),
        ("memory://", "memory://", "has no name of letters, digits, '.', '_' and '-': use memory://name"),
        ("s3://bucket/a//b", "s3://bucket/a//b", "without empty parts, '.', '..'"),
        ("s3://bucket/../b", "s3://bucket/../b", "without empty parts, '.', '..'"),
        ("s3://bucket/" + "ü" * 80, "s3://bucket/" + "ü" * 80, f"a prefix of 160 bytes: use one of {PREFIX_BYTES}"),
        ("https://user:secret@host/x", "https://***@host/x", "has an unknown scheme: use file:///absolute/path, s3:"),
    ],
)
def test_any_other_url_is_a_configuration_error(url: str, shown: str, problem: str) -> None:
    """The error names the variable, quotes the value without its secrets, and says what would be right."""
    with pytest.raises(ConfigurationError) as caught:
        parse_blob_store(url)
    assert str(caught.value).startswith(f"OTEL_LOGGER_BLOB_STORE={shown!r} ")
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_bucket_is_no_folder() -> None:
    """What needs a folder is told that there is none."""
    assert "/data" == parse_file_store("file:///data")
    with pytest.raises(ConfigurationError, match="names no folder: use file:///absolute/path"):
        parse_file_store("s3://bucket")


@pytest.mark.parametrize(
    ("url", "kind", "uri"),
    [
        ("file:///data/blobs", FileBlobStore, "file:///data/blobs"),
        ("s3://bucket/x", ObjectBlobStore, "s3://bucket/x"),
        ("memory://x", ObjectBlobStore, "memory://x"),
    ],
)
def test_opening_a_store_touches_nothing(url: str, kind: type, uri: str) -> None:
    """Each URL opens its kind of store without a look at what it names."""
    store = open_blob_store(url, {})
    assert (kind, uri) == (type(store), store.uri)


@pytest.mark.parametrize(
    ("url", "environ", "problem"),
    [
        ("s3://b", {"AWS_ACCESS_KEY_ID": "x"}, "AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not"),
        ("s3://b", {"AWS_SECRET_ACCESS_KEY": "hidden"}, "AWS_SECRET_ACCESS_KEY is set and AWS_ACCESS_KEY_ID is not"),
        (
            "s3://b",
            {"AWS_ENDPOINT_URL": "minio:9000"},
            "AWS_ENDPOINT_URL='minio:9000' is no URL of a host: write",
        ),
        ("s3://b", {"AWS_ENDPOINT_URL_S3": "u:hidden@minio"}, "AWS_ENDPOINT_URL_S3='minio' is no URL of a host"),
        ("s3://b", {"AWS_ENDPOINT_URL": "http://a b"}, "AWS_ENDPOINT_URL='a b' is no URL of a host"),
        ("s3://b", {"AWS_ENDPOINT_URL": "http://minio:99999"}, "AWS_ENDPOINT_URL='minio:99999' is no URL of a host"),
        ("s3://b", {"AWS_ENDPOINT_URL": "http://u:hidden@minio:x"}, "AWS_ENDPOINT_URL='minio:x' is no URL of a host"),
        ("s3://b", {"AWS_ENDPOINT_URL": "http://[::1"}, "AWS_ENDPOINT_URL='[::1' is no URL of a host"),
        ("s3://b", {"AWS_CA_BUNDLE": "/no/such.pem"}, "AWS_CA_BUNDLE='/no/such.pem' is no file"),
        ("gs://b", {"GOOGLE_BASE_URL": "fake"}, "GOOGLE_BASE_URL='fake' is no URL of a host"),
        ("az://c", {}, "OTEL_LOGGER_BLOB_STORE='az://c' needs a storage account: set AZURE_STORAGE_ACCOUNT_NAME"),
    ],
)
def test_variables_that_open_no_store_are_configuration_errors(url: str, environ: dict[str, str], problem: str) -> None:
    """Variables of the provider that contradict each other are told before anything is stored."""
    with pytest.raises(ConfigurationError) as caught:
        open_blob_store(url, environ)
    assert str(caught.value).startswith(problem)
    assert "hidden" not in str(caught.value)
