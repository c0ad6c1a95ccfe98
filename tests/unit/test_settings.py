"""Settings are read from variables of their own, and whatever is wrong with them is said."""

from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path

import pytest

from otel_logger.settings import CHOICES, NUMBERS, VARIABLES, Settings, unknown_variables, variable
from otel_logger_exporters.errors import ConfigurationError


def refusal(make, *arguments, **keywords):
    """The message of the ConfigurationError that a call raises."""
    with pytest.raises(ConfigurationError) as caught:
        make(*arguments, **keywords)
    return str(caught.value)


def test_the_defaults_are_the_same_both_ways():
    """An empty environment gives the settings that no argument gives."""
    assert Settings() == Settings.from_environ({}) == Settings.from_environ(dict.fromkeys(VARIABLES, " "))


GOOD = {
    "OTEL_LOGGER_DIR": (" /data/runs ", "directory", Path("/data/runs")),
    "OTEL_LOGGER_RUN_ID": ("exp-1", "run_id", "exp-1"),
    "OTEL_LOGGER_RUN_NAME": (" a b ", "run_name", "a b"),
    "OTEL_LOGGER_PARENT_RUN_ID": (" base-1 ", "parent_run_id", "base-1"),
    "OTEL_LOGGER_RANKS": ("Node", "ranks", "node"),
    "OTEL_LOGGER_DURABILITY": ("interval", "durability", "interval"),
    "OTEL_LOGGER_FLUSH_INTERVAL": ("10", "flush_interval", 10),
    "OTEL_LOGGER_HEARTBEAT_INTERVAL": ("100", "heartbeat_interval", 100),
    "OTEL_LOGGER_SHUTDOWN_TIMEOUT": ("0", "shutdown_timeout", 0),
    "OTEL_LOGGER_JOURNAL_MAX_BYTES": ("1048576", "journal_max_bytes", 2**20),
    "OTEL_LOGGER_MIN_FREE_BYTES": ("0", "min_free_bytes", 0),
    "OTEL_LOGGER_STAGE_MAX_BYTES": ("1048576", "stage_max_bytes", 2**20),
    "OTEL_LOGGER_IMAGE_FORMAT": ("WebP", "image_format", "webp"),
    "OTEL_LOGGER_TABLE_FORMAT": ("Parquet", "table_format", "parquet"),
    "OTEL_LOGGER_PROGRAM_LOGS": ("INFO", "program_logs", "info"),
    "OTEL_LOGGER_SIGNALS": ("Off", "signals", "off"),
    "OTEL_LOGGER_BLOB_STORE": ("file:///blobs", "blob_store", "file:///blobs"),
    "OTEL_LOGGER_BLOB_URL": ("https://x/{name}", "blob_url", "https://x/{name}"),
    "OTEL_LOGGER_TRACE_EVENTS": ("BOTH", "trace_events", "both"),
    "OTEL_LOGGER_BATCH_SPANS": ("0", "batch_spans", 0),
    "OTEL_LOGGER_STEP_SERIES": ("off", "step_series", "off"),
    "OTEL_LOGGER_TIME_RESOLUTION": ("ns", "time_resolution", "ns"),
    "OTEL_LOGGER_METRICS_EXCLUDE": (" a/*, ,b ", "metrics_exclude", ("a/*", "b")),
    "OTEL_LOGGER_REDACT": ("*_id", "redact", ("*_id",)),
    "OTEL_LOGGER_REDACT_ALLOW": ("pad", "redact_allow", ("pad",)),
    "OTEL_LOGGER_SCRAPE_CERTIFICATE": ("/tls/server.pem", "scrape_certificate", "/tls/server.pem"),
    "OTEL_LOGGER_SCRAPE_KEY": ("/tls/server.key", "scrape_key", "/tls/server.key"),
    "OTEL_LOGGER_SCRAPE_CLIENT_CA": ("/tls/ca.pem", "scrape_client_ca", "/tls/ca.pem"),
    "OTEL_LOGGER_SCRAPE_AUTH": ("user:pass:word", "scrape_auth", "user:pass:word"),
    "OTEL_LOGGER_SCRAPE_LINGER": ("15000", "scrape_linger", 15000),
}


