"""The demo: that it learns, logs, checks and shows; and that it fails aloud when something is not there."""

import io
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from otel_logger import demo_check, read_run
from otel_logger.cli import app
from otel_logger.demo_model import Network, load_digits
from otel_logger.demo_summary import print_curves, sparkline
from otel_logger_exporters.signals import Signal
from tests.otlp_server import OtlpServer, Reply

STEPS = 44
"""Steps of one epoch."""

VALUES = 4 * STEPS + 3
"""Metric values of a demo of one epoch: four a step, three an evaluation."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns the folder of runs, which is not there yet."""
    return tmp_path / "runs"


def demo(folder: Path, environ: Mapping[str, str] | None = None, epochs: int = 1) -> Any:
    """Runs the command with the variables given."""
    variables = {"OTEL_LOGGER_DIR": str(folder), "COLUMNS": "100", **(environ or {})}
    return CliRunner().invoke(app, ["demo", "--epochs", str(epochs)], env=variables)


def the_run(folder: Path) -> Path:
    """Returns the folder of the one run there is."""
    [run] = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return run


def test_local_run_succeeds_and_says_where_it_is(folder: Path) -> None:
    """Without an endpoint the demo keeps its run, prints its folder and how to read it, and exits with 0."""
    result = demo(folder)
    assert 0 == result.exit_code, result.output
    run = read_run(the_run(folder))
    assert f"read_run({str(the_run(folder))!r})" in result.output
    assert f"{VALUES}, kept" in result.output
    assert "Everything that was logged is there" in result.output
    assert VALUES == len(run.metrics)
    assert list(range(1, STEPS + 1)) == run.metrics.where(key="loss/train")["step"]
    assert {"image", "table", "file"} == set(run.blobs["kind"])


def test_secret_of_the_demo_is_not_recorded(folder: Path) -> None:
    """The hyperparameter that stands for a secret is recorded as redacted, and its value is nowhere in the folder."""
    demo(folder)
    [row] = read_run(the_run(folder)).hyperparameters.where(key="data.api_key")
    assert "[redacted]" == row["value"]
    assert not [path for path in folder.rglob("*") if path.is_file() and b"this-is-no-secret" in path.read_bytes()]


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"OTEL_TRACES_EXPORTER": "none"}, "not recorded (OTEL_TRACES_EXPORTER=none)"),
        ({"OTEL_METRICS_EXPORTER": "none"}, "not recorded (OTEL_METRICS_EXPORTER=none)"),
        ({"OTEL_LOGS_EXPORTER": "none"}, "not recorded (OTEL_LOGS_EXPORTER=none)"),
        ({"OTEL_LOGGER_TRACE_EVENTS": "both"}, "Everything"),
        ({"OTEL_LOGGER_TRACE_EVENTS": "log"}, "Everything"),
        ({"OTEL_LOGGER_METRICS_EXCLUDE": "gradient*"}, f"{VALUES - STEPS}, kept"),
        ({"OTEL_LOGGER_REDACT": "seed", "OTEL_LOGGER_REDACT_ALLOW": "*api_key"}, "Everything"),
        ({"OTEL_LOGGER_DURABILITY": "interval", "OTEL_LOGGER_TIME_RESOLUTION": "ns"}, "Everything"),
        ({"OTEL_LOGGER_RUN_NAME": '[red] "quoted"', "OTEL_LOGGER_RUN_ID": "../x"}, "../x"),
    ],
)
def test_settings_do_not_make_it_fail(folder: Path, environ: dict[str, str], said: str) -> None:
    """What a setting leaves out, or puts elsewhere, is not taken for lost."""
    result = demo(folder, environ)
    assert 0 == result.exit_code, result.output
    assert said in result.output


def test_second_attempt_of_a_run_is_checked_by_itself(folder: Path) -> None:
    """With a fixed run id the second demo is another attempt in the same folder, and what the first left is not its."""
    for _ in range(2):
        result = demo(folder, {"OTEL_LOGGER_RUN_ID": "mine"})
        assert 0 == result.exit_code, result.output
    assert {1, 2} == set(read_run(the_run(folder)).metrics["attempt"])


def test_sent_run_says_how_much_arrived(folder: Path) -> None:
    """With an endpoint everything is delivered there, counted in the output, and asked for by the run's id."""
    with OtlpServer("http/protobuf") as server:
        result = demo(folder, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint, "OTEL_SERVICE_NAME": "digits"})
        values = server.values()
    assert 0 == result.exit_code, result.output
    assert f"{VALUES} of {VALUES} delivered to 127.0.0.1:{server.port}" in result.output
    assert 'loss_train{job="digits"}' in result.output
    assert f'training_run_id="{read_run(the_run(folder)).run_id}"' in result.output
    assert STEPS == sum(metric.name == "loss/train" for metric, _ in values)


