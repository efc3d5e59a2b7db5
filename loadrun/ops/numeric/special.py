"""Special functions, half-precision rounding and exact integer products on numpy and BLAS, in cache-sized chunks.

The rational functions were fitted (iteratively reweighted least squares on the relative error) against double
precision; the inverses use Wichura's algorithm AS 241 for the normal quantile. float32 holds every integer up to
2^24 and float64 up to 2^53, so a product of integers is exact as long as no sum of magnitudes passes that bound; longer
sums are cut along the inner dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...graph.dtypes import Array, DType, round_bfloat16
from .parallel import matmul, parallel, replaced, threads

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

PIECE = 1 << 16
"""Elements of a piece of a formula with many steps: its temporaries stay in the cache."""
_BUFFER = 1024
"""Elements of numpy's buffers where they are short."""
_FILLED = 1 << 16
"""Longest array of one value."""
_ROW = 64
"""Shortest row of one value that serves a large array."""
_SHARE = 1 << 17
"""Fewer elements are not worth waking another thread."""
_MANY_STEPS_SHARE = 1 << 20
"""The same for formulas with many steps, whose short calls contend for the interpreter."""


@lru_cache(maxsize=32)
def _constant(value: float) -> Array:
    a = np.full(_FILLED, value, np.float32)
    a.flags.writeable = False
    return a


def filled(value: float, like: Array) -> Array | np.float32:
    """Return a float32 operand of one value for `like`: numpy's maximum and minimum are slow with a scalar.

    An array (which no caller may change) of the shape of `like`, or of its rows where it is large; a scalar for
    small arrays and short rows.

    >>> filled(6.0, np.zeros((20, 30))).shape, filled(6.0, np.zeros((999, 80))).shape, float(filled(6.0, np.zeros(3)))
    ((20, 30), (80,), 6.0)
    """
    n = like.size
    if n > _FILLED and _ROW <= like.shape[-1] <= _FILLED:
        return _constant(value)[: like.shape[-1]]
    return _constant(value)[:n].reshape(like.shape) if 256 < n <= _FILLED else np.float32(value)


