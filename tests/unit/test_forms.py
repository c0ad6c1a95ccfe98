"""Configuration objects say what they are, in words that are the same in every run."""

import enum
import functools
import math
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest

from otel_logger.forms import fields_of, stable_text
from otel_logger.redaction import REDACTED, Redactor
from otel_logger.values import plain

DATA = PurePosixPath("/data")


class Schedule(enum.Enum):
    """A choice."""

    COSINE = "cosine"


@dataclass
class Optimizer:
    """A configuration."""

    lr: float = 0.1
    schedule: Schedule = Schedule.COSINE
    path: PurePosixPath = field(default=DATA)


@dataclass
class Experiment:
    """A configuration of configurations."""

    optimizer: Optimizer = field(default_factory=Optimizer)
    tags: set[str] = field(default_factory=lambda: {"b", "a", "c"})
    late: int = field(init=False)


class Thing:
    """An object that says nothing of itself."""

    def method(self) -> None:
        """Do nothing."""


class Wrapper:
    """An object whose text has that of another in it."""

    def __repr__(self) -> str:
        return f"Wrapper({object()!r}, {Thing.method!r})"


class RaisingRepr:
    """An object whose text cannot be had."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


class RaisingField:
    """A namespace-like object with a field that cannot be read."""

    __attrs_attrs__ = (SimpleNamespace(name="lr"),)

    @property
    def lr(self) -> float:
        """Raise."""
        raise RuntimeError("no")


def torch_module(*sizes: int | None) -> Any:
    """Return what this package uses of a torch module: parameters with sizes, None for one that is not known yet."""

    def count(size: int | None) -> int:
        if size is None:
            raise ValueError("not known yet")
        return size

    class Module:
        def parameters(self) -> Any:
            return [SimpleNamespace(numel=functools.partial(count, size)) for size in sizes]

    Module.__module__, Module.__qualname__ = "torch.nn.modules.module", "Module"
    network = type("Net", (Module,), {"__module__": "nets"})
    return network()


NAME = __name__

FORMS: list[tuple[Any, Any]] = [
    (Optimizer(), {"lr": 0.1, "schedule": "cosine", "path": "/data"}),
    (Experiment(), {"optimizer": plain(Optimizer()), "tags": ["a", "b", "c"]}),
    (Namespace(lr=0.1, inner=SimpleNamespace(x=[1])), {"lr": 0.1, "inner": {"x": [1]}}),
    (Optimizer, f"{NAME}.Optimizer"),
    (int, "int"),
    (Schedule, f"{NAME}.Schedule"),
    (np.float32, "numpy.float32"),
    (np.dtype("float32"), "float32"),
    (list[int], "list[int]"),
    (Literal["a"], "typing.Literal['a']"),
    (len, "len"),
    (math.sqrt, "math.sqrt"),
    (torch_module, f"{NAME}.torch_module"),
    (Thing().method, f"{NAME}.Thing.method"),
    (lambda: 0, f"{NAME}.<lambda>"),
    (
        functools.partial(math.pow, 2, exponent=Schedule.COSINE),
        {"function": "math.pow", "args": [2], "kwargs": {"exponent": "cosine"}},
    ),
    (math, "math"),
    (torch_module(6, 2), "nets.Net with 8 parameters"),
    (torch_module(6, None), "nets.Net with unknown parameters"),
    (datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc), "2026-01-02T03:04:05+00:00"),
    (date(2026, 1, 2), "2026-01-02"),
    (time(3, 4), "03:04:00"),
    (timedelta(days=1, seconds=5), "1 day, 0:00:05"),
    ({3, 1, 2.5, "b", "a", (1,)}, [1, 2.5, 3, "a", "b", [1]]),
    (frozenset({math.nan, 1.0}), plain([1.0, math.nan])),
    (object(), "<object>"),
    (Thing(), f"<{NAME}.Thing>"),
    (Wrapper(), "Wrapper(<object object>, <function Thing.method>)"),
    (RaisingRepr(), "<RaisingRepr: RuntimeError>"),
    ({"a": RaisingField(), "b": 1}, {"a": {"lr": "<RuntimeError>"}, "b": 1}),
]


@pytest.mark.parametrize(("value", "expected"), FORMS, ids=lambda value: type(value).__name__)
def test_forms(value: Any, expected: Any) -> None:
    """Each kind of object has a readable form."""
    assert repr(expected) == repr(plain(value))


@pytest.mark.parametrize(("value", "expected"), FORMS, ids=lambda value: type(value).__name__)
def test_a_form_has_none_of_its_own(value: Any, expected: Any) -> None:
    """What was made plain stays as it is."""
    assert repr(expected) == repr(plain(plain(value)))


def test_sets_and_objects_read_the_same_in_each_process() -> None:
    """Neither the order of a set's hashes nor an address in memory shows."""
    code = "from otel_logger.values import plain; print(plain({'s': set('abcdefgh'), 'o': object(), 'f': lambda: 0}))"
    root = Path(__file__).parents[2]

    def run(seed: str) -> str:
        environ = {"PYTHONPATH": f"{root}:{root / 'exporters'}", "PYTHONHASHSEED": seed}
        return subprocess.run(
            [sys.executable, "-c", code], check=True, env=environ, capture_output=True, text=True
        ).stdout

    assert run("1") == run("2")
    assert "0x" not in run("1")