def test_one_signal_sent_the_others_kept(folder: Path) -> None:
    """Signals of different destinations are each looked for where they went."""
    with OtlpServer("http/protobuf") as server:
        result = demo(folder, {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": f"{server.endpoint}/v1/logs"})
    assert 0 == result.exit_code, result.output
    assert f"{VALUES}, kept" in result.output
    assert f"delivered to 127.0.0.1:{server.port}" in result.output


def test_endpoint_that_is_down_fails_and_says_what_waits(folder: Path) -> None:
    """When nothing takes the data the demo exits with 1, and says how much waits, where, and why."""
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_LOGGER_SHUTDOWN_TIMEOUT": "2000"}
    result = demo(folder, environ)
    assert 1 == result.exit_code
    assert f"{VALUES} values, " in result.output
    assert f"have not been delivered, they wait in {the_run(folder)}" in result.output
    assert "no connection to 127.0.0.1:1" in result.output


def test_endpoint_that_refuses_fails(folder: Path) -> None:
    """Data that the endpoint refuses makes the demo fail."""
    with OtlpServer("http/protobuf") as server:
        server.answer_with(*[Reply(http=400, message="not you")] * 1000)
        result = demo(folder, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{server.endpoint}/v1/traces"})
    assert 1 == result.exit_code
    assert "spans were refused by the endpoint" in result.output


def damage_image(run: Path) -> None:
    """Changes one byte of an image."""
    path = sorted(run.glob("blobs/sha256/*/*.png"))[0]
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def remove_table(run: Path) -> None:
    """Removes the stored table."""
    [path] = run.glob("blobs/sha256/*/*.jsonl.gz")
    path.unlink()


def damage_model(run: Path) -> None:
    """Changes one byte of the model."""
    path = run / "blobs/files/model/final.npz"
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def cut_metrics(run: Path) -> None:
    """Cuts the second half off the recorded metrics; at their end there are no values, but the ends of series."""
    path = sorted(run.glob("*/metrics*"))[-1]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def remove_spans(run: Path) -> None:
    """Removes the recorded spans."""
    for path in run.glob("*/traces*"):
        path.unlink()


@pytest.mark.parametrize(
    ("tamper", "reasons"),
    [
        (damage_image, ["the image 'mistakes' is damaged"]),
        (remove_table, ["the table 'mistakes' is missing"]),
        (damage_model, ["the file 'model/final.npz' is damaged", "the model cannot be downloaded"]),
        (cut_metrics, [f"of {VALUES} metric values are not as logged"]),
        (remove_spans, ["1 of 1 spans 'epoch' are missing", "traces are missing among the events of spans"]),
    ],
)
def test_what_is_lost_or_changed_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tamper: Callable[[Path], None], reasons: list[str]
) -> None:
    """Whatever is not as it was logged makes the demo exit with 1 and name it."""
    check = demo_check.problems

    def check_after_tampering(*arguments: Any) -> list[str]:
        tamper(the_run(folder))
        return check(*arguments)

    monkeypatch.setattr(demo_check, "problems", check_after_tampering)
    result = demo(folder)
    assert 1 == result.exit_code
    assert "Everything that was logged is there" not in result.output
    for reason in reasons:
        assert reason in result.output


def test_without_scikit_learn_the_command_to_install_it_is_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without scikit-learn the demo names the extra, exits with 1, and leaves nothing behind."""
    monkeypatch.setitem(sys.modules, "sklearn", None)
    result = demo(folder)
    assert 1 == result.exit_code
    assert "pip install 'otel-logger-destination[demo]'" in result.output
    assert not folder.exists()


@pytest.mark.parametrize(
    ("environ", "code", "reason"),
    [
        ({"OTEL_SDK_DISABLED": "true"}, 1, "OTEL_SDK_DISABLED=true: nothing would be recorded"),
        ({f"OTEL_{signal.name}_EXPORTER": "none" for signal in Signal}, 1, "are all none: nothing would be recorded"),
        ({"OTEL_METRICS_EXPORTER": "zipkin"}, 2, "OTEL_METRICS_EXPORTER='zipkin' is not supported"),
    ],
)
def test_useless_or_wrong_configuration_is_refused(
    folder: Path, environ: dict[str, str], code: int, reason: str
) -> None:
    """With nothing to record, or a variable that is wrong, the demo says so and does not start."""
    result = demo(folder, environ)
    assert code == result.exit_code
    assert reason in result.output
    assert not folder.exists()


def test_network_learns_and_survives_its_file(tmp_path: Path) -> None:
    """Two epochs are enough to read nine of ten digits, and a saved network predicts to the bit what it did."""
    digits, generator = load_digits(3), np.random.default_rng(3)
    network = Network.create((64, 32, 10), generator)
    for _ in range(2):
        for images, labels in digits.batches(16, generator):
            network.train_step(images, labels, learning_rate=0.05, momentum=0.9)
    assert network.evaluate(digits.test_images, digits.test_labels).accuracy > 0.9
    network.save(tmp_path / "network.npz")
    restored = Network.load(tmp_path / "network.npz")
    assert np.array_equal(network.probabilities(digits.test_images), restored.probabilities(digits.test_images))


def test_gradient_is_the_slope_of_the_loss() -> None:
    """A step along the gradient lowers the loss by learning rate times the square of its norm, to first order."""
    digits = load_digits(0)
    network = Network.create((64, 8, 10), np.random.default_rng(0))
    rate = 1e-3
    before = network.train_step(digits.test_images, digits.test_labels, rate, momentum=0.0)
    after = network.evaluate(digits.test_images, digits.test_labels)
    assert pytest.approx(rate * before.gradient_norm**2, rel=0.05) == before.loss - after.loss


@pytest.mark.parametrize(
    ("values", "line"),
    [([], ""), ([3.0, 3.0], "▁▁"), ([0, 7], "▁█"), (list(range(8)), "▁▂▃▄▅▆▇█"), ([0, 0, 7, 7, 0, 0, 3, 4], "▁█▁▅")],
)
def test_sparkline_shows_the_shape(values: list[float], line: str) -> None:
    """A curve becomes bars from its lowest to its highest mean, none where there are no values."""
    assert line == sparkline(values, 8 if len(set(values)) == 8 else 4)


def test_curves_fit_a_terminal_that_knows_only_ascii() -> None:
    """Where bars cannot be shown the table is printed without them."""
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")

    class Curves:
        metrics = [("loss", step, 1.0 / step) for step in range(1, 9)]

    print_curves(Console(file=output, width=80), Curves())  # type: ignore[arg-type]
    output.seek(0)
    assert "loss" in output.read()