def test_every_variable_has_a_case_here():
    """The tables of this file are complete, and every field has a variable."""
    assert set(GOOD) == set(VARIABLES)
    assert {field.name for field in fields(Settings)} == {field for _, field, _ in GOOD.values()}


@pytest.mark.parametrize("name", GOOD)
def test_each_variable_sets_its_field_alone(name):
    """A variable gives its field's value and leaves the others at their defaults."""
    value, field, expected = GOOD[name]
    assert replace(Settings(), **{field: expected}) == Settings.from_environ({name: value})
    assert variable(field) == name


BAD = {
    "OTEL_LOGGER_RANKS": [("one", "give zero or node or all")],
    "OTEL_LOGGER_DURABILITY": [("disk", "give call or interval")],
    "OTEL_LOGGER_TRACE_EVENTS": [("spans", "give span or log or both")],
    "OTEL_LOGGER_STEP_SERIES": [("on", "give metric or off")],
    "OTEL_LOGGER_TIME_RESOLUTION": [("us", "give ms or ns")],
    "OTEL_LOGGER_FLUSH_INTERVAL": [
        (bad, "give whole milliseconds, from 10 to 3600000") for bad in ("9", "1s", "1.5", "-5", "1e3", "3600001")
    ],
    "OTEL_LOGGER_SHUTDOWN_TIMEOUT": [("-1", "give whole milliseconds, from 0 to 3600000")],
    "OTEL_LOGGER_BATCH_SPANS": [
        (bad, "give whole spans per second, from 0 to 1000000") for bad in ("-1", "all", "9" * 30)
    ],
    "OTEL_LOGGER_JOURNAL_MAX_BYTES": [
        (bad, f"give whole bytes, from 1048576 to {2**62}") for bad in ("1GiB", "1048575", "1e9")
    ],
    "OTEL_LOGGER_MIN_FREE_BYTES": [(bad, f"give whole bytes, from 0 to {2**62}") for bad in ("-1", "5%")],
    "OTEL_LOGGER_STAGE_MAX_BYTES": [
        (bad, f"give whole bytes, from 1048576 to {2**62}") for bad in ("0", "1048575", "64G", "-1")
    ],
    "OTEL_LOGGER_IMAGE_FORMAT": [("jpeg", "give png or webp")],
    "OTEL_LOGGER_TABLE_FORMAT": [("csv", "give jsonl or parquet")],
    "OTEL_LOGGER_PROGRAM_LOGS": [("on", "give off or debug or info or warning or error")],
    "OTEL_LOGGER_SIGNALS": [("SIGTERM", "give on or off")],
    "OTEL_LOGGER_DIR": [("~nobody-of-this-name/x", "there is no such home folder, write the whole path")],
}


@pytest.mark.parametrize(
    ("name", "value", "remedy"), [(name, value, remedy) for name, cases in BAD.items() for value, remedy in cases]
)
def test_what_cannot_be_understood_is_refused(name, value, remedy):
    """The message names the variable, quotes its value and says what would be right."""
    assert refusal(Settings.from_environ, {name: value}) == f"{name}={value!r} is not understood: {remedy}"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("s3://", "has no bucket of letters, digits, '.', '_' and '-': use s3://bucket/prefix"),
        (
            "ftp://x",
            "has an unknown scheme: use file:///absolute/path, s3://bucket/prefix, gs://bucket/prefix or "
            "az://container/prefix",
        ),
        ("/blobs", "is not a URL: write file:///blobs"),
        ("file://blobs/x", "is not an absolute path: a file URL has three slashes, file:///absolute/path"),
    ],
)
def test_a_blob_store_is_checked_however_it_is_given(value, problem):
    """What names no store is refused from the environment and as an argument alike."""
    message = f"OTEL_LOGGER_BLOB_STORE={value!r} {problem}"
    assert message == refusal(Settings.from_environ, {"OTEL_LOGGER_BLOB_STORE": value})
    assert message == refusal(Settings, blob_store=value)