class short_buffers:
    """Let numpy's loops run on arrays whose rows it would copy into its buffers first: broadcast ones, and views.

    It does so for rows that are shorter than a buffer, whether they need it or not, and then takes two to four times
    as long. For rows of less than some 500 elements buffers are the better way.

    >>> with short_buffers():
    ...     (np.zeros((2, 600)) + np.ones((2, 1))).sum()
    np.float64(1200.0)
    """

    __slots__ = ("before",)

    def __enter__(self) -> None:
        self.before = np.setbufsize(_BUFFER)

    def __exit__(self, *error: object) -> None:
        np.setbufsize(self.before)


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape of an elementwise result; an axis of size 0 wins over every other size, as in MegEngine.

    Raises:
        ValueError: two sizes above 1 differ.

    >>> broadcast([(3, 1, 5), (4, 1), (1,)])
    (3, 4, 5)
    """
    first = shapes[0]
    if shapes.count(first) == len(shapes):
        return first
    ndim = max(map(len, shapes))
    out = [1] * ndim
    for shape in shapes:
        for i, n in enumerate(shape, ndim - len(shape)):
            have = out[i]
            if n != have and n > 1 and have > 1:
                raise ValueError(f"shapes {', '.join(str(list(s)) for s in shapes)} do not broadcast")
            out[i] = 0 if not n or not have else max(n, have)
    return tuple(out)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that numpy broadcasts shapes to.

    Raises:
        ValueError: they do not broadcast; the text names them.

    >>> broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(f"shapes {', '.join(str(list(s)) for s in shapes)} do not broadcast") from None


def in_chunks(func: Callable[..., object], out: Array, xs: Sequence[Array], many_steps: bool = False) -> None:
    """Call ``func(out, *xs)`` on matching pieces of the arrays, which broadcast to the shape of `out`.

    Args:
        func: writes the result for its pieces into its first argument; must work element by element.
        out: the result, C-contiguous; may be the same memory as an input of its shape.
        xs: the inputs.
        many_steps: whether `func` makes temporaries, so that small pieces pay.
    """
    size = out.size
    if not size:
        return
    if size <= (PIECE if many_steps else _SHARE) or (not many_steps and threads() == 1):
        func(out, *xs)
        return
    shape = out.shape
    if all(x.size == 1 or (x.shape == shape and x.flags.c_contiguous) for x in xs):
        out = out.reshape(-1)
        xs = [x.reshape(-1) for x in xs]
        shape = out.shape
    lead = 0
    while lead < len(shape) - 1 and shape[lead] == 1:
        lead += 1
    out = out.reshape(shape[lead:])
    rows = out.shape[0]
    pieces = [x.reshape(x.shape[len(x.shape) - out.ndim :]) if x.ndim > out.ndim else x for x in xs]
    cut = [x.ndim == out.ndim and x.shape[0] == rows and rows > 1 for x in pieces]
    width = prod(out.shape[1:])
    step = max(1, PIECE // width) if many_steps else -(-rows // threads())
    if out.ndim == 1:
        # Functions may treat an array's last elements differently, so pieces keep its groups of 64 together.
        step = -(-step // 64) * 64

    def work(i: int) -> None:
        s = slice(i * step, (i + 1) * step)
        func(out[s], *(x[s] if c else x for x, c in zip(pieces, cut, strict=True)))

    n = -(-rows // step)
    if size <= (_MANY_STEPS_SHARE if many_steps else _SHARE):
        for i in range(n):
            work(i)
    else:
        parallel(work, n)


def in_rows(func: Callable[[slice], None], rows: int, width: int) -> None:
    """Call `func` on slices of rows whose elements stay in the cache, on several threads.

    >>> in_rows(print, 3, 4)
    slice(0, 3, None)
    """
    step = max(1, PIECE // max(1, width))
    parallel(lambda i: func(slice(i * step, min(rows, (i + 1) * step))), -(-rows // step))


_F = np.float32
Coefficients = tuple[np.float32, ...]

# erf(x) / x in powers of x^2, |x| < 3.95; relative error 2e-8. Beyond, float32 erf is 1, which the quotient exceeds.
_ERF_P = (1.128379144, 0.1915487112, 0.05287519819, 0.003808082743, 0.0002846843543, 2.025900019e-06)
_ERF_Q = (1.0, 0.5030883015, 0.1145589294, 0.01505493326, 0.001170703627, 3.783153961e-05)
_ERF_END = 4.1

# atanh(erf(x)) / x in powers of x^2, |x| < 3.7; relative error 3e-7 of erf(x), which is 1 from 3.92 on.
_TANH = (
    *(1.128379066, 0.1027721983, -2.016318521e-4, -6.083633351e-4, 8.158422803e-5),
    *(-4.115254167e-6, -4.386863651e-8, 8.195937776e-9),
)
_TANH_END = 4.0
_QUICK_TANH = tuple(int(n) for n in np.__version__.split(".")[:2]) >= (1, 25)
"""Whether numpy computes tanh by vectors on common processors; the C library takes ten times as long."""

# erfc(x) exp(x^2) in powers of x, 0 <= x < 10.2; relative error 6e-9. Beyond, float32 erfc is 0.
_ERFC_P = (1.000000006, 1.239251083, 0.7324847126, 0.2296385582, 0.03288462842)
_ERFC_Q = (1.0, 2.367630839, 2.404060531, 1.327012381, 0.407049743, 0.05828580166)


def _scaled(c: Sequence[float], ratio: float, factor: float = 1.0) -> Coefficients:
    return tuple(_F(v * factor * ratio**i) for i, v in enumerate(c))


ERF = (_scaled(_ERF_P, 1.0), _scaled(_ERF_Q, 1.0))
# The same function for x / sqrt(2): powers of x^2 / 2, and erf(x / sqrt 2) / 2 = x * (...).
_CDF = (_scaled(_ERF_P, 0.5, 0.5**1.5), _scaled(_ERF_Q, 0.5))
_ERF_TANH, _CDF_TANH = _scaled(_TANH, 1.0), _scaled(_TANH, 0.5, 0.5**0.5)
_ERFC = (_scaled(_ERFC_P, 1.0), _scaled(_ERFC_Q, 1.0))


def _polynomial(c: Sequence[Any], t: Array) -> Array:
    """Evaluate a polynomial by Horner's rule, highest power last in `c`."""
    y = t * c[-1]
    for v in c[-2:0:-1]:
        y += v
        y *= t
    y += c[0]
    return y


