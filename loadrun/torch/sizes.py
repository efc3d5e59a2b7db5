"""Python's arithmetic on sizes, which exported graphs hold as calls, and the assertions about them."""

import math
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import torch

from ..tensors import Tensor, TracedInt, TracedNumber, largest, least
from ..tensors.access import dtype_of, variable_of
from ..tensors.symbolic import as_number, not_fixed
from .call import FxCall, as_array, as_tensor
from .registry import UnsupportedCallError


def as_size(value: Any) -> Any:
    """Convert a 0-d integer tensor to a symbolic size; numbers stay."""
    return as_number(as_tensor(value, "int32")) if isinstance(value, Tensor) else value


def open_scalars(call: FxCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return arguments whose scalars, where sizes or data decide them, are refused to a lowering that fixes them.

    Raises:
        DynamicSizeError: in the lowering, later.
    """
    schema = getattr(call.node.target, "_schema", None)
    types = {a.name: str(a.type) for a in schema.arguments} if schema is not None else {}

    def opened(name: str, value: Any) -> Any:
        if not any(kind in types.get(name, "") for kind in ("number", "float")):
            return value
        if isinstance(value, Tensor) and variable_of(value) is not None:
            value = as_number(value)
        if not isinstance(value, TracedNumber):
            return value
        return not_fixed(value, lambda: call.static([value], f"the number {name!r}"))

    positional = tuple(map(opened, types, args)) + tuple(args[len(types) :])
    return positional, {name: opened(name, value) for name, value in kwargs.items()}


def _extreme(choose: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def apply(a: Any, b: Any) -> Any:
        if isinstance(a, Tensor) or isinstance(b, Tensor):
            return (np.maximum if choose is max else np.minimum)(*_floats(a, b))
        if not _followed(a, b):
            return choose(a, b)
        return largest(a, b) if choose is max else least(a, b)

    return apply


def _floats(*values: Any) -> list[Any]:
    return [as_array(v, "float32") for v in values]


def _followed(*values: Any) -> bool:
    return any(isinstance(v, (TracedNumber, Tensor)) for v in values)


def _fractional(function: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an operation whose result is not an integer: a 0-d float tensor for symbolic sizes."""

    def apply(*values: Any) -> Any:
        return function(*_floats(*values)) if _followed(*values) else plain(*values)

    return apply


def _rounding(function: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap rounding to a size."""

    def apply(value: Any) -> Any:
        if isinstance(value, TracedInt):
            return value
        return as_size(function(as_array(value, "float32"))) if isinstance(value, Tensor) else plain(value)

    return apply


def _rounded(value: Any, digits: int | None = None) -> Any:
    if digits is None:
        return _rounding(np.rint, round)(value)
    if _followed(value):
        # In single precision halves are others than in Python.
        raise TypeError("a number from sizes is rounded to digits")
    return round(value, digits)


def _either(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap arithmetic that sizes do themselves, and 0-d float tensors as arrays."""

    def apply(*values: Any) -> Any:
        fractions = any(isinstance(v, float) for v in values) and _followed(*values)
        if fractions or any(isinstance(v, Tensor) for v in values):
            return plain(*_floats(*values))
        return plain(*values)

    return apply


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, TracedInt) and type(exponent) is int and exponent >= 1:
        product = base
        for _ in range(exponent - 1):
            product = product * base
        return product
    return _fractional(np.power, pow)(base, exponent)


def _total(first: Any, *values: Any) -> Any:
    """Add sizes, given one by one or as a list."""
    return reduce(_either(operator.add), values, first) if values else reduce(_either(operator.add), first)


def _comparison(plain: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Wrap a comparison of sizes: the traced answer if both are numbers, else a value of the graph."""

    def apply(a: Any, b: Any) -> Any:
        if not _followed(a, b):
            return plain(a, b)
        whole = not any(dtype_of(as_tensor(v)).is_float for v in (a, b))
        return plain(as_array(a), as_array(b)) if whole else plain(*_floats(a, b))

    return apply


def _flag(plain: Callable[..., Any], traced: Callable[..., Any]) -> Callable[..., Any]:
    def apply(*values: Any) -> Any:
        if any(isinstance(v, Tensor) for v in values):
            return traced(*[as_array(v, "bool") for v in values])
        return plain(*values)

    return apply


def _nothing(*_: Any, **__: Any) -> None:
    """Ignore assertions, which have no values."""


def _choice(condition: Any, a: Any, b: Any) -> Any:
    if not isinstance(condition, Tensor):
        return a if condition else b
    return np.where(as_array(condition, "bool"), *_floats(a, b))


_OPERATORS: dict[Any, Callable[..., Any]] = {
    **{f: _either(f) for n in "add sub mul floordiv mod neg abs".split() for f in [getattr(operator, n)]},
    operator.pos: lambda x: x,
    operator.truediv: _fractional(np.true_divide, operator.truediv),
    operator.pow: _power,
    pow: _power,
    **{f: _comparison(f) for n in "eq ne lt le gt ge".split() for f in [getattr(operator, n)]},
    operator.and_: _flag(operator.and_, np.logical_and),
    operator.or_: _flag(operator.or_, np.logical_or),
    **{f: _rounding(getattr(np, f.__name__), f) for f in (math.floor, math.ceil, math.trunc)},
    round: _rounded,
    torch.sym_max: _extreme(max),
    torch.sym_min: _extreme(min),
    torch.sym_float: lambda x: as_array(x, "float32") if _followed(x) else float(x),
    torch.sym_int: _rounding(np.trunc, int),
    torch.sym_not: _flag(operator.not_, np.logical_not),
    torch.sym_ite: _choice,
    torch._sym_sqrt: _fractional(np.sqrt, math.sqrt),
}
_CHECKS = """
_assert_scalar _assert_async _assert_tensor_metadata sym_constrain_range sym_constrain_range_for_size
_functional_assert_scalar _functional_assert_async _check
"""
_BY_NAME = {"sym_sum": _total, **dict.fromkeys(_CHECKS.split(), _nothing)}


def _short_name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name.partition("::")[2]
    return getattr(target, "__name__", "")


def is_size_operator(target: Any) -> bool:
    """Return whether a call is Python's arithmetic on sizes, picks one of several results, or only asserts."""
    if target is operator.getitem or _short_name(target) in _BY_NAME:
        return True
    try:
        return target in _OPERATORS
    except TypeError:
        return False


def without_checks(graph: Any) -> None:
    """Remove assertions from a graph, and the sizes and offsets in memory that only they read."""
    for node in reversed([*graph.nodes]):
        name = _short_name(node.target)
        checks = _BY_NAME.get(name) is _nothing or name.startswith("sym_") or node.target in _OPERATORS
        if node.op == "call_function" and checks and not node.users:
            graph.erase_node(node)


def computed(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute the result of a call on sizes.

    Raises:
        UnsupportedCallError: it does not take a symbolic size.
    """
    if target is operator.getitem:
        return args[0][args[1]]
    function = _OPERATORS.get(target) or _BY_NAME[_short_name(target)]
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        raise UnsupportedCallError(f"arithmetic on sizes: {error}") from error
