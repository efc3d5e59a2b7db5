"""Symbolic sizes: Python numbers for the sizes of traced tensors, and for what is computed from them.

A `TracedInt` stands for an ``int``, a `TracedFloat` (``n / 2``, ``n ** -0.5``, ``np.sqrt(n)``) for a ``float``, and a
`TracedBool` (``n > 4``) for a ``bool``. Each also remembers how it was computed, so that a graph can compute it
again at other sizes: integers in int32, the rest in float32, as MegEngine does with its symbolic shapes. Where Python
itself asks for the number (``range``, ``if``, ``int()``), it is that of the traced call.

They are not subclasses of ``int`` and ``float``, which Python's own floats would take for plain numbers (``0.5 * n``),
but pass for them: ``isinstance(n, int)`` holds, and they have all operators and methods.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph import params as P
from ..graph.dtypes import Array, DType, plain
from ..ops.elemwise.table import MODES, ModeTrait, modes
from .applying import elemwise_param, once, type_cvt, vector
from .naming import title, titled
from .switches import active, is_exact
from .value import Session, Tensor

if TYPE_CHECKING:
    from builtins import float as _Float, int as _Int

else:
    # The base classes that type checkers see, which go by the class.
    _Int = _Float = object

_M = P.ElemwiseMode
_NATURAL = modes(ModeTrait.NATURAL)
_MODES = {ufunc: m for ufunc, m in MODES.items() if m in modes(ModeTrait.GIVES_FLOAT | ModeTrait.INTEGRAL)}
"""The functions of one number that MegEngine has as an operator."""
_INT, _LONG, _FLOAT, _BOOL = plain("Int32"), plain("Int64"), plain("Float32"), plain("Bool")
_NUMBERS = (int, float, np.integer, np.floating)
_DEEP = 4
"""Numbers of this depth are computed before those that are deeper."""
_FEW = 8
"""Up to this exponent a power of integers is a product."""


class TracedNumber:
    """A number that is also a value of a trace's graph.

    ``isinstance(n, int)`` is true of a size, since Python code asks sizes that, yet it is no subclass: C code reads the
    digits of an int's subclass without calling any method, so that a size could be frozen into the graph unseen, and
    bool has no subclasses. Therefore `__class__` answers for it; ``type(n)`` is the way to tell it from an int.

    Args:
        value: the number in this call.
        source: how the graph computes it: an elementwise mode or a function, and the numbers that it takes.
        session: the trace.
    """

    _stands_for: type[Any]
    _stored: DType
    strong = False
    """Whether numpy computed it, so that its dtype does not give way to that of arrays."""
    refused: Callable[[], object] | None = None
    """What is called where Python asks for the number, or for one computed from it, that the graph must not fix."""

    def __init__(self, value: Any, source: tuple[Any, ...], session: Session) -> None:
        self._value = value
        self._source = source
        self._session = session
        self._cache: Tensor | None = None
        how, *operands = source
        numbers = [v for v in operands if isinstance(v, TracedNumber)]
        self._depth: int = 1 + max((n._depth for n in numbers), default=0)
        self._natural = how is _size or (how in _NATURAL and all(map(is_natural, operands)))
        if refused := next((n.refused for n in numbers if n.refused is not None), None):
            self.refused = refused

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._stands_for

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name}")
        tensor = None if hasattr(self._value, name) else self._tensor()
        # In MegEngine's traces sizes are tensors.
        return getattr(self._value if tensor is None else tensor, name)

    def _tensor(self) -> Tensor | None:
        """Return the graph's scalar, None when the trace that the number belongs to is not running."""
        if self._session is not active():
            return None
        if self._cache is None:
            # Python's stack does not hold a chain of thousands.
            for number in steps(self, lambda n: n._cache is not None) if self._depth > _DEEP else ():
                if number is not self and number._depth % _DEEP == 0:
                    number._tensor()
            how, *operands = self._source
            self._cache = (how(*operands) if callable(how) else _elem(how, self._stored, *operands))._frozen()
        return self._cache

    def numpy(self) -> Array:
        """Return the number as a 0-d array of the graph's dtype."""
        return np.array(self._value, self._stored.np)

    def item(self) -> Any:
        """Return the number that it is in this call."""
        return self._value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        self._session.froze()
        return np.array(self._asked(), dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(v, Tensor) for v in inputs):
            return NotImplemented
        value = getattr(ufunc, method)(*map(plain_number, inputs), **kwargs)
        if method != "__call__" or kwargs or not all(isinstance(v, _NUMBERS) for v in inputs):
            return value
        result = _UFUNCS[ufunc](*map(_item, inputs)) if ufunc in _UFUNCS else _function(ufunc, *inputs)
        if not isinstance(result, TracedNumber) or result._stands_for is not type(_item(value)):
            return value
        result = type(result)(result._value, result._source, result._session)
        result.strong = True
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return (self._stands_for, (self._value,))

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return repr(self._value)

    def __format__(self, spec: str) -> str:
        return format(self._value, spec)

    def _asked(self) -> Any:
        if self.refused is not None:
            self.refused()
        return self._value

    def __bool__(self) -> bool:
        return bool(self._asked())

    def __int__(self) -> int:
        return int(self._asked())

    def __float__(self) -> float:
        self._session.froze()
        return float(self._asked())

    def __complex__(self) -> complex:
        self._session.froze()
        return complex(self._asked())


