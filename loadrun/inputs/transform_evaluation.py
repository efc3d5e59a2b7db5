"""What an input_transform expression computes: values of its nodes, each paid for before it is computed.

Values are numbers, arrays of numbers, lists and tuples of them, dtypes, and the expression's own functions; nothing
else can come up.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from ..base.errors import InputError
from ..graph.dtypes import Array
from .numpy1 import as_numpy_1

_MAX_CALLS, _MAX_DIGITS = 50, 100
MAX_BITS = 63
"""Bits of the largest number of Python."""
_MAX_LIST = 1000
_ELEMENTS, _ELEMENTS_A_NUMBER = 2**26, 64
"""Elements that all results together may have, and how many more for each number of the data."""
_STEP = 512
"""Elements that one step of the evaluation counts as."""
_NUMBER = "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool_"
NUMBERS = tuple(_NUMBER.split())
"""Number types of numpy that can be named and called."""
_JOINS = ("array", "concatenate", "dstack", "hstack", "stack", "vstack")
_SORTS = ("argsort", "sort", "median", "percentile", "quantile")
CONSTANTS = {"pi": np.pi, "e": np.e, "inf": np.inf, "nan": np.nan, "newaxis": None}
"""Names of numpy that are no functions."""
BUILTINS: dict[str, Any] = {
    f.__name__: f
    for f in (abs, bool, enumerate, float, int, len, list, max, min, range, round, sum, tuple, zip)
}
"""Functions of Python that can be called."""
_TYPES = frozenset([bool, float, int, *(getattr(np, n) for n in NUMBERS)])
_OPERATOR = """
    Add:add Sub:sub Mult:mul Div:truediv FloorDiv:floordiv Mod:mod Pow:pow MatMult:matmul LShift:lshift RShift:rshift
    BitAnd:and_ BitOr:or_ BitXor:xor UAdd:pos USub:neg Invert:invert Not:not_ Eq:eq NotEq:ne Lt:lt LtE:le Gt:gt GtE:ge
