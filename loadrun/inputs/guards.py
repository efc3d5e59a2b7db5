"""The operations of an input_transform expression, each paid for before it is done."""

import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from types import FunctionType
from typing import Any

import numpy as np

from ..graph.dtypes import Array
from .numpy1 import as_numpy_1

_FUNCTION = """
    abs absolute add all amax amin any arange arccos arcsin arctan arctan2 argmax argmin argsort around
    array array_split ascontiguousarray asarray average bitwise_and bitwise_or bitwise_xor broadcast_to cbrt
    ceil clip concatenate copy cos cosh count_nonzero cumprod cumsum diff divide dot dstack einsum equal exp
    exp2 expand_dims expm1 fabs fix flip fliplr flipud floor floor_divide fmax fmin fmod full full_like
    greater greater_equal hstack hypot invert isfinite isinf isnan less less_equal linalg.norm linspace log
    log10 log1p log2 logical_and logical_not logical_or logical_xor matmul max maximum mean median min minimum
    mod moveaxis multiply nan_to_num nanmax nanmean nanmin nanstd nansum negative not_equal ones ones_like pad
    percentile positive power prod ptp quantile ravel reciprocal remainder repeat reshape rint rot90
    round sign sin sinh sort split sqrt square squeeze stack std subtract sum swapaxes take tan tanh tile
    transpose true_divide trunc var vstack where zeros zeros_like
    float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool_
"""
_METHOD = """
    all any argmax argmin argsort astype clip copy cumprod cumsum dot flatten max mean min prod ravel repeat
    reshape round squeeze std sum swapaxes take transpose var
"""
FUNCTIONS = frozenset(_FUNCTION.split())
"""Names of numpy that can be called; each is an ordinary function of arrays that touches no file."""
METHODS = frozenset(_METHOD.split())
"""Methods of arrays that can be called."""
_TYPES = frozenset([bool, float, int, *(getattr(np, name) for name in _FUNCTION.split()[-12:])])
CONSTANTS = {f"np.{name}": getattr(np, name) for name in ("pi", "e", "inf", "nan", "newaxis")}
CONSTANTS |= {f"np.{t.__name__}": t for t in _TYPES if t.__module__ == "numpy"} | {"np.bool_": np.bool_}
BUILTINS = {
    f.__name__: f
    for f in (abs, bool, enumerate, float, int, len, list, max, min, range, round, sum, tuple, zip)
}
_OPERATOR = """
    Add:add Sub:sub Mult:mul Div:truediv FloorDiv:floordiv Mod:mod Pow:pow MatMult:matmul LShift:lshift RShift:rshift
    BitAnd:and_ BitOr:or_ BitXor:xor UAdd:pos USub:neg Invert:invert Not:not_ Eq:eq NotEq:ne Lt:lt LtE:le Gt:gt GtE:ge
"""
OPERATORS = {k: getattr(operator, v) for k, v in (pair.split(":") for pair in _OPERATOR.split())}
_MAX_LIST, MAX_BITS, _MAX_DIGITS = 1000, 63, 100
_ELEMENTS, _ELEMENTS_A_NUMBER, _STEP = 2**26, 64, 512
"""Elements that all results together may have, how many more for each number of the data, and what a step counts as."""


