"""Batch normalization as part of the weight and bias of the layer before it."""

from __future__ import annotations

from typing import Any

from ... import functional as F

__all__ = ["Folding", "filled"]


def filled(value: Any, count: int, default: float) -> Any:
    """A statistic or parameter of each channel, (1, count, 1, 1), or one number in its place.

    >>> filled(None, 2, 1.0).tolist()
    [[[[1.0]], [[1.0]]]]
    """
    shape = (1, count, 1, 1)
    return F.full(shape, default, dtype="float32") if value is None else value.reshape(shape)


class Folding:
    """By what the weight is multiplied, and the bias that comes of it.

    Args:
        count: number of channels.
        gamma: weight of the normalization, 1 if None; the next three are its bias, mean and variance.
        beta: 0 if None.
        mean: 0 if None.
        var: 1 if None.
        eps: added to the variance.

    >>> fold = Folding(2, None, None, None, None, eps=3.0)
    >>> fold.scale.tolist(), fold.bias(None).tolist()
    ([[[[0.5]], [[0.5]]]], [[[[0.0]], [[0.0]]]])
    """

    def __init__(self, count: int, gamma: Any, beta: Any, mean: Any, var: Any, eps: float) -> None:
        self.count = count
        self.gamma = filled(gamma, count, 1.0)
        self.beta = filled(beta, count, 0.0)
        self.mean = filled(mean, count, 0.0)
        self.istd = 1.0 / F.sqrt(filled(var, count, 1.0) + eps)
        self.scale = self.gamma * self.istd

    @classmethod
    def of(cls, bn: Any, mean: Any, var: Any) -> Folding:
        """That of a batch normalization with other statistics."""
        return cls(bn.num_features, bn.weight, bn.bias, mean, var, bn.eps)

    def bias(self, bias: Any) -> Any:
        """The bias after the normalization, (1, channels, 1, 1)."""
        return self.beta + self.gamma * (filled(bias, self.count, 0.0) - self.mean) * self.istd