def not_fixed(value: Any, refused: Callable[[], object]) -> Any:
    """Return a symbolic number as one that calls `refused` where Python asks what it is in this call."""
    result = type(value)(value._value, value._source, value._session)
    result._cache, result.refused = value._cache, refused
    return result


def plain_number(value: Any) -> Any:
    """Return a symbolic number as a plain Python number, anything else as it is."""
    return value._value if isinstance(value, TracedNumber) else value


def _item(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _function(ufunc: np.ufunc, x: Any, *rest: Any) -> Any:
    """Make a function of one number that MegEngine has as an operator, None for all others."""
    mode = _MODES.get(ufunc)
    if mode is None or rest:
        return None
    value = _item(ufunc(plain_number(x)))
    if not isinstance(value, float):
        return +x
    return TracedFloat(value, (mode, x), x._session)


# How the graph computes


def scalar_of(value: Any, dtype: DType = _INT) -> Tensor:
    """Return the scalar of a number, symbolic or not, or of a tensor."""
    result = value._tensor() if isinstance(value, TracedNumber) else value
    if isinstance(result, Tensor):
        return result if result._dtype == dtype else type_cvt(result, dtype)
    return Tensor._of(vector((plain_number(value),), dtype), dtype, True, const=True)


def _elem(mode: P.ElemwiseMode, dtype: DType, *operands: Any) -> Tensor:
    return once("Elemwise", elemwise_param(mode), [scalar_of(v, dtype) for v in operands], scalar=True)


def _in(dtype: DType, mode: P.ElemwiseMode) -> Callable[..., Tensor]:
    return lambda *operands: _elem(mode, dtype, *operands)


def _size(x: Tensor, axis: int) -> Tensor:
    # MegEngine takes it out of the whole shape.
    with titled(name if (name := title()) is not None else "Subtensor"):
        return once("GetVarShapeV1", P.OptionalAxisV1(axis=axis), [x], scalar=True)


def _remainder(dtype: DType, a: Any, b: Any) -> Tensor:
    """Compute Python's remainder, which has the sign of the divisor; that of MegEngine's MOD is the dividend's."""
    if dtype == _INT and is_natural(a) and is_natural(b):
        return _elem(_M.MOD, dtype, a, b)
    whole = _elem(_M.MUL, dtype, _elem(_M.FLOOR_DIV, dtype, a, b), b)
    return _elem(_M.SUB, dtype, a, whole)


def is_natural(value: Any) -> bool:
    """Return whether a number cannot be negative, whatever the sizes are."""
    return value._natural if isinstance(value, TracedNumber) else bool(value >= 0)


def _whole(*numbers: Any) -> DType:
    """Return the dtype in which the graph computes with integers."""
    return _LONG if any(type(n) is TracedLong for n in numbers) else _INT


def _int_power(a: Any, b: Any) -> Tensor:
    dtype = _LONG if is_exact() else _whole(a, b)
    if type(b) is int and b <= _FEW:
        return reduce(lambda x, y: _elem(_M.MUL, dtype, x, y), [a] * b) if b else scalar_of(1)
    if type(a) is int and a == 2:
        return _elem(_M.SHL, dtype, 1, b)
    return type_cvt(_elem(_M.ROUND, _FLOAT, _elem(_M.POW, _FLOAT, a, b)), _INT)


def _compared(mode: P.ElemwiseMode, a: Any, b: Any) -> Tensor:
    dtype = _FLOAT if any(isinstance(v, (float, np.floating)) for v in (a, b)) else _whole(a, b)
    return type_cvt(_elem(mode, dtype, a, b), _BOOL)


def _different(a: Any, b: Any) -> Tensor:
    return once("Elemwise", P.Elemwise(mode=_M.NOT), [_compared(_M.EQ, a, b)], scalar=True)


def _logic(mode: P.ElemwiseMode) -> Callable[..., Tensor]:
    return lambda a, b: type_cvt(_elem(mode, _INT, a, b), _BOOL)


def _to_even(x: Any) -> Tensor:
    """Round to an integer, halves to even ones, as Python does."""
    above = _elem(_M.ADD, _FLOAT, x, 0.5)
    up = _elem(_M.FLOOR, _FLOAT, above)
    odd = _remainder(_FLOAT, up, 2.0)
    return _elem(_M.SUB, _FLOAT, up, _elem(_M.MUL, _FLOAT, _elem(_M.EQ, _FLOAT, above, up), odd))


def _to_digits(x: Any, digits: int) -> Tensor:
    factor = float(10**digits) if digits >= 0 else 1 / 10**-digits
    return _elem(_M.TRUE_DIV, _FLOAT, _to_even(_elem(_M.MUL, _FLOAT, x, factor)), factor)


# Python's operators

_Emit = Callable[..., Any]


def _binary(
    compute: Callable[[Any, Any], Any], whole: Any, real: Any = None, *, reflected: bool = False
) -> Any:
    """Make a method of both operands.

    Args:
        compute: Python's operator.
        whole: a mode or a function, how the graph computes it where Python gives an int or a bool.
        real: the same where Python gives a float.
        reflected: whether `self` is the second operand.
    """

    def method(self: Any, other: object) -> Any:
        if not isinstance(other, _NUMBERS):
            return NotImplemented
        a, b = (other, self) if reflected else (self, other)
        value = compute(plain_number(_item(a)), plain_number(_item(b)))
        how = real if type(value) is float else whole
        if type(value) not in _KINDS or how is None:
            return value
        # A product of sizes need not be one that memory holds.
        is_long = _whole(a, b) == _LONG or (is_exact() and whole in (_M.MUL, _int_power))
        kind = TracedLong if type(value) is int and is_long else _KINDS[type(value)]
        return kind(value, (how, _item(a), _item(b)), self._session)

    return method


def _pair(method: Callable[..., Any], *whole: Any) -> tuple[Any, Any]:
    return _binary(method, *whole), _binary(method, *whole, reflected=True)


def _part(fraction: Callable[[float], int], how: Any) -> Any:
    """Make a method that gives an integer of a `TracedFloat`, and of a `TracedInt` itself."""

    def method(self: Any) -> Any:
        if not isinstance(self, TracedFloat):
            return +self
        return TracedInt(fraction(float(self._asked())), (how, self), self._session)

    return method


def _emit_rounded(mode: P.ElemwiseMode) -> _Emit:
    return lambda x: type_cvt(_elem(mode, _FLOAT, x), _INT)


class _Number(TracedNumber):
    """The operators that Python's numbers have."""

    __hash__ = TracedNumber.__hash__

    __add__, __radd__ = _pair(operator.add, _M.ADD, _in(_FLOAT, _M.ADD))
    __sub__, __rsub__ = _pair(operator.sub, _M.SUB, _in(_FLOAT, _M.SUB))
    __mul__, __rmul__ = _pair(operator.mul, _M.MUL, _in(_FLOAT, _M.MUL))
    __truediv__, __rtruediv__ = _pair(operator.truediv, None, _in(_FLOAT, _M.TRUE_DIV))
    __floordiv__, __rfloordiv__ = _pair(operator.floordiv, _M.FLOOR_DIV, _in(_FLOAT, _M.FLOOR_DIV))
    __mod__, __rmod__ = _pair(
        operator.mod, lambda a, b: _remainder(_whole(a, b), a, b), lambda a, b: _remainder(_FLOAT, a, b)
    )
    __pow__, __rpow__ = _pair(operator.pow, _int_power, _in(_FLOAT, _M.POW))
    __lshift__, __rlshift__ = _pair(operator.lshift, _M.SHL)
    __rshift__, __rrshift__ = _pair(operator.rshift, _M.SHR)
    __lt__ = _binary(operator.lt, lambda a, b: _compared(_M.LT, a, b))
    __le__ = _binary(operator.le, lambda a, b: _compared(_M.LEQ, a, b))
    __gt__ = _binary(operator.gt, lambda a, b: _compared(_M.LT, b, a))
    __ge__ = _binary(operator.ge, lambda a, b: _compared(_M.LEQ, b, a))
    __eq__ = _binary(operator.eq, lambda a, b: _compared(_M.EQ, a, b))
    __ne__ = _binary(operator.ne, _different)
    __floor__ = _part(math.floor, _emit_rounded(_M.FLOOR))
    __ceil__ = _part(math.ceil, _emit_rounded(_M.CEIL))
    __trunc__ = _part(math.trunc, lambda x: type_cvt(scalar_of(x, _FLOAT), _INT))

    def __divmod__(self, other: Any) -> Any:
        return (self // other, self % other)

    def __rdivmod__(self, other: Any) -> Any:
        return (other // self, other % self)

    def __neg__(self) -> Any:
        return 0 - self

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return type(self)(abs(self._value), (_in(self._stored, _M.ABS), self), self._session)

    def __round__(self, digits: Any = None) -> Any:
        value = round(self._value, digits)
        if not isinstance(self, TracedFloat):
            return self if digits is None or digits >= 0 else value
        if digits is None:
            return TracedInt(value, (lambda x: type_cvt(_to_even(x), _INT), self), self._session)
        return TracedFloat(value, (lambda x: _to_digits(x, digits), self), self._session)


class TracedInt(_Number, _Int):
    """One size of a traced tensor, or an integer computed from sizes."""

    _stands_for: type[Any] = int
    _stored = _INT

    def __index__(self) -> int:
        self._session.froze()
        return int(self._asked())

    def __invert__(self) -> Any:
        return -self - 1


class TracedLong(TracedInt):
    """An integer of 64 bits that data give, or one computed from it."""

    _stored = _LONG


class TracedBool(TracedInt):
    """The result of comparing symbolic sizes."""

    _stands_for = bool
    _stored = _BOOL
    __and__, __rand__ = _pair(operator.and_, _logic(_M.MIN))
    __or__, __ror__ = _pair(operator.or_, _logic(_M.MAX))
    __xor__, __rxor__ = _pair(operator.xor, _different)

    def __abs__(self) -> Any:
        return self + 0


class TracedFloat(_Number, _Float):
    """A number with a fraction that is computed from sizes."""

    _stands_for = float
    _stored = _FLOAT


_KINDS: dict[type, type[TracedNumber]] = {int: TracedInt, float: TracedFloat, bool: TracedBool}


def size_of(value: int, x: Tensor, axis: int, session: Session) -> TracedInt:
    """Return the size of a tensor along an axis."""
    return TracedInt(value, (_size, x, axis), session)


def as_number(tensor: Tensor, value: Array | None = None) -> Any:
    """Convert a 0-d tensor to a symbolic number; an integer has as many bits.

    Args:
        tensor: what a graph computes it from.
        value: what it is in this call, by default computed.
    """
    session, dtype = active(), tensor._dtype
    number = (tensor._stored() if value is None else value).reshape(-1)[0]
    if dtype.is_float:
        return float(number) if session is None else TracedFloat(float(number), (_itself, tensor), session)
    kind = TracedInt if dtype.np.itemsize <= 4 else TracedLong
    return int(number) if session is None else kind(int(number), (_itself, tensor), session)


def _itself(x: Tensor) -> Tensor:
    return x


def steps(value: TracedNumber, done: Callable[[TracedNumber], bool]) -> list[TracedNumber]:
    """List a number and those that it is computed from, operands first; `done` are left out with their operands."""
    order, seen = [], set()
    stack = [(value, False)]
    while stack:
        number, complete = stack.pop()
        if complete:
            order.append(number)
        elif id(number) not in seen and not done(number):
            seen.add(id(number))
            stack.append((number, True))
            stack += [(v, False) for v in reversed(number._source) if isinstance(v, TracedNumber)]
    return order


def place_of(value: Any) -> tuple[Tensor, int] | None:
    """Return the tensor and the axis that a size is of, None if it is computed from sizes."""
    how, *operands = value._source
    return (operands[0], operands[1]) if how is _size else None


def largest(a: Any, b: Any) -> Any:
    """Return the larger of two numbers, one of which is symbolic."""
    return _LARGEST(a, b) if isinstance(a, TracedNumber) else _LARGEST(b, a)


def least(a: Any, b: Any) -> Any:
    """Return the smaller of two numbers, one of which is symbolic."""
    return _LEAST(a, b) if isinstance(a, TracedNumber) else _LEAST(b, a)


def _as_one_type(choose: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Convert the choice among two numbers to a float where one of them is, as in numpy."""
    return lambda a, b: choose(a, b) * (1.0 if isinstance(a, float) or isinstance(b, float) else 1)


_LARGEST = _binary(_as_one_type(max), _M.MAX, _in(_FLOAT, _M.MAX))
_LEAST = _binary(_as_one_type(min), _M.MIN, _in(_FLOAT, _M.MIN))


_UFUNCS: dict[np.ufunc, Callable[..., Any]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.true_divide: operator.truediv,
    np.floor_divide: operator.floordiv,
    np.remainder: operator.mod,
    np.power: operator.pow,
    np.left_shift: operator.lshift,
    np.right_shift: operator.rshift,
    np.negative: operator.neg,
    np.positive: operator.pos,
    np.absolute: abs,
    np.maximum: largest,
    np.minimum: least,
    np.square: lambda x: x * x,
    np.reciprocal: lambda x: 1 / x,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
}
