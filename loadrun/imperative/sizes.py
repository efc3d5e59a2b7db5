"""Sizes of tensors that remember where they come from.

While a trace with symbolic shapes runs, ``x.shape`` is a `Shape`: a tuple of `Dim`. A `Dim` is an ``int``, so that
Python code can count, compare and loop with it, and arithmetic on it stays symbolic: what is made of it (a target
shape, a slice bound, a factor) is recorded as MegEngine's shape operators, and the dump runs at other sizes. Where
Python itself needs the number (``range``, ``if``, a parameter of an operator), the traced number is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np

from .. import params as P
from ..dtypes import Array, plain
from .apply import Session, active, apply1, tensor_class, type_cvt

if TYPE_CHECKING:
    from .value import Tensor

__all__ = ["Dim", "Shape", "product_of", "shape_of", "shape_tensor"]

_M = P.ElemwiseMode
_INT = plain("Int32")


def _arithmetic(mode: P.ElemwiseMode, compute: Callable[[int, int], int], reflected: bool) -> Any:
    def method(self: Dim, other: object) -> Any:
        if not isinstance(other, int) or isinstance(other, bool):
            return NotImplemented
        a, b = (other, self) if reflected else (self, other)
        return Dim._make(compute(int(a), int(b)), (mode, a, b), self._session)

    return method


class Dim(int):
    """One size of a traced tensor: an ``int`` that is also a value of the graph."""

    _session: Session
    _source: tuple[Any, ...]
    _cache: Tensor | None

    @classmethod
    def _make(cls, value: int, source: tuple[Any, ...], session: Session) -> Dim:
        dim = int.__new__(cls, value)
        dim._session = session
        dim._source = source
        dim._cache = None
        return dim

    def _tensor(self) -> Tensor | None:
        """The graph's int32 scalar, None when the trace that the size belongs to is not running."""
        if self._session is not active():
            return None
        if self._cache is None:
            mode, a, b = self._source
            if mode is None:
                self._cache = _once("GetVarShapeV1", P.OptionalAxisV1(axis=b), [a], scalar=True)
            else:
                pair = [_scalar(v) for v in (a, b)]
                self._cache = _once("Elemwise", P.Elemwise(mode=mode), pair, scalar=True)
        return self._cache

    __add__ = _arithmetic(_M.ADD, int.__add__, False)
    __radd__ = _arithmetic(_M.ADD, int.__add__, True)
    __sub__ = _arithmetic(_M.SUB, int.__sub__, False)
    __rsub__ = _arithmetic(_M.SUB, int.__sub__, True)
    __mul__ = _arithmetic(_M.MUL, int.__mul__, False)
    __rmul__ = _arithmetic(_M.MUL, int.__mul__, True)
    __floordiv__ = _arithmetic(_M.FLOOR_DIV, int.__floordiv__, False)
    __rfloordiv__ = _arithmetic(_M.FLOOR_DIV, int.__floordiv__, True)
    __mod__ = _arithmetic(_M.MOD, int.__mod__, False)
    __rmod__ = _arithmetic(_M.MOD, int.__mod__, True)

    def __neg__(self) -> Dim:
        return Dim._make(-int(self), (_M.SUB, 0, self), self._session)

    def __reduce__(self) -> tuple[Any, ...]:
        return (int, (int(self),))

    def __hash__(self) -> int:
        return int.__hash__(self)

    def numpy(self) -> Array:
        """The size as a 0-d int32 array."""
        return np.array(int(self), np.int32)


