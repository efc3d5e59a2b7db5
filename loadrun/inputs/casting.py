"""Conversion of loaded arrays to the dtypes of inputs, and what is said where values do not survive it."""

from collections.abc import Sequence
from typing import Any

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


# The dtype that numpy 1 gives to arrays and numbers together, on every version of numpy.
#
# MegEngine evaluates input_transform with numpy 1, where the value of a number decides about the result: a
# number or a 0-d array beside arrays counts as the smallest type that holds it, unless it is of a higher kind
# (bool, integer, float). In numpy 2 the type of ``np.int32(5)`` decides, and that of ``5`` never does.

_KINDS = "biuf"
_RANK = {"b": 0, "i": 1, "u": 1, "f": 2}


def as_numpy_1(values: Sequence[Any]) -> list[Any]:
    """Return the operands of one operation, numbers as those of the dtype in which numpy 1 computes.

    >>> as_numpy_1([np.zeros(2, "u1"), np.int32(5)])[1].dtype, as_numpy_1([np.zeros(2, "u1"), 300])[1].dtype
    (dtype('uint8'), dtype('uint16'))
    """
    arrays = [v for v in values if isinstance(v, np.ndarray) and v.ndim]
    scalar = [v is not None and not isinstance(v, (tuple, list)) and np.ndim(v) == 0 for v in values]
    numbers = [np.asarray(v) for v, g in zip(values, scalar, strict=True) if g]
    if not arrays or not numbers or any(v.dtype.kind not in _KINDS for v in (*arrays, *numbers)):
        return list(values)
    kind = np.result_type(*(a.dtype for a in arrays))
    if max(_RANK[n.dtype.kind] for n in numbers) > max(_RANK[a.dtype.kind] for a in arrays):
        kind = np.result_type(kind, *(n.dtype for n in numbers))
    else:
        for n in numbers:
            kind = np.promote_types(kind, _least(n, kind))
    return [np.asarray(v).astype(kind)[()] if g else v for v, g in zip(values, scalar, strict=True)]


def _least(number: np.ndarray[Any, Any], beside: np.dtype[Any]) -> np.dtype[Any]:
    """Return the smallest type that holds a number; a positive one takes the sign of the type beside it."""
    smallest = np.min_scalar_type(number)
    if smallest.kind == "u" and beside.kind == "i":
        signed = np.dtype(f"i{smallest.itemsize}")
        return signed if int(number) <= np.iinfo(signed).max else smallest
    return smallest
