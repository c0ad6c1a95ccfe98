"""Objects of real torch as hyperparameters."""

import functools

import pytest

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