class Guards:
    """What does the operations of one application of an expression, each paid for before it is done."""

    def __init__(self, data: Array) -> None:
        self.data, self.left = data, _ELEMENTS + _ELEMENTS_A_NUMBER * data.size

    def names(self) -> dict[str, Any]:
        """Return all that the compiled expression sees."""
        guards = (self.operation, self.item, self.each, self.call, self.numpy, self.method)
        helpers = {f"{g.__name__}()": g for g in (*guards, slice)}
        return {"__builtins__": {}, "data": self.data, **BUILTINS, **CONSTANTS, **helpers}

    def spend(self, elements: int) -> None:
        """Pay for a step that makes so many elements.

        Raises:
            ValueError: the expression has used up what it may take.
        """
        self.left -= _STEP + elements
        if self.left < 0:
            raise ValueError("the expression takes too many operations, or too large results, for the data")

    def item(self, value: Any, index: Any) -> object:  # noqa: ANN401 - any value of the language
        """Return ``value[index]``."""
        if isinstance(value, (list, tuple)):
            self.spend(len(value))
        else:
            parts = index if isinstance(index, tuple) else (index,)
            self.spend(
                sum(self.count(i) * max(1, np.ndim(i)) for i in parts if isinstance(i, (list, np.ndarray)))
            )
            self.spend(_indexed(_array(value, "items"), index))
        return _sane(value[index])

    def each(self, value: Any) -> list[Any]:  # noqa: ANN401 - any value of the language
        """Return the values that are in a list, or along the first axis of an array."""
        values = value if isinstance(value, (list, tuple)) else _array(value, "items")
        self.spend(_STEP * len(values))  # type: ignore[arg-type]
        return list(values)  # type: ignore[arg-type]

    def count(self, value: object, *, inner: bool = False) -> int:
        """Count the numbers in an argument; a TypeError for what no function of numpy is given."""
        if isinstance(value, (list, tuple)):
            self.spend(_STEP // 8 * len(value))
            return sum(self.count(v, inner=True) for v in value)
        if isinstance(value, (np.ndarray, np.generic)):
            return int(value.size)
        is_type = isinstance(value, (str, np.dtype)) or (isinstance(value, type) and value in _TYPES)
        if not isinstance(value, (int, float)) and (inner or not (value is None or is_type)):
            raise TypeError(f"values of type {type(value).__name__} are refused here")
        return 1

    def operation(self, op: str, *values: Any) -> object:
        """Apply an operator as numpy 1 does."""
        function, numbers = OPERATORS[op], (int, float, np.generic, np.ndarray)
        if op == "Not":
            return not values[0]
        if op == "Mult" and isinstance(values[0], list) and type(values[1]) is int:
            if max(len(values[0]), 1) * values[1] > _MAX_LIST:
                raise ValueError(f"a list of {len(values[0]) * values[1]} parts is too long")
            return values[0] * values[1]
        if op in ("Eq", "NotEq") and all(isinstance(v, tuple) for v in values):  # shapes
            return function(*(tuple(map(int, v)) for v in values))
        if any(isinstance(v, np.ndarray) for v in values):
            lists = (list, tuple)
            values = tuple(
                np.array(v) if isinstance(v, lists) and self.count(v) <= _MAX_LIST else v for v in values
            )
        for v in values:
            if not isinstance(_sane(v), numbers):
                raise TypeError(f"arithmetic takes numbers and arrays, not {type(v).__name__}")
        values = tuple(as_numpy_1(values))
        if op in ("Pow", "LShift") and all(isinstance(v, int) for v in values):
            bits, by = values[0].bit_length(), values[1]
            if (bits * abs(by) if op == "Pow" else bits + by) > MAX_BITS:
                raise ValueError("this number is too large")
        self.pay("matmul" if op == "MatMult" else "add", values, {})
        return _sane(function(*values))

    def call(self, called: Any, *args: Any) -> object:  # noqa: ANN401 - any value of the language
        """Call a function of the expression or one of Python's."""
        self.spend(4 * _STEP)
        if isinstance(called, FunctionType):
            return called(*args)
        if not any(called is f for f in BUILTINS.values()):
            raise TypeError(f"{kind_of(called)} cannot be called")
        self.spend(sum(self.count(a, inner=True) for a in args))
        if called is range:
            self.spend(_STEP * len(range(*args)))
        if called is round and len(args) > 1 and not -_MAX_DIGITS < args[1] < _MAX_DIGITS:
            raise ValueError("too many digits")
        if called in (enumerate, list, max, min, sum, tuple, zip):
            args = tuple(self.each(a) if isinstance(a, (list, tuple, np.ndarray)) else a for a in args)
        if called in (max, min) and any(np.ndim(v) for v in (args[0] if len(args) == 1 else args)):
            raise ValueError(f"{called.__name__} takes numbers; np.{called.__name__} takes arrays")
        if called is round and isinstance(args[0], np.ndarray):
            return np.round(*args)
        if called is sum:
            return reduce(
                lambda one, two: self.operation("Add", one, two), args[0], args[1] if args[1:] else 0
            )
        result = called(*args)
        return list(result) if called in (enumerate, range, zip) else _sane(result)

    def method(self, value: object, name: str, /, *args: Any, **named: Any) -> object:
        """Call a method of an array."""
        array = _array(value, f".{name}")
        if name == "clip":
            limits = [named.pop("min", None), named.pop("max", None)]
            limits[: len(args)] = args
            return self.numpy(name, array, *limits, **named)
        self.pay(name, (array, *args), named)
        return _sane(getattr(array, name)(*args, **named))

    def numpy(self, name: str, /, *args: Any, **named: Any) -> object:
        """Call a function of numpy."""
        self.pay(name, args, named)
        if _is_elementwise(name):
            chosen = 1 if name == "where" else 0
            args = (*args[:chosen], *as_numpy_1(args[chosen:]))
        return _sane(operator.attrgetter(name)(np)(*args, **named))

    def pay(self, name: str, args: Sequence[Any], named: dict[str, Any]) -> None:
        """Pay for what a call is given, or for its result or its work where these are more."""
        values = [*args, *named.values()]
        counts = [self.count(v) for v in values]
        lists = [n for n, v in zip(counts, values, strict=True) if isinstance(v, (list, tuple))]
        if name not in _JOINS and max(lists, default=0) > _MAX_LIST:
            raise TypeError("expected an array, such as np.array([...]) or np.stack([...])")
        cost = 0
        if name in _COSTS:
            cost = int(_COSTS[name](*args, **named))
        elif _is_elementwise(name):
            cost = _broadcast(*values) * (np.ndim(args[0]) if len(args) == 1 else 1)
        self.spend(max(cost, sum(counts)))


def _is_elementwise(name: str) -> bool:
    return isinstance(getattr(np, name, None), np.ufunc) or name in ("clip", "where")


def _sane(value: object) -> object:
    """Return a value; arrays must be of numbers, and numbers of 64 bits."""
    if isinstance(value, (np.ndarray, np.generic)):
        if value.dtype.kind not in "fiub" or value.dtype.itemsize > 8:
            raise TypeError(f"values of type {value.dtype} are refused")
    elif isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ValueError("this number is too large")
    elif isinstance(value, complex):
        raise TypeError("complex values are refused")
    return value


def kind_of(value: object) -> str:
    """Name what a value is, for messages."""
    return "None" if value is None else f"a {type(value).__name__.strip('_').lower()}"


def _array(value: object, what: str) -> Array | np.generic:
    """Return a value that something is asked of which only arrays have."""
    if not isinstance(value, (np.ndarray, np.generic)):
        raise TypeError(f"{kind_of(value)} has no {what}")
    return value


def _indexed(value: Any, index: Any) -> int:  # noqa: ANN401 - an array, and any index
    """Count the elements that arrays in an index copy, by what the first of their elements copies."""
    items: list[Any] = []
    for i in index if isinstance(index, tuple) else (index,):
        i = np.array(i) if isinstance(i, list) else i
        items += i.nonzero() if isinstance(i, np.ndarray) and i.dtype.kind == "b" else [i]
    shapes = [i.shape for i in items if isinstance(i, np.ndarray)]
    first = tuple(i.ravel()[:1] if isinstance(i, np.ndarray) else i for i in items)
    return int(np.size(value[first])) * math.prod(np.broadcast_shapes(*shapes)) if shapes else 0


def _size(shape: Any, *_: object, **__: object) -> int:  # noqa: ANN401 - whatever the expression gives as a shape
    if np.size(shape) > _MAX_LIST:
        raise ValueError(f"a shape of {np.size(shape)} axes")
    return math.prod(abs(operator.index(n)) for n in np.ravel(shape).tolist())


def _broadcast(*values: Any) -> int:
    return math.prod(np.broadcast_shapes(*(np.shape(v) for v in values if hasattr(v, "__len__"))))


def _contracted(subscripts: Any, *arrays: Any) -> int:  # noqa: ANN401 - whatever the expression gives
    terms = subscripts.replace(" ", "").split("->")[0].split(",") if isinstance(subscripts, str) else []
    if [len(t) for t in terms] != [np.ndim(a) for a in arrays]:
        raise TypeError("np.einsum takes subscripts such as 'ij,jk->ik' and an array for each of them")
    sizes = sorted(
        (letter, n)
        for t, a in zip(terms, arrays, strict=True)
        for letter, n in zip(t, np.shape(a), strict=True)
    )
    return 2 * len(arrays) * math.prod(dict(sizes).values())


def _padded(array: Any, pad_width: Any, *_: object, **__: object) -> int:  # noqa: ANN401 - an array and numbers
    widths = np.broadcast_to(np.asarray(pad_width, np.int64), (np.ndim(array), 2)).tolist()
    sizes = [n + sum(pair) for n, pair in zip(np.shape(array), widths, strict=True)]
    return math.prod(sizes) + _STEP * sum(map(sum, widths))


def _repeated(a: Any, *by: Any, **_: Any) -> int:  # noqa: ANN401 - an array and numbers
    """Count as often as the largest of the numbers says; an axis is one of them, too, but small."""
    most = (int(np.max(np.abs(n), initial=1)) for n in by if n is not None)
    return (int(np.size(a)) + _STEP) * max(most, default=1)


_JOINS = ("array", "concatenate", "dstack", "hstack", "stack", "vstack")


_COSTS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("zeros", "ones", "full"), _size),
    **dict.fromkeys(("zeros_like", "ones_like", "full_like"), lambda a, value=0, dtype=None: np.size(a)),
    **dict.fromkeys(("argsort", "sort", "median"), lambda a, *_, **__: 4 * np.size(a)),
    **dict.fromkeys(("percentile", "quantile"), lambda a, q, *_, **__: np.size(a) * max(4, np.size(q))),
    **dict.fromkeys(("dot", "matmul"), lambda a, b, *_: np.size(a) * np.size(b) // max(1, *np.shape(a)[-1:])),
    **dict.fromkeys(("array_split", "diff", "repeat", "split"), _repeated),
    **dict.fromkeys(("around", "round"), lambda a, decimals=0: np.size(a) + abs(decimals)),
    "arange": lambda a, b=0, step=1, **_: abs(float(b) - float(a)) / abs(float(step)),
    "linspace": lambda a, b, num=50, **_: _size(num) * _broadcast(np.array(a), np.array(b)),
    "tile": lambda a, reps: _size(reps) * np.size(a),
    "broadcast_to": lambda a, shape: _size(shape),
    "einsum": _contracted,
    "take": lambda a, at, axis=None, **_: (
        np.size(a) * np.size(at) // max(1, np.shape(np.ravel(a) if axis is None else a)[axis or 0])
    ),
    "pad": _padded,
    "linalg.norm": lambda x, *_, **__: np.size(x) * max(64, *np.shape(x), 1),
}
