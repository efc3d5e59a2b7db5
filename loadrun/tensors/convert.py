"""Turning what callers pass (arrays, numbers, sizes) into tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce
from typing import Any, SupportsIndex, TypeAlias, overload

import numpy as np

from ..graph import params as P
from ..graph.dtypes import Array, DType, plain
from .applying import once, type_cvt, vector
from .dtypes import graph_dtype, narrowed
from .switches import active, is_exact
from .symbolic import TracedInt, TracedNumber, place_of, scalar_of, size_of
from .value import Session, Tensor

ShapeLike: TypeAlias = Tensor | Array | int | Sequence[int | Tensor]
"""A shape: a tensor or an array of sizes, one size, or several."""
_INT = plain("Int32")


class Shape(tuple[int, ...]):
    """The sizes of a traced array; a tuple of `TracedInt` whose joins and parts remember what they are of."""

    __slots__ = ()

    def numpy(self) -> Array:
        """Return the sizes as an int32 array."""
        return np.array([int(v) for v in self], np.int32)

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Follow the reductions of sizes, ``np.prod(x.shape[1:])``; all else sees a tuple of numbers."""
        result = _REDUCED.get(func)
        alone = len(args) == 1 and args[0] is self and set(kwargs) <= {"axis"}
        if result is not None and alone and len(self) and kwargs.get("axis") in (None, 0, -1):
            return result(self)
        return func(*map(_numbers, args), **{k: _numbers(v) for k, v in kwargs.items()})

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Shape: ...
    def __getitem__(self, index: SupportsIndex | slice) -> int | Shape:
        result = tuple.__getitem__(self, index)
        return type(self)(result) if isinstance(result, tuple) else result

    def __add__(self, other: object) -> Any:
        return Shape((*self, *other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: object) -> Any:
        return Shape((*other, *self)) if isinstance(other, tuple) else NotImplemented


def _elementwise(name: str) -> Any:
    """Make an operator of sizes, which computes with them as with an int32 tensor."""

    def method(self: TensorShape, *others: Any) -> Any:
        return getattr(shape_tensor(self), name)(*map(_computable, others))

    return method


def _computable(value: Any) -> Any:
    return shape_tensor(value) if isinstance(value, (tuple, list)) else value


class ComparedSizes(Tensor):
    """Sizes compared one by one with others, which Python asks whether the whole shapes are equal."""

    _answer: bool

    def __bool__(self) -> bool:
        return self._answer


def _equality(name: str) -> Any:
    elementwise = _elementwise(name)

    def method(self: TensorShape, other: object) -> Any:
        if not isinstance(other, (tuple, list)):
            numbers = isinstance(other, (Tensor, int, float, np.ndarray, np.generic))
            return elementwise(self, other) if numbers else NotImplemented
        equal = tuple(self) == tuple(other)
        answer = equal if name == "__eq__" else not equal
        if len(self) != len(other) and 1 not in (len(self), len(other)):
            return answer
        result = ComparedSizes._of(None, _INT)
        result._copy_state(elementwise(self, other))
        result._answer = answer
        return result

    return method


class TensorShape(Shape):
    """The sizes of a traced Tensor: a tuple of `TracedInt` that computes as MegEngine's symbolic shape, a tensor, does.

    ``x.shape * 2`` and ``x.shape + (1,)`` are sums and products of elements, and the attributes of a Tensor are there
    (``x.shape.prod()``). Where Python wants a tuple (unpacking, ``in``, ``len``, ``index``, ``if x.shape == (2, 3)``),
    it is one.
    """

    __slots__ = ()
    __hash__ = Shape.__hash__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"a shape has no {name}")
        return getattr(shape_tensor(self), name)

    def __getitem__(self, index: Any) -> Any:
        plain = isinstance(index, slice) or type(index) is int
        return super().__getitem__(index) if plain else shape_tensor(self)[index]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*map(_computable, inputs), **kwargs)

    __eq__, __ne__ = _equality("__eq__"), _equality("__ne__")

    __add__, __radd__ = _elementwise("__add__"), _elementwise("__radd__")
    __sub__, __rsub__ = _elementwise("__sub__"), _elementwise("__rsub__")
    __mul__, __rmul__ = _elementwise("__mul__"), _elementwise("__rmul__")
    __truediv__, __rtruediv__ = _elementwise("__truediv__"), _elementwise("__rtruediv__")
    __floordiv__, __rfloordiv__ = _elementwise("__floordiv__"), _elementwise("__rfloordiv__")
    __mod__, __rmod__ = _elementwise("__mod__"), _elementwise("__rmod__")
    __pow__, __rpow__ = _elementwise("__pow__"), _elementwise("__rpow__")
    __neg__, __abs__ = _elementwise("__neg__"), _elementwise("__abs__")
    __lt__, __le__ = _elementwise("__lt__"), _elementwise("__le__")
    __gt__, __ge__ = _elementwise("__gt__"), _elementwise("__ge__")


def _numbers(value: Any) -> Any:
    """Return sizes as plain numbers, also within lists, anything else as it is."""
    if isinstance(value, Shape):
        return tuple(map(int, value))
    return type(value)(map(_numbers, value)) if type(value) in (list, tuple) else value


def _reduced(ufunc: np.ufunc) -> Callable[[Shape], Any]:
    return lambda shape: reduce(ufunc, shape[1:], np.positive(shape[0]))


