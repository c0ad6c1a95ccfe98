"""The smallest training that Composer will do: four batches an epoch, in a few milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from composer import Trainer
from composer.loggers import LoggerDestination
from composer.models import ComposerClassifier
from composer.utils import dist
from torch.utils.data import DataLoader, Dataset, TensorDataset

__all__ = ["BATCHES", "tiny_data", "tiny_loader", "tiny_trainer"]

BATCHES = 4
BATCH_SIZE = 8


def tiny_data() -> TensorDataset:
    """Thirty-two points of two classes, always the same; the global generator is not asked."""
    generator = torch.Generator().manual_seed(3)
    points = torch.randn(BATCHES * BATCH_SIZE, 4, generator=generator)
    return TensorDataset(points, (points.sum(dim=1) > 0).long())


def tiny_loader(data: Dataset[Any] | None = None, **options: Any) -> DataLoader[Any]:
    """Batches of the data; with several ranks, a share of each."""
    data = tiny_data() if data is None else data
    sampler = dist.get_sampler(data, shuffle=True)
    return DataLoader(data, batch_size=BATCH_SIZE // dist.get_world_size(), sampler=sampler, **options)


def tiny_trainer(loggers: Sequence[LoggerDestination], **options: Any) -> Trainer:
    """A trainer of one epoch, run `tiny`; `options` are more of, or in place of, the trainer's arguments."""
    torch.manual_seed(5)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.1), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    model = ComposerClassifier(module, num_classes=2)
    defaults = {
        "model": model,
        "train_dataloader": None if "train_dataloader" in options else tiny_loader(),
        "optimizers": torch.optim.SGD(model.parameters(), lr=0.1),
        "max_duration": "1ep",
        "run_name": "tiny",
        "device": "cpu",
        "seed": 17,
        "progress_bar": False,
    }
    return Trainer(loggers=list(loggers), **(defaults | options))
