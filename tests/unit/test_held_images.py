"""Images on a device are copied there, and read on another thread when the device has made the copies."""

from collections import deque
from typing import Any

import numpy as np
import pytest
from PIL import Image

from otel_logger.held_images import hold_images

RGB = np.arange(18, dtype=np.uint8).reshape(3, 2, 3)
LABELS = np.arange(6).reshape(2, 3)


class _Device:
    def __init__(self, kind: str) -> None:
        self.type = kind


class _Tensor:
    """A tensor on a device: whoever brings it to the host before the device has finished fails the test."""

    is_ready = False

    def __init__(self, array: np.ndarray, kind: str = "cuda", is_copy: bool = False) -> None:
        self.array, self.device, self.is_copy = array, _Device(kind), is_copy
        self.dtype, self.ndim, self.shape = "torch.uint8", array.ndim, array.shape

    def detach(self) -> "_Tensor":
        return self

    def clone(self) -> "_Tensor":
        return _Tensor(self.array.copy(), is_copy=True)

    def cpu(self) -> "_Tensor":
        assert self.device.type == "cpu" or (self.is_copy and _Tensor.is_ready), "the training waits for the device"
        return _Tensor(self.array, "cpu")

    def numpy(self) -> np.ndarray:
        return self.array

    def numel(self) -> int:
        return int(self.array.size)

    def element_size(self) -> int:
        return int(self.array.itemsize)


_Tensor.__module__, _Tensor.__name__ = "torch", "Tensor"


def keep(tensors: list[Any]) -> tuple[list[Any], Any]:
    """Copy on the device; the copies are there when they are waited for."""

    def wait() -> None:
        _Tensor.is_ready = True

    return [tensor.clone() for tensor in tensors], wait


@pytest.fixture(autouse=True)
def busy_device() -> None:
    """A device that has not finished anything."""
    _Tensor.is_ready = False


def test_nothing_is_held_where_all_is_on_the_host() -> None:
    """Host tensors and arrays, and what is no image at all, are taken at once."""
    for images, masks in (
        (RGB, {"m": LABELS}),
        (_Tensor(RGB, "cpu"), None),
        ([RGB, _Tensor(RGB, "cpu")], {"m": [LABELS]}),
        (None, None),
        ("cat", [1]),
        ([], {}),
    ):
        assert None is hold_images(images, masks, keep=keep)


@pytest.mark.parametrize(
    ("images", "masks"),
    [
        (lambda: _Tensor(RGB.copy()), lambda: {"m": _Tensor(LABELS.copy())}),
        (lambda: [_Tensor(RGB.copy())], lambda: {"m": LABELS.copy()}),
        (lambda: RGB.copy(), lambda: {"m": _Tensor(LABELS[None].copy())}),
        (lambda: [RGB.copy()], lambda: {"m": [_Tensor(LABELS.copy())]}),
        (lambda: _Tensor(RGB[None].copy()), lambda: {"m": _Tensor(LABELS.copy(), "cpu")}),
    ],
    ids=["both", "sequence", "mask", "sequence of masks", "batch"],
)
def test_a_call_is_of_its_own_moment_wherever_its_parts_are(images: Any, masks: Any) -> None:
    """What the caller changes afterwards, on the device or the host, is not in what is taken later."""
    passed, named = images(), masks()
    held = hold_images(passed, named, keep=keep)
    assert held is not None
    assert (18 + 48, 1) == (held.nbytes, held.count)
    for part in (passed, *named.values()):
        for leaf in part if isinstance(part, list) else [part]:
            getattr(leaf, "array", leaf)[:] = 0
    named.clear()
    taking = held.take()
    (one,) = taking.images
    np.testing.assert_array_equal(np.moveaxis(RGB, 0, 2), one.pixels)
    np.testing.assert_array_equal(LABELS, one.masks["m"])
    assert [] == taking.faults


