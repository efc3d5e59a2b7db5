"""Operators on complex numbers, as operators on real and imaginary parts.

Products and quotients of a complex and a real number leave out the products with zero that torch computes, so that an
infinite number stays one where torch has NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...imperative import emit as e
from ..call import FxCall, axes_of
from ..complex import Complex, is_complex, pair
from ..registry import aten, lowering_of
from ..values import arr, ten
from .elementwise import CASTS
from .reduce import moments

__all__: list[str] = []


def _on_parts(target: str, *places: int) -> None:
    """Register that an operator does the same to both parts.

    Args:
        target: torch's name of it.
        places: which of its arguments are values, complex or not; the others are indices, sizes, masks.
    """

    def lowered(call: FxCall, *args: Any, **kwargs: Any) -> Any:
        lowering = lowering_of(target)
        assert lowering is not None

        def apply(part: Callable[[Any], Any]) -> Any:
            given = [_each(a, part) if i in places else a for i, a in enumerate(args)]
            return lowering.function(call, *given, **kwargs)

        real = apply(lambda v: pair(v).real)
        several = isinstance(call.fake, (list, tuple))
        if not is_complex(call.fake[0] if several else call.fake):
            return real
        values = [_each(a, pair) for i, a in enumerate(args) if i in places]
        imaginary = apply(_imaginary) if _any_imaginary(values) else None
        if not several:
            return Complex(real, imaginary)
        return tuple(map(Complex, real, [None] * len(real) if imaginary is None else imaginary))

    aten(target, complex=True)(lowered)


def _each(value: Any, function: Callable[[Any], Any]) -> Any:
    """A function of a value, or of each in a list of them; absent ones stay."""
    if isinstance(value, (list, tuple)):
        return [_each(v, function) for v in value]
    return None if value is None else function(value)


def _any_imaginary(values: Any) -> bool:
    if isinstance(values, (list, tuple)):
        return any(map(_any_imaginary, values))
    return isinstance(values, Complex) and values.imaginary is not None


def _imaginary(value: Any) -> Any:
    if isinstance(value, (bool, int, float)):
        return 0
    return value.imag if isinstance(value, complex) else pair(value).imag


_VALUES: dict[tuple[int, ...], str] = {
    (0,): """
        view.default reshape.default _unsafe_view.default _reshape_copy.default
        clone.default contiguous.default detach.default alias.default lift_fresh_copy.default lift_fresh.default
        detach_copy.default positive.default dropout.default feature_dropout.default alpha_dropout.default
        feature_alpha_dropout.default permute.default transpose.int swapaxes.default swapdims.default t.default
        numpy_T.default mT.default movedim.int movedim.intlist moveaxis.int moveaxis.intlist unsqueeze.default
        squeeze.default squeeze.dim squeeze.dims flatten.using_ints unflatten.int expand.default broadcast_to.default
        expand_copy.default repeat.default tile.default slice.Tensor slice_copy.Tensor select.int
        select_copy.int narrow.default flip.default roll.default rot90.default diagonal.default diagonal_copy.default
        linalg_diagonal.default tril.default triu.default reflection_pad1d.default reflection_pad2d.default
        reflection_pad3d.default replication_pad1d.default replication_pad2d.default replication_pad3d.default
        _pad_circular.default unfold.default sym_size.int size.int sym_numel.default numel.default as_strided.default
        split.Tensor unsafe_split.Tensor split_copy.Tensor split_with_sizes.default split.sizes
        unsafe_split_with_sizes.default split_with_sizes_copy.default chunk.default unsafe_chunk.default
        tensor_split.sections tensor_split.indices unbind.int unbind_copy.int meshgrid.default meshgrid.indexing
        broadcast_tensors.default cat.default concat.default concatenate.default stack.default block_diag.default
        repeat_interleave.self_int index.Tensor _unsafe_index.Tensor index_select.default take.default gather.default
        take_along_dim.default masked_select.default embedding.default im2col.default col2im.default
        pixel_shuffle.default pixel_unshuffle.default channel_shuffle.default diag_embed.default trace.default
        sum.default sum.dim_IntList mean.default mean.dim cumsum.default neg.default _neg_view.default
        resolve_neg.default zeros_like.default empty_like.default new_zeros.default new_empty.default
        new_empty_strided.default zero.default
    """,
    (1,): "full.default",
    (0, 1): """
        slice_scatter.default select_scatter.default diagonal_scatter.default fill.Scalar fill.Tensor copy.default
        full_like.default view_as.default reshape_as.default expand_as.default
    """,
    (0, 2): """
        constant_pad_nd.default masked_fill.Scalar masked_fill.Tensor index_put.default _unsafe_index_put.default
        masked_scatter.default put.default new_full.default
    """,
    (0, 3): """
        pad.default scatter.src scatter.value scatter_add.default index_copy.default index_fill.int_Scalar
        index_fill.int_Tensor index_add.default
    """,
    (1, 2): "where.self where.ScalarSelf where.ScalarOther where.Scalar",
    (): """
        zeros.default empty.memory_format empty_strided.default empty_permuted.default eye.default eye.m
    """,
}
for _places, _names in _VALUES.items():
    for _name in _names.split():
        _on_parts(f"aten.{_name}", *_places)


@aten("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default", complex=True)
def ones(call: FxCall, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Ones."""
    return Complex(_real(call, pair(x).real if isinstance(x, Complex) else x, *args, **kwargs))


