"""Conversion of loaded arrays to the dtypes of inputs, and what is said where values do not survive it."""

import numpy as np

from ..base.errors import InputError
from ..graph.dtypes import Array, DType, odd, round_bfloat16


def require_exact(array: Array, converted: Array, dtype: DType) -> None:
    """Check that a cast to integers or booleans kept every number.

    Raises:
        InputError: it did not.
    """
    other = array != converted
    if count := int(np.count_nonzero(other)):
        at = int(other.argmax())
        example = f"{array.flat[at]} would become {converted.flat[at]}"
        raise InputError(f"{count} {array.dtype} numbers do not fit into {dtype}: {example}")


def lost(array: Array, converted: Array, dtype: DType) -> str:
    """Describe what a cast loses besides fractions and their last digits; empty for nothing."""
    if array.dtype.kind not in "iuf":
        return ""
    if converted.dtype.kind in "iu":
        return _wrapped(array, converted, dtype)
    if converted.dtype.kind != "f":
        return ""
    if array.dtype.kind == "f":
        far = int(np.count_nonzero(np.isinf(converted) & np.isfinite(array)))
        return f"{far} numbers are beyond the range of {dtype} and become infinity" if far else ""
    with np.errstate(all="ignore"):
        other = int(np.count_nonzero(converted.astype(np.float64) != array.astype(np.float64)))
    return f"{other} whole numbers have more digits than {dtype} holds and are rounded" if other else ""


def _wrapped(array: Array, converted: Array, dtype: DType) -> str:
    """Mark the numbers that are out of an integer type's range."""
    low, high = 0, 2 ** min(dtype.bits, 8 * converted.itemsize) - 1
    if converted.dtype.kind == "i":
        low, high = -(high + 1) // 2, high // 2
    if dtype.is_odd or not array.size:
        return ""
    # Fractions are cut off, so -0.5 is within unsigned types.
    outside = (array <= low - 1) | (array >= high + 1)
    count = int(np.count_nonzero(outside))
    if not count:
        return ""
    at = int(outside.argmax())
    example = f"{array.flat[at]} becomes {converted.flat[at]}"
    return f"{count} numbers are outside of {low}..{high} of {dtype} and wrap: {example}"


def cast(array: Array, dtype: DType) -> Array:
    """Cast numbers to a dtype's storage as MegEngine casts input data: to integers truncated and wrapping, to
    bool by != 0.

    Raises:
        InputError: NaN, infinity or more than 64 bits for an integer type, a number that the type leaves out, or
            an imaginary part for a real type.

    >>> cast(np.array([1.9, -1.9, 300.0]), DType("Uint8")).tolist()
    [1, 255, 44]
    """
    want = dtype.np
    if array.dtype.kind == "c" != want.kind:
        if np.any(array.imag):
            raise InputError(
                f"the data holds complex numbers, which {dtype} cannot hold; save their real part"
            )
        array = array.real
    if want.kind in "iu" and array.dtype.kind == "f":
        # A plain number would be made float16 beside that.
        if not (np.abs(array) < np.float64(2**63)).all():
            raise InputError(
                f"the data holds NaN, infinity or numbers beyond 64 bits, which {dtype} cannot hold"
            )
        array = array.astype(np.int64)
    if want.kind == "b":
        return np.ascontiguousarray(array != 0)
    if dtype.is_odd:
        return odd(array, dtype)
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(array.astype(want, copy=False))
    if dtype.name == "BFloat16":
        return round_bfloat16(converted)
    return _narrow(converted, dtype) if dtype.bits < 8 else converted


def _narrow(array: Array, dtype: DType) -> Array:
    """Wrap types with fewer than 8 bits at their own width."""
    kept = array.view(np.uint8) & np.uint8((1 << dtype.bits) - 1)
    if dtype.np.kind == "u":
        return kept
    half = np.int8(1 << (dtype.bits - 1))
    return (kept.view(np.int8) ^ half) - half
