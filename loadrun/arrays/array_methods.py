"""The methods and operators of ndarrays, as numpy's functions of the same names."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from ..layers import emit as e
from ..tensors import Tensor
from .promotion import dtype_of, narrow


def _operand(value: Any) -> bool:
    return not (value is None or isinstance(value, (str, bytes, dict, set)))


def _binary(ufunc: np.ufunc) -> Any:
    def method(self: Any, other: Any) -> Any:
        return ufunc(self, other) if _operand(other) else NotImplemented

    return method


def _reflected(ufunc: np.ufunc) -> Any:
    def method(self: Any, other: Any) -> Any:
        return ufunc(other, self) if _operand(other) else NotImplemented

    return method


def _in_place(ufunc: np.ufunc) -> Any:
    def method(self: Any, other: Any) -> Any:
        if not _operand(other):
            return NotImplemented
        # numpy's scalars are immutable: the name is bound to a new one.
        return ufunc(self, other) if self._cell.scalar else ufunc(self, other, out=(self,))

    return method


def _method(name: str) -> Any:
    """Return a method that is numpy's function of that name with the array first."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(np, name)(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"``np.{name}`` of the array."
    return method


class ArrayMethods(Tensor):
    """Methods that a `TracedArray` shares with ndarrays."""

    numpy_sizes = True

    __lt__, __le__ = _binary(np.less), _binary(np.less_equal)
    __gt__, __ge__ = _binary(np.greater), _binary(np.greater_equal)
    __eq__ = _binary(np.equal)
    __ne__ = _binary(np.not_equal)
    __add__, __radd__, __iadd__ = _binary(np.add), _reflected(np.add), _in_place(np.add)
    __sub__, __rsub__, __isub__ = _binary(np.subtract), _reflected(np.subtract), _in_place(np.subtract)
    __mul__, __rmul__, __imul__ = _binary(np.multiply), _reflected(np.multiply), _in_place(np.multiply)
    __matmul__, __rmatmul__, __imatmul__ = _binary(np.matmul), _reflected(np.matmul), _in_place(np.matmul)
    __truediv__, __rtruediv__ = _binary(np.true_divide), _reflected(np.true_divide)
    __itruediv__ = _in_place(np.true_divide)
    __floordiv__, __rfloordiv__ = _binary(np.floor_divide), _reflected(np.floor_divide)
    __ifloordiv__ = _in_place(np.floor_divide)
    __mod__, __rmod__, __imod__ = _binary(np.remainder), _reflected(np.remainder), _in_place(np.remainder)
    __divmod__, __rdivmod__ = _binary(np.divmod), _reflected(np.divmod)
    __pow__, __rpow__, __ipow__ = _binary(np.power), _reflected(np.power), _in_place(np.power)
    __lshift__, __rlshift__ = _binary(np.left_shift), _reflected(np.left_shift)
    __ilshift__ = _in_place(np.left_shift)
    __rshift__, __rrshift__ = _binary(np.right_shift), _reflected(np.right_shift)
    __irshift__ = _in_place(np.right_shift)
    __and__, __rand__, __iand__ = (
        _binary(np.bitwise_and),
        _reflected(np.bitwise_and),
        _in_place(np.bitwise_and),
    )
    __or__, __ror__, __ior__ = _binary(np.bitwise_or), _reflected(np.bitwise_or), _in_place(np.bitwise_or)
    __xor__, __rxor__, __ixor__ = (
        _binary(np.bitwise_xor),
        _reflected(np.bitwise_xor),
        _in_place(np.bitwise_xor),
    )

    def __hash__(self) -> int:
        return id(self)

    def __neg__(self) -> Any:
        return np.negative(self)

    def __pos__(self) -> Any:
        return np.positive(self)

    def __abs__(self) -> Any:
        return np.absolute(self)

    def __invert__(self) -> Any:
        return np.invert(self)

    def __round__(self, digits: int | None = None) -> Any:
        return np.round(self, digits or 0)

    all, any = _method("all"), _method("any")
    argmax, argmin, argsort = _method("argmax"), _method("argmin"), _method("argsort")
    argpartition = _method("argpartition")
    conj, conjugate = _method("conjugate"), _method("conjugate")
    cumprod, cumsum, diagonal = _method("cumprod"), _method("cumsum"), _method("diagonal")
    dot, max, mean, min = _method("dot"), _method("max"), _method("mean"), _method("min")
    nonzero, prod, ptp = _method("nonzero"), _method("prod"), _method("ptp")
    repeat = _method("repeat")
    round, searchsorted, squeeze = _method("round"), _method("searchsorted"), _method("squeeze")
    std, sum, swapaxes, take = _method("std"), _method("sum"), _method("swapaxes"), _method("take")
    trace, var = _method("trace"), _method("var")

    def clip(self, min: Any = None, max: Any = None, out: Any = None, **kwargs: Any) -> Any:
        """Compute ``np.clip`` of the array."""
        return np.clip(cast(Any, self), min, max, out=out, **kwargs)

    def compress(self, condition: Any, axis: int | None = None, out: Any = None) -> Any:
        """Compute ``np.compress`` of the array."""
        return np.compress(condition, cast(Any, self), axis, out)

    def transpose(self, *axes: Any) -> Any:
        """Return a view with the axes in another order, one tuple or several numbers; by default reversed."""
        order: Any = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return np.transpose(cast(Any, self), order or None)

    @property
    def T(self) -> Any:
        """A view with the axes reversed."""
        return np.transpose(cast(Any, self))

    @property
    def mT(self) -> Any:
        """A view with the last two axes exchanged."""
        if cast(Any, self).ndim < 2:
            raise ValueError("matrix transpose with ndim < 2 is undefined")
        return np.swapaxes(cast(Any, self), -1, -2)

    @property
    def real(self) -> Any:
        """The array itself; there are no complex numbers."""
        return self

    @property
    def imag(self) -> Any:
        """Zeros."""
        return np.zeros_like(cast(Any, self))

    @property
    def flat(self) -> Any:
        """The elements as a vector: a view where the array is contiguous."""
        return np.ravel(cast(Any, self))

    @property
    def itemsize(self) -> int:
        """Bytes of an element, in the narrowed dtype."""
        return int(cast(Any, self).dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, in the narrowed dtype."""
        return self.itemsize * int(np.prod(e.sizes(cast(Any, self)), dtype=np.int64))

    def astype(
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Any:
        """Return the values converted to another dtype, which is narrowed as all dtypes are.

        Raises:
            TypeError: `casting` does not allow it.
        """
        x = cast(Any, self)
        if not np.can_cast(dtype_of(x), np.dtype(dtype), cast(Any, casting)):
            raise TypeError(
                f"Cannot cast array data from {dtype_of(x)!r} to {np.dtype(dtype)!r} according to the rule "
                f"{casting!r}"
            )
        want = narrow(dtype)
        if not copy and want == x.dtype:
            return x
        value = e.cast(x._cell.read(), want)
        return type(x)._around(value, ordered=x._cell.ordered or order == "C", scalar=x._cell.scalar)

    def copy(self, order: str = "C") -> Any:
        """Return the same values in memory of their own."""
        x = cast(Any, self)
        return type(x)._around(x._cell.read(), ordered=order == "C" or (order == "K" and x._cell.ordered))

    def flatten(self, order: str = "C") -> Any:  # type: ignore[override]
        """Return the values as a vector in memory of its own."""
        return cast(Any, self).ravel(order).copy()

    def fill(self, value: Any) -> None:
        """Set every element."""
        x = cast(Any, self)
        x[...] = value

    def sort(self, axis: int = -1, kind: str | None = None, order: Any = None) -> None:
        """Sort in place."""
        x = cast(Any, self)
        x[...] = np.sort(cast(Any, x), axis)

    def partition(self, kth: Any, axis: int = -1, kind: str = "introselect") -> None:
        """Sort in place, which is a partition, too."""
        self.sort(axis)

    def item(self, *args: Any) -> Any:
        """Return one element as a Python number; reads the value."""
        x = cast(Any, self)
        number = x.numpy().item(*args)
        if x._session is not None:
            x._session.became(x, type(number).__name__)
        return number

    def tobytes(self, order: str = "C") -> bytes:
        """Return the bytes of the value, in the narrowed dtype; reads the value."""
        return cast(Any, self).numpy().tobytes(cast(Any, order))

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return np
