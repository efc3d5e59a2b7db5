"""The input_transform expression: Python with kinds of nodes and names from a list, every step of it paid for.

The tree is checked and then runs as it is, but its values are in `_Value`, which alone knows what may be done with
them. They are numbers of 64 bits, arrays of these, lists and tuples, dtypes and functions; nothing else can be reached.
"""

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial, partialmethod, reduce
from traceback import walk_tb
from types import EllipsisType, GeneratorType, NoneType
from typing import Any, NoReturn

import numpy as np

from ..base.errors import InputError, SpecError
from ..base.pointing import point
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
"""
_NODE = """
    Attribute BinOp BoolOp Call Compare Constant Eq Expression GeneratorExp Gt GtE IfExp Lambda List ListComp Lt LtE
    Name NotEq Slice Subscript Tuple UnaryOp arg arguments boolop comprehension expr_context keyword operator unaryop
"""
_TYPE = "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool_"
_OPERATOR = "abs add and eq floordiv ge gt invert le lshift lt matmul mod mul ne neg or pos pow rshift sub truediv xor"
FUNCTIONS = frozenset(f"{_FUNCTION} {_TYPE}".split())
"""Names of numpy that can be called; each is an ordinary function of arrays that touches no file."""
METHODS = frozenset({"astype", "flatten", *filter(partial(hasattr, np.ndarray), FUNCTIONS - {"sort"})})
"""Methods of arrays that can be called: those functions that are methods, too, and two others."""
_ATTRIBUTES = {"shape", "ndim", "size", "dtype", "T"}
_CONSTANTS = frozenset(f"pi e inf nan newaxis {_TYPE}".split())
_NODES = tuple(getattr(ast, name) for name in _NODE.split())
_VALUES = (ast.Constant, ast.GeneratorExp, ast.Lambda, ast.List, ast.ListComp, ast.Tuple, ast.UnaryOp)
"""Nodes that Python does not make of other `_Value`s."""
_OF_NUMPY = re.compile(r"np\.([\w.]+)")
_DTYPE = re.compile(r"float(16|32|64)?|u?int(8|16|32|64)|int|bool|[<>=|]?(f[248]|[iu][1248])|\?")
_SUBSCRIPTS = re.compile(r"[a-zA-Z, ]+(-> *[a-zA-Z ]*)?")
_FAILURES = (
    *(ValueError, TypeError, LookupError, ArithmeticError, AttributeError, NameError),
    *(MemoryError, RuntimeError),
)
_FILE = "<input_transform>"
_MAX_TEXT, _MAX_LIST, _MAX_BITS = 1000, 1000, 63
_ELEMENTS, _ELEMENTS_A_NUMBER, _STEP = 2**26, 64, 512
"""Elements that all results together may have, more of them for each number of the data, and what a value counts as."""


class TransformExpression:
    """A checked expression; calling it applies it to an array.

    Args:
        text: the expression.

    Raises:
        SpecError: it is not an expression, or uses something else than ``data``, ``np`` and the names allowed of them;
            the message shows it with a caret under the fault.

    >>> TransformExpression("data.astype(float) / 255 - np.array([0.5])")(np.array([0, 255], "u1")).tolist()
    [-0.5, 0.5]
    >>> TransformExpression("np.load('x.npy')")
    Traceback (most recent call last):
    loadrun.base.errors.SpecError: input_transform: np.load is not among the numpy functions allowed here
      np.load('x.npy')
         ^
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise SpecError(f"input_transform: expected a text, found {type(text).__name__}")
        self.text = text.strip().replace("\n", " ")
        if len(self.text) > _MAX_TEXT:
            raise SpecError(f"input_transform: an expression has at most {_MAX_TEXT} characters")
        try:
            tree = _Checked(self).visit(ast.parse(self.text, mode="eval"))
            self._code = compile(ast.fix_missing_locations(tree), _FILE, "eval")
        except SpecError:
            raise
        except (SyntaxError, ValueError, MemoryError, RecursionError) as e:
            at = max(0, (getattr(e, "offset", 1) or 1) - 1)
            said = getattr(e, "msg", str(e)) or type(e).__name__
            raise self.error(f"this is not an expression: {said}", at) from None

    def __call__(self, data: Array) -> Array:
        """Apply the expression.

        Returns:
            an array of numbers or booleans; its values are not checked.

        Raises:
            InputError: numpy refuses an operation, a result is too large, or the result is not an array.
        """
        seen = np.asarray(data).view()
        seen.flags.writeable = False

        class Value(_Value):
            left = _ELEMENTS + _ELEMENTS_A_NUMBER * seen.size

        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                names = {name: Value(v) for name, v in {"data": seen, **_BUILTINS}.items()}
                made = {"value()": Value.of, "numpy()": Value.of_numpy}
                result = eval(self._code, {"__builtins__": {}, **made, **names}).raw
            except _FAILURES as e:
                lines = [n for frame, n in walk_tb(e.__traceback__) if frame.f_code.co_filename == _FILE]
                said = str(e).strip()[:200] or type(e).__name__
                raise InputError(str(self.error(said, lines[-1] - 1 if lines else 0))) from None
        if not isinstance(result, np.ndarray):
            raise InputError(str(self.error(f"the expression results in {_kind_of(result)}, not an array")))
        return np.ascontiguousarray(result) if result.flags.writeable else result.copy()

    def error(self, message: str, offset: int = 0) -> SpecError:
        """Make a message with the expression below it and a caret at an offset in its bytes."""
        at = len(self.text.encode(errors="replace")[:offset].decode(errors="ignore"))
        return SpecError(point(f"input_transform: {message}", self.text, at))


