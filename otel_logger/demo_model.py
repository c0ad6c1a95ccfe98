"""The demo's model: a small network in plain NumPy that learns to read handwritten digits.

No framework: the demo must run wherever the library does, in seconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "Digits", "Measured", "Network", "load_digits"]

Array: TypeAlias = npt.NDArray[Any]

_TEST_SHARE = 5
"""One digit of this many is held back for the evaluation."""


@dataclass(frozen=True, slots=True)
class Digits:
    """Images of 8 by 8 pixels as rows of 64 numbers from 0 to 1, and the digits they show."""

    train_images: Array
    train_labels: Array
    test_images: Array
    test_labels: Array

    def batches(self, size: int, generator: np.random.Generator) -> Iterator[tuple[Array, Array]]:
        """Yield the training digits once, shuffled, in batches of `size`; what does not fill the last is left out."""
        order = generator.permutation(len(self.train_labels))
        for start in range(0, len(order) - size + 1, size):
            chosen = order[start : start + size]
            yield self.train_images[chosen], self.train_labels[chosen]


def load_digits(seed: int) -> Digits:
    """Return the 1,797 digits that come with scikit-learn, split by `seed`; ImportError without scikit-learn."""
    from sklearn import datasets

    bundled = datasets.load_digits()
    images = (bundled.data / 16).astype(np.float32)
    order = np.random.default_rng(seed).permutation(len(images))
    test, train = np.split(order, [len(order) // _TEST_SHARE])
    return Digits(images[train], bundled.target[train], images[test], bundled.target[test])


@dataclass(frozen=True, slots=True)
class Measured:
    """What one step of training, or one evaluation, measured."""

    loss: float
    accuracy: float
    gradient_norm: float = 0.0


class Network:
    """A multi-layer perceptron (ReLU, softmax) that learns by stochastic gradient descent with momentum."""

    def __init__(self, weights: list[Array]) -> None:
        """Take the layers' weights and biases by turns; `create` draws them."""
        self._weights = weights
        self._velocity = [np.zeros_like(weight) for weight in weights]

    @classmethod
    def create(cls, sizes: tuple[int, ...], generator: np.random.Generator) -> "Network":
        """Return a network with layers of these sizes, its weights drawn by He's rule."""
        weights: list[Array] = []
        for fan_in, fan_out in pairwise(sizes):
            drawn = generator.standard_normal((fan_in, fan_out)) * (2 / fan_in) ** 0.5
            weights += [drawn.astype(np.float32), np.zeros(fan_out, np.float32)]
        return cls(weights)

    @property
    def size(self) -> int:
        """The number of weights."""
        return sum(weight.size for weight in self._weights)

    def probabilities(self, images: Array) -> Array:
        """Return for each image the probability of each digit."""
        return self._forward(images)[-1]

    def evaluate(self, images: Array, labels: Array) -> Measured:
        """Return loss and accuracy over these digits."""
        return _measure(self.probabilities(images), labels)

    def train_step(self, images: Array, labels: Array, learning_rate: float, momentum: float) -> Measured:
        """Learn from one batch; return what was measured before the step."""
        activations = self._forward(images)
        measured = _measure(activations[-1], labels)
        gradients = self._backward(activations, labels)
        for weight, velocity, gradient in zip(self._weights, self._velocity, gradients, strict=True):
            velocity *= momentum
            velocity -= learning_rate * gradient
            weight += velocity
        norm = float(np.sqrt(sum(float(np.vdot(gradient, gradient)) for gradient in gradients)))
        return Measured(measured.loss, measured.accuracy, norm)

    def save(self, path: Path) -> None:
        """Write the weights as an `.npz` file, which loads without running anything (unlike a pickle)."""
        np.savez(path, *self._weights)

    @classmethod
    def load(cls, path: Path) -> "Network":
        """Return the network that `save` wrote."""
        with np.load(path, allow_pickle=False) as stored:
            return cls([stored[f"arr_{number}"] for number in range(len(stored.files))])

    def _forward(self, images: Array) -> list[Array]:
        activations = [images]
        last = len(self._weights) - 2
        for layer in range(0, last + 1, 2):
            raw = activations[-1] @ self._weights[layer] + self._weights[layer + 1]
            activations.append(_softmax(raw) if layer == last else np.maximum(raw, 0))
        return activations

    def _backward(self, activations: list[Array], labels: Array) -> list[Array]:
        delta = activations[-1].copy()
        delta[np.arange(len(labels)), labels] -= 1
        delta /= len(labels)
        gradients: list[Array] = []
        for layer in range(len(self._weights) - 2, -1, -2):
            before = activations[layer // 2]
            gradients = [before.T @ delta, delta.sum(axis=0), *gradients]
            if layer:
                delta = (delta @ self._weights[layer].T) * (before > 0)
        return gradients


def _softmax(raw: Array) -> Array:
    raised = np.exp(raw - raw.max(axis=1, keepdims=True))
    shares: Array = raised / raised.sum(axis=1, keepdims=True)
    return shares


def _measure(probabilities: Array, labels: Array) -> Measured:
    right = probabilities[np.arange(len(labels)), labels]
    loss = float(-np.log(np.maximum(right, 1e-12)).mean())
    return Measured(loss, float((probabilities.argmax(axis=1) == labels).mean()))
