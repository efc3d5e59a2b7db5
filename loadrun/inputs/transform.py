"""The input_transform expression: Python with kinds of nodes and names from a list, and a guard around each operation.

The tree is checked, then its operations become calls of `Guards`, which know the values and bound what an operation
costs before it runs, then it is compiled. Values are numbers, arrays of numbers, lists and tuples of them, types and
functions of the expression; no attribute, method or function beside those listed can be reached.
"""

import ast
import re
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ..base.errors import InputError, SpecError
from ..base.pointing import point
from ..graph.dtypes import Array
from .guards import BUILTINS, CONSTANTS, FUNCTIONS, MAX_BITS, METHODS, OPERATORS, Guards, kind_of

_KEYWORD = """
    a_max a_min axes axis axis1 axis2 constant_values copy ddof decimals dtype endpoint k keepdims max min mode num ord
"""
_KEYWORDS = frozenset(_KEYWORD.split())
_ATTRIBUTES = ("shape", "ndim", "size", "dtype", "T")
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
_MAX_TEXT = 1000
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
                result = eval(self._code, Guards(seen).names())
            except _FAILURES as e:
                at, trace = 0, e.__traceback__
                while trace is not None:
                    at = trace.tb_lineno - 1 if trace.tb_frame.f_code.co_filename == _FILE else at
                    trace = trace.tb_next
                raise InputError(str(self.error(str(e).strip()[:200] or type(e).__name__, at))) from None
        if not isinstance(result, np.ndarray):
            raise InputError(str(self.error(f"the expression results in {kind_of(result)}, not an array")))
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
        self.known = {"data", *BUILTINS}

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
            ):  # so that the line of a traceback is the place in the text
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
            allowed = ", ".join(BUILTINS)
            self.refuse(node, f"unknown name {node.id!r}: an expression sees data, np, {allowed}{hint}")
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, int) and node.value.bit_length() > MAX_BITS:
            self.refuse(node, "this number is too large")
        if isinstance(node.value, (bytes, complex)):
            self.refuse(node, f"{type(node.value).__name__} values are refused")
        if isinstance(node.value, str):
            self.refuse(node, "a text can only be the dtype or the padding mode of a call")
        return node

    def visit_BinOp(self, node: ast.expr) -> ast.AST:
        parts = list(ast.iter_child_nodes(node))
        op, *others = [n for n in parts if isinstance(n, (ast.operator, ast.unaryop, ast.cmpop))]
        if isinstance(op, ast.Not):
            return self.generic_visit(node)
        if others:
            self.refuse(node, "only one comparison at a time is allowed")
        if type(op).__name__ not in OPERATORS:
            self.refuse(node, f"{type(op).__name__} is refused; values are compared by < <= == != >= >")
        return self.guard(
            node, "operation", type(op).__name__, *(self.visit(n) for n in parts if n is not op)
        )

    visit_UnaryOp = visit_Compare = visit_BinOp

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
        if name in CONSTANTS:
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
