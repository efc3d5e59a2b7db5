"""The input_transform expression: numpy arithmetic on one array, checked first and then interpreted.

An expression sees ``data`` and ``np``. It is never handed to Python for execution: its syntax tree is walked by an
interpreter that knows arithmetic, indexing, and the numpy functions and array methods of the tables here. What is
not in the tables is refused before anything runs, and every result's size is known before memory is taken for it.
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from ..base.errors import InputError, SpecError
from ..graph.dtypes import Array
from ..inputspec import point
from .numpy1 import as_numpy_1
from .transform_sizes import FUNCTIONS, MAX_ELEMENTS, METHODS, NUMBERS, Budget, bound, index_bound, total

__all__ = ["TransformExpression"]

_MAX_TEXT = 1000
_MAX_DEPTH = 60
_MAX_BITS = 256
_MAX_LIST = 1000
_CONSTANTS = {"pi": np.pi, "e": np.e, "inf": np.inf, "nan": np.nan, "newaxis": None}
_DTYPES = frozenset(NUMBERS)
_BUILTINS: dict[str, Callable[[Any], Any]] = {"abs": abs, "float": float, "int": int, "len": len}
"""Python functions of one value that an expression may call."""
_ATTRIBUTES = ("shape", "ndim", "size", "dtype", "T")
_KEYWORDS = frozenset(
    [
        "a_max",
        "a_min",
        "max",
        "min",
        "n",
        "ord",
        "indices_or_sections",
        "arr",
        "axes",
        "axis",
        "axis1",
        "axis2",
        "constant_values",
        "copy",
        "ddof",
        "decimals",
    ]
    + [
        "destination",
        "dtype",
        "endpoint",
        "fill_value",
        "k",
        "keepdims",
        "mode",
        "N",
        "M",
        "num",
        "obj",
        "offset",
    ]
    + ["pad_width", "q", "repeats", "reps", "shape", "shift", "source", "start", "step", "stop", "values"]
)
_ORDERED = re.compile(r"[<>=|][biuf][1248]\Z")
_SUBSCRIPTS = re.compile(r"[a-zA-Z, ]+(-> *[a-zA-Z ]*)?\Z")
_STRINGS = frozenset(
    [*NUMBERS, "bool", "float", "int", "f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
    + ["constant", "edge", "reflect", "symmetric", "wrap"]
)
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_REFUSED = {
    ast.Lambda: "functions",
    ast.ListComp: "comprehensions",
    ast.SetComp: "comprehensions",
    ast.DictComp: "comprehensions",
    ast.GeneratorExp: "comprehensions",
    ast.NamedExpr: "assignments",
    ast.Starred: "starred arguments",
    ast.JoinedStr: "formatted texts",
    ast.Dict: "dictionaries",
    ast.Set: "sets",
}
_FAILURES = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, MemoryError, RecursionError)


class TransformExpression:
    """A checked expression; calling it applies it to an array.

    Args:
        text: the expression.

    Raises:
        SpecError: it is not an expression, or uses something else than ``data``, ``np`` and the names allowed of them;
            the message shows it with a caret under the fault.

    >>> TransformExpression("data.astype('float32') / 255 - np.array([0.5])")(np.array([0, 255], "u1")).tolist()
    [-0.5, 0.5]
    >>> TransformExpression("np.load('x.npy')")
    Traceback (most recent call last):
    loadrun.base.errors.SpecError: input_transform: np.load is not among the numpy functions allowed here
      np.load('x.npy')
         ^
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise SpecError(
                f"input_transform: expected an expression as a string, found {type(text).__name__}"
            )
        self.text = text.strip().replace("\n", " ")
        if len(self.text) > _MAX_TEXT:
            raise SpecError(f"input_transform: an expression has at most {_MAX_TEXT} characters")
        word = self.text.split(" ")[0].rstrip(":")
        if word in keyword.kwlist and word not in ("lambda", "not", "None", "True", "False"):
            raise self.error(f"{word!r} starts a statement; only one expression is allowed")
        try:
            self._tree = ast.parse(self.text, mode="eval").body
        except SyntaxError as e:
            raise self.error(f"this is not an expression: {e.msg}", max(0, (e.offset or 1) - 1)) from None
        except (ValueError, MemoryError, RecursionError) as e:
            raise self.error(f"this is not an expression: {e or type(e).__name__}") from None
        self._subscripts: list[ast.AST] = []
        self._check(self._tree, 0)

    def __call__(self, data: Array) -> Array:
        """Apply the expression.

        Returns:
            an array of numbers or booleans; its values are not checked.

        Raises:
            InputError: numpy refuses an operation, a result is too large, or the result is not an array.
        """
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = _Evaluation(self, data).value(self._tree)
        if not isinstance(result, np.ndarray):
            shown = "None" if result is None else f"a {type(result).__name__}"
            raise InputError(str(self.error(f"the expression results in {shown}, not an array")))
        return np.ascontiguousarray(result)

    def __repr__(self) -> str:
        return f"TransformExpression({self.text!r})"

    def error(self, message: str, at: int = 0) -> SpecError:
        """Make a message with the expression below it and a caret under one place."""
        return SpecError(point(f"input_transform: {message}", self.text, at))

    def at(self, node: ast.AST) -> int:
        """Return the position of a node in the text."""
        offset = getattr(node, "col_offset", 0)
        return len(self.text.encode()[:offset].decode(errors="ignore"))

    def _refuse(self, node: ast.AST, message: str) -> NoReturn:
        at = self.at(node)
        if isinstance(node, ast.Attribute):
            at = len(self.text.encode()[: node.end_col_offset].decode(errors="ignore")) - len(node.attr)
        raise self.error(message, at)

    # Checking: every node before anything is evaluated.

    def _check(self, node: ast.AST, depth: int) -> None:
        if depth > _MAX_DEPTH:
            self._refuse(node, f"the expression is nested more than {_MAX_DEPTH} deep")
        for kind, what in _REFUSED.items():
            if isinstance(node, kind):
                self._refuse(node, f"{what} are refused; only arithmetic on data and np is allowed")
        checks: dict[type[ast.AST], Callable[[Any], None]] = {
            ast.Name: self._check_name,
            ast.Attribute: self._check_attribute,
            ast.Constant: self._check_constant,
            ast.Call: self._check_call,
            ast.Compare: self._check_compare,
        }
        if type(node) in checks:
            checks[type(node)](node)
        elif not isinstance(
            node,
            (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.IfExp, ast.Subscript, ast.Slice, ast.Tuple, ast.List),
        ):
            self._refuse(node, f"{type(node).__name__} is refused")
        for child in _children(node):
            self._check(child, depth + 1)

    def _check_name(self, node: ast.Name) -> None:
        if node.id == "np":
            self._refuse(node, "np alone is not a value")
        if node.id != "data":
            hint = f" (np.{node.id} is allowed)" if node.id in FUNCTIONS else ""
            self._refuse(node, f"unknown name {node.id!r}: an expression sees data, np, {_named()}{hint}")

    def _check_attribute(self, node: ast.Attribute) -> None:
        name = node.attr
        self._check_underscore(node)
        if _is_np(node.value):
            if name in FUNCTIONS:
                self._refuse(node, f"np.{name} is a function; call it")
            if name not in _CONSTANTS and name not in _DTYPES:
                self._refuse(node, f"np.{name} is not among the numpy names allowed here")
        elif name not in _ATTRIBUTES:
            what = "is a method; call it" if name in METHODS else "is not among the attributes allowed here"
            self._refuse(node, f".{name} {what}")

    def _check_underscore(self, node: ast.Attribute) -> None:
        if node.attr.startswith("_"):
            self._refuse(node, f".{node.attr}: names that start with an underscore are refused")

    def _check_constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, str) and not (
            value in _STRINGS or _ORDERED.match(value) or node in self._subscripts
        ):
            self._refuse(node, f"the text {value!r:.40} is neither a dtype nor a padding mode")
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            self._refuse(node, "this number is too large")
        if isinstance(value, (bytes, complex)):
            self._refuse(node, f"{type(value).__name__} values are refused")

    def _check_compare(self, node: ast.Compare) -> None:
        if len(node.ops) > 1 or type(node.ops[0]) not in _COMPARE:
            self._refuse(node, "only one comparison by < <= == != >= > at a time is allowed")

    def _check_builtin(self, node: ast.Call, func: ast.Name) -> None:
        if func.id not in _BUILTINS:
            if func.id not in ("data", "np"):
                self._check_name(func)
            self._refuse(node, "only numpy functions and array methods can be called")
        if len(node.args) != 1 or node.keywords:
            self._refuse(node, f"{func.id} takes one value here")

    def _check_call(self, node: ast.Call) -> None:
        func = node.func
        if isinstance(func, ast.Name):
            self._check_builtin(node, func)
            return
        if not isinstance(func, ast.Attribute):
            self._refuse(node, "only numpy functions and array methods can be called")
        self._check_underscore(func)
        if func.attr == "einsum" and node.args and _is_subscripts(node.args[0]):
            self._subscripts.append(node.args[0])
        if _is_linalg(func.value):
            if func.attr != "norm":
                self._refuse(func, f"np.linalg.{func.attr} is not among the numpy functions allowed here")
        elif _is_np(func.value):
            if func.attr not in FUNCTIONS and func.attr not in _DTYPES:
                self._refuse(func, f"np.{func.attr} is not among the numpy functions allowed here")
        elif func.attr not in METHODS:
            self._refuse(func, f".{func.attr} is not among the array methods allowed here")
        for argument in node.keywords:
            if argument.arg not in _KEYWORDS:
                self._refuse(node, f"the argument {argument.arg or '**'} is not allowed here")