class _Checked(ast.NodeTransformer):
    """Checks a tree and puts its values into `_Value`; its lines become places in the text, for carets."""

    def __init__(self, expression: TransformExpression) -> None:
        self.expression = expression
        self.known = {"data", *_BUILTINS}

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        offset = getattr(node, "col_offset", 0)
        if isinstance(node, ast.Attribute):
            offset = (node.end_col_offset or 0) - len(node.attr.encode())
        raise self.expression.error(message, offset)

    def call(self, name: str, node: ast.expr, value: ast.expr) -> ast.Call:
        """Make a call of a function whose name is no identifier, so that no expression has it."""
        return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), [value], []), node)

    def visit(self, node: ast.AST) -> Any:  # noqa: ANN401 - as the base class has it
        is_target = isinstance(getattr(node, "ctx", None), ast.Store)
        if not isinstance(node, _NODES):
            self.refuse(node, f"{type(node).__name__} is refused; only arithmetic on data and np is allowed")
        if is_target and not isinstance(node, (ast.Name, ast.Tuple)):
            self.refuse(node, "a comprehension gives its values to names")
        if isinstance(node, (ast.expr, ast.arg)):
            node.lineno = node.end_lineno = node.col_offset + 1
        new = super().visit(node)
        return self.call("value()", new, new) if isinstance(node, _VALUES) and not is_target else new

    def visit_Expression(self, node: ast.Expression) -> ast.AST:
        for n in ast.walk(node):
            if isinstance(n, ast.arg) or isinstance(getattr(n, "ctx", None), ast.Store):
                self.known.add(getattr(n, "arg", getattr(n, "id", "")))
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id == "np":
            self.refuse(node, "np alone is not a value")
        if node.id not in self.known or node.id.startswith("__"):
            hint = f" (np.{node.id} is allowed)" if node.id in FUNCTIONS else ""
            allowed = ", ".join(_BUILTINS)
            self.refuse(node, f"unknown name {node.id!r}: an expression sees data, np, {allowed}{hint}")
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        name = ast.unparse(node)
        if of_numpy := _OF_NUMPY.fullmatch(name):
            if of_numpy[1] not in FUNCTIONS | _CONSTANTS:
                self.refuse(node, f"{name} is not among the numpy functions allowed here")
            return self.call("numpy()", node, ast.Constant(of_numpy[1]))
        if node.attr not in METHODS | _ATTRIBUTES:
            self.refuse(node, f".{node.attr} is not among the array methods and attributes allowed here")
        return self.generic_visit(node)

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        if others := node.vararg or node.kwarg:
            self.refuse(others, "a function takes its values by place")
        return self.generic_visit(node)