def test_the_key_of_a_store_is_not_quoted():
    """A URL with credentials in it is quoted without them."""
    message = refusal(Settings.from_environ, {"OTEL_LOGGER_BLOB_STORE": "s3://id:secret@bucket/x"})
    assert message.startswith("OTEL_LOGGER_BLOB_STORE='s3://***@bucket/x' ")


@pytest.mark.parametrize(
    ("keywords", "remedy"),
    [
        *(({field: "nonsense"}, f"give {' or '.join(choices)}") for field, choices in CHOICES.items()),
        *(({field: None}, f"give {' or '.join(choices)}") for field, choices in CHOICES.items()),
        *(
            ({field: bad}, f"give a whole number of {unit} from {least} to {greatest}")
            for field, (unit, least, greatest) in NUMBERS.items()
            for bad in (least - 1, greatest + 1, 1.5, "10", True, *(() if field == "min_free_bytes" else (None,)))
        ),
        ({"directory": "runs"}, "give a pathlib.Path"),
        ({"directory": None}, "give a pathlib.Path"),
        ({"run_id": 7}, "give a str or None"),
        ({"run_name": b"x"}, "give a str or None"),
        ({"blob_store": Path("/x")}, "give a str or None"),
        ({"blob_url": 7}, "give a str or None"),
        ({"metrics_exclude": "*"}, "give a tuple of patterns, each a str"),
        ({"redact": "*_id"}, "give a tuple of patterns, each a str"),
        ({"redact_allow": ["a"]}, "give a tuple of patterns, each a str"),
        ({"redact": ("a", 1)}, "give a tuple of patterns, each a str"),
    ],
)
def test_arguments_are_checked_like_variables(keywords, remedy):
    """What no variable could have given is refused, quoted, with the remedy."""
    ((field, value),) = keywords.items()
    assert refusal(Settings, **keywords) == f"Settings({field}={value!r}): {remedy}"


@pytest.mark.parametrize("value", ["https://files.example.com/", "{name}"])
def test_a_template_without_what_makes_a_link_is_refused(value):
    """However it is given; it would make one link of all blobs, or none that a browser follows."""
    message = refusal(Settings, blob_url=value)
    assert message.startswith(f"OTEL_LOGGER_BLOB_URL={value!r} is no template of a URL: ")
    assert message == refusal(Settings.from_environ, {"OTEL_LOGGER_BLOB_URL": value})


def test_settings_do_not_change():
    """Settings are values: frozen, equal by content."""
    settings = Settings(ranks="all")
    with pytest.raises(FrozenInstanceError):
        settings.ranks = "zero"
    assert settings == Settings.from_environ({"OTEL_LOGGER_RANKS": "all"})


def test_unknown_variables_are_told_with_the_nearest():
    """A misspelt variable is one sentence with what was meant; its value is not quoted."""
    assert [
        "OTEL_LOGGER_FLUSH_INTERVALL is not a setting of otel_logger and has no effect; "
        "did you mean OTEL_LOGGER_FLUSH_INTERVAL?",
        "OTEL_LOGGER_RANK is not a setting of otel_logger and has no effect; did you mean OTEL_LOGGER_RANKS?",
    ] == unknown_variables({"OTEL_LOGGER_RANK": "secret", "OTEL_LOGGER_FLUSH_INTERVALL": "1", "PATH": "x"})


def test_a_variable_near_none_is_told_with_all():
    """Where nothing is near, the known variables are listed."""
    (sentence,) = unknown_variables({"OTEL_LOGGER_" + "QXZ" * 20: "1"})
    assert sentence.endswith(f"has no effect; known are {', '.join(VARIABLES)}.")


def test_known_and_foreign_variables_are_not_told():
    """Our own variables and those of others are no news."""
    assert [] == unknown_variables(dict.fromkeys([*VARIABLES, "OTEL_LOGGERS", "otel_logger_dir", "OTEL_LOGGER"], "x"))
