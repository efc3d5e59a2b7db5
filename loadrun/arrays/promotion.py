"""numpy's dtype promotion made explicit: the dtype that a function computes in, and that of its result.

The dtype is numpy's own (`np.result_type` of the arguments, the loop of the ufunc), with Python numbers weak as in
numpy 2 on every version of numpy. Then it is narrowed to what MegEngine has: float64 to float32, int64 and the
unsigned 32- and 64-bit integers to int32.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..layers import emit as e
from ..layers.emit import cast
from ..tensors import Tensor, TracedBool, TracedNumber, access, const
from ..tensors.access import recorded
from ..tensors.dtypes import graph_dtype
from ..tensors.naming import refused
from ..tensors.switches import is_exact

DT = np.dtype[Any]
_WEAK = (bool, int, float)
_RANK = {"b": 0, "i": 1, "u": 1, "f": 2}
_OF_NUMBERS = (np.dtype(np.bool_), np.dtype(np.int64), np.dtype(np.float64))


def narrow(dtype: Any) -> DT:
    """Return the dtype that stands for a numpy dtype in the graph.

    Raises:
        TraceError: there is none (complex numbers, strings, objects).

    >>> narrow("float64"), narrow(np.uint32), narrow(bool)
    (dtype('float32'), dtype('int32'), dtype('bool'))
    """
    return _narrow(np.dtype(dtype), is_exact())


@lru_cache(maxsize=256)
def _narrow(dtype: DT, wide: bool) -> DT:
    if dtype.kind == "f" and dtype.itemsize > 8:
        return np.dtype(np.float32)
    if dtype.kind not in "biuf":
        raise refused(
            f"dtype {dtype} has no operators in MegEngine",
            way_out="convert to float32, float16, int32, int16, int8, uint8, uint16 or bool",
        )
    return graph_dtype(dtype).np


def weak(value: Any) -> bool:
    """Return whether a value is a Python number, whose dtype gives way to that of arrays."""
    return isinstance(value, _WEAK) and not (isinstance(value, np.generic) or getattr(value, "strong", False))


def dtype_of(value: Any) -> DT:
    """Return the numpy dtype of a tensor, array, numpy number or nested list.

    Raises:
        TraceError: a quantized or bfloat16 tensor, which numpy's functions do not know.
    """
    if isinstance(value, Tensor):
        kind = access.dtype_of(value)
        if kind.is_quantized or kind.name in ("BFloat16", "Complex64"):
            raise refused(f"numpy's functions do not take {kind}", way_out="convert it with astype first")
        return kind.np
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype
    return np.asarray(value).dtype


def common(values: Sequence[Any]) -> DT:
    """Return numpy's result type of arrays and Python numbers, not narrowed.

    >>> common([np.zeros(2, "i4"), 1.5]), common([np.zeros(2, "f2"), 3]), common([np.zeros(2, "u1"), np.int8(1)])
    (dtype('float64'), dtype('float16'), dtype('int16'))
    """
    wide = is_exact()
    lax = [weak(v) or (wide and _default(v)) for v in values]
    strong = tuple([dtype_of(v) for v, w in zip(values, lax, strict=True) if not w])
    ranks = [_rank(v) for v, w in zip(values, lax, strict=True) if w]
    return _common(strong, max(ranks, default=0), wide)


def _default(value: Any) -> bool:
    """Return whether an array or a number of numpy has a dtype that Python's numbers have there."""
    return not isinstance(value, Tensor) and getattr(value, "dtype", None) in _OF_NUMBERS[1:]


def _rank(value: Any) -> int:
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if isinstance(value, float) or kind == "f":
        return 2
    return 0 if isinstance(value, (bool, TracedBool)) else 1


@lru_cache(maxsize=4096)
def _common(strong: tuple[DT, ...], top: int, wide: bool) -> DT:
    if not strong:
        return _OF_NUMBERS[top]
    result = np.result_type(*strong)
    # A kind that the graph lacks, like complex, is refused when it is narrowed.
    if top <= _RANK.get(result.kind, 3):
        return result
    # Beside tensors of integers PyTorch makes float32 of a number.
    return np.dtype(np.float32) if wide and top == 2 else _OF_NUMBERS[top]


@lru_cache(maxsize=4096)
def _result_dtypes(ufunc: np.ufunc, dtypes: tuple[DT, ...]) -> tuple[DT, ...]:
    with np.errstate(all="ignore"):
        result = ufunc(*(np.ones(1, d) for d in dtypes))
    return tuple(v.dtype for v in result) if isinstance(result, tuple) else (result.dtype,)


def loop(ufunc: np.ufunc, values: Sequence[Any]) -> tuple[DT, tuple[DT, ...]]:
    """Return the common dtype of a ufunc's operands, and the dtypes that it gives; not narrowed.

    Raises:
        TypeError: numpy has no loop for these dtypes.

    >>> loop(np.true_divide, [np.zeros(2, "i4"), 2])
    (dtype('int32'), (dtype('float64'),))
    """
    both = common(values)
    return both, _result_dtypes(ufunc, tuple(both if weak(v) else dtype_of(v) for v in values))


def operand(value: Any, dtype: Any = None) -> Tensor:
    """Return a tensor of the graph from what numpy takes as an array, converted to a dtype.

    Raises:
        OverflowError: a Python integer outside an integer dtype, as in numpy 2.
    """
    if isinstance(value, Tensor):
        # An Array stands for what it holds now: the result must not change with it.
        cell = getattr(value, "_cell", None)
        now: Tensor = value if cell is None else cell.read()
        return now if dtype is None else cast(now, narrow(dtype))
    if isinstance(value, TracedNumber) and (result := recorded(value)) is not None:
        return result if dtype is None else cast(result, narrow(dtype))
    if weak(value) and dtype is not None and np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        if not limits.min <= int(value) <= limits.max:
            raise OverflowError(f"Python integer {value} out of bounds for {np.dtype(dtype)}")
    array = np.asarray(value)
    dtype_of_array = array.dtype if array.dtype != np.float64 else np.float32
    want = narrow(dtype_of_array if dtype is None else dtype)
    with np.errstate(all="ignore"):
        return const(array.astype(want) if array.dtype != want else array, want)


def stacked(value: Any, dtype: Any = None) -> Tensor:
    """Return a nested list of arrays and numbers as one tensor, as ``np.array`` reads it."""
    if not isinstance(value, (list, tuple)):
        return operand(value, dtype)
    leaves = [*flattened(value)]
    if not any(isinstance(v, (Tensor, TracedNumber)) for v in leaves):
        return operand(np.asarray(value), dtype)
    want = narrow(common(leaves) if dtype is None else dtype)
    return e.concat([e.add_axes(stacked(v, want), [0]) for v in value], 0)


def flattened(value: Any) -> Iterator[Any]:
    """Yield the elements of nested lists.

    >>> [*flattened([1, [2, (3,)]])]
    [1, 2, 3]
    """
    for v in value:
        if isinstance(v, (list, tuple)):
            yield from flattened(v)
        else:
            yield v


def all_tensors(values: Any) -> Iterator[Tensor]:
    """Yield the tensors among values, in nested lists and dicts too."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from all_tensors(value)
        elif isinstance(value, dict):
            yield from all_tensors(value.values())


def list_as_tensor(value: Any) -> Any:
    """Return a nested list that holds tensors as one tensor."""
    if isinstance(value, (list, tuple)) and next(all_tensors(value), None) is not None:
        return stacked(value)
    return value