"""
OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    getattr(ast, node): getattr(operator, name)
    for node, name in (pair.split(":") for pair in _OPERATOR.split())
}
_FAILURES = (ValueError, TypeError, LookupError, ArithmeticError, MemoryError, RecursionError)


def is_np(node: ast.AST) -> bool:
    """Return whether a node is the name of numpy."""
    return isinstance(node, ast.Name) and node.id == "np"


def is_linalg(node: ast.AST) -> bool:
    """Return whether a node is `np.linalg`."""
    return isinstance(node, ast.Attribute) and node.attr == "linalg" and is_np(node.value)


def parameters_of(node: ast.Lambda) -> list[str]:
    """Return the names of what a function takes."""
    return [p.arg for p in (*node.args.posonlyargs, *node.args.args)]


@dataclass(frozen=True)
class _Function:
    """A lambda of the expression, with the names that it sees."""

    parameters: list[str]
    defaults: list[Any]
    body: ast.expr
    names: dict[str, Any]


class Evaluation:
    """One application of an expression; the innermost failing operation gets the caret.

    Args:
        error: makes an error of a message and the node that failed.
        data: what it is applied to.
    """

    def __init__(self, error: Callable[[str, ast.AST], InputError], data: Array) -> None:
        self.error = error
        self.left = _ELEMENTS + _ELEMENTS_A_NUMBER * data.size
        self.calls = 0

    def spend(self, elements: int) -> None:
        """Pay for elements before they are computed.

        Raises:
            ValueError: nothing is left.
        """
        self.left -= elements
        if self.left < 0:
            raise ValueError("the expression takes too many operations, or too large results, for the data")

    def value(self, node: ast.AST, names: dict[str, Any]) -> Any:  # noqa: ANN401 - any value of the language
        """Evaluate a node that was checked."""
        try:
            self.spend(_STEP)
            return _sane(getattr(self, f"_{type(node).__name__.lower()}")(node, names))
        except InputError:
            raise
        except _FAILURES as e:
            reason = str(e).strip() or type(e).__name__
            raise self.error(reason[:200], node) from None

    def _constant(self, node: ast.Constant, names: dict[str, Any]) -> object:
        return node.value

    def _name(self, node: ast.Name, names: dict[str, Any]) -> object:
        return names[node.id] if node.id in names else BUILTINS[node.id]

    def _list(self, node: ast.List | ast.Tuple, names: dict[str, Any]) -> list[Any]:
        return [self.value(item, names) for item in node.elts]

    def _tuple(self, node: ast.Tuple, names: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(self._list(node, names))

    def _slice(self, node: ast.Slice, names: dict[str, Any]) -> slice:
        return slice(
            *(None if p is None else self.value(p, names) for p in (node.lower, node.upper, node.step))
        )

    def _ifexp(self, node: ast.IfExp, names: dict[str, Any]) -> object:
        return self.value(node.body if self.value(node.test, names) else node.orelse, names)

    def _boolop(self, node: ast.BoolOp, names: dict[str, Any]) -> object:
        operand: Any = None
        for item in node.values:
            operand = self.value(item, names)
            if bool(operand) is isinstance(node.op, ast.Or):
                break
        return operand

    def _unaryop(self, node: ast.UnaryOp, names: dict[str, Any]) -> object:
        return self.operation(type(node.op), self.value(node.operand, names))

    def _binop(self, node: ast.BinOp, names: dict[str, Any]) -> object:
        return self.operation(type(node.op), *(self.value(n, names) for n in (node.left, node.right)))

    def _compare(self, node: ast.Compare, names: dict[str, Any]) -> object:
        return self.operation(
            type(node.ops[0]), *(self.value(n, names) for n in (node.left, *node.comparators))
        )

    def _attribute(self, node: ast.Attribute, names: dict[str, Any]) -> object:
        if is_np(node.value):
            return CONSTANTS[node.attr] if node.attr in CONSTANTS else getattr(np, node.attr)
        return getattr(_array(self.value(node.value, names), node.attr), node.attr)

    def _subscript(self, node: ast.Subscript, names: dict[str, Any]) -> object:
        value, index = self.value(node.value, names), self.value(node.slice, names)
        if isinstance(value, (np.ndarray, np.generic)):
            self.spend(_indexed(value, index))
        elif isinstance(value, (list, tuple)):
            self.spend(len(value))
        else:
            raise TypeError(f"{kind_of(value)} has no items")
        return value[index]

    def _lambda(self, node: ast.Lambda, names: dict[str, Any]) -> _Function:
        defaults = [self.value(d, names) for d in node.args.defaults]
        return _Function(parameters_of(node), defaults, node.body, names)

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp, names: dict[str, Any]) -> list[Any]:
        every = [names]
        for part in node.generators:
            every = [
                inner
                for outer in every
                for item in self.items(self.value(part.iter, outer))
                for inner in [outer | self.assigned(part.target, item)]
                if all(self.value(test, inner) for test in part.ifs)
            ]
        return [self.value(node.elt, inner) for inner in every]

    _generatorexp = _listcomp

    def _call(self, node: ast.Call, names: dict[str, Any]) -> object:
        func = node.func
        of_numpy = isinstance(func, ast.Attribute) and (is_np(func.value) or is_linalg(func.value))
        called: Any = None
        if not of_numpy:
            called = self.value(func.value if isinstance(func, ast.Attribute) else func, names)
        args = [self.value(a, names) for a in node.args]
        named = {k.arg or "": self.value(k.value, names) for k in node.keywords}
        if isinstance(func, ast.Attribute):
            own = [] if of_numpy else [_array(called, func.attr)]
            return self.numpy(func.attr, own, args, named)
        if named:
            raise TypeError("arguments are given by place here")
        return self.apply(called, args) if isinstance(called, _Function) else self.builtin(called, args)

    # What the values of nodes are put together with.

    def assigned(self, target: ast.expr, item: object) -> dict[str, Any]:
        """Return the names that an item of a comprehension goes to."""
        self.spend(_STEP)
        if isinstance(target, ast.Name):
            return {target.id: item}
        assert isinstance(target, ast.Tuple)
        parts = zip(target.elts, self.items(item), strict=True)
        return {name: value for t, part in parts for name, value in self.assigned(t, part).items()}

    def items(self, value: object) -> Sequence[Any]:
        """Return the values that are in a list, or along the first axis of an array."""
        if isinstance(value, np.ndarray) and value.ndim:
            self.spend(_STEP * len(value))
            return list(value)
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"{kind_of(value)} has no items")
        self.spend(len(value))
        return value

    def count(self, value: object, *, inner: bool = False) -> int:
        """Count the numbers in an argument.

        Raises:
            TypeError: it is, or holds, something that no function of numpy is given.
        """
        if isinstance(value, (list, tuple)):
            self.spend(_STEP + _STEP // 8 * len(value))
            return sum(self.count(v, inner=True) for v in value)
        if isinstance(value, (np.ndarray, np.generic)):
            return int(value.size)
        is_type = isinstance(value, (str, np.dtype)) or (isinstance(value, type) and value in _TYPES)
        if not isinstance(value, (int, float)) and (inner or not (value is None or is_type)):
            raise TypeError(f"values of type {type(value).__name__} are refused here")
        return 1

    def operation(self, op: type[ast.AST], *values: Any) -> object:
        """Apply an operator as numpy 1 does."""
        if op is ast.Mult and isinstance(values[0], list) and type(values[1]) is int:
            if max(len(values[0]), 1) * values[1] > _MAX_LIST:
                raise ValueError(f"a list of {len(values[0]) * values[1]} parts is too long")
        elif op in (ast.Eq, ast.NotEq) and all(map(_is_plain, values)):
            self.spend(len(values[0]))
        else:
            if any(isinstance(v, np.ndarray) for v in values):
                values = tuple(
                    _sane(np.array(v)) if isinstance(v, (list, tuple)) and self.count(v) <= _MAX_LIST else v
                    for v in values
                )
            for v in values:
                if not isinstance(v, (int, float, np.ndarray, np.generic)):
                    raise TypeError(f"arithmetic takes numbers and arrays, not {type(v).__name__}")
            values = tuple(as_numpy_1(values))
            if op in (ast.Pow, ast.LShift) and all(isinstance(v, int) for v in values):
                one, two = values
                if (one.bit_length() * abs(two) if op is ast.Pow else one.bit_length() + two) > MAX_BITS:
                    raise ValueError("this number is too large")
            self.pay("matmul" if op is ast.MatMult else "add", list(values), {})
        return OPERATORS[op](*values)

    def apply(self, function: _Function, args: list[Any]) -> object:
        """Call a function of the expression."""
        missing = len(function.parameters) - len(args)
        if not 0 <= missing <= len(function.defaults):
            raise TypeError(f"a function of {len(function.parameters)} values got {len(args)}")
        if self.calls >= _MAX_CALLS:
            raise ValueError(f"functions call each other more than {_MAX_CALLS} deep")
        args = args + function.defaults[len(function.defaults) - missing :]
        self.calls += 1
        self.spend(4 * _STEP)
        result = self.value(function.body, function.names | dict(zip(function.parameters, args, strict=True)))
        self.calls -= 1
        return result

    def builtin(self, called: Any, args: list[Any]) -> object:  # noqa: ANN401 - any value of the language
        """Call a function of Python."""
        if not any(called is f for f in BUILTINS.values()):
            raise TypeError(f"{kind_of(called)} cannot be called")
        self.spend(sum(self.count(a, inner=True) for a in args))
        if called is range:
            self.spend(_STEP * len(range(*args)))
        elif called in (enumerate, list, sum, tuple, zip):
            args = [self.items(a) if isinstance(a, (np.ndarray, list, tuple)) else a for a in args]
        elif called in (max, min):
            args = [self.items(args[0])] if len(args) == 1 else args
            if any(np.ndim(i) for i in (args[0] if len(args) == 1 else args)):
                raise ValueError(f"{called.__name__} takes numbers; np.{called.__name__} takes arrays")
        elif called is round and len(args) > 1 and not -_MAX_DIGITS < args[1] < _MAX_DIGITS:
            raise ValueError("too many digits")
        if called is sum:
            start = args[1] if len(args) > 1 else 0
            return reduce(lambda one, two: self.operation(ast.Add, one, two), args[0], start)
        if called is round and isinstance(args[0], np.ndarray):
            return np.round(*args)
        result = called(*args)
        return list(result) if called in (enumerate, range, zip) else result

    def numpy(self, name: str, own: list[Any], args: list[Any], named: dict[str, Any]) -> object:
        """Call a function of numpy, or a method of the array in `own`."""
        self.pay(name, own + args, named)
        if name == "norm":
            return np.linalg.norm(*args, **named)
        if name == "clip" and own:
            limits = [named.pop("min", None), named.pop("max", None)]
            limits[: len(args)] = args
            own, args = [], own + limits
        if own:
            return getattr(own[0], name)(*args, **named)
        if isinstance(getattr(np, name), np.ufunc) or name in ("clip", "where"):
            chosen = 1 if name == "where" else 0
            args[chosen:] = as_numpy_1(args[chosen:])
        return getattr(np, name)(*args, **named)

    def pay(self, name: str, args: list[Any], named: dict[str, Any]) -> None:
        """Pay for a call: for the numbers that it is given, for its result, and for what it does beside.

        Raises:
            ValueError: nothing is left, or a size is negative.
            TypeError: arguments are refused, or sizes are not whole numbers.
        """
        values = [*args, *named.values()]
        counts = [self.count(a) for a in values]
        lists = [n for n, a in zip(counts, values, strict=True) if isinstance(a, (list, tuple))]
        if name not in _JOINS and max(lists, default=0) > _MAX_LIST:
            raise TypeError("expected an array, such as np.array([...]) or np.stack([...])")
        cost = sum(counts)
        if name in _COSTS:
            cost = max(cost, int(_COSTS[name](*args, **named)))
        elif isinstance(getattr(np, name, None), np.ufunc) or name in ("clip", "where"):
            cost = max(cost, _broadcast(*values) * (np.ndim(args[0]) if len(args) == 1 else 1))
        # A text beside a dtype or a mode makes an array of texts, of 36 bytes each.
        texts = [*args, *(v for k, v in named.items() if k not in ("dtype", "mode"))]
        many = 4 if name in _SORTS else 1
        self.spend(
            cost
            * (8 if name not in ("astype", "einsum") and any(isinstance(t, str) for t in texts) else many)
        )


def _sane(value: object) -> object:
    """Return a value; arrays must be of numbers, and numbers of 64 bits.

    Raises:
        TypeError: an array holds something else, or a number is complex.
        ValueError: a number is too large.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        if value.dtype.kind not in "fiub" or value.dtype.itemsize > 8:
            raise TypeError(f"values of type {value.dtype} are refused")
    elif isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ValueError("this number is too large")
    elif isinstance(value, complex):
        raise TypeError("complex values are refused")
    return value


