"""The operations of an input_transform expression, each paid for before it is done."""

import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from types import FunctionType
from typing import Any

import numpy as np

from ..graph.dtypes import Array
from .casting import as_numpy_1

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
    BitAnd:and_ BitOr:or_ BitXor:xor UAdd:pos USub:neg Invert:invert Eq:eq NotEq:ne Lt:lt LtE:le Gt:gt GtE:ge
"""
OPERATORS: dict[str, Callable[..., Any]] = {
    k: getattr(operator, v) for k, v in (pair.split(":") for pair in _OPERATOR.split())
}
_MAX_LIST, MAX_BITS, _MAX_DIGITS = 1000, 63, 100
_ELEMENTS, _ELEMENTS_A_NUMBER, _STEP = 2**26, 64, 512
"""Elements that all results together may have, how many more for each number of the data, and what a step counts as."""


class Guards:
    """What does the operations of one application of an expression, each paid for before it is done."""

    def __init__(self, data: Array) -> None:
        self.data = data
        self.left: float = _ELEMENTS + _ELEMENTS_A_NUMBER * data.size

    def names(self) -> dict[str, Any]:
        """Return all that the compiled expression sees."""
        guards = (self.operation, self.item, self.each, self.call, self.numpy, self.method)
        helpers = {f"{g.__name__}()": g for g in (*guards, slice)}
        return {"__builtins__": {}, "data": self.data, **BUILTINS, **CONSTANTS, **helpers}

    def spend(self, elements: float) -> None:
        """Pay for a step that makes so many elements.

        Raises:
            ValueError: the expression has used up what it may take.
        """
        self.left -= _STEP + elements
        if not self.left >= 0:
            raise ValueError("the expression takes too many operations, or too large results, for the data")

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

    def item(self, value: Any, index: Any) -> object:  # noqa: ANN401 - any value of the language
        """Return ``value[index]``."""
        if isinstance(value, (list, tuple)):
            self.spend(len(value))
        else:
            parts = index if isinstance(index, tuple) else (index,)
            self.spend(sum(self.count(i) for i in parts if isinstance(i, list)))
            self.spend(_indexed(_array(value, "items"), parts))
        return _sane(value[index])

    def each(self, value: Any) -> list[Any]:  # noqa: ANN401 - any value of the language
        """Return the values that are in a list, or along the first axis of an array."""
        values = value if isinstance(value, (list, tuple, range)) else _array(value, "items")
        self.spend(_STEP * len(values))  # type: ignore[arg-type]
        return list(values)  # type: ignore[arg-type]

    def operation(self, op: str, *values: Any) -> object:
        """Apply an operator as numpy 1 does."""
        if op == "Mult" and isinstance(values[0], list) and type(values[1]) is int:
            if max(len(values[0]), 1) * values[1] > _MAX_LIST:
                raise ValueError(f"a list of {len(values[0]) * values[1]} parts is too long")
            return values[0] * values[1]
        if op in ("Eq", "NotEq") and all(isinstance(v, tuple) for v in values):  # shapes
            return OPERATORS[op](*(tuple(map(int, v)) for v in values))
        if any(isinstance(v, np.ndarray) for v in values):
            self.spend(sum(map(self.count, values)))
            values = tuple(np.array(v) if isinstance(v, (list, tuple)) else v for v in values)
        for v in values:
            if not isinstance(_sane(v), (int, float, np.generic, np.ndarray)):
                raise TypeError(f"arithmetic takes numbers and arrays, not {type(v).__name__}")
        if op in ("Pow", "LShift") and all(isinstance(v, int) for v in values):
            bits, by = values[0].bit_length(), values[1]
            if (bits * abs(by) if op == "Pow" else bits + by) > MAX_BITS:
                raise ValueError("this number is too large")
        return self.apply("matmul" if op == "MatMult" else "add", OPERATORS[op], values, {})

    def numpy(self, name: str, /, *args: Any, **named: Any) -> object:
        """Call a function of numpy."""
        return self.apply(name, operator.attrgetter(name)(np), args, named)

    def method(self, value: object, name: str, /, *args: Any, **named: Any) -> object:
        """Call a method of an array."""
        array = _array(value, f".{name}")
        if name == "clip":
            limits = [named.pop("min", None), named.pop("max", None)]
            limits[: len(args)] = args
            return self.numpy(name, array, *limits, **named)
        return self.apply(name, getattr(type(array), name), (array, *args), named)

    def apply(self, name: str, do: Callable[..., Any], args: Sequence[Any], named: dict[str, Any]) -> object:
        """Pay for what a function is given, or for its result or its work where these are more, and call it."""
        elementwise = isinstance(getattr(np, name, None), np.ufunc) or name in ("clip", "where")
        given = sum(map(self.count, (*args, *named.values())))
        cost: Callable[..., Any] = _COSTS.get(name, _broadcast if elementwise else lambda *_, **__: 0)
        self.spend(max(given, cost(*args, **named)))
        if elementwise:
            chosen = 1 if name == "where" else 0
            args = (*args[:chosen], *as_numpy_1(args[chosen:]))
        return _sane(do(*args, **named))

    def call(self, called: Any, *args: Any) -> object:  # noqa: ANN401 - any value of the language
        """Call a function of the expression or one of Python's."""
        self.spend(4 * _STEP)
        if isinstance(called, FunctionType):
            return called(*args)
        if not any(called is f for f in BUILTINS.values()):
            raise TypeError(f"{kind_of(called)} cannot be called")
        self.spend(sum(self.count(a, inner=True) for a in args))
        if called is range:
            return self.each(range(*args))
        if called is round:
            if isinstance(args[0], np.ndarray):
                return self.numpy("round", *args)
            if len(args) > 1 and not -_MAX_DIGITS < args[1] < _MAX_DIGITS:
                raise ValueError("too many digits")
        if called in (enumerate, list, max, min, sum, tuple, zip):
            args = tuple(self.each(a) if isinstance(a, (list, tuple, np.ndarray)) else a for a in args)
        if called in (max, min) and any(np.ndim(v) for v in (args[0] if len(args) == 1 else args)):
            raise ValueError(f"{called.__name__} takes numbers; np.{called.__name__} takes arrays")
        if called is sum:
            return reduce(lambda a, b: self.operation("Add", a, b), args[0], args[1] if args[1:] else 0)
        result = called(*args)
        return list(result) if called in (enumerate, zip) else _sane(result)


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


