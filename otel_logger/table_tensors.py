"""Tensors on a device in cells of tables: copied where they are, and fetched when the table is written."""

from collections.abc import Callable
from typing import Any

from otel_logger.table_cells import Deferred

__all__ = ["DeviceCell", "Keep", "unread"]

Keep = Callable[[list[Any]], tuple[list[Any], Callable[[], None]]]
"""Copies tensors on their device, and returns the copies with what waits until they are made."""


class DeviceCell(Deferred):
    """A tensor that is still on its device; it is fetched when the table is written."""

    __slots__ = ("_value", "_wait")

    def __init__(self, tensor: Any) -> None:
        self._value = tensor
        self._wait: Callable[[], None] | None = None

    @property
    def tensor(self) -> Any:
        """The tensor that was given."""
        return self._value

    def hold(self, copy: object, wait: Callable[[], None]) -> None:
        """Take the private copy, which is there when `wait` returns."""
        self._value, self._wait = copy, wait

    def fail(self, error: Exception) -> None:
        """Take text that says why the tensor cannot be read."""
        self._value, self._wait = unread(self._value, error), None

    def resolve(self) -> object:
        """Wait for the copy and fetch it, once."""
        if self._wait is not None:
            try:
                self._wait()
                fetched = self._value.cpu()
                self._value, self._wait = fetched if tuple(fetched.shape) else fetched.item(), None
            except Exception as error:
                self.fail(error)
        return self._value


def unread(tensor: Any, error: Exception) -> str:
    """Return what stands for a tensor that cannot be read."""
    return f"<{type(tensor).__name__} of shape {tuple(tensor.shape)} not read: {type(error).__name__}: {error}>"[:500]
