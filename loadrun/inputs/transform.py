"""The input_transform expression: Python with kinds of nodes and names from a list, and a guard around each operation.

The tree is checked, then its operations become calls of `_Guards`, which know the values and bound what an operation
costs before it runs, then it is compiled. Values are numbers, arrays of numbers, lists and tuples of them, types and
functions of the expression; no attribute, method or function beside those listed can be reached.
"""

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable, Sequence
from functools import reduce
from types import FunctionType
from typing import Any, NoReturn

import numpy as np

from ..base.errors import InputError, SpecError
from ..graph.dtypes import Array
from ..inputspec import point
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
_KEYWORD = """
    a_max a_min axes axis axis1 axis2 constant_values copy ddof decimals dtype endpoint k keepdims max min mode num ord
"""
_KEYWORDS = frozenset(_KEYWORD.split())
FUNCTIONS = frozenset(_FUNCTION.split())
"""Names of numpy that can be called; each is an ordinary function of arrays that touches no file."""
METHODS = frozenset(_METHOD.split())
"""Methods of arrays that can be called."""
_ATTRIBUTES = ("shape", "ndim", "size", "dtype", "T")
_TYPES = frozenset([bool, float, int, *(getattr(np, name) for name in _FUNCTION.split()[-12:])])
_CONSTANTS = {f"np.{name}": getattr(np, name) for name in ("pi", "e", "inf", "nan", "newaxis")}
_CONSTANTS |= {f"np.{t.__name__}": t for t in _TYPES if t.__module__ == "numpy"} | {"np.bool_": np.bool_}
_BUILTINS = {
    f.__name__: f
    for f in (abs, bool, enumerate, float, int, len, list, max, min, range, round, sum, tuple, zip)
}
_OPERATOR = """
    Add:add Sub:sub Mult:mul Div:truediv FloorDiv:floordiv Mod:mod Pow:pow MatMult:matmul LShift:lshift RShift:rshift
    BitAnd:and_ BitOr:or_ BitXor:xor UAdd:pos USub:neg Invert:invert Not:not_ Eq:eq NotEq:ne Lt:lt LtE:le Gt:gt GtE:ge
"""
_OPERATORS = {k: getattr(operator, v) for k, v in (pair.split(":") for pair in _OPERATOR.split())}
_NODE = """
    Attribute BinOp BoolOp Call Compare Constant GeneratorExp IfExp Lambda List ListComp Name Slice Subscript Tuple
    UnaryOp arg arguments boolop cmpop comprehension expr_context operator unaryop
"""
_NODES = tuple(getattr(ast, name) for name in _NODE.split())
_TEXTS = {"astype": 0, "einsum": 0, "full": 2, "pad": 2} | dict.fromkeys(
    ("array", "asarray", "zeros", "ones"), 1
)
"""The place of the argument of a call that may be a text; any text may be a `dtype` or `mode`."""
_TEXT = re.compile(
    r"float(16|32|64)?|u?int(8|16|32|64)|int|bool_?|[<>=|]?(f[248]|[iu][1248])|\?|constant|edge|reflect|symmetric|wrap"
)
_OF_NUMPY = re.compile(r"np(\.\w+)+")
_SUBSCRIPTS = re.compile(r"[a-zA-Z, ]+(-> *[a-zA-Z ]*)?")
_MAX_TEXT, _MAX_LIST, _MAX_BITS, _MAX_DIGITS = 1000, 1000, 63, 100
_ELEMENTS, _ELEMENTS_A_NUMBER, _STEP = 2**26, 64, 512
"""Elements that all results together may have, how many more for each number of the data, and what a step counts as."""
_FAILURES = (
    *(ValueError, TypeError, LookupError, ArithmeticError, AttributeError, NameError),
    *(MemoryError, RecursionError),
)
_FILE = "<input_transform>"


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
            tree = _Guarded(self).guarded(ast.parse(self.text, mode="eval"))
            self._code = compile(tree, _FILE, "eval")
        except SyntaxError as e:
            raise self.error(f"this is not an expression: {e.msg}", max(0, (e.offset or 1) - 1)) from None
        except SpecError:
            raise
        except (ValueError, MemoryError, RecursionError) as e:
            raise self.error(f"this is not an expression: {e or type(e).__name__}") from None

    def __call__(self, data: Array) -> Array:
        """Apply the expression.

        Returns:
            an array of numbers or booleans; its values are not checked.

        Raises:
            InputError: numpy refuses an operation, a result is too large, or the result is not an array.
        """
        seen = np.asarray(data).view()
        seen.flags.writeable = False
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                result = eval(self._code, _Guards(seen).names())
            except _FAILURES as e:
                at, trace = 0, e.__traceback__
                while trace is not None:
                    at = trace.tb_lineno - 1 if trace.tb_frame.f_code.co_filename == _FILE else at
                    trace = trace.tb_next
                raise InputError(str(self.error(str(e).strip()[:200] or type(e).__name__, at))) from None
        if not isinstance(result, np.ndarray):
            raise InputError(str(self.error(f"the expression results in {_kind(result)}, not an array")))
        return np.ascontiguousarray(result) if result.flags.writeable else result.copy()

    def __repr__(self) -> str:
        return f"TransformExpression({self.text!r})"

    def error(self, message: str, offset: int = 0) -> SpecError:
        """Make a message with the expression below it and a caret at an offset in its bytes."""
        at = len(self.text.encode(errors="replace")[:offset].decode(errors="ignore"))
        return SpecError(point(f"input_transform: {message}", self.text, at))