def kind_of(value: object) -> str:
    """Name a value's type for a message."""
    return "None" if value is None else f"a {type(value).__name__.strip('_').lower()}"


def _array(value: object, name: str) -> object:
    """Return a value whose attribute is asked for, which must be an array."""
    if not isinstance(value, (np.ndarray, np.generic)):
        raise TypeError(f"{kind_of(value)} has no .{name}")
    return value


def _is_plain(value: object) -> bool:
    """Return whether a value is a list or a tuple of numbers of Python, as shapes are."""
    return isinstance(value, (list, tuple)) and all(isinstance(v, (int, float)) for v in value)


# What calls cost whose results are larger than their arguments, or that repeat something.


def _indexed(value: Array | np.generic, index: object) -> int:
    """Count the elements that an index copies."""
    parts = index if isinstance(index, tuple) else (index,)
    items = [np.array(i) if isinstance(i, (list, tuple)) else i for i in parts if i is not None]
    if any(isinstance(i, (bool, np.bool_)) or (_is_mask(i) and not np.ndim(i)) for i in items):
        raise ValueError("a single truth value is not an index")
    used = sum(i.ndim if _is_mask(i) else 1 for i in items if i is not Ellipsis)
    axis, kept, picked = 0, value.size, []
    for i in items:
        width = value.ndim - used if i is Ellipsis else i.ndim if _is_mask(i) else 1
        if isinstance(i, np.ndarray):
            kept //= max(1, math.prod(value.shape[axis : axis + width]))
            picked.append((np.count_nonzero(i),) if _is_mask(i) else i.shape)
        axis += width
    return kept * math.prod(np.broadcast_shapes(*picked)) if picked else 0