class _Value:
    """A value in an expression: what is done with it gives another one, and is paid for from what is left.

    Expressions can name none of its attributes, and functions of numpy are only given `bare` values.
    """

    left: float
    raw: Any

    def __init__(self, raw: Any) -> None:  # noqa: ANN401 - any value of the language
        self.spend(_STEP)
        if isinstance(raw, (np.ndarray, np.generic)):
            if raw.dtype.kind not in "fiub" or raw.dtype.itemsize > 8:
                raise TypeError(f"values of type {raw.dtype} are refused")
        elif isinstance(raw, int) and raw.bit_length() > _MAX_BITS:
            raise ValueError("this number is too large")
        elif isinstance(raw, (bytes, complex)):
            raise TypeError(f"{type(raw).__name__} values are refused")
        elif isinstance(raw, str):
            if not _DTYPE.fullmatch(raw) and not _SUBSCRIPTS.fullmatch(raw):
                raise TypeError(f"the text {raw!r:.40} is neither a dtype nor a padding mode")
            raw = np.dtype(raw) if _DTYPE.fullmatch(raw) else raw
        self.raw = list(raw) if isinstance(raw, GeneratorType) else raw

    @classmethod
    def spend(cls, elements: float) -> None:
        """Pay for what makes so many elements."""
        cls.left -= elements
        if not cls.left >= 0:
            raise ValueError("the expression takes too many operations, or too large results, for the data")

    @classmethod
    def of(cls, raw: Any) -> "_Value":  # noqa: ANN401 - any value of the language
        return raw if isinstance(raw, cls) else cls(raw)

    @classmethod
    def of_numpy(cls, name: str) -> "_Value":
        value = operator.attrgetter(name)(np)
        return cls(value if name in _CONSTANTS else partial(cls.apply, name, value))

    @classmethod
    def bare(cls, value: Any, others: tuple[type, ...] = (), price: int = 1) -> Any:  # noqa: ANN401 - any value
        """Return what numpy takes, paid for: numbers, arrays and lists of them, and values of some other types."""
        raw = value.raw if isinstance(value, _Value) else value
        if isinstance(raw, slice):
            return slice(*[cls.bare(n, others) for n in (raw.start, raw.stop, raw.step)])
        if isinstance(raw, (list, tuple, range)):
            cls.spend(_STEP * len(raw))
            parts = [cls.bare(v, (), price) for v in raw]
            return tuple(parts) if isinstance(raw, tuple) else parts
        if isinstance(raw, (np.ndarray, np.generic, int, float)):
            cls.spend(price * np.size(raw))
        elif not isinstance(raw, others):
            raise TypeError(f"values of type {type(raw).__name__} are refused here")
        return raw

    @classmethod
    def apply(cls, name: str, do: Callable[..., Any], /, *args: Any, **named: Any) -> "_Value":
        """Call a function of arrays as numpy 1 does, after paying for what it is given and what it makes."""
        others = (type, np.dtype, NoneType, *[str] * (name in ("einsum", "pad")))
        elementwise = isinstance(do, np.ufunc) or do in _OPERATORS or name in ("clip", "where")
        of_many = elementwise or name in ("dot", "einsum", "take")
        first = others if not elementwise else (NoneType,) if name == "clip" else ()
        given = [cls.bare(a, first, _STEP if i and not of_many else 1) for i, a in enumerate(args)]
        named = {k: cls.bare(v, others, _STEP) for k, v in named.items()}
        cost: Callable[..., float] = _COSTS.get(name, _broadcast if elementwise else lambda *_, **__: 0)
        cls.spend(2 * _STEP + cost(*given, **named))
        if elementwise:
            chosen = 1 if name == "where" else 0
            given = [np.array(v) if isinstance(v, (list, tuple)) else v for v in given]
            given[chosen:] = as_numpy_1(given[chosen:])
        return cls.of(do(*given, **named))

    def operate(self, do: Callable[..., Any], *others: "_Value") -> "_Value":
        """Apply an operator."""
        raws: list[Any] = [self.raw, *[v.raw for v in others]]
        kinds = set(map(type, raws))
        if do is operator.mul and isinstance(raws[0], list) and isinstance(raws[1], int):
            if len(raws[0]) * raws[1] > _MAX_LIST:
                raise ValueError(f"a list of {len(raws[0]) * raws[1]} parts is too long")
            return self.of(raws[0] * raws[1])
        if do in (operator.eq, operator.ne) and kinds == {tuple}:  # shapes
            return self.of(do(*[tuple(map(float, self.bare(r))) for r in raws]))
        if do in (operator.pow, operator.lshift) and kinds <= {bool, int} and raws[1] > _MAX_BITS:
            raise ValueError("this number is too large")
        if np.ndarray not in kinds and kinds & {list, tuple, range}:
            raise TypeError("arithmetic takes numbers and arrays, not lists")
        numbers = kinds <= {bool, int, float}
        return self.of(do(*raws)) if numbers else self.apply(do.__name__, do, self, *others)

    def method(self, name: str, *args: Any, **named: Any) -> "_Value":
        if name == "clip":
            low, high = (*args, None, None)[:2]
            args = (self, named.pop("min", low), named.pop("max", high), *args[2:])
            return self.apply(name, np.clip, *args, **named)
        return self.apply(name, getattr(type(self.raw), name), self, *args, **named)

    def __getattr__(self, name: str) -> "_Value":
        if not isinstance(self.raw, (np.ndarray, np.generic)) or name not in METHODS | _ATTRIBUTES:
            raise AttributeError(f"{_kind_of(self.raw)} has no .{name}")
        return self.of(partial(self.method, name) if name in METHODS else getattr(self.raw, name))

    def __getitem__(self, index: Any) -> "_Value":  # noqa: ANN401 - any value of the language
        index = getattr(index, "raw", index)
        index = index if isinstance(index, tuple) else (index,)
        parts = tuple(self.bare(i, (NoneType, EllipsisType)) for i in index)
        if isinstance(self.raw, (list, tuple, range)):
            self.spend(len(self.raw))
            return self.of(operator.getitem(self.raw, *parts))
        if not isinstance(self.raw, (np.ndarray, np.generic)):
            raise TypeError(f"{_kind_of(self.raw)} has no items")
        self.spend(_indexed(self.raw, parts))
        return self.of(self.raw[parts])  # type: ignore[index]

    def __iter__(self) -> Iterator["_Value"]:
        self.spend(_STEP * len(self.raw))
        return map(self.of, self.raw)

    def __bool__(self) -> bool:
        return bool(self.raw)

    def __round__(self, *digits: "_Value") -> "_Value":
        if isinstance(self.raw, np.ndarray):
            return self.apply("round", np.round, self, *digits)
        bounded: list[Any] = [max(-400, min(n.raw, 400)) for n in digits]
        return self.of(round(self.raw, *bounded))

    def __call__(self, *args: Any, **named: Any) -> "_Value":
        self.spend(_STEP)
        if not callable(self.raw):
            raise TypeError(f"{_kind_of(self.raw)} cannot be called")
        if isinstance(self.raw, type):
            args, named = tuple(map(self.bare, args)), {k: self.bare(v) for k, v in named.items()}
        return self.of(self.raw(*args, **named))


