"""The dtype that numpy 1 gives to arrays and numbers together, on every version of numpy.

MegEngine evaluates input_transform with numpy 1, where the value of a number decides about the result: a number or a
0-d array beside arrays counts as the smallest type that holds it, unless it is of a higher kind (bool, integer, float).
In numpy 2 the type of ``np.int32(5)`` decides, and that of ``5`` never does.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

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
