"""Settings of a logger: what they switch, how they are refused, and the lines that say what is done."""

from collections.abc import Callable
from pathlib import Path

import pytest

from otel_logger import ConfigurationError, OTelLogger, read_run
from tests.runs import trainer_state


def test_disabled_by_the_sdk_switch_nothing_is_written(
    make: Callable[..., OTelLogger], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """OTEL_SDK_DISABLED is said in one line; every call does nothing, a download finds nothing."""
    with make(OTEL_SDK_DISABLED="true") as log:
        log.init(trainer_state(), None)
        log.log_metrics({"loss": 1.0})
        log.upload_file(None, "a", __file__)
        with log.span("work"):
            log.log_traces({"t": 1})
        with pytest.raises(FileNotFoundError, match="OTEL_SDK_DISABLED"):
            log.download_file("a", str(tmp_path / "a"))

    assert "OTEL_SDK_DISABLED=true: nothing is recorded" in capsys.readouterr().err
    assert not (tmp_path / "logs").exists()
    assert log.stats().is_complete


@pytest.mark.parametrize("signal", ["METRICS", "LOGS", "TRACES"])
def test_a_signal_set_to_none_is_not_recorded(make: Callable[..., OTelLogger], signal: str) -> None:
    """`none` means not recorded at all, whatever the other signals do."""
    with make(**{f"OTEL_{signal}_EXPORTER": "none"}) as log:
        log.log_hyperparameters({"lr": 1})
        log.log_metrics({"loss": 1.0})
        with log.span("work"):
            log.log_traces({"t": 1})

    assert log.run_dir is not None
    run = read_run(log.run_dir)
    kept = {"METRICS": len(run.metrics), "LOGS": len(run.events), "TRACES": len(run.spans)}
    assert {name: name != signal for name in kept} == {name: bool(count) for name, count in kept.items()}


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("OTEL_LOGGER_RANKS", "one", "zero or node or all"),
        ("OTEL_LOGGER_FLUSH_INTERVAL", "1s", "whole milliseconds"),
        ("OTEL_LOGGER_BLOB_STORE", "ftp://bucket", "file:///"),
        ("OTEL_METRICS_EXPORTER", "zipkin", "otlp"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector", "http://"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "http/protobuf"),
        ("OTEL_RESOURCE_ATTRIBUTES", "team", "key=value"),
        ("RANK", "first", "whole number"),
    ],
)
def test_a_bad_setting_is_an_error_at_construction(
    make: Callable[..., OTelLogger], name: str, value: str, remedy: str
) -> None:
    """The message names the variable, quotes its value and says what would be right."""
    with pytest.raises(ConfigurationError) as caught:
        make(**{name: value})

    message = str(caught.value)
    assert name in message
    assert value in message
    assert remedy in message


def test_an_unwritable_folder_is_an_error_at_construction(tmp_path: Path) -> None:
    """The message names OTEL_LOGGER_DIR and what the system said."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"OTEL_LOGGER_DIR=.*cannot be written"):
        OTelLogger(run_name="x", environ={"OTEL_LOGGER_DIR": str(tmp_path / "file" / "logs")})


def test_an_unknown_setting_is_one_warning_with_the_nearest(
    make: Callable[..., OTelLogger], caplog: pytest.LogCaptureFixture
) -> None:
    """A misspelt variable has no effect; that is said, and which one was meant."""
    make(OTEL_LOGGER_RANK="all").close()

    assert ["OTEL_LOGGER_RANK is not a setting of otel_logger and has no effect; did you mean OTEL_LOGGER_RANKS?"] == [
        record.getMessage() for record in caplog.records
    ]


def test_start_and_end_are_one_line_each(
    make: Callable[..., OTelLogger], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The first says where the data goes, the last what became of it."""
    with make() as log:
        log.log_metrics({"loss": 1.0})

    assert log.run_dir is not None
    first, last = capsys.readouterr().err.splitlines()
    assert f"run {log.run_id}, attempt 1: metrics, logs, traces kept in {log.run_dir}" in first
    assert f"run {log.run_id} ended: 1 value, 2 log records, 1 span kept in " in last
