"""The same seeds give the same training, bit by bit, with the logger and without; ids are others in each run."""

from __future__ import annotations

import logging
import random
import ssl
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
from collector import HOST, Collector, free_ports

from otel_logger import Settings, read_run
from tests.certificates import Pair, make_pair

pytest.importorskip("composer", reason="mosaicml is not installed: `make test-all` installs it")

import numpy as np
import torch
from composer import Callback
from composer.loggers import LoggerDestination
from tiny import BATCHES, tiny_loader, tiny_trainer

from otel_logger.composer import OTelLogger

pytestmark = pytest.mark.composer

EPOCHS = 2


@dataclass(frozen=True)
class Training:
    """What a training comes to, to the bit: the loss of each batch, the weights, and where the generators are then."""

    losses: list[bytes]
    weights: dict[str, bytes]
    generators: tuple[Any, ...]


class Talking(Callback):
    """Logs some of everything at each batch, by way of each random generator there is, and notes the loss."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.losses: list[bytes] = []
        self._meanwhile = meanwhile

    def batch_end(self, state: Any, logger: Any) -> None:
        """Log."""
        self.losses.append(bits(state.loss))
        logger.log_metrics({"draws": random.random() + np.random.random() + torch.rand(1).item(), "odd": float("nan")})
        logger.log_images(torch.zeros(2, 3, 4, 4), name="zeros")
        logger.log_table(["step"], [[state.timestamp.batch.value]], name="table")
        logger.log_traces({"trace": {"nested": [1, 2.5]}})
        logger.log_hyperparameters({f"late/{state.timestamp.batch.value}": True})
        logging.getLogger("training").warning("said in passing")
        self._meanwhile()


def train(folder: Path, loggers: list[LoggerDestination], meanwhile: Callable[[], object] = lambda: None) -> Training:
    """Trains with fixed seeds, workers for the data, evaluations and checkpoints."""
    talking = Talking(meanwhile)
    trainer = tiny_trainer(
        loggers,
        callbacks=[talking],
        train_dataloader=tiny_loader(num_workers=1),
        eval_dataloader=tiny_loader(),
        max_duration=f"{EPOCHS}ep",
        save_folder=str(folder / "checkpoints"),
        auto_log_hparams=True,
    )
    trainer.fit()
    trainer.close()
    _, positions, *rest = np.random.get_state()
    generators = (random.getstate(), positions.tolist(), rest, torch.get_rng_state().tolist())
    return Training(
        talking.losses, {name: bits(weight) for name, weight in trainer.state.model.state_dict().items()}, generators
    )


@pytest.mark.collector
def test_the_logger_changes_no_bit_of_a_training(collector: Collector, tmp_path: Path) -> None:
    """Losses, weights and generators are the same without it, with it as it comes, and with every setting changed."""
    pair = make_pair(tmp_path, "scrape", f"IP:{HOST}")
    (port,) = free_ports(1)
    environ = {f"OTEL_LOGGER_{name.upper()}": value for name, value in changed_settings(tmp_path, pair).items()} | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.grpc_endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_METRICS_EXPORTER": "otlp,prometheus",
        "OTEL_EXPORTER_PROMETHEUS_HOST": HOST,
        "OTEL_EXPORTER_PROMETHEUS_PORT": str(port),
        "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "*",
        "OTEL_TRACES_SAMPLER": "traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.5",
    }
    context = ssl.create_default_context(cafile=str(pair.certificate))
    context.load_cert_chain(pair.certificate, pair.key)
    pages = []

    def scrape() -> None:
        request = urllib.request.Request(f"https://{HOST}:{port}/metrics")
        request.add_header("Authorization", "Basic dXNlcjpwYXNzd29yZA==")
        with urllib.request.urlopen(request, timeout=10, context=context) as response:
            pages.append(response.read())

    without = train(tmp_path / "without", [])
    as_it_comes = OTelLogger(environ={"OTEL_LOGGER_DIR": str(tmp_path / "local")})
    with_everything = OTelLogger(environ=environ)

    assert without == train(tmp_path / "as it comes", [as_it_comes])
    assert without == train(tmp_path / "everything", [with_everything], scrape)

    assert EPOCHS * BATCHES == len(without.losses) == len(pages)
    assert as_it_comes.stats().is_complete
    assert with_everything.stats().is_complete
    received = collector.stop_and_read()
    assert {"said in passing"} <= {record.body for record in received.logs if isinstance(record.body, str)}
    assert received.metrics


def test_runs_with_the_same_seeds_have_no_id_in_common(tmp_path: Path) -> None:
    """Trace ids, span ids and the ids of log records of two runs are all different, though all their numbers agree."""
    logs = [OTelLogger(environ={"OTEL_LOGGER_DIR": str(tmp_path / name)}) for name in ("first", "second")]

    first, second = (train(tmp_path / str(number), [log]) for number, log in enumerate(logs))

    assert first == second
    one, other = (read_run(folder) for log in logs if (folder := log.run_dir) is not None)
    assert one.metrics["value"] == pytest.approx(other.metrics["value"], nan_ok=True, rel=0, abs=0)
    assert one.run_id != other.run_id
    for column in ("trace_id", "span_id"):
        assert len(set(one.spans[column])) > EPOCHS
        assert not set(one.spans[column]) & set(other.spans[column])
    uids = [{each["log.record.uid"] for each in run.events["attributes"]} for run in (one, other)]
    assert not uids[0] & uids[1]


def changed_settings(folder: Path, pair: Pair) -> dict[str, str]:
    """Each setting of our own with a value that is not the default; asserts that there is one for each."""
    changed = {
        "dir": str(folder / "everything"),
        "run_id": "same-training",
        "run_name": "same training",
        "parent_run_id": "another-training",
        "ranks": "all",
        "durability": "interval",
        "flush_interval": "10",
        "heartbeat_interval": "100",
        "shutdown_timeout": "60000",
        "journal_max_bytes": str(2**31),
        "min_free_bytes": "0",
        "stage_max_bytes": str(2**33),
        "blob_store": (folder / "store").as_uri(),
        "blob_url": "https://blobs.example/{name}",
        "image_format": "webp",
        "table_format": "parquet",
        "trace_events": "both",
        "batch_spans": "1000000",
        "step_series": "off",
        "time_resolution": "ns",
        "metrics_exclude": "time/*",
        "redact": "*late*",
        "redact_allow": "*seed*",
        "program_logs": "debug",
        "signals": "off",
        "scrape_certificate": str(pair.certificate),
        "scrape_key": str(pair.key),
        "scrape_client_ca": str(pair.certificate),
        "scrape_auth": "user:password",
        "scrape_linger": "1",
    }
    assert {field.name for field in fields(Settings)} == {*changed, "directory"} - {"dir"}
    return changed


def bits(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor."""
    return tensor.detach().numpy().tobytes()