class _Guarded(ast.NodeTransformer):
    """Checks a tree, and puts calls of guards in place of its operations; the names of guards are no identifiers."""

    def __init__(self, expression: TransformExpression) -> None:
        self.expression = expression
        self.known = {"data", *_BUILTINS}

    def guarded(self, tree: ast.Expression) -> ast.Expression:
        for node in ast.walk(tree):
            name = node.arg if isinstance(node, ast.arg) else ""
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            if name == "np" or name.startswith("__"):
                self.refuse(node, f"{name} is not a name for a value")
            self.known.add(name)
        tree = ast.fix_missing_locations(ast.Expression(self.visit(tree.body)))
        for node in ast.walk(tree):
            if isinstance(
                node, (ast.expr, ast.arg)
            ):  # so that the line in a traceback is the place in the text
                node.lineno = node.end_lineno = node.col_offset + 1
                node.col_offset = node.end_col_offset = 0
        return tree

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        offset = getattr(node, "col_offset", 0)
        if isinstance(node, ast.Attribute):
            offset = (node.end_col_offset or 0) - len(node.attr.encode())
        raise self.expression.error(message, offset)

    def visit(self, node: ast.AST) -> Any:  # noqa: ANN401 - as the base class has it
        if not isinstance(node, _NODES):
            self.refuse(node, f"{type(node).__name__} is refused; only arithmetic on data and np is allowed")
        return super().visit(node)

    def guard(self, node: ast.AST, name: str, *args: Any, keywords: Sequence[ast.keyword] = ()) -> ast.Call:
        values = [a if isinstance(a, ast.expr) else ast.Constant(a) for a in args]
        return ast.copy_location(ast.Call(ast.Name(f"{name}()", ast.Load()), values, list(keywords)), node)

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id == "np":
            self.refuse(node, "np alone is not a value")
        if node.id not in self.known:
            hint = f" (np.{node.id} is allowed)" if node.id in FUNCTIONS else ""
            allowed = ", ".join(_BUILTINS)
            self.refuse(node, f"unknown name {node.id!r}: an expression sees data, np, {allowed}{hint}")
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, int) and node.value.bit_length() > _MAX_BITS:
            self.refuse(node, "this number is too large")
        if isinstance(node.value, (bytes, complex)):
            self.refuse(node, f"{type(node.value).__name__} values are refused")
        if isinstance(node.value, str):
            self.refuse(node, "a text can only be the dtype or the padding mode of a call")
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.Call:
        return self.operation(node, node.op, node.left, node.right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.Call:
        return self.operation(node, node.op, node.operand)

    def visit_Compare(self, node: ast.Compare) -> ast.Call:
        if len(node.ops) > 1:
            self.refuse(node, "only one comparison at a time is allowed")
        return self.operation(node, node.ops[0], node.left, node.comparators[0])

    def operation(self, node: ast.expr, op: ast.AST, *values: ast.expr) -> ast.Call:
        if type(op).__name__ not in _OPERATORS:
            self.refuse(node, f"{type(op).__name__} is refused; values are compared by < <= == != >= >")
        return self.guard(node, "operation", type(op).__name__, *map(self.visit, values))

    def visit_Subscript(self, node: ast.Subscript) -> ast.Call:
        return self.guard(node, "item", self.visit(node.value), self.visit(node.slice))

    def visit_Slice(self, node: ast.Slice) -> ast.Call:
        return self.guard(node, "slice", *(n and self.visit(n) for n in (node.lower, node.upper, node.step)))

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        if node.args.vararg or node.args.kwarg or node.args.kwonlyargs:
            self.refuse(node, "a function takes its values by place")
        return self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp | ast.GeneratorExp) -> ast.AST:
        for part in node.generators:
            targets = [t for t in ast.walk(part.target) if not isinstance(t, ast.expr_context)]
            if part.is_async or not all(isinstance(t, (ast.Name, ast.Tuple)) for t in targets):
                self.refuse(node, "a comprehension gives its values to names")
            part.ifs, part.iter = (
                [self.visit(n) for n in part.ifs],
                self.guard(part.iter, "each", self.visit(part.iter)),
            )
        return ast.copy_location(ast.ListComp(self.visit(node.elt), node.generators), node)

    visit_GeneratorExp = visit_ListComp

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        name = ast.unparse(node)
        if name in _CONSTANTS:
            return ast.copy_location(ast.Name(name, ast.Load()), node)
        if _OF_NUMPY.fullmatch(name):
            self.refuse(node, f"{name} is not among the numpy names allowed here")
        if node.attr not in _ATTRIBUTES:
            self.refuse(node, f".{node.attr} is not among the attributes allowed here")
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        func, name = node.func, ast.unparse(node.func)
        called: tuple[Any, ...]
        if not isinstance(func, ast.Attribute):
            called, name = ("call", self.visit(func)), ""
        elif _OF_NUMPY.fullmatch(name):
            called, name = ("numpy", name[3:]), name[3:]
            if name not in FUNCTIONS:
                self.refuse(func, f"np.{name} is not among the numpy functions allowed here")
        else:
            if func.attr not in METHODS:
                self.refuse(func, f".{func.attr} is not among the array methods allowed here")
            called, name = ("method", self.visit(func.value), func.attr), func.attr
        for k in node.keywords:
            if k.arg not in _KEYWORDS or not name:
                self.refuse(node, f"the argument {k.arg or '**'} is not allowed here")
            k.value = self.argument(k.value, name, k.arg in ("dtype", "mode"))
        args = [self.argument(a, name, i == _TEXTS.get(name)) for i, a in enumerate(node.args)]
        return self.guard(node, *called, *args, keywords=node.keywords)

    def argument(self, node: ast.expr, name: str, may_be_text: bool) -> ast.expr:
        value = node.value if isinstance(node, ast.Constant) and may_be_text else None
        if not isinstance(value, str):
            return self.visit(node)
        if not (_SUBSCRIPTS if name == "einsum" else _TEXT).fullmatch(value):
            self.refuse(node, f"the text {value!r:.40} is neither a dtype nor a padding mode")
        return node


