"""OTelLogger for programs without Composer."""

from typing import Any

from otel_logger.contract import LoggerDestination
from otel_logger.destination import Destination
from otel_logger_exporters.errors import ConfigurationError

__all__ = ["OTelLogger"]


class OTelLogger(Destination, LoggerDestination):
    """Records a training run: metrics, hyperparameters, traces, spans, sent by OTLP; images, tables and files, stored.

    Sent to OTEL_EXPORTER_OTLP_ENDPOINT where that is set, else kept in the folder OTEL_LOGGER_DIR (./otel_logs).
    Images, tables and files are in the run's folder, or in OTEL_LOGGER_BLOB_STORE, and log records link to them::

        with OTelLogger(run_name="digits") as log:
            log.log_hyperparameters({"lr": 0.1})
            for step in range(100):
                log.log_metrics({"loss/train": 1 / (step + 1)}, step=step)

    For Composer's `Trainer` there is `otel_logger.composer.OTelLogger`.
    """

    def init(self, state: Any, logger: Any) -> None:
        """Take note of the trainer's state; ConfigurationError in a Composer trainer, which needs the other class."""
        if type(state).__module__.partition(".")[0] == "composer":
            msg = (
                "otel_logger.OTelLogger is not a Composer LoggerDestination. Write "
                "`from otel_logger.composer import OTelLogger` and give the Trainer that one."
            )
            raise ConfigurationError(msg)
        super().init(state, logger)
