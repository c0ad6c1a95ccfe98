"""The demo's training: a loop as any other, with all that it logs on the way."""

import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from otel_logger.demo_model import Digits, Measured, Network
from otel_logger.demo_witness import Witness

__all__ = ["MODEL_FILE", "Plan", "train"]

MODEL_FILE = "model/final.npz"
MISTAKES = "mistakes"

_SHOWN_IMAGES = 8
_MAGNIFIED = 8
"""Pixels that one pixel of a digit becomes on each side: 8 by 8 is too small to look at."""

_INK = 0.3
"""How dark a pixel has to be to count as ink, from 0 to 1."""

_NO_SECRET = "this-is-no-secret"
"""Logged under a key that names a secret, to show that such a value is never recorded."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The demo's hyperparameters."""

    epochs: int = 30
    batch_size: int = 32
    hidden: tuple[int, ...] = (256, 128)
    learning_rate: float = 0.02
    momentum: float = 0.9
    seed: int = 17

    def steps(self, digits: Digits) -> int:
        """Return the number of steps in all."""
        return self.epochs * (len(digits.train_labels) // self.batch_size)

    def learning_rate_at(self, progress: float) -> float:
        """Return the learning rate when this share of training is done: a short warm-up, then half a cosine."""
        warm = min(1.0, (progress + 0.01) / 0.05)
        return self.learning_rate * warm * (1 + math.cos(math.pi * progress)) / 2


def train(log: Witness, digits: Digits, plan: Plan, on_step: Callable[[int, Measured], None]) -> Network:
    """Train a network on the digits and log it all; `on_step` gets each epoch and step as it is done."""
    generator = np.random.default_rng(plan.seed)
    network = Network.create((digits.train_images.shape[1], *plan.hidden, 10), generator)
    log.log_hyperparameters(
        {
            "model": {"kind": "mlp", "hidden": list(plan.hidden), "weights": network.size},
            "optimizer": {"kind": "sgd", "learning_rate": plan.learning_rate, "momentum": plan.momentum},
            "training": {"epochs": plan.epochs, "batch_size": plan.batch_size, "seed": plan.seed},
            "data": {"name": "digits", "images": len(digits.train_labels), "api_key": _NO_SECRET},
        }
    )
    steps = plan.steps(digits)
    step, best = 0, 0.0
    for epoch in range(1, plan.epochs + 1):
        with log.span("epoch", epoch=epoch):
            began = time.monotonic()
            with log.span("train", epoch=epoch):
                for images, labels in digits.batches(plan.batch_size, generator):
                    rate = plan.learning_rate_at(step / steps)
                    measured = network.train_step(images, labels, rate, plan.momentum)
                    step += 1
                    log.log_metrics(_step_metrics(measured, rate), step)
                    on_step(epoch, measured)
            seconds = max(time.monotonic() - began, 1e-9)
            with log.span("evaluate", epoch=epoch):
                evaluated = network.evaluate(digits.test_images, digits.test_labels)
                images_per_second = steps // plan.epochs * plan.batch_size / seconds
                log.log_metrics(
                    {
                        "loss/eval": evaluated.loss,
                        "accuracy/eval": evaluated.accuracy,
                        "images_per_second": images_per_second,
                    },
                    step,
                )
                log.log_traces({"evaluated": {"step": step, "loss": evaluated.loss, "accuracy": evaluated.accuracy}})
                if evaluated.accuracy > best:
                    best = evaluated.accuracy
                    log.log_traces({"new best accuracy": best})
    with log.span("results"):
        _log_mistakes(log, network, digits, step)
        _log_model(log, network)
    return network


def _step_metrics(measured: Measured, learning_rate: float) -> dict[str, float]:
    return {
        "loss/train": measured.loss,
        "accuracy/train": measured.accuracy,
        "gradient_norm": measured.gradient_norm,
        "learning_rate": learning_rate,
    }


def _log_mistakes(log: Witness, network: Network, digits: Digits, step: int) -> None:
    probabilities = network.probabilities(digits.test_images)
    predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    wrong = np.flatnonzero(predicted != digits.test_labels)
    wrong = wrong[np.argsort(-confidence[wrong])]
    rows = [[int(i), int(digits.test_labels[i]), int(predicted[i]), round(float(confidence[i]), 4)] for i in wrong]
    log.log_table(["digit", "true", "predicted", "confidence"], rows, MISTAKES, step)
    if len(wrong):
        small = digits.test_images[wrong[:_SHOWN_IMAGES]].reshape(-1, 8, 8)
        large = small.repeat(_MAGNIFIED, axis=1).repeat(_MAGNIFIED, axis=2)
        # Where there is ink, coloured by what it was taken for: 1 to 10, as 0 is the paper.
        taken_for = (large > _INK) * (predicted[wrong[:_SHOWN_IMAGES]] + 1)[:, None, None]
        labels = {digit + 1: f"taken for {digit}" for digit in range(10)}
        log.log_images(large[:, None], MISTAKES, step, {"taken for": taken_for}, labels)


def _log_model(log: Witness, network: Network) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        network.save(path)
        log.upload_file(MODEL_FILE, path)
