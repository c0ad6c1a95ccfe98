"""Objects of real torch, as hyperparameters and as images."""

import functools
from typing import Any

import numpy as np
import pytest

from otel_logger.held_images import hold_images
from otel_logger.images import take_images
from otel_logger.pixels import to_pixels
from otel_logger.values import plain

torch = pytest.importorskip("torch", reason="torch is not installed: `make test-integration` installs it")

pytestmark = pytest.mark.composer


def test_objects_of_torch_have_readable_forms() -> None:
    """Modules, tensors, dtypes, functions and classes say what they are, the same in every run."""
    said = {
        "model": torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)),
        "lazy": torch.nn.LazyLinear(3),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "meta": torch.ones(2, device="meta"),
        "sparse": torch.eye(2).to_sparse(),
        "large": torch.zeros(64, 64, dtype=torch.bfloat16),
        "size": torch.Size([1, 2]),
        "dtype": torch.float32,
        "device": torch.device("cuda:0"),
        "optimizer": torch.optim.SGD,
        "activation": torch.nn.functional.relu,
        "make": functools.partial(torch.optim.SGD, lr=0.1),
        "generator": torch.Generator(),
    }

    assert {
        "model": "torch.nn.modules.container.Sequential with 21 parameters",
        "lazy": "torch.nn.modules.linear.LazyLinear with unknown parameters",
        "parameter": [1.0, 1.0],
        "meta": "tensor of shape (2,), dtype torch.float32, device meta",
        "sparse": "tensor of shape (2, 2), dtype torch.float32, device cpu",
        "large": "tensor of shape (64, 64), dtype torch.bfloat16, device cpu",
        "size": [1, 2],
        "dtype": "torch.float32",
        "device": "cuda:0",
        "optimizer": "torch.optim.sgd.SGD",
        "activation": "torch.nn.functional.relu",
        "make": {"function": "torch.optim.sgd.SGD", "args": [], "kwargs": {"lr": 0.1}},
        "generator": "<torch._C.Generator>",
    } == plain(said)


def test_tensors_of_every_type_are_images() -> None:
    """Each type of a tensor, with and without a graph and in any layout, becomes the pixels that it stands for."""
    ramp = torch.arange(16.0).reshape(1, 4, 4) / 16
    expected = to_pixels(ramp[0].numpy())
    forms: dict[str, Any] = {
        "float64": ramp.double(),
        "float16": ramp.half(),
        "bfloat16": ramp.bfloat16(),
        "float8": ramp.to(torch.float8_e4m3fn),
        "graph": (ramp.clone().requires_grad_() * 1),
        "bfloat16 with a graph": (ramp.clone().requires_grad_() * 1).bfloat16(),
        "parameter": torch.nn.Parameter(ramp),
        "turned": ramp.mT.contiguous().mT,
        "view of bfloat16": ramp.bfloat16().repeat(3, 2, 2)[1:2, 4:, ::2].repeat(1, 1, 2)[:, :, ::1],
        "channels last": ramp[None].repeat(1, 3, 1, 1).contiguous(memory_format=torch.channels_last)[:, :1],
        "subclass": ramp.as_subclass(type("Special", (torch.Tensor,), {})),
    }
    with torch.inference_mode():
        forms["inference"] = ramp + 0
    for name, form in forms.items():
        (one,) = take_images(form).images
        if name == "view of bfloat16":
            assert (4, 8) == one.pixels.shape
            assert form.float()[0].tolist() == one.pixels.tolist(), name
            continue
        assert isinstance(one.pixels, np.ndarray), (name, one.pixels)
        assert expected.tolist() == to_pixels(one.pixels).tolist(), name
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool):
        whole = torch.tensor([[0, 1], [1, 0]]).to(dtype)
        (one,) = take_images(whole).images
        assert whole.tolist() == one.pixels.tolist(), dtype


def test_tensors_that_hold_no_numbers_say_so() -> None:
    """What has no content on this machine, or none that is an image, is an error and no exception."""
    for image in (torch.ones(2, 3, device="meta"), torch.eye(3).to_sparse(), torch.ones(2, 2, dtype=torch.complex64)):
        (one,) = take_images(image).images
        assert isinstance(one.pixels, ValueError)
        assert str(one.pixels).startswith("not an image: Tensor")


def test_masks_of_tensors_find_their_images() -> None:
    """Batches and lists of label tensors are taken as they are, and the caller's are not changed."""
    labels = torch.arange(32).reshape(2, 1, 4, 4) * 5000 - 3
    masks = {"batch": labels, "list": [labels[0], labels[1].float()], "bool": labels[0, 0] > 0}
    first, second = take_images(torch.zeros(2, 3, 4, 4), masks).images
    for mask in ("batch", "list"):
        assert labels[:, 0].tolist() == [first.masks[mask].tolist(), second.masks[mask].tolist()]
    assert (["batch", "list", "bool"], ["batch", "list"]) == (list(first.masks), list(second.masks))
    assert {"batch", "list", "bool"} == set(masks)
    assert (2, 1, 4, 4) == labels.shape


def test_tensors_on_the_host_are_not_held() -> None:
    """Only what is on a device needs to wait."""
    assert None is hold_images([torch.zeros(3, 4, 4)], {"mask": torch.zeros(4, 4)})


def test_taking_images_draws_no_random_numbers() -> None:
    """The generators of torch and NumPy are the training's."""
    torch.manual_seed(1)
    np.random.seed(1)
    before = torch.random.get_rng_state(), np.random.get_state()[1].tolist()
    take_images(torch.zeros(2, 3, 4, 4, dtype=torch.bfloat16), {"mask": torch.zeros(2, 4, 4)})
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()
