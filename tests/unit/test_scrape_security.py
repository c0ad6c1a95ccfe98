"""Who may scrape is checked when it is configured, and told from who may not."""

import base64

import pytest

from otel_logger.scraping import scrape_security
from otel_logger.settings import Settings
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.scrape_security import ScrapeSecurity
from tests.certificates import encrypted_key, make_pair

CERTIFICATE, KEY = "OTEL_LOGGER_SCRAPE_CERTIFICATE", "OTEL_LOGGER_SCRAPE_KEY"
CLIENT_CA, AUTH = "OTEL_LOGGER_SCRAPE_CLIENT_CA", "OTEL_LOGGER_SCRAPE_AUTH"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a certificate."""
    made = tmp_path_factory.mktemp("certificates")
    make_pair(made, "server", "DNS:localhost")
    (made / "empty.pem").touch()
    return made


def basic(text):
    """Return the header of user and password."""
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("header", "is_admitted"),
    [
        (basic("user:päss:word"), True),
        (basic("user:päss:word").replace("Basic", "basic"), True),
        (basic("user:other"), False),
        (basic("user:päss:word "), False),
        (basic(""), False),
        ("Bearer " + basic("user:päss:word")[6:], False),
        ("Basic é", False),
        ("Basic", False),
        ("", False),
        (None, False),
    ],
)
def test_only_the_password_that_is_set_is_taken(header, is_admitted):
    """Whatever else is sent."""
    assert is_admitted == ScrapeSecurity(auth="user:päss:word").admits(header)


def test_without_a_password_all_may_scrape():
    """Also those who show one."""
    assert ScrapeSecurity().admits(None)
    assert ScrapeSecurity().admits(basic("a:b"))


def test_a_password_is_never_shown():
    """Neither of settings, nor of what is made of them, nor in what is said of one that cannot be."""
    settings = Settings.from_environ({AUTH: "user:hunter2"})

    assert "hunter2" not in repr(settings) + repr(scrape_security(settings))
    for wrong in ("hunter2", ":hunter2", "hunter2:"):
        with pytest.raises(ConfigurationError) as caught:
            Settings.from_environ({AUTH: wrong})
        assert f"{AUTH} is not understood, its value is not shown: give user:password" == str(caught.value)
    with pytest.raises(ConfigurationError, match=r"Settings\(scrape_auth=bytes\): give a str or None"):
        Settings(scrape_auth=b"user:hunter2")


def security(folder, **files):
    """Return what settings with these files of a folder come to."""
    environ = {f"OTEL_LOGGER_SCRAPE_{name}": str(folder / file) for name, file in files.items()}
    return scrape_security(Settings.from_environ(environ))


def test_with_a_certificate_there_is_tls(folder):
    """Without one there is none."""
    assert ("http", None) == (ScrapeSecurity().scheme, ScrapeSecurity().context())
    secure = security(folder, CERTIFICATE="server.pem", KEY="server.key")
    assert "https" == secure.scheme
    assert secure.context() is not None


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"CERTIFICATE": "server.pem"}, f"{CERTIFICATE} is set without {KEY}: TLS needs both"),
        ({"KEY": "server.key"}, f"{KEY} is set without {CERTIFICATE}: TLS needs both"),
        (
            {"CLIENT_CA": "server.pem"},
            f"{CLIENT_CA} is set without {CERTIFICATE} and {KEY}: clients show certificates in TLS",
        ),
        ({"CERTIFICATE": "none.pem", "KEY": "server.key"}, f"{CERTIFICATE}='{{}}/none.pem' cannot be read"),
        ({"CERTIFICATE": "empty.pem", "KEY": "server.key"}, "give PEM files of a private key and of its certificate"),
        (
            {"CERTIFICATE": "server.pem", "KEY": "server.key", "CLIENT_CA": "empty.pem"},
            f"{CLIENT_CA}='{{}}/empty.pem' holds no certificate",
        ),
    ],
)
def test_files_that_cannot_be_used_are_refused(folder, files, message):
    """With the variable, and what to give."""
    with pytest.raises(ConfigurationError) as caught:
        security(folder, **files)
    assert message.format(folder) in str(caught.value)


def test_a_key_with_a_password_is_refused(folder):
    """Nobody is there to type it."""
    encrypted_key(folder, make_pair(folder, "other", "DNS:localhost"))
    with pytest.raises(ConfigurationError, match=f"{KEY}=.* is encrypted: give a key without a password"):
        security(folder, CERTIFICATE="other.pem", KEY="encrypted.key")
