"""Generated input data: the same bytes on every platform and with every numpy version.

All numbers come from raw 64-bit words of PCG64, which numpy promises to keep, by operations that IEEE 754 defines
exactly (+, -, *, /, square root) and integer arithmetic. numpy's own distributions and the platform's log and cos
may change with a release or a processor; these cannot.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from ..base.errors import SpecError
from ..graph import StoredTensor
from ..graph.dtypes import Array
from ..inputspec import Generated

MAX_BYTES = 2**33
"""Maximum bytes of an array of a specification."""


def stream(seed: int, case: int = 0, index: int = 0) -> np.random.PCG64:
    """Return the bit stream of one input of one testcase.

    Args:
        seed: at least 0 and less than 2**64.
        case: number of the testcase.
        index: number of the input, in the order of names.
    """
    words = [seed & 0xFFFFFFFF, seed >> 32, case, index]
    return np.random.PCG64(np.random.SeedSequence(words))


def fill_shape(fill: Generated, tensor: StoredTensor) -> tuple[int, ...]:
    """Return the shape of generated data for an input.

    Raises:
        SpecError: the given axes do not fit the input's.
    """
    tensor_shape = tensor.shape
    if fill.shape is None or fill.rest:
        if tensor_shape is None:
            raise SpecError(f"{fill}: the file has no shape for this input, so all axes must be given")
        shape = fill.shape or ()
        if len(shape) > len(tensor_shape):
            raise SpecError(f"{fill} has more axes than the input: {list(tensor_shape)}")
        return (*shape, *tensor_shape[len(shape) :])
    if tensor_shape is not None and len(tensor_shape) != len(fill.shape):
        raise SpecError(
            f"{fill} has shape {list(fill.shape)}, the input {list(tensor_shape)}: the number of axes must agree"
        )
    return fill.shape


def fill_values(fill: Generated, shape: Sequence[int], bits: np.random.PCG64 | None) -> Array:
    """Return the numbers before the cast to the input's dtype: float64, or int64 for #randint.

    Random ones are drawn from `bits`, or without them from numpy's global generator, which ``np.random.seed`` starts.

    Raises:
        SpecError: they would take more than `MAX_BYTES`, or no array has that shape.

    >>> fill_values(Generated("rand", (0.0, 1.0)), (2,), stream(0))
    array([0.63696169, 0.26978671])
    """
    count = prod(shape)
    if count * 8 > MAX_BYTES:
        raise SpecError(f"{fill} would take {count} elements of the shape {list(shape)}; that is too many")
    try:
        np.broadcast_to(0.0, tuple(shape))
    except ValueError as e:
        raise SpecError(f"{fill} cannot have the shape {list(shape)}: {e}") from None
    if fill.kind in ("zeros", "ones", "full"):
        return np.full(shape, fill.args[0] if fill.kind == "full" else float(fill.kind == "ones"))
    with np.errstate(over="ignore", invalid="ignore"):
        return _drawn(fill, shape, bits, count) if bits else _drawn_by_numpy(fill, shape)


def _drawn_by_numpy(fill: Generated, shape: Sequence[int]) -> Array:
    # MegEngine's `trace.dump` uses the global generator.
    low, high = fill.args or (0.0, 1.0)
    if fill.kind == "randint":
        return np.asarray(np.random.randint(int(low), int(high), shape, np.int64))
    draw = np.random.normal if fill.kind == "randn" else np.random.uniform
    return np.asarray(draw(low, high, shape))


def _drawn(fill: Generated, shape: Sequence[int], bits: np.random.PCG64, count: int) -> Array:
    """Draw random numbers; those beyond float64 are infinite."""
    raw: Array = bits.random_raw(count) if count else np.zeros(0, np.uint64)
    values: Array
    if fill.kind == "randint":
        first, end = map(int, fill.args)
        # The high half of a 32-bit word times the range: integers below the range.
        values = ((raw >> np.uint64(32)) * np.uint64(end - first)) >> np.uint64(32)
        values = values.astype(np.int64) + np.int64(first)
    elif fill.kind == "randn":
        mean, std = fill.args or (0.0, 1.0)
        # Odd multiples of 2**-53 are never 0 or 1, whose quantiles are infinite.
        values = normal_quantile(
            ((raw >> np.uint64(12)) * np.uint64(2) + np.uint64(1)).astype(float) * 2.0**-53
        )
        values *= std
        values += mean
    else:
        low, high = fill.args
        values = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
        values *= high - low
        values += low
    return values.reshape(shape)


# Wichura, Algorithm AS 241 (PPND16), Applied Statistics 37 (1988): numerator and denominator by falling powers.
_CENTRE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
_MIDDLE = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
     3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)  # fmt: skip
_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)  # fmt: skip


def normal_quantile(p: Array) -> Array:
    """Compute quantiles of the standard normal distribution, by arithmetic that is the same everywhere.

    Args:
        p: float64 probabilities, 0 < p < 1.

    >>> normal_quantile(np.array([0.5, 0.975])).round(6)
    array([0.      , 1.959964])
    """
    q = p - 0.5
    out = q * _ratio(_CENTRE, 0.180625 - q * q)
    (far,) = np.nonzero(np.abs(q) > 0.425)
    r = np.sqrt(-_log(np.minimum(p[far], 1.0 - p[far])))
    tail = np.where(r <= 5.0, _ratio(_MIDDLE, r - 1.6), _ratio(_TAIL, r - 5.0))
    out[far] = np.where(q[far] < 0, -tail, tail)
    return out


def _ratio(terms: tuple[tuple[float, ...], tuple[float, ...]], x: Array) -> Array:
    return _horner(terms[0], x) / _horner(terms[1], x)


def _horner(terms: tuple[float, ...], x: Array) -> Array:
    total = np.full_like(x, terms[0])
    for term in terms[1:]:
        total *= x
        total += term
    return total


def _log(x: Array) -> Array:
    """Compute the natural logarithm of positive numbers: exponent and mantissa apart, the latter by artanh's series."""
    mantissa, exponent = np.frexp(x)
    low = mantissa < 0.70710678118654752440
    mantissa = np.where(low, mantissa * 2.0, mantissa)
    power = exponent.astype(np.float64) - low
    s = (mantissa - 1.0) / (mantissa + 1.0)
    series = _horner(tuple(1.0 / n for n in range(23, 0, -2)), s * s)
    return power * 0.69314718055994530942 + 2.0 * s * series
