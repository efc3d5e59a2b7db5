"""Operators and methods of tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..graph import params as P
from ..graph.dtypes import Array
from . import reducing, shaping
from .apply import type_cvt
from .dtypes import graph_dtype
from .indexing import getitem, setitem
from .products import matmul
from .promotion import elemwise
from .protocols import lowering
from .sizes import product_of

if TYPE_CHECKING:
    from .value import Tensor

__all__ = ["Methods"]

_M = P.ElemwiseMode


_OPERATORS: dict[np.ufunc, str] = {
    np.add: "add",
    np.subtract: "sub",
    np.multiply: "mul",
    np.true_divide: "truediv",
    np.floor_divide: "floordiv",
    np.remainder: "mod",
    np.power: "pow",
    np.left_shift: "lshift",
    np.right_shift: "rshift",
    np.bitwise_and: "and",
    np.bitwise_or: "or",
    np.bitwise_xor: "xor",
    np.matmul: "matmul",
    np.less: "lt",
    np.less_equal: "le",
    np.greater: "gt",
    np.greater_equal: "ge",
    np.equal: "eq",
    np.not_equal: "ne",
}
"""The operators that numpy hands over when an ndarray stands in front of a tensor."""
_REFLECTED = {"lt": "__gt__", "le": "__ge__", "gt": "__lt__", "ge": "__le__", "eq": "__eq__", "ne": "__ne__"}


def _binary(mode: P.ElemwiseMode, *, reflected: bool = False) -> Any:
    def method(self: Tensor, other: Any) -> Any:
        if not _operand(other):
            return NotImplemented
        return elemwise(mode, other, self) if reflected else elemwise(mode, self, other)

    return method


def _logic(mode: P.ElemwiseMode, *, reflected: bool = False) -> Any:
    def method(self: Tensor, other: Any) -> Any:
        if not _operand(other):
            return NotImplemented
        if not _logical(self) or not _logical(other):
            raise TypeError(
                f"{mode.name} requires 2 bool tensors, found {self._dtype} and {_dtype_text(other)}; convert "
                'with .astype("bool")'
            )
        return elemwise(mode, other, self) if reflected else elemwise(mode, self, other)

    return method


def _in_place(name: str) -> Any:
    def method(self: Tensor, other: Any) -> Any:
        result = getattr(self, name)(other)
        if result is NotImplemented:
            return result
        self._reset(result)
        return self

    return method


def _operand(value: Any) -> bool:
    """Tell whether a value is for the operators of tensors to take or to refuse."""
    return value is None or isinstance(value, (Methods, int, float, np.ndarray, np.generic, list, tuple))


def _logical(value: Any) -> bool:
    return isinstance(value, bool) or getattr(value, "dtype", None) == np.bool_


def _dtype_text(value: Any) -> str:
    return str(getattr(value, "dtype", type(value).__name__))


class Methods:
    """What every Tensor can do besides holding a value."""

    def __eq__(self, other: object) -> Any:
        return elemwise(_M.EQ, self, other) if _operand(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return elemwise(_M.NEQ, self, other) if _operand(other) else NotImplemented

    __lt__ = _binary(_M.LT)
    __le__ = _binary(_M.LEQ)
    __gt__ = _binary(_M.LT, reflected=True)
    __ge__ = _binary(_M.LEQ, reflected=True)
    __add__ = _binary(_M.ADD)
    __radd__ = _binary(_M.ADD, reflected=True)
    __sub__ = _binary(_M.SUB)
    __rsub__ = _binary(_M.SUB, reflected=True)
    __mul__ = _binary(_M.MUL)
    __rmul__ = _binary(_M.MUL, reflected=True)
    __truediv__ = _binary(_M.TRUE_DIV)
    __rtruediv__ = _binary(_M.TRUE_DIV, reflected=True)
    __floordiv__ = _binary(_M.FLOOR_DIV)
    __rfloordiv__ = _binary(_M.FLOOR_DIV, reflected=True)
    __mod__ = _binary(_M.MOD)
    __rmod__ = _binary(_M.MOD, reflected=True)
    __pow__ = _binary(_M.POW)
    __rpow__ = _binary(_M.POW, reflected=True)
    __lshift__ = _binary(_M.SHL)
    __rlshift__ = _binary(_M.SHL, reflected=True)
    __rshift__ = _binary(_M.SHR)
    __rrshift__ = _binary(_M.SHR, reflected=True)
    __and__ = _logic(_M.AND)
    __rand__ = _logic(_M.AND, reflected=True)
    __or__ = _logic(_M.OR)
    __ror__ = _logic(_M.OR, reflected=True)
    __xor__ = _logic(_M.XOR)
    __rxor__ = _logic(_M.XOR, reflected=True)
    __iadd__ = _in_place("__add__")
    __isub__ = _in_place("__sub__")
    __imul__ = _in_place("__mul__")
    __itruediv__ = _in_place("__truediv__")
    __imatmul__ = _in_place("__matmul__")
    __ifloordiv__ = _in_place("__floordiv__")
    __imod__ = _in_place("__mod__")
    __ipow__ = _in_place("__pow__")
    __ilshift__ = _in_place("__lshift__")
    __irshift__ = _in_place("__rshift__")
    __iand__ = _in_place("__and__")
    __ior__ = _in_place("__or__")
    __ixor__ = _in_place("__xor__")

    def __hash__(self) -> int:
        return id(self)

    def __neg__(self) -> Tensor:
        return elemwise(_M.NEGATE, self)

    def __pos__(self) -> Tensor:
        return cast("Tensor", self)

    def __abs__(self) -> Tensor:
        return elemwise(_M.ABS, self)

    def __invert__(self) -> Tensor:
        x = cast("Tensor", self)
        if not _logical(x):
            raise TypeError(f'NOT requires a bool tensor, found {x._dtype}; convert with .astype("bool")')
        return elemwise(_M.NOT, x)

    def __round__(self) -> Tensor:
        return elemwise(_M.ROUND, self)

    def __floor__(self) -> Tensor:
        return elemwise(_M.FLOOR, self)

    def __ceil__(self) -> Tensor:
        return elemwise(_M.CEIL, self)

    def __matmul__(self, other: Any) -> Tensor:
        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return matmul(other, self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        value = cast("Tensor", self).numpy()
        return value if dtype is None else value.astype(dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        # An ndarray in front of an operator comes here; beside MegEngine's tensors it follows MegEngine's rules.
        name = _OPERATORS.get(ufunc)
        if name is not None and method == "__call__" and not kwargs:
            first, other = inputs
            if isinstance(first, Methods):
                return getattr(first, f"__{name}__")(other)
            return getattr(other, _REFLECTED.get(name) or f"__r{name}__")(first)
        return lowering().ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return lowering().function(func, args, kwargs)

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        value = self.item()
        if not isinstance(value, (int, bool)):
            raise TypeError(f"only an integer tensor can be an index, found {cast('Tensor', self)._dtype}")
        return int(value)

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __len__(self) -> int:
        shape = cast("Tensor", self).shape
        if not shape:
            raise TypeError("a scalar tensor has no length")
        return int(shape[0])

    def __iter__(self) -> Iterator[Tensor]:
        for i in range(len(self)):
            yield self[i]

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).numpy().any())

    def __getitem__(self, index: Any) -> Tensor:
        return getitem(cast("Tensor", self), index)

    def __setitem__(self, index: Any, value: Any) -> None:
        x = cast("Tensor", self)
        if index is Ellipsis:
            # MegEngine puts the value in the tensor's place, whatever its shape and (for a Tensor) dtype.
            x._reset(value)
        else:
            x._reset(setitem(x, index, value))

    def reset_zero(self) -> None:
        """Make the tensor stand for zeros of its shape and dtype."""
        x = cast("Tensor", self)
        x._reset(x * 0)

    @property
    def ndim(self) -> int:
        """How many axes the tensor has."""
        return cast("Tensor", self)._ndim()

    @property
    def size(self) -> int:
        """How many elements the tensor has."""
        return product_of(cast("Tensor", self).shape)

    @property
    def T(self) -> Tensor:
        """The tensor with its axes reversed."""
        return self.transpose(*range(self.ndim)[::-1])

    def item(self, *args: int) -> Any:
        """Return the value of a one-element tensor (or of the element at `args`) as a Python number.

        Raises:
            AssertionError: the tensor has more elements, or none, and `args` do not choose one.
        """
        if args:
            return self[args].item()
        x = cast("Tensor", self)
        value = x.numpy()
        if value.size != 1:
            raise AssertionError(
                f"only a tensor of one element has a number, found shape {list(value.shape)}"
            )
        number = value.item()
        if x._session is not None:
            x._session.became(x, type(number).__name__)
        return number

    def tolist(self) -> Any:
        """Return the values as nested lists of Python numbers."""
        return cast("Tensor", self).numpy().tolist()

    def astype(self, dtype: Any) -> Tensor:
        """Return the values converted to another dtype."""
        x = cast("Tensor", self)
        want = graph_dtype(dtype)
        return x._frozen() if want == x._dtype else type_cvt(x, want)

    def reshape(self, *shape: Any) -> Tensor:
        """Return the same values in another shape; one size may be -1."""
        return shaping.reshape(cast("Tensor", self), _expanded(shape))

    def _broadcast(self, *shape: Any) -> Tensor:
        return shaping.broadcast_to(cast("Tensor", self), _expanded(shape))

    def transpose(self, *pattern: Any) -> Tensor:
        """Return the tensor with its axes permuted; without arguments reversed."""
        axes = _expanded(pattern) if pattern else range(self.ndim)[::-1]
        return shaping.transpose(cast("Tensor", self), axes)

    def flatten(self, start_axis: int = 0, end_axis: int = -1) -> Tensor:
        """Return the axes from `start_axis` to `end_axis` joined to one."""
        return shaping.flatten(cast("Tensor", self), start_axis, end_axis)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        """Return the sum over axes."""
        return reducing.sum(cast("Tensor", self), axis, keepdims)

    def prod(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        """Return the product over axes."""
        return reducing.prod(cast("Tensor", self), axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        """Return the least value over axes."""
        return reducing.min(cast("Tensor", self), axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        """Return the largest value over axes."""
        return reducing.max(cast("Tensor", self), axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        """Return the mean over axes."""
        return reducing.mean(cast("Tensor", self), axis, keepdims)


def _expanded(args: tuple[Any, ...]) -> Any:
    """Return the one argument where a sequence was given whole."""
    if len(args) != 1:
        return args
    (only,) = args
    whole = isinstance(only, (list, tuple, np.ndarray)) or (isinstance(only, Methods) and only.ndim > 0)
    return only if whole else args
