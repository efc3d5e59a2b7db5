"""Helpers shared by families of lowerings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...build import emit as e
from ...build.layers.sizes import is_open, of_length
from ...graph import params as P
from ...graph.dtypes import Array
from ...tensors import Tensor, const
from ...tensors.access import dtype_of

__all__ = [
    "M",
    "cast",
    "const_like",
    "flags",
    "floats",
    "folded",
    "in_float",
    "is_open",
    "limits",
    "of_length",
    "transposed",
]

M = P.ElemwiseMode
cast = e.cast
folded = e.folded


def const_like(value: float | np.generic | Array, x: Tensor) -> Tensor:
    """Build a constant scalar in the type of a tensor."""
    return const(np.asarray(value), dtype_of(x))


def floats(x: Tensor) -> Tensor:
    """Return the tensor itself where it is of floats, else as float32."""
    return x if dtype_of(x).is_float else e.real(x)


def in_float(x: Tensor) -> Tensor:
    """Return the tensor as float32, one of 64 bits as float64."""
    return e.real(x)


def transposed(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Permute the axes; leave a scalar as it is."""
    return x if list(axes) == list(range(x.ndim)) else e.permute(x, axes)


def limits(kind: int) -> tuple[int, int]:
    """Return the smallest and largest number of an ONNX integer type."""
    small = {21: (0, 15), 22: (-8, 7), 25: (0, 3), 26: (-2, 1), 2: (0, 255), 3: (-128, 127), 4: (0, 65535)}
    return small.get(kind) or {5: (-32768, 32767)}.get(kind, (-(2**31), 2**31 - 1))


def flags(values: Sequence[float] | None, count: int, default: int) -> list[int]:
    """Return one number for each spatial axis."""
    return [default] * count if values is None else [int(v) for v in values]
