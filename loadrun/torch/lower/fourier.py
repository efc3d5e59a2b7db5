"""Fourier transforms of torch.fft, torch.stft and torch.istft, which torch decomposes into three operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...build import emit as e
from ...build import fourier
from ..call import FxCall, axis_of
from ..complex import Complex, pair
from ..registry import aten
from ..sizes import as_size
from ..values import arr, ten

__all__: list[str] = []

_POWERS = {0: 0.0, 1: 0.5, 2: 1.0}
"""By which power of the length a normalization divides: none, orthonormal, by the length."""


def _length(size: Any) -> Any:
    """Return a size as a number, or None if it is symbolic."""
    number = size if isinstance(size, int) else size.node.maybe_as_int()
    return None if number is None else int(number)


def _along(call: FxCall, x: Complex, axis: int, function: Any) -> Complex:
    """Apply a function of the last axis and its length to another axis."""
    place = axis_of(axis, len(call.shape_of(0)))
    length = _length(call.shape_of(0)[place])
    moved = [None if v is None else np.moveaxis(arr(v), place, -1) for v in (x.real, x.imaginary)]
    real, imag = (None if v is None else e.real(ten(v)) for v in moved)
    assert real is not None
    y = function(fourier.Pair(real, imag), real.shape[-1] if length is None else length)
    back = [None if v is None else np.moveaxis(arr(v, call.dtype), -1, place) for v in y]
    return Complex(*back)


def _transformed(
    call: FxCall, x: Complex, axis: int, norm: int, inverse: bool, half: bool = False
) -> Complex:
    def function(x: fourier.Pair, n: Any) -> fourier.Pair:
        bins = n // 2 + 1 if half else n
        return fourier.transform(x, n, bins=bins, inverse=inverse, power=_POWERS[norm])

    return _along(call, x, axis, function)


@aten("aten._fft_c2c.default", complex=True)
def fft_c2c(call: FxCall, x: Any, dims: Any, norm: int, forward: bool) -> Any:
    """Transform complex numbers to complex numbers."""
    result = pair(x)
    for axis in dims:
        result = _transformed(call, result, axis, norm, not forward)
    return result


@aten("aten._fft_r2c.default", complex=True)
def fft_r2c(call: FxCall, x: Any, dims: Any, norm: int, onesided: bool) -> Any:
    """Transform real numbers to complex ones; the last axis maybe to its half, as the rest are conjugates."""
    result = _transformed(call, pair(x), dims[-1], norm, False, onesided)
    for axis in dims[:-1]:
        result = _transformed(call, result, axis, norm, False)
    return result


@aten("aten._fft_c2r.default", complex=True)
def fft_c2r(call: FxCall, x: Any, dims: Any, norm: int, last_dim_size: Any) -> Any:
    """Transform complex numbers to real ones; half of the last axis is given."""
    result = pair(x)
    for axis in dims[:-1]:
        result = _transformed(call, result, axis, norm, True)
    fixed = _length(call.fakes[3])
    length = as_size(last_dim_size) if fixed is None else fixed

    def function(x: fourier.Pair, bins: Any) -> fourier.Pair:
        return fourier.Pair(fourier.real_of_half(x, length, bins, power=_POWERS[norm]))

    return _along(call, result, dims[-1], function).real