@aten("aten.scalar_tensor.default", complex=True)
def scalar_tensor(call: FxCall, value: Any, **_: Any) -> Any:
    """A number as a tensor."""
    x = pair(value, call.dtype)
    return Complex(*(None if v is None else e.reshape(ten(v), ()) for v in (x.real, x.imaginary)))


# Between real and complex


@aten("aten.complex.default", complex=True)
def complex_(call: FxCall, real: Any, imaginary: Any) -> Any:
    """The complex numbers of two parts."""
    real, imaginary = ten(real, call.dtype), ten(imaginary, call.dtype)
    shape = e.broadcast_shape([real, imaginary])
    return Complex(*(e.broadcast(v, shape) if shape else v for v in (real, imaginary)))


@aten("aten.polar.default", complex=True)
def polar(call: FxCall, size: Any, angle: Any) -> Any:
    """The complex numbers of sizes and angles."""
    size, angle = arr(size, call.dtype), arr(angle, call.dtype)
    return Complex(size * np.cos(angle), size * np.sin(angle))


@aten("aten.view_as_complex.default", "aten.view_as_complex_copy.default", complex=True)
def view_as_complex(call: FxCall, x: Any) -> Any:
    """The last axis as real and imaginary part."""
    return Complex(arr(x)[..., 0], arr(x)[..., 1])


@aten("aten.view_as_real.default", "aten.view_as_real_copy.default", complex=True)
def view_as_real(call: FxCall, x: Any) -> Any:
    """Real and imaginary part along a new last axis."""
    x = pair(x)
    return np.stack([arr(x.real), arr(x.imag)], axis=-1)


@aten("aten.real.default", complex=True)
def real(call: FxCall, x: Any) -> Any:
    """The real part."""
    return pair(x).real


@aten("aten.imag.default", complex=True)
def imag(call: FxCall, x: Any) -> Any:
    """The imaginary part."""
    return pair(x).imag


@aten(*CASTS, complex=True)
def to_copy(call: FxCall, x: Any, *_: Any, **options: Any) -> Any:
    """The values in another dtype; a real one has the real parts."""
    if is_complex(call.fake):
        return pair(x, call.dtype)
    return _true(pair(x)) if call.dtype == np.bool_ else ten(pair(x).real, call.dtype)


@aten(
    "aten._conj.default",
    "aten.conj.default",
    "aten.conj_physical.default",
    "aten._conj_physical.default",
    complex=True,
)
def conj(call: FxCall, x: Any) -> Any:
    """The conjugate."""
    return pair(x).conj


@aten("aten.resolve_conj.default", complex=True)
def same(call: FxCall, x: Any) -> Any:
    """The value itself."""
    return x


@aten("aten.adjoint.default", "aten.mH.default", "aten.matrix_H.default", complex=True)
def adjoint(call: FxCall, x: Any) -> Any:
    """The conjugate of a transposed matrix."""
    x = pair(x)
    return Complex(*(None if v is None else np.swapaxes(v, -1, -2) for v in (x.real, x.imaginary))).conj


# Sizes and angles


def _size(x: Complex) -> Any:
    return np.absolute(x.real) if x.imaginary is None else np.hypot(x.real, x.imaginary)


def _angle(x: Complex) -> Any:
    return np.arctan2(x.imag, x.real)