class Shape(tuple[int, ...]):
    """The sizes of a traced tensor; a tuple of `Dim` that also does what MegEngine's symbolic shape does."""

    __slots__ = ()

    def numpy(self) -> Array:
        """The sizes as an int32 array."""
        return np.array([int(v) for v in self], np.int32)

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Shape: ...
    def __getitem__(self, index: SupportsIndex | slice) -> int | Shape:
        found = tuple.__getitem__(self, index)
        return Shape(found) if isinstance(found, tuple) else found

    def __add__(self, other: object) -> Any:
        return Shape((*self, *other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: object) -> Any:
        return Shape((*other, *self)) if isinstance(other, tuple) else NotImplemented


def product_of(sizes: Iterable[int]) -> int:
    """The product of sizes, recorded with the later size first where they are `Dim`.

    >>> product_of((2, 3, 4)), product_of(())
    (24, 1)
    """
    total = 1
    for n in sizes:
        total = n * total
    return total


def shape_of(x: Tensor, sizes: tuple[int, ...], session: Session | None) -> tuple[int, ...]:
    """What ``x.shape`` is: plain numbers, or `Dim` where the size may differ in another call."""
    if session is None or not sizes or session.detached(x):
        return sizes
    if not session.symbolic_shape:
        session.measured(x)
        return sizes
    fixed = x._frozen()
    return Shape(Dim._make(n, (None, fixed, axis), session) for axis, n in enumerate(sizes))


@lru_cache(maxsize=1024)
def _vector(numbers: tuple[int, ...]) -> Array:
    """Sizes in storage form, the same array each time, by which a later call of a trace knows them."""
    found = np.array(numbers, np.int32)
    found.flags.writeable = False
    return found


def _once(type: str, param: P.Record, inputs: list[Tensor], *, scalar: bool) -> Tensor:
    """Apply an operator on sizes, or take what a trace has for the same sizes already."""
    session = active()
    if session is None:
        return apply1(type, param, inputs=inputs, scalar=scalar)
    refs: list[object] = []
    for x in inputs:
        if x._session is session and x._var is not None:
            refs.append(x._var.id)
        elif x._const and x._value is not None:
            refs.append(tuple(x._value.tolist()))
        else:
            return apply1(type, param, inputs=inputs, scalar=scalar)
    key = (type, param, *refs)
    found = session.sizes.get(key)
    if found is None:
        found = session.sizes[key] = apply1(type, param, inputs=inputs, scalar=scalar)
    return found._frozen()


def _scalar(value: object) -> Tensor:
    """An int32 scalar of a size."""
    if isinstance(value, Dim):
        found = value._tensor()
        if found is not None:
            return found
    tensor = tensor_class()
    if isinstance(value, tensor):
        return type_cvt(value, _INT)
    return tensor._of(_vector((int(value),)), _INT, True, const=True)  # type: ignore[call-overload]


def shape_tensor(shape: Tensor | Array | int | Iterable[Any]) -> Tensor:
    """The 1-d int32 tensor of a shape, as Reshape, Broadcast and their kin take it.

    Args:
        shape: an int32 tensor or array, one size, or an iterable of ints, `Dim` and scalar tensors.
    """
    tensor = tensor_class()
    if isinstance(shape, tensor):
        return type_cvt(shape, _INT)._vector()
    if isinstance(shape, (int, np.integer)):
        shape = (shape,)
    parts: list[Any] = [*shape]
    whole = _whole(parts)
    if whole is not None:
        return whole
    pieces: list[Tensor] = []
    numbers: list[int] = []
    for part in [*parts, None]:
        fluid = isinstance(part, tensor) or (isinstance(part, Dim) and part._session is active())
        if part is not None and not fluid:
            numbers.append(int(part))
            continue
        if numbers:
            pieces.append(tensor._of(_vector(tuple(numbers)), _INT, False, const=True))
            numbers = []
        if part is not None:
            pieces.append(_scalar(part)._vector())
    if not pieces:
        return tensor._of(_vector(()), _INT, False, const=True)
    return pieces[0] if len(pieces) == 1 else _once("Concat", P.Axis(axis=0), pieces, scalar=False)


def _whole(parts: list[Any]) -> Tensor | None:
    """The shape of one tensor where the parts are exactly its sizes in order."""
    session = active()
    if len(parts) < 2 or not all(isinstance(p, Dim) and p._session is session for p in parts):
        return None
    first = parts[0]._source
    same = all(
        p._source[0] is None and p._source[1] is first[1] and p._source[2] == i for i, p in enumerate(parts)
    )
    if not same or first[1]._ndim() != len(parts):
        return None
    return _once("GetVarShapeV1", P.OptionalAxisV1(), [first[1]], scalar=False)