def _odd(c: tuple[Coefficients, Coefficients], x: Array, end: float) -> Array:
    """Compute ``x * P(x^2) / Q(x^2)`` with `x` clamped to ``[-end, end]``."""
    x = np.minimum(x, filled(end, x))
    np.maximum(x, filled(-end, x), out=x)
    t = x * x
    x *= _polynomial(c[0], t)
    x /= _polynomial(c[1], t)
    return x


def _odd_tanh(c: Coefficients, x: Array, end: float, out: Array | None = None) -> Array:
    """Compute ``tanh(x * P(x^2))`` with `x` clamped likewise."""
    x = x.clip(_F(-end), _F(end))
    x *= _polynomial(c, x * x)
    return np.tanh(x, out=x if out is None else out)


def erf(x: Array, out: Array | None = None) -> Array:
    """Compute the error function of float32 values.

    >>> [round(float(v), 4) for v in erf(np.array([0.0, 0.5, -1.0, 9.0], "f4"))]
    [0.0, 0.5205, -0.8427, 1.0]
    """
    if faster := replaced("erf", x):
        return faster(x, out)
    if _QUICK_TANH:
        return _odd_tanh(_ERF_TANH, x, _TANH_END, out)
    y = _odd(ERF, x, _ERF_END)
    np.minimum(y, filled(1.0, y), out=y)
    return np.maximum(y, filled(-1.0, y), out=y if out is None else out)


def normal_cdf(x: Array) -> Array:
    """Compute the standard normal distribution function of float32 values, ``(1 + erf(x / sqrt 2)) / 2``."""
    if _QUICK_TANH:
        y = _odd_tanh(_CDF_TANH, x, _TANH_END * 2**0.5)
        y *= _F(0.5)
        y += _F(0.5)
        return y
    y = _odd(_CDF, x, _ERF_END * 2**0.5)
    np.add(y, _F(0.5), out=y)
    np.minimum(y, filled(1.0, y), out=y)
    return np.maximum(y, filled(0.0, y), out=y)


def gelu(x: Array, out: Array | None = None) -> Array:
    """Multiply `x` by the normal distribution function (exact GELU); minus infinity gives NaN as in MegEngine."""
    if faster := replaced("erf", x):
        y = faster(x * _F(0.5**0.5))
        y *= _F(0.5)
        y += _F(0.5)
    else:
        y = normal_cdf(x)
    return np.multiply(x, y, out=y if out is None else out)


def erfc(x: Array, out: Array | None = None) -> Array:
    """Compute the complementary error function of float32 values, to a relative error of 5e-6 in the far tail.

    >>> abs(float(erfc(np.array([5.0], "f4"))[0]) / 1.5374597944280349e-12 - 1) < 1e-5
    True
    """
    t = np.abs(x)
    np.minimum(t, _F(10.2), out=t)
    y = _polynomial(_ERFC[0], t)
    y /= _polynomial(_ERFC[1], t)
    t *= t
    np.negative(t, out=t)
    y *= np.exp(t, out=t)
    np.subtract(_F(2), y, out=y, where=x < 0)
    if out is None:
        return y
    np.copyto(out, y)
    return out


