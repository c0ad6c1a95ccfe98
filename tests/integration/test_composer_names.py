"""Real Composer brings forth no name that is not documented, whatever it is made to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_logger import conventions as names
from otel_logger.glossary import SPANS
from tests.emitted import Users, seen, strangers
from tests.otlp_server import OtlpServer

pytest.importorskip("composer", reason="mosaicml is not installed: `make test-all` installs it")

from composer import Callback, Evaluator, Logger, State
from tiny import tiny_loader, tiny_trainer

from otel_logger.composer import OTelLogger

pytestmark = pytest.mark.composer


class Talker(Callback):
    """Logs traces, a table, and a span of its own in a batch."""

    def __init__(self, destination: OTelLogger) -> None:
        self._destination = destination

    def batch_end(self, state: State, logger: Logger) -> None:
        """Log one of each."""
        logger.log_traces({"note": state.timestamp.batch.value})
        logger.log_table(["a"], [[1]], name="table")
        with self._destination.span("mine", size=1):
            logger.log_metrics({"mine/value": 1.0})


def test_every_name_is_documented(tmp_path: Path) -> None:
    """Several fits with evaluations and checkpoints, an evaluation alone, and a prediction."""
    with OtlpServer("http/protobuf") as server:
        environ = {
            "OTEL_LOGGER_DIR": str(tmp_path / "logs"),
            "OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint,
            "OTEL_LOGGER_BATCH_SPANS": "1000000",
            "OTEL_LOGGER_TRACE_EVENTS": "both",
        }
        destination = OTelLogger(environ=environ)
        trainer = tiny_trainer(
            [destination],
            callbacks=[Talker(destination)],
            eval_dataloader=Evaluator(label="eval", dataloader=tiny_loader()),
            eval_interval="2ba",
            save_folder=str(tmp_path / "checkpoints"),
            save_interval="2ba",
            auto_log_hparams=True,
        )
        trainer.fit()
        trainer.fit(duration="1ep")
        trainer.eval(Evaluator(label="other", dataloader=tiny_loader()))
        trainer.predict(tiny_loader())
        trainer.close()
        destination.post_close()
        found = seen(server)
        users = Users(keys=None, traces=frozenset({"note"}), spans={"mine": frozenset({"size"})})

        assert [] == strangers(server, users)
    # Composer stores no files through a logger unless it is given remote names.
    assert {entry.name for entry in SPANS} - found <= {names.SPAN_UPLOAD}
    assert {names.PHASE_TIME, names.PROGRESS, names.RUN_INFO, names.HPARAM_INFO, names.EVENT_RUN_END} <= found