def _named() -> str:
    *most, last = _BUILTINS
    return f"{', '.join(most)} and {last}"


class _Evaluation:
    """One application of an expression; the innermost failing operation gets the caret."""

    def __init__(self, expression: TransformExpression, data: Array) -> None:
        self.expression = expression
        self.data = data
        self.budget = Budget(data)

    def value(self, node: ast.AST) -> object:
        """Evaluate a node; while its operands are evaluated, those that are there stay alive."""
        alive = self.budget.alive
        try:
            result = self._evaluate(node)
            _sane(result)
            self.budget.keep(alive, result, new=result is not self.data)
            return result
        except InputError:
            raise
        except _FAILURES as e:
            reason = str(e).strip() or type(e).__name__
            raise InputError(str(self.expression.error(reason[:200], self.expression.at(node)))) from None

    def _evaluate(self, node: ast.AST) -> object:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.data
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, (ast.Tuple, ast.List)):
            items = [self.value(item) for item in node.elts]
            return tuple(items) if isinstance(node, ast.Tuple) else items
        if isinstance(node, ast.Slice):
            parts = (node.lower, node.upper, node.step)
            return slice(*(None if p is None else self.value(p) for p in parts))
        if isinstance(node, (ast.UnaryOp, ast.BinOp, ast.Compare)):
            return self._operation(node)
        if isinstance(node, ast.BoolOp):
            return self._logical(node)
        if isinstance(node, ast.IfExp):
            return self.value(node.body if self.value(node.test) else node.orelse)
        if isinstance(node, ast.Subscript):
            value: Any = self.value(node.value)
            index = self.value(node.slice)
            if isinstance(value, (np.ndarray, np.generic)):
                index_bound(value.shape, index, self.budget)
            return value[index]
        if isinstance(node, ast.Call):
            return self._call(node)
        raise TypeError(f"{type(node).__name__} is refused")

    def _builtin(self, name: str, value: object) -> object:
        bound("where", [value], {}, self.budget)
        return _BUILTINS[name](value)

    def _operation(self, node: ast.UnaryOp | ast.BinOp | ast.Compare) -> object:
        if isinstance(node, ast.UnaryOp):
            return _unary(type(node.op), self.value(node.operand), self.budget)
        if isinstance(node, ast.BinOp):
            return _binary(type(node.op), self.value(node.left), self.value(node.right), self.budget)
        one, two = self.value(node.left), self.value(node.comparators[0])
        bound("where", [one, two], {}, self.budget)
        one, two = as_numpy_1([one, two])
        return _COMPARE[type(node.ops[0])](one, two)

    def _logical(self, node: ast.BoolOp) -> object:
        operand: Any = None
        for item in node.values:
            operand = self.value(item)
            if bool(operand) is isinstance(node.op, ast.Or):
                break
        return operand

    def _attribute(self, node: ast.Attribute) -> object:
        if _is_np(node.value):
            return _CONSTANTS[node.attr] if node.attr in _CONSTANTS else getattr(np, node.attr)
        value = self.value(node.value)
        if not isinstance(value, (np.ndarray, np.generic)):
            raise TypeError(f"a {type(value).__name__} has no .{node.attr}")
        return getattr(value, node.attr)

    def _call(self, node: ast.Call) -> object:
        func = node.func
        if isinstance(func, ast.Name):
            return self._builtin(func.id, self.value(node.args[0]))
        assert isinstance(func, ast.Attribute)
        args: list[Any] = [self.value(a) for a in node.args]
        named: dict[str, Any] = {k.arg or "": self.value(k.value) for k in node.keywords}
        if _is_linalg(func.value):
            bound("norm", args, named, self.budget)
            return np.linalg.norm(*args, **named)
        if _is_np(func.value):
            bound(func.attr, args, named, self.budget)
            if isinstance(getattr(np, func.attr), np.ufunc) or func.attr in ("clip", "where"):
                chosen = 1 if func.attr == "where" else 0
                args[chosen:] = as_numpy_1(args[chosen:])
            return getattr(np, func.attr)(*args, **named)
        value = self.value(func.value)
        if not isinstance(value, (np.ndarray, np.generic)):
            raise TypeError(f"a {type(value).__name__} has no .{func.attr}")
        bound(func.attr, [value, *args], named, self.budget)
        if func.attr == "clip":
            limits = [named.get("min"), named.get("max")]
            limits[: len(args)] = args
            return np.clip(*as_numpy_1([value, *limits]))
        return getattr(value, func.attr)(*args, **named)


