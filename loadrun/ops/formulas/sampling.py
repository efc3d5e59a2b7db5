"""Images between their pixels: neighbours, and how much each weighs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...graph.dtypes import Array
from ...graph.params import BorderMode

Pixels = Callable[[Array, Array], Array]
"""Gives [C, ...] for integer rows and columns [...]."""
Weights = list[tuple[Array, Array]]
"""For each neighbour of every position: which pixel of the axis it is, and what it weighs."""


def pixels_of(image: Array, mode: BorderMode = BorderMode.CONSTANT, fill: float = 0.0) -> Pixels:
    """Give the pixels of an image [C, H, W] by row and column, and what stands for those outside.

    >>> pixels = pixels_of(np.array([[[1.0, 2.0]]]), BorderMode.REFLECT)
    >>> pixels(np.array([0, 0]), np.array([2, -1]))
    array([[2., 1.]])
    """

    def pixels(rows: Array, cols: Array) -> Array:
        y, x = _inside(rows, image.shape[1], mode), _inside(cols, image.shape[2], mode)
        taken = image[:, y, x]
        if mode != BorderMode.CONSTANT:
            return taken
        return np.where((y == rows) & (x == cols), taken, fill)

    return pixels


def _inside(at: Array, size: int, mode: BorderMode) -> Array:
    """Return the pixel that stands for a position outside; the nearest one for a border of one value."""
    # NaN positions may read any pixel: their weights are NaN.
    at = np.clip(np.nan_to_num(at), -(2.0**31), 2.0**31).astype(np.int64)
    if mode == BorderMode.WRAP:
        return at % size
    if mode == BorderMode.REFLECT:
        at = at % (2 * size)
        return np.where(at < size, at, 2 * size - 1 - at)
    if mode == BorderMode.REFLECT_101:
        period = max(1, 2 * size - 2)
        at = at % period
        return np.where(at < size, at, period - at)
    return np.clip(at, 0, size - 1)


def bilinear(pixels: Pixels, rows: Array, cols: Array) -> Array:
    """Weigh the four pixels around positions by the areas opposite them."""
    top, left = np.floor(rows), np.floor(cols)
    v, u = rows - top, cols - left
    above = pixels(top, left) * (1 - u) + pixels(top, left + 1) * u
    below = pixels(top + 1, left) * (1 - u) + pixels(top + 1, left + 1) * u
    return above * (1 - v) + below * v


def linear(positions: Array, size: int) -> Weights:
    """Give the neighbours of positions on an axis and their weights, constant beyond its ends.

    >>> linear(np.array([-0.5, 0.25, 1.0]), 2)
    [(array([0, 0, 1]), array([1.  , 0.75, 1.  ])), (array([1, 1, 1]), array([0.  , 0.25, 0.  ]))]
    """
    at = np.clip(positions, 0, size - 1)
    left = np.floor(at).astype(np.int64)
    return [(left, 1 - (at - left)), (np.minimum(left + 1, size - 1), at - left)]


def cubic(positions: Array, size: int) -> Weights:
    """Give the four neighbours of positions on an axis and their weights in cubic convolution with A = -0.75.

    >>> [w.item() for _, w in cubic(np.array([1.5]), 4)]
    [-0.09375, 0.59375, 0.59375, -0.09375]
    """
    left = np.floor(positions).astype(np.int64)
    weights = []
    for at in (left - 1, left, left + 1, left + 2):
        d = np.abs(positions - at)
        near, far = (1.25 * d - 2.25) * d * d + 1, -0.75 * (((d - 5) * d + 8) * d - 4)
        weights.append((np.clip(at, 0, size - 1), np.where(d <= 1, near, far)))
    return weights


def blended(x: Array, weights: Weights, axis: int) -> Array:
    """Add up an axis's pixels by their weights.

    >>> blended(np.array([2.0, 6.0]), linear(np.array([0.25]), 2), 0)
    array([3.])
    """
    x = np.moveaxis(x, axis, -1)
    return np.moveaxis(np.sum([x[..., at] * w for at, w in weights], 0), -1, axis)
