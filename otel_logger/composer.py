"""OTelLogger for MosaicML Composer's Trainer; the only module that imports Composer."""

from otel_logger.destination import Destination

try:
    from composer.loggers import LoggerDestination
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "composer":
        raise
    msg = 'otel_logger.composer needs MosaicML Composer: pip install "otel-logger-destination[composer]"'
    raise ModuleNotFoundError(msg, name="composer") from error

__all__ = ["OTelLogger"]


class OTelLogger(Destination, LoggerDestination):  # type: ignore[misc]
    """Composer's logger that puts a run's telemetry on OpenTelemetry.

    ::

        from otel_logger.composer import OTelLogger

        trainer = Trainer(..., loggers=[OTelLogger()])

    The run's name is the trainer's, where none is given here or by OTEL_LOGGER_RUN_NAME. See `otel_logger.OTelLogger`
    for what is recorded and where it goes.
    """

    _has_trainer = True