# ---- what calls cost whose results are larger than their arguments, or that repeat something


def _indexed(value: Any, index: tuple[Any, ...]) -> int:  # noqa: ANN401 - an array
    """Count the elements that arrays in an index copy, and the positions that masks stand for."""
    basic: list[Any] = []
    shapes, positions = [], 0
    for i in index:
        i = np.array(i) if isinstance(i, list) else i
        if isinstance(i, np.ndarray):
            is_mask = i.dtype.kind == "b"
            basic += [slice(1)] * (i.ndim if is_mask else 1)
            shapes.append((np.count_nonzero(i),) if is_mask else i.shape)
            positions += i.size * max(1, i.ndim)
        else:
            basic.append(i)
    copied = int(value[tuple(basic)].size) * math.prod(np.broadcast_shapes(*shapes)) if shapes else 0
    return copied + positions


def _product(sizes: Any) -> float:  # noqa: ANN401 - whatever the expression gives as a shape
    return float(np.prod(np.abs(sizes), dtype=float)) if np.size(sizes) <= _MAX_LIST else math.inf


def _broadcast(*values: Any, **named: Any) -> int:
    shapes = (np.shape(v) for v in (*values, *named.values()) if hasattr(v, "__len__"))
    return math.prod(np.broadcast_shapes(*shapes))


def _contracted(subscripts: Any, *arrays: Any) -> int:  # noqa: ANN401 - whatever the expression gives
    terms = subscripts.replace(" ", "").split("->")[0].split(",") if isinstance(subscripts, str) else []
    if [len(t) for t in terms] != [np.ndim(a) for a in arrays]:
        raise TypeError("np.einsum takes subscripts such as 'ij,jk->ik' and an array for each of them")
    sizes: dict[str, int] = {}
    for letter, n in zip("".join(terms), (n for a in arrays for n in np.shape(a)), strict=True):
        sizes[letter] = max(n, sizes.get(letter, 1))
    return 2 * len(arrays) * math.prod(sizes.values())


def _padded(array: Any, pad_width: Any, *_: object, **__: object) -> float:  # noqa: ANN401 - an array and numbers
    widths = np.broadcast_to(np.asarray(pad_width, float), (np.ndim(array), 2)).sum(axis=1)
    return _product(np.shape(array) + widths) + _STEP * float(widths.sum())


def _repeated(a: Any, *by: Any, decimals: Any = 1, **_: Any) -> float:  # noqa: ANN401 - an array and numbers
    """Count as often as the largest of the numbers says; an axis is one of them, too, but small."""
    most = (float(np.max(np.abs(n), initial=1)) for n in (*by, decimals) if n is not None)
    return (np.size(a) + _STEP) * max(most)


_COSTS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("zeros", "ones", "full"), lambda shape, *_, **__: _product(shape)),
    **dict.fromkeys(("zeros_like", "ones_like", "full_like"), lambda a, value=0, dtype=None: 0),
    **dict.fromkeys(
        ("argsort", "median", "percentile", "quantile", "sort"),
        lambda a, q=0, *_, **__: np.size(a) * max(4, np.size(q)),
    ),
    **dict.fromkeys(("dot", "matmul"), lambda a, b, *_: np.size(a) * np.size(b) // max(1, *np.shape(a)[-1:])),
    **dict.fromkeys(("array_split", "around", "diff", "repeat", "round", "split"), _repeated),
    "arange": lambda a, b=0, step=1, **_: abs(float(b) - float(a)) / abs(float(step)),
    "linspace": lambda a, b, num=50, **_: _product(num) * _broadcast(np.array(a), np.array(b)),
    "tile": lambda a, reps: _product(reps) * np.size(a),
    "broadcast_to": lambda a, shape: _product(shape),
    "einsum": _contracted,
    "take": lambda a, at, axis=None, **_: (
        np.size(a) * np.size(at) // max(1, np.shape(np.ravel(a) if axis is None else a)[axis or 0])
    ),
    "pad": _padded,
    "where": lambda *values: _broadcast(*values) * (np.ndim(values[0]) if len(values) == 1 else 1),
    "linalg.norm": lambda x, *_, **__: np.size(x) * max(64, *np.shape(x), 1),
}
