"""How far two values of one variable are apart, and sketches of values that order does not change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...compare import assert_equal_error
from ...graph.dtypes import Array, DType

__all__ = ["Distance", "agree", "distance", "real", "sketch", "sketches_agree"]


@dataclass(frozen=True)
class Distance:
    """What two arrays of one size differ by.

    Attributes:
        relative: the largest difference over the largest absolute value of the reference; infinite where either has
            NaN or infinity and the other does not.
        absolute: the largest difference.
        error: MegEngine's measure.
        index: where the difference is largest.
        found, expected: the two values there.
    """

    relative: float
    absolute: float
    error: float
    index: tuple[int, ...]
    found: float
    expected: float


def agree(apart: Distance | None, dtype: DType | None, tolerance: float) -> bool:
    """Whether a distance is within a tolerance relative to the tensor's largest value, or one quantization step."""
    step = float(dtype.scale) if dtype is not None and dtype.is_quantized else 0.0
    return apart is not None and (apart.relative <= tolerance or apart.absolute <= 1.001 * step)


def real(value: Array, dtype: DType | None) -> Array:
    """Return the numbers that an array in storage form stands for."""
    if dtype is None or not dtype.is_quantized:
        return value
    return (value.astype(np.float64) - dtype.zero_point) * float(dtype.scale)


def distance(found: Array, expected: Array) -> Distance | None:
    """Compare two arrays; None where their numbers of elements differ.

    Arrays of other shapes are compared in the layout in which they fit best, so that packed channels (NCHW4, NCHW44,
    NHWC, ...) stand beside plain ones.

    >>> import numpy as np
    >>> distance(np.array([1.0, 2.5]), np.array([1.0, 2.0])).relative
    0.25
    """
    if found.shape == expected.shape:
        return _apart(found, expected)
    best = None
    for x, y in _laid_out_alike(found, expected):
        apart = _apart(x, y)
        if best is None or apart.relative < best.relative:
            best = apart
    return best


def _laid_out_alike(found: Array, expected: Array) -> Iterator[tuple[Array, Array]]:
    """Both arrays in layouts of one shape, and flat where they only have as many elements."""
    for x in _unpacked(found):
        for y in _unpacked(expected):
            if x.shape == y.shape:
                yield x, y
            elif x.ndim == y.ndim == 4 and x.shape[::2] == y.shape[::2] and x.shape[3] == y.shape[3]:
                # Packs are filled up with channels that mean nothing.
                channels = min(x.shape[1], y.shape[1])
                yield x[:, :channels], y[:, :channels]
    if found.size == expected.size:
        yield found.reshape(-1), expected.reshape(-1)


def _unpacked(value: Array) -> Iterator[Array]:
    """Yield the array as it is, and as plain NCHW where it may be NHWC or have packed channels."""
    yield value
    if value.ndim == 4:
        yield value.transpose(0, 3, 1, 2)
    elif value.ndim == 5:
        for axes in ((0, 1, 4, 2, 3), (3, 0, 4, 1, 2), (0, 2, 4, 1, 3)):  # NCHWx, CHWNx, NHCWx
            n, c, k, h, w = (value.shape[i] for i in axes)
            yield value.transpose(axes).reshape(n, c * k, h, w)


def _apart(found: Array, expected: Array) -> Distance:
    """Measure the distance of two arrays of one shape."""
    if found.size == 0:
        return Distance(0.0, 0.0, 0.0, (), 0.0, 0.0)
    shape = found.shape
    x, y = found.reshape(-1).astype(np.float64), expected.reshape(-1).astype(np.float64)
    with np.errstate(all="ignore"):
        difference = np.abs(x - y)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        difference[same] = 0
        difference[np.isnan(difference)] = np.inf
        finite = np.abs(y[np.isfinite(y)])
        scale = float(finite.max(initial=0.0))
    worst = int(np.argmax(difference))
    absolute = float(difference[worst])
    return Distance(
        absolute / scale if scale else absolute,
        absolute,
        float(assert_equal_error(x, y)) if np.isfinite(absolute) else float("inf"),
        tuple(int(i) for i in np.unravel_index(worst, shape)),
        float(x[worst]),
        float(y[worst]),
    )


Sketch = tuple[int, float, float, float, float, float]


def sketch(value: Array) -> Sketch:
    """Size, minimum, maximum, mean, mean of absolute values, and deviation: the same in any order of the elements."""
    if not value.size:
        return 0, 0.0, 0.0, 0.0, 0.0, 0.0
    x = value.reshape(-1).astype(np.float64)
    with np.errstate(all="ignore"):
        return (
            value.size,
            float(x.min()),
            float(x.max()),
            float(x.mean()),
            float(np.abs(x).mean()),
            float(x.std()),
        )


def sketches_agree(a: Sketch, b: Sketch, tolerance: float) -> bool:
    """Whether two sketches may be of one value; values that hardly vary say too little and never agree.

    >>> sketches_agree((4, 0.0, 1.0, 0.5, 0.5, 0.3), (4, 0.0, 1.0, 0.5, 0.5, 0.3), 1e-4)
    True
    """
    if a[0] != b[0] or a[0] < 4 or not np.isfinite([*a, *b]).all():
        return False
    spread = max(abs(b[1]), abs(b[2]))
    if not spread or b[5] < 1e-3 * spread:
        return False
    return all(abs(x - y) <= tolerance * spread for x, y in zip(a[1:], b[1:], strict=True))