class _Guards:
    """What does the operations of one application of an expression, each paid for before it is done."""

    def __init__(self, data: Array) -> None:
        self.data, self.left = data, _ELEMENTS + _ELEMENTS_A_NUMBER * data.size

    def names(self) -> dict[str, Any]:
        """Return all that the compiled expression sees."""
        guards = (self.operation, self.item, self.each, self.call, self.numpy, self.method)
        helpers = {f"{g.__name__}()": g for g in (*guards, slice)}
        return {"__builtins__": {}, "data": self.data, **_BUILTINS, **_CONSTANTS, **helpers}

    def spend(self, elements: int) -> None:
        self.left -= _STEP + elements
        if self.left < 0:
            raise ValueError("the expression takes too many operations, or too large results, for the data")

    def item(self, value: Any, index: Any) -> object:  # noqa: ANN401 - any value of the language
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
        function, numbers = _OPERATORS[op], (int, float, np.generic, np.ndarray)
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
            if (bits * abs(by) if op == "Pow" else bits + by) > _MAX_BITS:
                raise ValueError("this number is too large")
        self.pay("matmul" if op == "MatMult" else "add", values, {})
        return _sane(function(*values))

    def call(self, called: Any, *args: Any) -> object:  # noqa: ANN401 - any value of the language
        """Call a function of the expression or one of Python's."""
        self.spend(4 * _STEP)
        if isinstance(called, FunctionType):
            return called(*args)
        if not any(called is f for f in _BUILTINS.values()):
            raise TypeError(f"{_kind(called)} cannot be called")
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
        array = _array(value, f".{name}")
        if name == "clip":
            limits = [named.pop("min", None), named.pop("max", None)]
            limits[: len(args)] = args
            return self.numpy(name, array, *limits, **named)
        self.pay(name, (array, *args), named)
        return _sane(getattr(array, name)(*args, **named))

    def numpy(self, name: str, /, *args: Any, **named: Any) -> object:
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
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise ValueError("this number is too large")
    elif isinstance(value, complex):
        raise TypeError("complex values are refused")
    return value


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__.strip('_').lower()}"


def _array(value: object, what: str) -> Array | np.generic:
    """Return a value that something is asked of which only arrays have."""
    if not isinstance(value, (np.ndarray, np.generic)):
        raise TypeError(f"{_kind(value)} has no {what}")
    return value


# What calls cost whose results are larger than their arguments, or that repeat something.


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
