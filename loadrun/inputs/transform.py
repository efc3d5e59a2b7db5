"""The input_transform expression: a small language in Python's syntax, on one array and numpy.

An expression is never handed to Python: its syntax tree is checked against lists of what is allowed, then evaluated
by `transform_evaluation`, which bounds memory and time.
"""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from typing import NoReturn

import numpy as np

from ..base.errors import InputError, SpecError
from ..graph.dtypes import Array
from ..inputspec import point
from .transform_evaluation import (
    BUILTINS,
    CONSTANTS,
    MAX_BITS,
    NUMBERS,
    OPERATORS,
    Evaluation,
    is_linalg,
    is_np,
    kind_of,
    parameters_of,
)

__all__ = ["FUNCTIONS", "METHODS", "TransformExpression"]

_MAX_TEXT, _MAX_DEPTH = 1000, 60
_FUNCTION = """
    abs absolute add all amax amin any arange arccos arcsin arctan arctan2 argmax argmin argsort around
    array array_split ascontiguousarray asarray average bitwise_and bitwise_or bitwise_xor broadcast_to cbrt
    ceil clip concatenate copy cos cosh count_nonzero cumprod cumsum diff divide dot dstack einsum equal exp
    exp2 expand_dims expm1 eye fabs fix flip fliplr flipud floor floor_divide fmax fmin fmod full full_like
    greater greater_equal hstack hypot invert isfinite isinf isnan less less_equal linspace log log10 log1p
    log2 logical_and logical_not logical_or logical_xor matmul max maximum mean median min minimum mod
    moveaxis multiply nan_to_num nanmax nanmean nanmin nanstd nansum negative not_equal ones ones_like pad
    percentile positive power prod ptp quantile ravel reciprocal remainder repeat reshape rint roll rot90
    round sign sin sinh sort split sqrt square squeeze stack std subtract sum swapaxes take tan tanh tile
    transpose true_divide trunc var vstack where zeros zeros_like
"""
_METHOD = """
    all any argmax argmin argsort astype clip copy cumprod cumsum dot flatten max mean min prod ravel repeat
    reshape round squeeze std sum swapaxes take transpose var
"""
_KEYWORD = """
    a_max a_min max min n ord indices_or_sections arr axes axis axis1 axis2 constant_values copy ddof
    decimals destination dtype endpoint fill_value k keepdims mode N M num obj offset pad_width q repeats
    reps shape shift source start step stop values
"""
FUNCTIONS = frozenset(_FUNCTION.split())
"""Names of numpy that can be called; each is an ordinary function of arrays that touches no file."""
METHODS = frozenset(_METHOD.split())
"""Methods of arrays that can be called."""
_KEYWORDS = frozenset(_KEYWORD.split())
_ATTRIBUTES = ("shape", "ndim", "size", "dtype", "T")
_STRINGS = re.compile(
    rf"{'|'.join(NUMBERS)}|bool|float|int|[<>=|]?(f[248]|[iu][1248])|\?|constant|edge|reflect|symmetric|wrap"
)
_SUBSCRIPTS = re.compile(r"[a-zA-Z, ]+(-> *[a-zA-Z ]*)?")
_NODE = """
    BinOp UnaryOp BoolOp IfExp Subscript Slice Tuple List Compare Lambda ListComp GeneratorExp arguments arg
    comprehension expr_context operator unaryop boolop cmpop
"""
_NODES = tuple(getattr(ast, name) for name in _NODE.split())
_REFUSED = {"NamedExpr": "an assignment", "Starred": "a starred argument", "JoinedStr": "a formatted text"}


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
        self._check(self._tree, frozenset(["data", *BUILTINS]), 0)

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
            result = Evaluation(self._failure, seen).value(self._tree, {"data": seen})
        if not isinstance(result, np.ndarray):
            raise InputError(str(self.error(f"the expression results in {kind_of(result)}, not an array")))
        return np.ascontiguousarray(result) if result.flags.writeable else result.copy()

    def __repr__(self) -> str:
        return f"TransformExpression({self.text!r})"

    def error(self, message: str, at: int = 0) -> SpecError:
        """Make a message with the expression below it and a caret under one place."""
        return SpecError(point(f"input_transform: {message}", self.text, at))

    def _failure(self, message: str, node: ast.AST) -> InputError:
        return InputError(str(self.error(message, self.at(node))))

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

    def _check(self, node: ast.AST, names: frozenset[str], depth: int) -> None:
        if depth > _MAX_DEPTH:
            self._refuse(node, f"the expression is nested more than {_MAX_DEPTH} deep")
        if isinstance(node, ast.Call):
            self._check_call(node, names, depth)
            return
        if isinstance(node, ast.Name):
            self._check_name(node, names)
        elif isinstance(node, ast.Constant):
            self._check_constant(node)
        elif isinstance(node, ast.Attribute):
            self._check_attribute(node)
            if is_np(node.value):
                return
        elif not isinstance(node, _NODES):
            kind = type(node).__name__
            self._refuse(
                node, f"{_REFUSED.get(kind, kind)} is refused; only arithmetic on data and np is allowed"
            )
        if isinstance(node, ast.Compare) and (len(node.ops) > 1 or type(node.ops[0]) not in OPERATORS):
            self._refuse(node, "only one comparison by < <= == != >= > at a time is allowed")
        names = names | self._bound(node)
        for child in ast.iter_child_nodes(node):
            self._check(child, names, depth + isinstance(child, ast.expr))

    def _bound(self, node: ast.AST) -> frozenset[str]:
        """Return the names that a function or a comprehension binds."""
        names: list[str] = []
        if isinstance(node, ast.Lambda):
            if node.args.vararg or node.args.kwarg or node.args.kwonlyargs:
                self._refuse(node, "a function takes its values by place")
            names = parameters_of(node)
        elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            targets = [t for part in node.generators for t in ast.walk(part.target)]
            if any(not isinstance(t, (ast.Name, ast.Tuple, ast.Store)) for t in targets):
                self._refuse(node, "a comprehension gives its values to names")
            if any(part.is_async for part in node.generators):
                self._refuse(node, "async is refused")
            names = [t.id for t in targets if isinstance(t, ast.Name)]
        if "np" in names:
            self._refuse(node, "np stands for numpy alone")
        return frozenset(names)

    def _check_name(self, node: ast.Name, names: frozenset[str]) -> None:
        if node.id == "np":
            self._refuse(node, "np alone is not a value")
        if node.id not in names:
            hint = f" (np.{node.id} is allowed)" if node.id in FUNCTIONS else ""
            allowed = ", ".join(BUILTINS)
            self._refuse(node, f"unknown name {node.id!r}: an expression sees data, np, {allowed}{hint}")

    def _check_constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, str) and not _STRINGS.fullmatch(value):
            self._refuse(node, f"the text {value!r:.40} is neither a dtype nor a padding mode")
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            self._refuse(node, "this number is too large")
        if isinstance(value, (bytes, complex)):
            self._refuse(node, f"{type(value).__name__} values are refused")

    def _check_attribute(self, node: ast.Attribute) -> None:
        name = node.attr
        self._check_underscore(node)
        if is_np(node.value):
            if name in FUNCTIONS:
                self._refuse(node, f"np.{name} is a function; call it")
            if name not in CONSTANTS and name not in NUMBERS:
                self._refuse(node, f"np.{name} is not among the numpy names allowed here")
        elif name not in _ATTRIBUTES:
            what = "is a method; call it" if name in METHODS else "is not among the attributes allowed here"
            self._refuse(node, f".{name} {what}")

    def _check_underscore(self, node: ast.Attribute) -> None:
        if node.attr.startswith("_"):
            self._refuse(node, f".{node.attr}: names that start with an underscore are refused")

    def _check_call(self, node: ast.Call, names: frozenset[str], depth: int) -> None:
        """Check what is called, and what it is given."""
        func, args = node.func, list(node.args)
        if isinstance(func, ast.Attribute):
            self._check_callee(func)
            if func.attr == "einsum" and args and _is_subscripts(args[0]):
                args.pop(0)
            if not is_np(func.value) and not is_linalg(func.value):
                self._check(func.value, names, depth + 1)
        elif not isinstance(func, (ast.Name, ast.Lambda, ast.Call)):
            self._refuse(node, "only functions and array methods can be called")
        else:
            self._check(func, names, depth + 1)
        for argument in node.keywords:
            if argument.arg not in _KEYWORDS:
                self._refuse(node, f"the argument {argument.arg or '**'} is not allowed here")
        for value in (*args, *(k.value for k in node.keywords)):
            self._check(value, names, depth + 1)

    def _check_callee(self, func: ast.Attribute) -> None:
        self._check_underscore(func)
        if is_linalg(func.value):
            if func.attr != "norm":
                self._refuse(func, f"np.linalg.{func.attr} is not among the numpy functions allowed here")
        elif is_np(func.value):
            if func.attr not in FUNCTIONS and func.attr not in NUMBERS:
                self._refuse(func, f"np.{func.attr} is not among the numpy functions allowed here")
        elif func.attr not in METHODS:
            self._refuse(func, f".{func.attr} is not among the array methods allowed here")


def _is_subscripts(node: ast.AST) -> bool:
    """Return whether a node is a text such as ``'ij,jk->ik'``."""
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, str) and bool(_SUBSCRIPTS.fullmatch(value))
