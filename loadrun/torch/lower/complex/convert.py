"""Conversion between real and complex numbers: parts, dtypes, conjugates."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....build import emit as e
from ...call import FxCall
from ...complex import Complex, is_complex, pair
from ...registry import aten
from ...values import arr, ten
from ..elementwise import CASTS
from .calls import on_real
from .formulas import truth

__all__: list[str] = []


@aten("aten.complex.default", complex=True)
def complex_(call: FxCall, real: Any, imaginary: Any) -> Any:
    """Build complex numbers from two parts."""
    real, imaginary = ten(real, call.dtype), ten(imaginary, call.dtype)
    shape = e.broadcast_shape([real, imaginary])
    return Complex(*(e.broadcast(v, shape) if shape else v for v in (real, imaginary)))


@aten("aten.linspace.default", complex=True)
def linspace(call: FxCall, start: Any, end: Any, steps: int, **_: Any) -> Any:
    """Return evenly spaced numbers between two ends."""
    steps = call.static([steps], "the number of steps")[0]
    numbers = np.linspace(complex(start), complex(end), steps)
    return Complex(*(ten(v.astype(call.dtype), call.dtype) for v in (numbers.real, numbers.imag)))


@aten(
    "aten.randn.default",
    "aten.randn_like.default",
    "aten.rand.default",
    "aten.rand_like.default",
    complex=True,
)
def random(call: FxCall, shape: Any, *_: Any, **__: Any) -> Any:
    """Draw both parts; normal ones so that the variance of the whole is 1."""
    shape = pair(shape).real if isinstance(shape, Complex) else shape
    real, imaginary = (arr(on_real(call, shape)) for _ in range(2))
    scale = np.float32(0.5**0.5 if "randn" in str(call.node.target) else 1)
    return Complex(real * scale, imaginary * scale)


@aten("aten.polar.default", complex=True)
def polar(call: FxCall, size: Any, angle: Any) -> Any:
    """Build complex numbers from moduli and angles."""
    size, angle = arr(size, call.dtype), arr(angle, call.dtype)
    return Complex(size * np.cos(angle), size * np.sin(angle))


@aten("aten.view_as_complex.default", "aten.view_as_complex_copy.default", complex=True)
def view_as_complex(call: FxCall, x: Any) -> Any:
    """View the last axis as real and imaginary part."""
    return Complex(arr(x)[..., 0], arr(x)[..., 1])


@aten("aten.view_as_real.default", "aten.view_as_real_copy.default", complex=True)
def view_as_real(call: FxCall, x: Any) -> Any:
    """Stack real and imaginary part along a new last axis."""
    x = pair(x)
    return np.stack([arr(x.real), arr(x.imag)], axis=-1)


@aten("aten.real.default", complex=True)
def real(call: FxCall, x: Any) -> Any:
    """Return the real part."""
    return pair(x).real


@aten("aten.imag.default", complex=True)
def imag(call: FxCall, x: Any) -> Any:
    """Return the imaginary part."""
    return pair(x).imag


@aten(*CASTS, complex=True)
def to_copy(call: FxCall, x: Any, *_: Any, **options: Any) -> Any:
    """Convert the values to another dtype; a real one keeps the real parts."""
    if is_complex(call.fake):
        return pair(x, call.dtype)
    return truth(pair(x)) if call.dtype == np.bool_ else ten(pair(x).real, call.dtype)


@aten(
    "aten._conj.default",
    "aten.conj.default",
    "aten.conj_physical.default",
    "aten._conj_physical.default",
    complex=True,
)
def conj(call: FxCall, x: Any) -> Any:
    """Return the conjugate."""
    return pair(x).conj


@aten("aten.resolve_conj.default", complex=True)
def same(call: FxCall, x: Any) -> Any:
    """Return the value itself."""
    return x


@aten("aten.adjoint.default", "aten.mH.default", "aten.matrix_H.default", complex=True)
def adjoint(call: FxCall, x: Any) -> Any:
    """Return the conjugate of a transposed matrix."""
    x = pair(x)
    return Complex(*(None if v is None else np.swapaxes(v, -1, -2) for v in (x.real, x.imaginary))).conj
