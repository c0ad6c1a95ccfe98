"""Tensors on a device: copied to the host without a wait, read when the copy is there.

The only module that imports torch, and only when it is given a tensor of torch's.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from otel_logger.values import as_number, is_device_tensor
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.ledger import Ledger

__all__ = ["CopyEngine", "DeviceReads", "keep_on_device"]

PENDING_LIMIT = 10_000
"""Calls whose copies are under way at most. A device that never finishes must not fill the host's memory."""


class CopyEngine(Protocol):
    """Starts copies from a device: the boundary behind which torch is."""

    def start(self, tensors: list[Any]) -> tuple[Callable[[], bool], list[Any]]:
        """Start copying; return a test whether the copies are there, and the tensors they are copied to."""
        ...


class TorchCopies:
    """Copies to pinned memory on the tensors' current stream; an event after it can be asked without waiting."""

    def start(self, tensors: list[Any]) -> tuple[Callable[[], bool], list[Any]]:
        """Start copying; see CopyEngine."""
        import torch

        detached = [tensor.detach() for tensor in tensors]
        if any(tensor.device.type != "cuda" for tensor in detached):
            # Other devices have no event to ask; their copies are made by the reading thread, from a private clone.
            clones = [tensor.clone() for tensor in detached]
            return lambda: True, clones
        copies = [
            torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
            for tensor in detached
        ]
        events = []
        for device in {tensor.device for tensor in detached}:
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(device))
            events.append(event)
        return lambda: all(event.query() for event in events), copies


def keep_on_device(values: list[Any]) -> tuple[list[Any], Callable[[], None]]:
    """Copy the device tensors among `values` on their device; return all, and what waits until the copies are made.

    Nothing is waited for here: the copies are queued on the tensors' stream, and another thread waits for them.
    """
    import torch

    copies = [value.detach().clone() if is_device_tensor(value) else value for value in values]
    events = []
    for device in {copy.device for copy in copies if is_device_tensor(copy) and copy.device.type == "cuda"}:
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(device))
        events.append(event)

    def wait() -> None:
        for event in events:
            event.synchronize()

    return copies, wait


@dataclass(frozen=True, slots=True)
class _Pending:
    keys: tuple[str, ...]
    copies: list[Any]
    is_ready: Callable[[], bool]
    time_ns: int
    step: int | None


class DeviceReads:
    """Holds calls whose values are still on a device, and hands them on in order when they can be read."""

    def __init__(
        self,
        deliver: Callable[[Mapping[str, float | int], int, int | None], None],
        ledger: Ledger,
        engine: CopyEngine | None = None,
    ) -> None:
        self._deliver = deliver
        self._ledger = ledger
        self._engine = engine or TorchCopies()
        self._pending: deque[_Pending] = deque()
        # Reentrant: a collection of garbage within may close the logger.
        self._lock = threading.RLock()
        self._pause = threading.Event()

    def __len__(self) -> int:
        """Return the number of calls that wait for their values."""
        return len(self._pending)

    def add(self, tensors: Mapping[str, Any], time_ns: int, step: int | None) -> None:
        """Start reading one-element `tensors` of a call. Never raises and never waits for the device."""
        if len(self._pending) >= PENDING_LIMIT:
            self._ledger.drop("device", len(tensors), "Metrics are lost: the device does not finish their copies")
            return
        try:
            is_ready, copies = self._engine.start(list(tensors.values()))
        except Exception as error:
            self._ledger.drop("device", len(tensors), f"Metrics are lost: reading them from a device failed: {error!r}")
            return
        self._pending.append(_Pending(tuple(tensors), copies, is_ready, time_ns, step))

    def poll(self) -> None:
        """Hand on the calls whose values are there, oldest first, up to the first that must still wait."""
        with self._lock:
            while self._pending and self._is_ready(self._pending[0]):
                pending = self._pending.popleft()
                if numbers := self._read(pending):
                    self._deliver(numbers, pending.time_ns, pending.step)

    def finish(self, timeout: float, clock: Clock) -> None:
        """Hand on what is there within `timeout` seconds, and count the rest as lost."""
        deadline = clock.monotonic() + timeout
        self.poll()
        while self._pending and clock.monotonic() < deadline:
            # An event of a device can only be asked, not waited for with a deadline.
            self._pause.wait(0.002)
            self.poll()
        with self._lock:
            left = sum(len(pending.keys) for pending in self._pending)
            self._pending.clear()
        if left:
            self._ledger.drop("device", left, "Metrics are lost: the device has not finished their copies at the end")

    def _is_ready(self, pending: _Pending) -> bool:
        try:
            return pending.is_ready()
        except Exception:
            # A device that has failed: reading the values will say so, and count them.
            return True

    def _read(self, pending: _Pending) -> dict[str, float | int]:
        numbers = {}
        for key, copy in zip(pending.keys, pending.copies, strict=True):
            try:
                numbers[key] = as_number(_on_host(copy))
            except Exception as error:
                self._ledger.drop("device", 1, f"A metric is lost: reading it from its device failed: {error!r}")
        return numbers


def _on_host(tensor: Any) -> Any:
    return tensor.cpu() if tensor.device.type != "cpu" else tensor