# Wichura, "Algorithm AS 241: The Percentage Points of the Normal Distribution", Applied Statistics 37 (1988).
_CENTRAL = (
    (
        *(3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4),
        *(4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    ),
    (
        *(1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3),
        *(2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
    ),
)
_MIDDLE = (
    (
        *(1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0),
        *(3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1),
        *(2.27238449892691845833e-2, 7.74545014278341407640e-4),
    ),
    (
        *(1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1),
        *(1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4),
        1.05075007164441684324e-9,
    ),
)
_FAR = (
    (
        *(6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0),
        *(2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3),
        *(2.71155556874348757815e-5, 2.01033439929228813265e-7),
    ),
    (
        *(1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2),
        *(7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7),
        2.04426310338993978564e-15,
    ),
)


def _ratio(c: tuple[Sequence[float], Sequence[float]], r: Array) -> Array:
    p, q = (tuple(np.float64(v) for v in part) for part in c)
    result: Array = _polynomial(p, r) / _polynomial(q, r)
    return result


def _quantile(low: Array, q: Array) -> Array:
    """Compute the normal quantile in float64 where ``low`` is the smaller tail probability and ``q = p - 1/2``."""
    with np.errstate(all="ignore"):
        r = np.sqrt(-np.log(low))
        tail = np.where(r <= 5, _ratio(_MIDDLE, r - 1.6), _ratio(_FAR, r - 5))
        central = q * _ratio(_CENTRAL, 0.180625 - q * q)
    return np.where(np.abs(q) <= 0.425, central, np.copysign(tail, q))


def erfinv(x: Array) -> Array:
    """Compute the inverse error function of float32 values: infinite at -1 and 1, NaN outside.

    >>> [round(float(v), 4) for v in erfinv(np.array([0.5, -1.0, 0.0], "f4"))]
    [0.4769, -inf, 0.0]
    """
    p = x.astype(np.float64)
    y = _quantile((1 - np.abs(p)) / 2, p / 2) * 0.5**0.5
    return np.where(np.abs(p) == 1, np.copysign(np.inf, p), y).astype(np.float32)


def erfcinv(x: Array) -> Array:
    """Compute the inverse complementary error function of float32 values: infinite at 0 and 2, NaN outside.

    >>> erfcinv(np.array([1.0, 0.0, 2.0], "f4")).tolist()
    [0.0, inf, -inf]
    """
    p = x.astype(np.float64)
    y = _quantile(np.minimum(p, 2 - p) / 2, (1 - p) / 2) * 0.5**0.5
    return np.where((p == 0) | (p == 2), np.copysign(np.inf, 1 - p), y).astype(np.float32)


_BLOCK = 4096
"""MegEngine's Reduce adds up to this many elements in order, and splits longer rows in two halves."""


def round_half(x: Array) -> Array:
    """Round float32 values to float16, ties away from zero.

    numpy and IEEE 754 round ties to even; the software float16 of MegEngine's CPU build does not. Values from
    65520 on become infinite, NaN is kept.

    >>> tie = np.array([2049.0, -2049.0, 2051.0], "f4")
    >>> round_half(tie).tolist(), tie.astype("f2").tolist()
    ([2050.0, -2050.0, 2052.0], [2048.0, -2048.0, 2052.0])
    """
    x = np.ascontiguousarray(x, np.float32)
    # Sets the last of the 24 bits: ties move above the middle, and no other value rounds differently.
    with np.errstate(over="ignore"):
        return (x.view(np.uint32) | np.isfinite(x)).view(np.float32).astype(np.float16)


def stored(x: Array, dtype: DType) -> Array:
    """Convert float32 values to the storage dtype of a float type, rounded as MegEngine rounds."""
    if dtype.name == "Float16":
        return round_half(x)
    return round_bfloat16(x) if dtype.name == "BFloat16" else np.asarray(x, np.float32)


def rounded(x: Array, dtype: DType) -> Array:
    """Round float32 values to the precision of a float type, still float32."""
    return stored(x, dtype).astype(np.float32, copy=False)


def sum_rounded(x: Array, axis: int, dtype: DType) -> Array:
    """Sum over one axis (kept, with size 1), rounded after every addition, in MegEngine's order.

    Args:
        x: float32 values that float16 or bfloat16 can hold.
        axis: the axis to sum over.
        dtype: Float16 or BFloat16.

    Returns:
        float32 sums. They stop growing where one more element is less than half a unit in the last place; that
        is what MegEngine computes, so a softmax or a sum over a long axis needs it.

    >>> sum_rounded(np.ones(4000, "f4"), 0, DType("BFloat16")).tolist()
    [256.0]
    """
    rows = np.ascontiguousarray(np.moveaxis(x, axis, 0))

    def total(part: Array) -> Array:
        if len(part) > _BLOCK:
            middle = len(part) // 2
            return rounded(total(part[:middle]) + total(part[middle:]), dtype)
        acc = np.zeros(part.shape[1:], np.float32)
        for row in part:
            acc = rounded(acc + row, dtype)
        return acc

    return np.expand_dims(total(rows).reshape(rows.shape[1:]), axis)


_MOST_CUTS = 6
"""More cuts than this cost more than float64."""


def lowest(dtype: DType) -> float:
    """Return the lowest finite number of a dtype.

    >>> lowest(DType("Float16")), lowest(DType("Int8"))
    (-65504.0, -128)
    """
    if dtype.name == "BFloat16":
        return -3.3895313892515355e38
    return float(np.finfo(dtype.np).min) if dtype.is_float else int(np.iinfo(dtype.np).min)


def largest(x: Array) -> int:
    """Return the largest magnitude in an integer array, 0 when it is empty.

    >>> largest(np.array([3, -128], "i1"))
    128
    """
    return max(-int(x.min()), int(x.max()), 0) if x.size else 0


def int_matmul(
    a: Array, b: Array, dtype: DTypeLike = np.int32, bounds: tuple[int, int] | None = None
) -> Array:
    """Compute ``a @ b`` of integers, exact and then wrapped to `dtype`.

    Args:
        a: matrix (or stack of matrices) of integers, an integer dtype or float32 that holds integers.
        b: the same, one stack dimension less or the same number of them.
        dtype: integer dtype of the result.
        bounds: largest magnitudes in `a` and `b`, where the caller knows them.

    >>> int_matmul(np.full((1, 5000), 127, "i1"), np.full((5000, 1), -128, "i1")).tolist()
    [[-81280000]]
    """
    if bounds is None:
        bounds = largest(a), largest(b)
    inner = a.shape[-1]
    term = max(1, bounds[0] * bounds[1])
    if term >= 2**53:
        # No float holds such products: numpy's own loops are slow, and wrap as they should.
        return np.matmul(a.astype(dtype), b.astype(dtype))
    step = (2**24 - 1) // term
    if step and inner <= step * _MOST_CUTS:
        fa, fb = a.astype(np.float32, copy=False), b.astype(np.float32, copy=False)
        if inner <= step:
            return _whole(matmul(fa, fb), dtype)
        total = None
        for k in range(0, inner, step):
            part = matmul(fa[..., k : k + step], fb[..., k : k + step, :]).astype(np.int64)
            total = part if total is None else np.add(total, part, out=total)
        assert total is not None
        return total.astype(dtype)
    step = max(1, (2**53 - 1) // term)
    wide = a.astype(np.float64), b.astype(np.float64)
    out = _whole(matmul(wide[0][..., :step], wide[1][..., :step, :]), np.int64)
    for k in range(step, inner, step):
        out += _whole(matmul(wide[0][..., k : k + step], wide[1][..., k : k + step, :]), np.int64)
    return out.astype(dtype)


def _whole(x: Array, dtype: DTypeLike) -> Array:
    """Convert whole float numbers to integers that wrap; what lies beyond int32 goes through int64."""
    if np.dtype(dtype).itemsize >= 4 and x.dtype == np.float32:
        return x.astype(dtype)
    return x.astype(np.int64).astype(dtype)
