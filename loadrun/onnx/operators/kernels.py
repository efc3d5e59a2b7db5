"""Kernels of the reference engine that definitions call, and rounding to floats of 8 and 4 bits, held in float32."""

from functools import cache

from ...arrays.names import kernel, np
from ...graph import dtypes
from ...graph.dtypes import Array
from ...ops.elemwise import formulas
from ...ops.numeric import parallel, special
from ...ops.typecvt import exactly as _exactly
from ..tensors import E8M0, FLOAT4, SMALL_FLOATS
from .common import one_of, tensor_type

broadcast_shapes = kernel(special.broadcast_shapes)
exactly = kernel(_exactly)
int_matmul = kernel(special.int_matmul)
matrix_product = kernel(parallel.matmul)
round_bfloat16 = kernel(dtypes.round_bfloat16)
rounded = kernel(special.rounded)


@kernel
def erf(x: dtypes.Array) -> dtypes.Array:
    """Compute the error function."""
    return formulas.erf(x) if x.dtype == "float64" else special.erf(x)


@kernel
def gelu(x: dtypes.Array) -> dtypes.Array:
    """Multiply by the normal distribution function."""
    return formulas.gelu(x) if x.dtype == "float64" else special.gelu(x)


def halved(x: dtypes.Array, kind: dtypes.DType | None) -> dtypes.Array:
    """Return what a type of 16 bits leaves of floats; those of other types as they are."""
    return rounded(x, kind) if kind is not None and kind.name in ("Float16", "BFloat16") else x


_F = np.float32
SMALL = {tensor_type(kind).name: kind for kind in (*SMALL_FLOATS, E8M0)}
"""ONNX's numbers of the types by their names in graphs."""


@cache
def _powers(saturate: int, mode: str) -> tuple[Array, Array]:
    """Return the numbers of float8e8m0 in their order, and from which number on the next one is taken.

    The first stands for all that lies below the second; at the end stand what is beyond the largest, and NaN.
    """
    powers = np.ldexp(np.float32(1), np.arange(-127, 128)).astype(np.float32)
    above = np.float32(np.inf)
    if mode == "down":
        starts = np.append(powers[1:], above)
    elif mode == "up":
        starts = np.nextafter(np.append(np.float32(0), powers[1:]), above)
    else:
        starts = np.append(np.nextafter(powers[0], above), powers[1:] * np.float32(1.5))
    values = np.append(powers, [powers[-1] if saturate else np.nan, np.nan]).astype(np.float32)
    return values, np.append(starts, np.inf).astype(np.float32)


def rounded_small(x: Array, kind: int, saturate: int = 1, round_mode: str = "up") -> Array:
    """Round numbers to those that a type has, halves to even; by way of float32, as ONNX Runtime does.

    Args:
        x: the numbers.
        kind: ONNX's number of the type.
        saturate: whether too large values become the largest number.
        round_mode: how float8e8m0 rounds.
    """
    x = x.astype(np.float32)
    if kind == E8M0:
        values, starts = _powers(saturate, one_of("round_mode", round_mode, "up", "down", "nearest"))
        return np.take(values, np.searchsorted(starts, np.abs(x), "right"))
    layout = SMALL_FLOATS[kind]
    size = np.abs(x)
    # A bound beyond the range of all types, at which the sums below are still exact.
    near = np.minimum(size, _F(2**20))
    # The smallest power of two that is no less than each number from 2^-100 to 2^100 (S. M. Rump).
    q = near * _F(2**24)
    power = (q + near) - q
    step = np.maximum(power * _F(0.5 ** (1 + layout.mantissa)), _F(layout.least))
    # Where numbers are a step apart, float32 itself rounds to them.
    there = step * _F(1.5 * 2**23)
    y = (near + there) - there
    beyond = layout.largest if saturate or kind == FLOAT4 else np.inf if layout.infinite else np.nan
    y = np.where(y > layout.largest, _F(beyond), y)
    if kind == FLOAT4:
        # It has no NaN.
        y = np.where(np.isnan(y), _F(0), y)
    # Where there is no negative zero, its code is that of NaN.
    negative = x < 0 if layout.signed_zero else (x < 0) & (y != 0)
    return np.where(negative, -y, y)