def test_the_order_and_the_errors_of_images_are_kept() -> None:
    """Images on the device and on the host, and what is none, stay in their places, channels where they were said."""
    last = np.moveaxis(RGB, 0, 2)
    held = hold_images([last, _Tensor(last), None, _Tensor(np.zeros(3))], channels_last=True, keep=keep)
    assert held is not None
    assert 4 == held.count
    first, second, third, fourth = held.take().images
    np.testing.assert_array_equal(last, first.pixels)
    np.testing.assert_array_equal(last, second.pixels)
    assert ("not an image: NoneType", True) == (str(third.pixels), "shape (3,)" in str(fourth.pixels))


def test_each_form_of_masks_is_kept_beside_images_on_a_device() -> None:
    """A mask of nested numbers is one mask, and an array of objects and a sequence that makes its items are several."""

    class Slices(deque):
        def __getitem__(self, index: Any) -> Any:
            return _Tensor(super().__getitem__(index))

    objects = np.empty(2, object)
    objects[:] = [_Tensor(LABELS), _Tensor(LABELS + 1)]
    masks = {"numbers": LABELS.tolist(), "objects": objects, "made": Slices([LABELS, LABELS + 1])}
    held = hold_images([_Tensor(RGB), RGB], masks, keep=keep)
    assert held is not None
    taking = held.take()
    assert [] == taking.faults
    assert [{"numbers": 0, "objects": 0, "made": 0}, {"objects": 1, "made": 1}] == [
        {name: mask[0, 0] for name, mask in image.masks.items()} for image in taking.images
    ]


def test_classes_that_raise_do_not_make_the_training_wait() -> None:
    """Whatever cannot be looked at is an error in its place; what is on the device is read later all the same."""

    class Hostile:
        def __getattribute__(self, name: str) -> object:
            raise RuntimeError("no")

    held = hold_images([_Tensor(RGB), Hostile()], {"m": Hostile(), "n": _Tensor(LABELS)}, keep=keep)
    assert held is not None
    first, second = held.take().images
    np.testing.assert_array_equal(np.moveaxis(RGB, 0, 2), first.pixels)
    np.testing.assert_array_equal(LABELS, first.masks["n"])
    assert (True, True) == (isinstance(first.masks["m"], ValueError), isinstance(second.pixels, ValueError))


def test_a_pillow_image_beside_one_on_a_device_keeps_its_channels() -> None:
    """Its channels are last, whatever is said of tensors."""
    last = np.ascontiguousarray(np.moveaxis(RGB, 0, 2))
    held = hold_images([_Tensor(RGB), Image.fromarray(last)], keep=keep)
    assert held is not None
    for one in held.take().images:
        np.testing.assert_array_equal(last, one.pixels)


def test_masks_that_are_no_mapping_are_told_and_not_read() -> None:
    """The images arrive, and the fault says what masks should be."""
    held = hold_images(_Tensor(RGB), [_Tensor(LABELS)], keep=keep)
    assert held is not None
    taking = held.take()
    assert ["masks must be a mapping of names to label images, not list"] == [fault.reason for fault in taking.faults]
    np.testing.assert_array_equal(np.moveaxis(RGB, 0, 2), taking.images[0].pixels)


def test_a_device_without_memory_costs_what_is_on_it() -> None:
    """A copy that cannot be started is an error in the place of the image; others arrive."""

    def full(tensors: list[Any]) -> Any:
        raise RuntimeError("CUDA out of memory")

    held = hold_images([_Tensor(RGB), RGB], {"m": _Tensor(LABELS)}, keep=full)
    assert held is not None
    first, second = held.take().images
    problem = "cannot be copied on its device (RuntimeError: CUDA out of memory)"
    assert (problem, problem) == (str(first.pixels), str(first.masks["m"]))
    np.testing.assert_array_equal(np.moveaxis(RGB, 0, 2), second.pixels)


def test_a_device_that_fails_is_told() -> None:
    """Copies that are never there are errors, one for each image."""

    def failing(tensors: list[Any]) -> Any:
        def wait() -> None:
            raise RuntimeError("device-side assert")

        return tensors, wait

    held = hold_images([_Tensor(RGB), _Tensor(RGB)], keep=failing)
    assert held is not None
    assert ["the device has failed (RuntimeError: device-side assert)"] * 2 == [
        str(one.pixels) for one in held.take().images
    ]