def _is_mask(item: object) -> bool:
    return isinstance(item, np.ndarray) and item.dtype.kind == "b"


def _size(shape: Any) -> int:  # noqa: ANN401 - whatever the expression gives as a shape
    if np.size(shape) > _MAX_LIST:
        raise ValueError(f"a shape of {np.size(shape)} axes")
    axes = [operator.index(n) for n in np.ravel(shape).tolist()]
    if any(n < 0 for n in axes):
        raise ValueError(f"an axis of {min(axes)} elements")
    return math.prod(axes)


def _broadcast(*values: Any) -> int:
    return math.prod(np.broadcast_shapes(*(np.shape(v) for v in values if hasattr(v, "__len__"))))


def _steps(start: Any, stop: Any = None, step: Any = 1, *_: object, **__: object) -> int:  # noqa: ANN401 - numbers
    low, high = (0, start) if stop is None else (start, stop)
    count = (float(high) - float(low)) / float(1 if step is None else step)
    if not math.isfinite(count):
        raise ValueError("a range without an end")
    return max(0, math.ceil(count))


def _product(one: Any, two: Any, *_: object) -> int:  # noqa: ANN401 - arrays or lists
    """Count multiplications, of which libraries do eight at a time for float32 and float64."""
    one, two = np.asarray(one), np.asarray(two)
    inner = max(1, one.shape[-1] if one.ndim and two.ndim else 1)
    results = (one.size // inner) * (two.size // inner)
    fast = all(a.dtype.kind == "f" and a.itemsize > 2 for a in (one, two))
    return max(results, results * inner // 8 if fast else results * inner * 2)


def _contracted(subscripts: Any, *arrays: Any) -> int:  # noqa: ANN401 - whatever the expression gives
    terms = subscripts.replace(" ", "").split("->") if isinstance(subscripts, str) else [""]
    if [len(t) for t in terms[0].split(",")] != [np.ndim(a) for a in arrays]:
        raise TypeError("np.einsum takes subscripts such as 'ij,jk->ik' and an array for each of them")
    sizes: dict[str, int] = {}
    for letters, array in zip(terms[0].split(","), arrays, strict=True):
        for letter, n in zip(letters, np.shape(array), strict=True):
            sizes[letter] = max(n, sizes.get(letter, 1))
    if any(letter not in sizes for letter in "".join(terms[1:])):
        raise TypeError(f"np.einsum: {terms[1]!r} has a subscript that no array has")
    return 2 * len(arrays) * math.prod(sizes.values())


def _padded(array: Any, pad_width: Any, *_: object, **__: object) -> int:  # noqa: ANN401 - an array and numbers
    widths = np.broadcast_to(np.asarray(pad_width, np.int64), (np.ndim(array), 2)).tolist()
    sizes = [n + sum(pair) for n, pair in zip(np.shape(array), widths, strict=True)]
    return math.prod(sizes) + 512 * sum(map(sum, widths))


def _taken(a: Any, indices: Any, axis: Any = None, *_: object, **__: object) -> int:  # noqa: ANN401 - arrays
    along = np.size(a) if axis is None else np.shape(a)[axis]
    return np.size(a) // max(1, along) * np.size(indices)


def _like(a: Any, *_: object, shape: Any = None, **__: object) -> int:  # noqa: ANN401 - an array and numbers
    if len(_) > 2:
        raise TypeError("a shape is given as shape=(...) here")
    return np.size(a) if shape is None else _size(shape)


def _split(ary: Any, parts: Any = 1, *_: object, indices_or_sections: Any = None, **__: object) -> int:  # noqa: ANN401 - an array and numbers
    sections = np.ravel(parts if indices_or_sections is None else indices_or_sections)
    return np.size(ary) + _STEP * max(sections.size, int(np.max(sections, initial=0)))


_COSTS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("zeros", "ones", "full"), lambda shape, *_, **__: _size(shape)),
    **dict.fromkeys(("zeros_like", "ones_like", "full_like"), _like),
    "eye": lambda N, M=None, *_, **__: _size([N, N if M is None else M]),
    "arange": _steps,
    "linspace": lambda start, stop, num=50, *_, **__: (
        _size(num) * _broadcast(np.array(start), np.array(stop))
    ),
    "tile": lambda A, reps: _size(reps) * np.size(A),
    "repeat": lambda a, repeats, axis=None: np.size(a) * np.max(repeats, initial=0),
    "broadcast_to": lambda array, shape: _size(shape),
    **dict.fromkeys(("percentile", "quantile"), lambda a, q, *_, **__: np.size(a) * np.size(q)),
    **dict.fromkeys(("dot", "matmul"), _product),
    "einsum": _contracted,
    "take": _taken,
    "pad": _padded,
    "diff": lambda a, n=1, *_, **__: (np.size(a) + _STEP) * n,
    **dict.fromkeys(("split", "array_split"), _split),
    "roll": lambda a, *_, **__: np.size(a) + _STEP * 2 ** np.ndim(a),
    **dict.fromkeys(("round", "around"), lambda a, decimals=0, *_, **__: np.size(a) + abs(decimals)),
    "norm": lambda x, *_, **__: np.size(x) * max(64, *np.shape(x), 1),
}