_OPERATORS = [getattr(operator, f"__{name}__") for name in _OPERATOR.split()]
for _name, _do in zip(_OPERATOR.split(), _OPERATORS, strict=True):
    setattr(_Value, f"__{_name}__", partialmethod(_Value.operate, _do))
_BUILTINS: dict[str, Any] = {
    "abs": abs,
    "bool": bool,
    "enumerate": lambda values, *start: list(enumerate(values, *[n.raw for n in start])),
    "float": float,
    "int": int,
    "len": lambda values: len(values.raw),
    "list": lambda values: list(values),
    "max": lambda *values: reduce(lambda a, b: b if b > a else a, values if len(values) > 1 else values[0]),
    "min": lambda *values: reduce(lambda a, b: b if b < a else a, values if len(values) > 1 else values[0]),
    "range": lambda *limits: range(*[n.raw for n in limits]),
    "round": round,
    "sum": lambda values, *start: reduce(operator.add, values, *(start or [values.of(0)])),
    "tuple": lambda values: tuple(values),
    "zip": lambda *values: list(zip(*values)),  # noqa: B905 - as Python's
}


def _kind_of(raw: object) -> str:
    """Name what a value is, for messages."""
    name = type(raw).__name__.lower()
    return "None" if raw is None else "a function" if callable(raw) and name != "type" else f"a {name}"


