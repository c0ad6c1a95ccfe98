"""Values on a CUDA device: recorded without making the training wait for the device."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_logger import OTelLogger, read_run
from otel_logger.held_images import hold_images

torch = pytest.importorskip("torch", reason="torch is not installed: `make test-gpu` installs it")

pytestmark = pytest.mark.gpu


@pytest.fixture
def no_waiting() -> Iterator[None]:
    """Make every wait of this thread for the device an error."""
    torch.ones(1, device="cuda").item()
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def test_metrics_on_the_device_are_recorded_without_a_wait(tmp_path: Path, no_waiting: None) -> None:
    """One-element tensors of any dtype arrive with the time and step of their call, in order."""
    log = OTelLogger(run_name="gpu", environ={"OTEL_LOGGER_DIR": str(tmp_path)})
    weight = torch.ones((), device="cuda", requires_grad=True)
    for step in range(100):
        loss = (weight * step).sum()
        log.log_metrics({"loss": loss, "half": loss.to(torch.bfloat16), "host": 1.0}, step=step)
        # What the caller does with its tensor afterwards is its own affair.
        loss.detach().zero_()
    torch.cuda.set_sync_debug_mode("default")
    log.close()

    assert log.run_dir is not None
    run = read_run(log.run_dir)
    assert [(step, float(step)) for step in range(100)] == [
        (row["step"], row["value"]) for row in run.metrics.where(key="loss")
    ]
    times = {key: run.metrics.where(key=key)["time"] for key in ("loss", "host")}
    assert times["loss"] == times["host"]


def test_images_on_the_device_are_stored_without_a_wait(tmp_path: Path, no_waiting: None) -> None:
    """A batch of images is copied on its device; the background fetches it."""
    # Without a name the run is settled at the end: the mode counts for all threads, and the fetching one may wait.
    log = OTelLogger(environ={"OTEL_LOGGER_DIR": str(tmp_path)})
    images = torch.zeros(4, 3, 16, 16, device="cuda")
    log.log_images(images, name="batch", step=1)
    images.fill_(1.0)
    torch.cuda.set_sync_debug_mode("default")
    log.close()

    assert log.run_dir is not None
    blobs = read_run(log.run_dir).blobs
    assert ["image"] * 4 == blobs["kind"]
    assert 1 == len(set(blobs["digest"]))


@pytest.mark.parametrize(
    "form", ["mask", "list of masks", "images among the host's", "bfloat16", "channels last", "graph"]
)
def test_masks_and_mixed_images_on_the_device_are_taken_without_a_wait(form: str, no_waiting: None) -> None:
    """Wherever the parts of a call are, all are of the moment of the call."""
    image = torch.arange(48.0, device="cuda").reshape(3, 4, 4)
    labels = torch.arange(16, device="cuda").reshape(4, 4) * 9000
    host = torch.zeros(3, 4, 4)
    images, masks = {
        "mask": (host, {"m": labels}),
        "list of masks": ([host, host], {"m": [labels, host[0]]}),
        "images among the host's": ([image, host], None),
        "bfloat16": (image.bfloat16(), {"m": labels[None]}),
        "channels last": (image[None].to(memory_format=torch.channels_last), None),
        "graph": (image.clone().requires_grad_() * 1, {"m": labels}),
    }[form]
    held = hold_images(images, masks)
    image.fill_(1.0)
    labels.fill_(1)
    torch.cuda.set_sync_debug_mode("default")

    assert held is not None
    taking = held.take()
    assert [] == taking.faults
    first = taking.images[0]
    if form not in ("mask", "list of masks"):
        assert torch.arange(48.0).reshape(3, 4, 4).permute(1, 2, 0).tolist() == first.pixels.tolist()
    if masks is not None:
        assert (torch.arange(16).reshape(4, 4) * 9000).tolist() == first.masks["m"].tolist()


def test_hyperparameters_on_the_device_are_described_without_a_wait(tmp_path: Path, no_waiting: None) -> None:
    """Tensors are told by their shapes, modules by their parameters, generators and devices by their names."""
    log = OTelLogger(environ={"OTEL_LOGGER_DIR": str(tmp_path)})
    log.log_hyperparameters(
        {
            "weight": torch.ones(3, device="cuda"),
            "model": torch.nn.Linear(3, 4, device="cuda"),
            "device": torch.device("cuda", 0),
            "dtype": torch.bfloat16,
        }
    )
    torch.cuda.set_sync_debug_mode("default")
    log.close()

    assert log.run_dir is not None
    assert {
        "weight": "tensor of shape (3,), dtype torch.float32, device cuda:0",
        "model": "torch.nn.modules.linear.Linear with 16 parameters",
        "device": "cuda:0",
        "dtype": "torch.bfloat16",
    } == {row["key"]: row["value"] for row in read_run(log.run_dir).hyperparameters}
