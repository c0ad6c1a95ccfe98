"""A hundred thousand traces in one call: none is lost, wherever they go."""

from pathlib import Path

import pytest

from otel_logger import OTelLogger, read_run

COUNT = 100_000


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["span", "log"])
def test_a_hundred_thousand_in_one_call(tmp_path: Path, mode: str) -> None:
    """They are read back in order, from parts of the block's span or from log records."""
    environ = {"OTEL_LOGGER_DIR": str(tmp_path), "OTEL_LOGGER_TRACE_EVENTS": mode}
    with OTelLogger(run_name="many", environ=environ) as log, log.span("work"):
        log.log_traces({f"trace {number}": number for number in range(COUNT)})

    assert log.run_dir is not None
    run = read_run(log.run_dir)
    work = sorted((span for span in run.spans if span["name"] == "work"), key=lambda span: span["start"])
    on_spans = [event["attributes"]["training.trace.value"] for span in work for event in span["events"]]
    in_logs = [event["body"] for event in run.events if event["name"] == "training.trace"]
    everything = list(range(COUNT))
    assert ((everything, []) if mode == "span" else ([], everything)) == (on_spans, in_logs)
    assert {} == log.stats().dropped