def _children(node: ast.AST) -> Iterator[ast.expr]:
    """Return the expressions within a node; what is called was checked with the call, ``np.x`` with the attribute."""
    if isinstance(node, ast.Attribute) and _is_np(node.value):
        return
    for child in ast.iter_child_nodes(node):
        inner: ast.AST = child.value if isinstance(child, ast.keyword) else child
        if isinstance(node, ast.Call) and child is node.func and isinstance(child, ast.Name):
            continue
        if isinstance(node, ast.Call) and child is node.func and isinstance(child, ast.Attribute):
            if _is_np(child.value) or _is_linalg(child.value):
                continue
            inner = child.value
        if isinstance(inner, ast.expr):
            yield inner


def _is_subscripts(node: ast.AST) -> bool:
    """Return whether a node is a text such as ``'ij,jk->ik'``."""
    return (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_SUBSCRIPTS.match(node.value))
    )


def _is_linalg(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "linalg" and _is_np(node.value)


def _is_np(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "np"


def _sane(value: object) -> None:
    """Require a number, an array of numbers, or a tuple, list or slice of such."""
    if isinstance(value, (np.ndarray, np.generic)):
        if value.dtype.kind not in "fiub" or value.dtype.itemsize > 8:
            raise TypeError(f"values of type {value.dtype} are refused")
        if value.size > MAX_ELEMENTS:
            raise ValueError(f"a result of {value.size} elements is too large")
    elif isinstance(value, (tuple, list)):
        if total(value) > MAX_ELEMENTS:
            raise ValueError(f"a list of {total(value)} elements is too large")
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise ValueError("this number is too large")


def _operand(value: object) -> object:
    if not isinstance(value, (int, float, np.ndarray, np.generic)):
        raise TypeError(f"arithmetic takes numbers and arrays, not {type(value).__name__}")
    return value


def _unary(op: type[ast.unaryop], value: object, budget: Budget) -> object:
    bound("where", [value], {}, budget)
    return _UNARY[op](_operand(value))


def _binary(op: type[ast.operator], one: object, two: object, budget: Budget) -> object:
    if op is ast.Mult and isinstance(one, list) and type(two) is int:
        if max(len(one), 1) * two > _MAX_LIST or total(one) * max(two, 0) > MAX_ELEMENTS:
            raise ValueError(f"a list of {len(one) * two} parts is too long")
        return one * two
    if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
        one, two = (
            np.array(v) if isinstance(v, (list, tuple)) and total(v) <= _MAX_LIST else v for v in (one, two)
        )
        _sane(one)
        _sane(two)
    one, two = as_numpy_1([_operand(one), _operand(two)])
    if isinstance(one, int) and isinstance(two, int):
        if op is ast.Pow and one.bit_length() * abs(two) > _MAX_BITS:
            raise ValueError("this number is too large")
        if op is ast.LShift and two > _MAX_BITS:
            raise ValueError("this number is too large")
    bound("matmul" if op is ast.MatMult else "where", [one, two], {}, budget)
    return _BINARY[op](one, two)