def test_a_text_of_the_callers_own_is_left_alone() -> None:
    """Addresses are taken out of the texts of objects, not out of strings."""
    assert "loaded at 0x7f00" == plain("loaded at 0x7f00")
    assert "[<object object>]" == stable_text([object()])


def test_arguments_of_a_partial_function_are_redacted_by_name() -> None:
    """A form keeps the names of its parts, by which secrets are known."""
    form = plain({"connect": functools.partial(print, "host", password="hunter2")})

    assert {"function": "print", "args": ["host"], "kwargs": {"password": REDACTED}} == Redactor().redact("", form)[
        "connect"
    ]


@pytest.mark.parametrize("value", [1, "a", None, [1], {"a": 1}, Optimizer, object(), print, torch_module(1)])
def test_what_has_no_fields(value: Any) -> None:
    """Scalars, containers, classes and functions are no objects with fields."""
    assert fields_of(value) is None


def test_objects_that_hold_each_other_end() -> None:
    """A cycle through objects with fields is described where it closes; what stands beside it twice is there twice."""
    parent, child = SimpleNamespace(name="p"), SimpleNamespace(name="c")
    parent.child, child.parent = child, parent
    shared = [1]

    assert {"name": "p", "child": {"name": "c", "parent": "SimpleNamespace of 2 items, in itself"}} == plain(parent)
    assert {"a": [1], "b": [1]} == plain({"a": shared, "b": shared})


def test_reading_a_tensor_that_is_shared_out_is_not_tried(make_tensor: Callable[[str], Any]) -> None:
    """A tensor of a class of its own may ask other processes for its content: it is described."""
    assert "tensor of shape (2,), dtype f4, device cpu" == plain(make_tensor("torch.distributed.tensor"))
    assert [1.0, 2.0] == plain(make_tensor("torch"))


@pytest.fixture
def make_tensor() -> Callable[[str], Any]:
    """Return a constructor of tensors whose class is in a module of that name."""

    def construct(module: str) -> Any:
        def listed(self: Any) -> list[float]:
            assert module == "torch", "the training waits for other processes"
            return [1.0, 2.0]

        class Device(str):
            type = "cpu"

        content = {"shape": (2,), "dtype": "f4", "device": Device("cpu"), "numel": lambda self: 2}
        content |= {"detach": lambda self: self, "tolist": listed}
        base = type("Tensor", (), {"__module__": "torch", **content})
        return (base if module == "torch" else type("DTensor", (base,), {"__module__": module}))()

    return construct