# ---- what calls cost whose results are larger than their arguments, or that repeat something


def _broadcast(*values: Any, **_: object) -> int:
    return math.prod(np.broadcast_shapes(*map(np.shape, values)))


def _indexed(value: Any, parts: Sequence[Any]) -> float:  # noqa: ANN401 - an array
    """Count the elements that lists and arrays in an index copy, and the positions that masks stand for."""
    basic: list[Any] = []
    shapes, positions = [], 0
    for part in parts:
        i = np.array(part) if isinstance(part, (list, tuple, bool, np.bool_)) else part
        if isinstance(i, np.ndarray):
            is_mask = i.dtype.kind == "b"
            basic += [slice(1)] * (i.ndim if is_mask else 1)
            shapes.append((np.count_nonzero(i),) if is_mask else i.shape)
            positions += i.size * i.ndim
        else:
            basic.append(i)
    return positions + np.size(value[tuple(basic)]) * math.prod(np.broadcast_shapes(*shapes)) if shapes else 0


def _product(sizes: Any) -> float:  # noqa: ANN401 - whatever the expression gives as a shape
    return float(np.prod(np.abs(sizes), dtype=float)) + _STEP * np.size(sizes)


def _contracted(subscripts: str, *arrays: Any) -> int:
    letters, axes = re.sub("->.*|[, ]", "", subscripts), [n for a in arrays for n in np.shape(a)]
    if len(letters) != len(axes):
        raise TypeError("np.einsum takes subscripts such as 'ij,jk->ik' and an array for each of them")
    sizes = {k: max(n for letter, n in zip(letters, axes, strict=True) if letter == k) for k in letters}
    return 2 * len(arrays) * math.prod(sizes.values())


def _padded(array: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> float:  # noqa: ANN401
    if mode not in ("constant", "edge", "reflect", "symmetric", "wrap"):
        raise ValueError("expected a padding mode: constant, edge, reflect, symmetric or wrap")
    widths = np.broadcast_to(np.asarray(pad_width, float), (np.ndim(array), 2)).sum(axis=1)
    return _product(np.shape(array) + widths) + _STEP * float(widths.sum())


def _repeated(a: Any, *by: Any, **named: Any) -> float:  # noqa: ANN401 - an array and numbers
    """Count as often as the largest of the numbers says; an axis is one of them, too, but small."""
    numbers = [n for n in (1, *by, *named.values()) if not isinstance(n, (type, np.dtype, NoneType))]
    return (np.size(a) + _STEP) * max(float(np.max(np.abs(n), initial=1)) for n in numbers)


_COSTS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("zeros", "ones", "full"), lambda shape, *_, **__: _product(shape)),
    **dict.fromkeys(("zeros_like", "ones_like", "full_like"), lambda a, fill_value=0, dtype=None: 0),
    **dict.fromkeys(("argsort", "median", "sort"), lambda a, *_, **__: 4 * np.size(a)),
    **dict.fromkeys(("percentile", "quantile"), lambda a, q, *_, **__: np.size(a) * (4 + np.size(q))),
    **dict.fromkeys(
        ("concatenate", "dstack", "hstack", "stack", "vstack"), lambda a, *_, **__: _STEP * len(a)
    ),
    **dict.fromkeys(("dot", "matmul"), lambda a, b: np.size(a) * np.size(b) // max(1, *np.shape(a)[-1:], 1)),
    **dict.fromkeys(("around", "array_split", "diff", "repeat", "round", "split"), _repeated),
    "arange": lambda a, b=0, step=1, dtype=None: abs(float(b) - float(a)) / abs(float(step)),
    "broadcast_to": lambda a, shape: _product(shape),
    "einsum": _contracted,
    "linalg.norm": lambda x, *_, **__: np.size(x) * max(64, *np.shape(x), 1),
    "linspace": lambda a, b, num=50, *_, **__: abs(float(num)) * np.size(a) * np.size(b),
    "pad": _padded,
    "take": lambda a, at, axis=None: _indexed(
        np.ravel(a) if axis is None else np.moveaxis(a, axis, 0), [np.asarray(at)]
    ),
    "tile": lambda a, reps: _product(reps) * np.size(a),
    "where": lambda condition, *values: _broadcast(condition, *values) * max(1, np.ndim(condition)),
}