@aten("aten.abs.default", complex=True)
def absolute(call: FxCall, x: Any) -> Any:
    """The distances from zero."""
    return _size(pair(x, call.dtype))


@aten("aten.angle.default", complex=True)
def angle(call: FxCall, x: Any) -> Any:
    """The angles from the positive real numbers."""
    return _angle(pair(x, call.dtype))


@aten("aten.sgn.default", complex=True)
def sgn(call: FxCall, x: Any) -> Any:
    """Numbers of size 1 in the same direction; 0 of 0."""
    x = pair(x, call.dtype)
    size = _size(x)
    return _divided(x, Complex(np.where(size == 0, np.ones_like(size), size)))


@aten(
    "aten.linalg_vector_norm.default",
    "aten.norm.ScalarOpt_dim",
    "aten.norm.Scalar",
    "aten.norm.ScalarOpt_dim_dtype",
    complex=True,
)
def norm(call: FxCall, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Norms of the sizes."""
    return _real(call, _size(pair(x)), *args, **kwargs)


def _real(call: FxCall, *args: Any, **kwargs: Any) -> Any:
    """What the same operator makes of real numbers."""
    lowering = lowering_of(str(call.node.target))
    assert lowering is not None
    return lowering.function(call, *args, **kwargs)


# Arithmetic


def _added(a: Complex, b: Complex) -> Complex:
    total = a.real + b.real
    if a.imaginary is None or b.imaginary is None:
        rest = b.imaginary if a.imaginary is None else a.imaginary
        return Complex(total, None if rest is None else e.broadcast(ten(rest), ten(total).shape))
    return Complex(total, a.imaginary + b.imaginary)


def _negative(x: Complex) -> Complex:
    return Complex(-x.real, None if x.imaginary is None else -x.imaginary)


def _times(a: Complex, b: Complex) -> Complex:
    if b.imaginary is None:
        return Complex(a.real * b.real, None if a.imaginary is None else a.imaginary * b.real)
    if a.imaginary is None:
        return Complex(a.real * b.real, a.real * b.imaginary)
    real = a.real * b.real - a.imaginary * b.imaginary
    return Complex(real, a.real * b.imaginary + a.imaginary * b.real)


def _divided(a: Complex, b: Complex) -> Complex:
    if b.imaginary is None:
        return Complex(a.real / b.real, None if a.imaginary is None else a.imaginary / b.real)
    # The divisor is scaled, so that its square neither overflows nor vanishes.
    scale = np.maximum(np.absolute(b.real), np.absolute(b.imaginary))
    unit = Complex(b.real / scale, b.imaginary / scale)
    size = (unit.real * unit.real + unit.imag * unit.imag) * scale
    product = _times(a, unit.conj)
    return Complex(product.real / size, product.imag / size)


def _operands(call: FxCall, *values: Any) -> list[Complex]:
    return [pair(v, call.dtype) for v in values]


@aten("aten.add.Tensor", "aten.add.Scalar", complex=True)
def add(call: FxCall, x: Any, y: Any, alpha: Any = 1) -> Any:
    """Sum, of the second operand times `alpha`."""
    x, y, alpha = _operands(call, x, y, alpha) if alpha != 1 else (*_operands(call, x, y), None)
    return _added(x, y if alpha is None else _times(y, alpha))


@aten("aten.sub.Tensor", "aten.sub.Scalar", complex=True)
def sub(call: FxCall, x: Any, y: Any, alpha: Any = 1) -> Any:
    """Difference, of the second operand times `alpha`."""
    x, y = _operands(call, x, y)
    if alpha == 1 and x.imaginary is not None and y.imaginary is not None:
        return Complex(x.real - y.real, x.imaginary - y.imaginary)
    return _added(x, _times(y, pair(-alpha, call.dtype)))


@aten("aten.rsub.Tensor", "aten.rsub.Scalar", complex=True)
def rsub(call: FxCall, x: Any, y: Any, alpha: Any = 1) -> Any:
    """Difference with exchanged operands."""
    return sub(call, y, x, alpha)


@aten("aten.mul.Tensor", "aten.mul.Scalar", complex=True)
def mul(call: FxCall, x: Any, y: Any) -> Any:
    """Product."""
    return _times(*_operands(call, x, y))


@aten("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor", complex=True)
def div(call: FxCall, x: Any, y: Any) -> Any:
    """Quotient."""
    return _divided(*_operands(call, x, y))


@aten("aten.addcmul.default", complex=True)
def addcmul(call: FxCall, x: Any, a: Any, b: Any, value: Any = 1) -> Any:
    """``x + value * a * b``."""
    x, a, b, value = _operands(call, x, a, b, value)
    return _added(x, _times(value, _times(a, b)))


@aten("aten.addcdiv.default", complex=True)
def addcdiv(call: FxCall, x: Any, a: Any, b: Any, value: Any = 1) -> Any:
    """``x + value * a / b``."""
    x, a, b, value = _operands(call, x, a, b, value)
    return _added(x, _times(value, _divided(a, b)))


@aten("aten.lerp.Scalar", "aten.lerp.Tensor", complex=True)
def lerp(call: FxCall, start: Any, end: Any, weight: Any) -> Any:
    """Between two values."""
    start, end, weight = _operands(call, start, end, weight)
    return _added(start, _times(weight, _added(end, _negative(start))))


@aten("aten.reciprocal.default", complex=True)
def reciprocal(call: FxCall, x: Any) -> Any:
    """One divided by the number."""
    return _divided(*_operands(call, 1, x))


@aten("aten.square.default", complex=True)
def square(call: FxCall, x: Any) -> Any:
    """The number times itself."""
    x = pair(x, call.dtype)
    return _times(x, x)


_LARGEST_POWER = 64


@aten("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar", complex=True)
def power(call: FxCall, x: Any, y: Any) -> Any:
    """Power; whole constant ones by multiplication."""
    base, exponent = _operands(call, x, y)
    if isinstance(y, (int, float, complex)) and y == 0.5:
        return _root(base)
    if isinstance(y, (int, float, complex)) and y == (n := int(complex(y).real)) and abs(n) <= _LARGEST_POWER:
        result = _whole_power(base, abs(n))
        return _divided(pair(1, call.dtype), result) if n < 0 else result
    result = _exponential(_times(exponent, _logarithm(base)))
    # 0 to the power of what has a positive real part is 0, of 0 it is 1.
    zero = _size(base) == 0
    kept = Complex(np.where(zero & (exponent.real > 0), 0.0, result.real), np.where(zero, 0.0, result.imag))
    one = _size(exponent) == 0
    return Complex(np.where(one, 1.0, kept.real), np.where(one, 0.0, kept.imag))


def _whole_power(x: Complex, n: int) -> Complex:
    if n == 0:
        return Complex(np.ones_like(x.real))
    half = _whole_power(x, n // 2) if n > 1 else None
    result = x if half is None else _times(half, half)
    return _times(result, x) if n > 1 and n % 2 else result


# Functions


def _exponential(x: Complex) -> Complex:
    size = np.exp(x.real)
    return Complex(size) if x.imaginary is None else Complex(size * np.cos(x.imag), size * np.sin(x.imag))


def _logarithm(x: Complex) -> Complex:
    return Complex(np.log(_size(x)), _angle(x))


def _root(x: Complex) -> Complex:
    """The square root with a real part that is not negative."""
    # Both terms of the sum have one sign, so that nothing cancels.
    half = np.sqrt((_size(x) + np.absolute(x.real)) * 0.5)
    other = np.where(half == 0, 0.0, x.imag / np.where(half == 0, 1.0, 2 * half))
    right = x.real >= 0
    sign = np.where(x.imag < 0, -1.0, 1.0)
    return Complex(np.where(right, half, np.absolute(other)), np.where(right, other, sign * half))


def _turned(x: Complex) -> Complex:
    """The number times i."""
    return Complex(-x.imag, x.real)


def _hyperbolic(even: bool, x: Complex) -> Complex:
    """The hyperbolic cosine or sine."""
    cosh, sinh, cos, sin = np.cosh(x.real), np.sinh(x.real), np.cos(x.imag), np.sin(x.imag)
    return Complex(cosh * cos, sinh * sin) if even else Complex(sinh * cos, cosh * sin)


def _hyperbolic_tangent(x: Complex) -> Complex:
    """The hyperbolic tangent; large numbers are cut where it is ±1 already, so that nothing overflows."""
    a = np.clip(x.real, -20, 20)
    below = np.square(np.sinh(a)) + np.square(np.cos(x.imag))
    return Complex(np.sinh(a) * np.cosh(a) / below, np.sin(x.imag) * np.cos(x.imag) / below)


def _logistic(x: Complex) -> Complex:
    y = _hyperbolic_tangent(_times(x, pair(0.5, np.float32)))
    return Complex((y.real + 1) * 0.5, y.imag * 0.5)


def _exponential_less_one(x: Complex) -> Complex:
    """exp(x) - 1, exact near 0."""
    half = np.sin(x.imag * 0.5)
    real = np.expm1(x.real) * np.cos(x.imag) - 2 * half * half
    return Complex(real, np.exp(x.real) * np.sin(x.imag))


def _logarithm_one_more(x: Complex) -> Complex:
    """log(1 + x), exact near 0."""
    more = _added(x, pair(1, np.float32))
    near = np.log1p(x.real * (x.real + 2) + x.imag * x.imag) * 0.5
    return Complex(np.where(_size(x) < 0.5, near, np.log(_size(more))), _angle(more))


def _of_turned(function: Callable[[Complex], Complex]) -> Callable[[Complex], Complex]:
    """A function f of i x, divided by i."""

    def apply(x: Complex) -> Complex:
        y = function(_turned(x))
        return Complex(y.imag, -y.real)

    return apply


_FUNCTIONS: dict[str, Callable[[Complex], Complex]] = {
    "exp": _exponential,
    "exp2": lambda x: _exponential(_times(x, pair(float(np.log(2)), np.float32))),
    "expm1": _exponential_less_one,
    "log": _logarithm,
    "log2": lambda x: _times(_logarithm(x), pair(float(1 / np.log(2)), np.float32)),
    "log10": lambda x: _times(_logarithm(x), pair(float(1 / np.log(10)), np.float32)),
    "log1p": _logarithm_one_more,
    "sqrt": _root,
    "rsqrt": lambda x: _divided(pair(1, np.float32), _root(x)),
    "cosh": lambda x: _hyperbolic(True, x),
    "sinh": lambda x: _hyperbolic(False, x),
    "tanh": _hyperbolic_tangent,
    "cos": lambda x: _hyperbolic(True, _turned(x)),
    "sin": _of_turned(lambda x: _hyperbolic(False, x)),
    "tan": _of_turned(_hyperbolic_tangent),
    "sigmoid": _logistic,
    "silu": lambda x: _times(x, _logistic(x)),
}


def _function(function: Callable[[Complex], Complex]) -> Callable[..., Any]:
    def lowered(call: FxCall, x: Any) -> Any:
        # Constants in them are float32.
        return pair(function(pair(x, np.float32)), call.dtype)

    return lowered


for _name, _formula in _FUNCTIONS.items():
    aten(f"aten.{_name}.default", complex=True)(_function(_formula))


# Comparisons


def _true(x: Complex) -> Any:
    found = arr(x.real, "bool")
    return found if x.imaginary is None else found | arr(x.imaginary, "bool")


@aten("aten.eq.Tensor", "aten.eq.Scalar", "aten.ne.Tensor", "aten.ne.Scalar", complex=True)
def equal(call: FxCall, x: Any, y: Any) -> Any:
    """Whether both parts are equal, or one is not."""
    dtype = call.common(0, 1)
    x, y = pair(x, dtype), pair(y, dtype)
    if ".ne." in str(call.node.target):
        return (x.real != y.real) | (x.imag != y.imag)
    return (x.real == y.real) & (x.imag == y.imag)


@aten("aten.equal.default", complex=True)
def all_equal(call: FxCall, x: Any, y: Any) -> Any:
    """Whether all elements are equal."""
    return ten(False) if call.given(0) != call.given(1) else np.all(equal(call, x, y))


@aten("aten.isclose.default", complex=True)
def isclose(
    call: FxCall, x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Where two values are nearly equal."""
    x, y = pair(x), pair(y)
    near = _size(_added(x, _negative(y))) <= atol + _size(y) * rtol
    result = (near & _finite(x) & _finite(y)) | ((x.real == y.real) & (x.imag == y.imag))
    return result | (_nan(x) & _nan(y)) if equal_nan else result


def _finite(x: Complex) -> Any:
    return np.isfinite(x.real) & np.isfinite(x.imag)


def _nan(x: Complex) -> Any:
    return np.isnan(x.real) | np.isnan(x.imag)


@aten("aten.isnan.default", complex=True)
def isnan(call: FxCall, x: Any) -> Any:
    """Whether one part is NaN."""
    return _nan(pair(x))


@aten("aten.isfinite.default", complex=True)
def isfinite(call: FxCall, x: Any) -> Any:
    """Whether both parts are finite."""
    return _finite(pair(x))


@aten("aten.isinf.default", complex=True)
def isinf(call: FxCall, x: Any) -> Any:
    """Whether one part is infinite."""
    x = pair(x)
    return np.isinf(x.real) | np.isinf(x.imag)


@aten(
    "aten.logical_and.default",
    "aten.logical_or.default",
    "aten.logical_xor.default",
    "aten.logical_not.default",
    "aten.any.default",
    "aten.any.dim",
    "aten.any.dims",
    "aten.all.default",
    "aten.all.dim",
    "aten.all.dims",
    "aten.count_nonzero.default",
    "aten.count_nonzero.dim_IntList",
    "aten.nonzero.default",
    "aten.argwhere.default",
    complex=True,
)
def logic(call: FxCall, *args: Any, **kwargs: Any) -> Any:
    """Numbers as truth values: what is not zero is true."""
    return _real(call, *(_true(a) if isinstance(a, Complex) else a for a in args), **kwargs)


# Reductions


@aten("aten.prod.default", "aten.prod.dim_int", complex=True)
def prod(call: FxCall, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """Product of a fixed number of elements, in pairs."""
    x, shape = pair(x, call.dtype), call.given(0)
    if not shape:
        return x
    both = [v for v in (x.real, x.imaginary) if v is not None]
    if dim is None:
        both, count = (
            [v.reshape((-1,)) for v in both],
            int(np.prod(call.static(shape, "the number of factors"))),
        )
        axis = 0
    else:
        axis = axes_of(dim, len(shape))[0]
        count = call.static(shape[axis : axis + 1], "the number of factors")[0]
    before = (slice(None),) * axis
    if not count:
        return Complex(np.ones_like(np.sum(both[0], axis=axis, keepdims=keepdim)))
    factors = [Complex(*(v[before + (slice(i, i + 1),)] for v in both)) for i in range(count)]
    while len(factors) > 1:
        factors = [
            _times(factors[i], factors[i + 1]) if i + 1 < len(factors) else factors[i]
            for i in range(0, len(factors), 2)
        ]
    if keepdim:
        return factors[0]
    kept = (factors[0].real, factors[0].imaginary)
    return Complex(*(None if v is None else np.squeeze(v, axis=axis) for v in kept))


@aten(
    "aten.var.correction",
    "aten.std.correction",
    "aten.var_mean.correction",
    "aten.std_mean.correction",
    complex=True,
)
def variance(call: FxCall, x: Any, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
    """Variance or standard deviation: the sum of those of both parts, perhaps with the mean."""
    x = pair(x)
    (middle, first), (other, second) = (moments(call, v, dim, correction, keepdim) for v in (x.real, x.imag))
    name = str(call.node.target)
    result = np.sqrt(first + second) if ".std" in name else first + second
    return (result, Complex(middle, other)) if "_mean" in name else result


# Products: linear in each factor


def _multilinear(factors: list[Complex], product: Callable[..., Any]) -> Complex:
    """What a product is of the parts of its factors."""
    real: list[Any] = []
    imaginary: list[Any] = []
    for chosen in range(1 << len(factors)):
        turns = [chosen >> i & 1 for i in range(len(factors))]
        given = [f.imaginary if t else f.real for f, t in zip(factors, turns, strict=True)]
        if any(v is None for v in given):
            continue
        result = arr(product(*given))
        count = sum(turns)
        (imaginary if count % 2 else real).append((count % 4 >= 2, result))
    return Complex(_sum(real), _sum(imaginary) if imaginary else None)


def _sum(terms: list[tuple[bool, Any]]) -> Any:
    total = terms[0][1]
    for negative, term in terms[1:]:
        total = total - term if negative else total + term
    return total


def _product(call: FxCall, a: Any, b: Any) -> Complex:
    """The product of matrices."""
    return _multilinear(_operands(call, a, b), lambda x, y: np.matmul(arr(x, call.dtype), arr(y, call.dtype)))


@aten(
    "aten.mm.default",
    "aten.bmm.default",
    "aten.matmul.default",
    "aten.mv.default",
    "aten.dot.default",
    complex=True,
)
def matmul(call: FxCall, a: Any, b: Any) -> Any:
    """Product of matrices or stacks of them."""
    return _product(call, a, b)


@aten("aten.inner.default", "aten.vdot.default", complex=True)
def inner(call: FxCall, a: Any, b: Any) -> Any:
    """Inner product; `vdot` takes the conjugate of the first factor."""
    a, b = _operands(call, a, b)
    return _multilinear([a.conj if "vdot" in str(call.node.target) else a, b], np.inner)


@aten("aten.outer.default", "aten.ger.default", complex=True)
def outer(call: FxCall, a: Any, b: Any) -> Any:
    """All products of two vectors."""
    a, b = _operands(call, a, b)
    return _multilinear([a, b], lambda x, y: x[:, None] * y[None, :])


@aten("aten.einsum.default", complex=True)
def einsum(call: FxCall, equation: str, operands: Any, path: Any = None) -> Any:
    """Einstein summation."""
    equation = equation.replace(" ", "")
    return _multilinear(_operands(call, *operands), lambda *xs: np.einsum(equation, *xs))


def _blended(call: FxCall, x: Any, product: Complex, beta: Any, alpha: Any) -> Complex:
    product = product if alpha == 1 else _times(product, pair(alpha, call.dtype))
    if beta == 0:
        return product
    x = pair(x, call.dtype)
    return _added(product, x if beta == 1 else _times(x, pair(beta, call.dtype)))


@aten("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default", complex=True)
def addmm(call: FxCall, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """``beta * x + alpha * a @ b``."""
    return _blended(call, x, _product(call, a, b), beta, alpha)


@aten("aten.addbmm.default", complex=True)
def addbmm(call: FxCall, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """The same with the sum of a stack of products."""
    y = _product(call, a, b)
    total = Complex(*(None if v is None else np.sum(v, axis=0) for v in (y.real, y.imaginary)))
    return _blended(call, x, total, beta, alpha)


@aten("aten.addr.default", complex=True)
def addr(call: FxCall, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """``beta * x + alpha * outer(a, b)``."""
    return _blended(call, x, outer(call, a, b), beta, alpha)


@aten(
    "aten.linear.default",
    "aten.conv1d.default",
    "aten.conv1d.padding",
    "aten.conv2d.default",
    "aten.conv2d.padding",
    "aten.conv3d.default",
    "aten.conv3d.padding",
    "aten.conv_transpose1d.default",
    "aten.conv_transpose2d.input",
    "aten.conv_transpose3d.input",
    "aten.convolution.default",
    complex=True,
)
def layer(call: FxCall, x: Any, weight: Any, bias: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A layer with a weight and perhaps a bias."""
    factors = _operands(call, x, weight)
    y = _multilinear(factors, lambda x, w: _real(call, x, w, None, *args, **kwargs))
    if bias is None:
        return y
    axes = 1 if "linear" in str(call.node.target) else len(call.given(1)) - 1
    column = [
        None if v is None else v.reshape((-1, *[1] * (axes - 1))) for v in _halves(pair(bias, call.dtype))
    ]
    return _added(y, Complex(*column))


def _halves(x: Complex) -> tuple[Any, Any]:
    return x.real, x.imaginary


@aten("aten.linalg_cross.default", "aten.cross.default", complex=True)
def cross(call: FxCall, a: Any, b: Any, dim: Any = -1) -> Any:
    """Products of vectors of three elements."""
    return _multilinear(_operands(call, a, b), lambda x, y: _real(call, x, y, dim))


@aten("aten.inverse.default", "aten.linalg_inv.default", "aten.linalg_inv_ex.default", complex=True)
def inverse(call: FxCall, x: Any, check_errors: bool = False) -> Any:
    """Inverse of matrices: the left half of that of real ones of twice the size."""
    x = pair(x)
    size = call.given(0)[-1]
    n = call.static([size], "the size of the matrices")[0]
    rows = [np.concatenate([x.real, -x.imag], axis=-1), np.concatenate([x.imag, x.real], axis=-1)]
    y = np.linalg.inv(np.concatenate(rows, axis=-2))
    result = Complex(y[..., :n, :n], y[..., n:, :n])
    if "_ex" not in str(call.node.target):
        return result
    return result, e.full(ten(0), ten(x.real).shape[:-2])
