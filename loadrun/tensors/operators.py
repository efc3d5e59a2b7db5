"""The operators of tensors, in MegEngine's modes: arithmetic, comparisons, logic, and numpy's ufuncs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.registry import late, resolve
from ..graph.dtypes import Array
from ..graph.params import ElemwiseMode as M

with late(__name__):
    # They take tensors themselves.
    from . import promotion, reducing

_LOGIC = (M.AND, M.OR, M.XOR)
_MODES: dict[np.ufunc, M] = {
    np.add: M.ADD,
    np.subtract: M.SUB,
    np.multiply: M.MUL,
    np.true_divide: M.TRUE_DIV,
    np.floor_divide: M.FLOOR_DIV,
    np.remainder: M.MOD,
    np.power: M.POW,
    np.left_shift: M.SHL,
    np.right_shift: M.SHR,
    np.bitwise_and: M.AND,
    np.bitwise_or: M.OR,
    np.bitwise_xor: M.XOR,
    np.less: M.LT,
    np.less_equal: M.LEQ,
    np.equal: M.EQ,
    np.not_equal: M.NEQ,
}
"""The ufuncs of two operands that are modes."""
_TURNED: dict[np.ufunc, np.ufunc] = {np.greater: np.less, np.greater_equal: np.less_equal}
"""Those that are others with the operands exchanged."""


def _combined(mode: M, a: Any, b: Any) -> Any:
    """Apply a mode to two operands."""
    if mode in _LOGIC and not (_logical(a) and _logical(b)):
        raise TypeError(
            f"{mode.name} requires 2 bool tensors, found {_dtype_text(a)} and {_dtype_text(b)}; convert "
            'with .astype("bool")'
        )
    return promotion.elemwise(mode, a, b)


def _logical(value: Any) -> bool:
    return isinstance(value, bool) or getattr(value, "dtype", None) == np.bool_


def _dtype_text(value: Any) -> str:
    dtype = getattr(value, "_dtype", None) or getattr(value, "dtype", None)
    return type(value).__name__ if dtype is None else str(dtype)


def _binary(mode: M) -> Any:
    def method(self: Operators, other: Any) -> Any:
        return _combined(mode, self, other) if isinstance(other, _OPERANDS) else NotImplemented

    return method


def _reflected(mode: M) -> Any:
    def method(self: Operators, other: Any) -> Any:
        return _combined(mode, other, self) if isinstance(other, _OPERANDS) else NotImplemented

    return method


def _unary(mode: M) -> Any:
    def method(self: Operators) -> Any:
        return promotion.elemwise(mode, self)

    return method


def _in_place(name: str) -> Any:
    def method(self: Any, other: Any) -> Any:
        result = getattr(self, name)(other)
        if result is NotImplemented:
            return result
        self._reset(result)
        return self

    return method


class Operators:
    """Python's operators, and numpy's ufuncs and functions, of a `loadrun.tensors.value.Tensor`."""

    __array_priority__ = 1000.0

    __lt__, __gt__ = _binary(M.LT), _reflected(M.LT)
    __le__, __ge__ = _binary(M.LEQ), _reflected(M.LEQ)
    __eq__, __ne__ = _binary(M.EQ), _binary(M.NEQ)
    __add__, __radd__, __iadd__ = _binary(M.ADD), _reflected(M.ADD), _in_place("__add__")
    __sub__, __rsub__, __isub__ = _binary(M.SUB), _reflected(M.SUB), _in_place("__sub__")
    __mul__, __rmul__, __imul__ = _binary(M.MUL), _reflected(M.MUL), _in_place("__mul__")
    __truediv__, __rtruediv__ = _binary(M.TRUE_DIV), _reflected(M.TRUE_DIV)
    __itruediv__ = _in_place("__truediv__")
    __floordiv__, __rfloordiv__ = _binary(M.FLOOR_DIV), _reflected(M.FLOOR_DIV)
    __ifloordiv__ = _in_place("__floordiv__")
    __mod__, __rmod__, __imod__ = _binary(M.MOD), _reflected(M.MOD), _in_place("__mod__")
    __pow__, __rpow__, __ipow__ = _binary(M.POW), _reflected(M.POW), _in_place("__pow__")
    __lshift__, __rlshift__, __ilshift__ = _binary(M.SHL), _reflected(M.SHL), _in_place("__lshift__")
    __rshift__, __rrshift__, __irshift__ = _binary(M.SHR), _reflected(M.SHR), _in_place("__rshift__")
    __and__, __rand__, __iand__ = _binary(M.AND), _reflected(M.AND), _in_place("__and__")
    __or__, __ror__, __ior__ = _binary(M.OR), _reflected(M.OR), _in_place("__or__")
    __xor__, __rxor__, __ixor__ = _binary(M.XOR), _reflected(M.XOR), _in_place("__xor__")
    __imatmul__ = _in_place("__matmul__")
    __neg__, __abs__ = _unary(M.NEGATE), _unary(M.ABS)
    __round__, __floor__, __ceil__ = _unary(M.ROUND), _unary(M.FLOOR), _unary(M.CEIL)

    def __hash__(self) -> int:
        return id(self)

    def __pos__(self) -> Any:
        return self

    def __invert__(self) -> Any:
        if not _logical(self):
            raise TypeError(
                f'NOT requires a bool tensor, found {_dtype_text(self)}; convert with .astype("bool")'
            )
        return promotion.elemwise(M.NOT, self)

    def __matmul__(self, other: Any) -> Any:
        return reducing.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return reducing.matmul(other, self)

    def __array__(self: Any, dtype: Any = None, copy: bool | None = None) -> Array:
        value: Array = self.numpy()
        return value if dtype is None else value.astype(dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        # An ndarray as left operand comes here; beside tensors MegEngine's rules hold for it.
        if method == "__call__" and not kwargs:
            if ufunc is np.matmul:
                return reducing.matmul(*inputs)
            mode = _MODES.get(_TURNED.get(ufunc, ufunc))
            if mode is not None and all(isinstance(v, _OPERANDS) for v in inputs):
                return _combined(mode, *(inputs[::-1] if ufunc in _TURNED else inputs))
        # The lowerings of numpy's functions are above tensors.
        return resolve("loadrun.arrays.protocol:array_ufunc")(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return resolve("loadrun.arrays.protocol:array_function")(func, args, kwargs)


_OPERANDS = (Operators, int, float, np.ndarray, np.generic, list, tuple, type(None))
"""What is for the operators of tensors to take, or to refuse."""
