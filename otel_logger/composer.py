"""OTelLogger for MosaicML Composer's Trainer; the only module that imports Composer."""

from composer.loggers import LoggerDestination

from otel_logger.destination import Destination

__all__ = ["OTelLogger"]


class OTelLogger(Destination, LoggerDestination):  # type: ignore[misc]
    """Composer's logger that puts a run's telemetry on OpenTelemetry.

    ::

        from otel_logger.composer import OTelLogger

        trainer = Trainer(..., loggers=[OTelLogger()])

    The run's name is the trainer's. See `otel_logger.OTelLogger` for what is recorded and where it goes.
    """
