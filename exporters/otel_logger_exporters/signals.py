"""The three signals of OpenTelemetry that a run consists of."""

from enum import Enum

__all__ = ["Signal"]


class Signal(Enum):
    """A signal; its value is the word used in environment variables, URLs and file names."""

    METRICS = "metrics"
    LOGS = "logs"
    TRACES = "traces"

    @property
    def index(self) -> int:
        """The number that stands for the signal in a segment's header."""
        return _INDEX[self]


_INDEX = {Signal.METRICS: 1, Signal.LOGS: 2, Signal.TRACES: 3}