_REDUCED: dict[Any, Callable[[Shape], Any]] = {
    np.prod: _reduced(np.multiply),
    np.sum: _reduced(np.add),
    **dict.fromkeys((np.max, np.amax), _reduced(np.maximum)),
    **dict.fromkeys((np.min, np.amin), _reduced(np.minimum)),
    np.mean: lambda shape: np.true_divide(reduce(np.add, shape), len(shape)),
}


def product_of(sizes: Iterable[int]) -> int:
    """Return the product of sizes, recorded with the later size first where they are `TracedInt`.

    >>> product_of((2, 3, 4)), product_of(())
    (24, 1)
    """
    total = 1
    for n in sizes:
        total = n * total
    return total


def shape_of(x: Tensor, sizes: tuple[int, ...], session: Session | None) -> tuple[int, ...]:
    """Return what ``x.shape`` is: plain numbers, or `TracedInt` where the size may differ in another call."""
    if session is None or not sizes or session.detached(x):
        return sizes
    if not session.symbolic_shape:
        session.measured(x)
        return sizes
    fixed = x._frozen()
    kind = Shape if x.numpy_sizes else TensorShape
    return kind(
        size_of(n, fixed, axis, session) if session.varies(x, axis) else n for axis, n in enumerate(sizes)
    )


def shape_tensor(shape: ShapeLike | Iterable[int | Tensor]) -> Tensor:
    """Return the 1-d int32 tensor of a shape, as Reshape, Broadcast and their kin take it.

    Args:
        shape: an int32 tensor or array, one size, or an iterable of ints, `TracedInt` and scalar tensors.
    """
    if isinstance(shape, Tensor):
        return type_cvt(shape, _INT)._vector()
    if isinstance(shape, (int, np.integer)):
        shape = (shape,)
    parts: list[Any] = [*shape]
    whole = _complete_shape(parts)
    if whole is not None:
        return whole
    pieces: list[Tensor] = []
    numbers: list[int] = []
    for part in [*parts, None]:
        fluid = isinstance(part, Tensor) or (isinstance(part, TracedInt) and part._session is active())
        if part is not None and not fluid:
            numbers.append(int(part))
            continue
        if numbers:
            pieces.append(Tensor._of(vector(tuple(numbers), _INT), _INT, False, const=True))
            numbers = []
        if part is not None:
            pieces.append(scalar_of(part)._vector())
    if not pieces:
        return Tensor._of(vector((), _INT), _INT, False, const=True)
    return pieces[0] if len(pieces) == 1 else once("Concat", P.Axis(axis=0), pieces, scalar=False)


def _complete_shape(parts: list[Any]) -> Tensor | None:
    """Return the shape of one tensor where the parts are exactly its sizes in order."""
    session = active()
    if len(parts) < 2 or not all(isinstance(p, TracedInt) and p._session is session for p in parts):
        return None
    places = [place_of(p) for p in parts]
    first = places[0]
    if first is None or first[0].ndim != len(parts):
        return None
    if any(p is None or p[0] is not first[0] or p[1] != i for i, p in enumerate(places)):
        return None
    return once("GetVarShapeV1", P.OptionalAxisV1(), [first[0]], scalar=False)


TensorLike: TypeAlias = Tensor | Array | np.generic | float | Sequence[Any]
"""What `as_tensor` takes: a tensor, an array, a number or a nested list; ints and bools count as floats here."""


def const(array: Array | Any, dtype: Any = None) -> Tensor:
    """Return a constant of the graph, whatever a trace does with captured values."""
    make = Tensor._of
    want = None if dtype is None else graph_dtype(dtype)
    if isinstance(array, (int, float)) and type(array) in (int, float, bool):
        value, kind = _stored_number(array, str(array), want, is_exact())
        return make(value, kind, True, const=True)
    value, kind = _converted(array, want)
    scalar = value.ndim == 0
    return make(value.reshape(1) if scalar else np.array(value, order="C"), kind, scalar, const=True)


def _converted(array: Array | Any, want: DType | None) -> tuple[Array, DType]:
    if want is not None and want.is_wide:
        with np.errstate(all="ignore"):
            return np.asarray(array).astype(want.np), want
    value, kind = narrowed(np.asarray(array))
    if want is None:
        return value, kind
    with np.errstate(all="ignore"):
        return value.astype(want.np), want


@lru_cache(maxsize=1024, typed=True)
def _stored_number(value: float, text: str, want: DType | None, wide: bool) -> tuple[Array, DType]:
    """Return a number in storage form, the same array each time, by which a later call of a trace knows it.

    Args:
        value: an int, float or bool.
        text: the number in letters, for 0.0 equals -0.0.
        want: the wanted dtype.
        wide: whether 64 bits are kept, on which the dtype depends where none is wanted.
    """
    result, kind = _converted(value, want)
    result = result.reshape(1)
    result.flags.writeable = False
    return result, kind


def as_tensor(value: Any, dtype: Any = None, like: Tensor | None = None) -> Tensor:
    """Return a tensor of whatever a caller passes.

    Args:
        value: a Tensor (returned as it is unless `dtype` differs), ndarray, number, nested list, or size.
        dtype: the wanted dtype.
        like: take this tensor's dtype.
    """
    if like is not None:
        dtype = like._dtype
    if isinstance(value, Tensor):
        result = value
    elif isinstance(value, Shape):
        result = shape_tensor(value)
    elif isinstance(value, TracedNumber):
        inner = value._tensor()
        result = const(value.numpy()) if inner is None else inner
    elif isinstance(value, (list, tuple)):
        result = Tensor(value)
        result._const = True
    else:
        return const(value, dtype)
    return result if dtype is None or graph_dtype(dtype) == result._dtype else result.astype(dtype)
