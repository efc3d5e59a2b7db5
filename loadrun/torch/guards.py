"""Conditions on sizes that torch took for granted when it exported a program, as text, as numbers and in the graph.

A branch such as ``if x.shape[0] <= 50`` is decided by the example. Where torch gives something else than the graph at
sizes that break the condition, the graph has to refuse them: a file does not bring torch's own checks.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch

from ..build.layers.sizes import refused_where
from ..tensors import Tensor, largest, least
from ..tensors.convert import TracedInt

__all__ = [
    "Condition",
    "axes_of",
    "breaking",
    "broken",
    "conditions_of",
    "guarded",
    "never_of",
    "read_inputs",
    "refusing",
    "sizes_of",
]

_Size = Callable[[str, int], Any]
_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.And: operator.and_,
    ast.Or: operator.or_,
}
_CALLS: dict[str, tuple[Any, Any]] = {
    "Max": (max, largest),
    "Min": (min, least),
}


@dataclass(frozen=True)
class Condition:
    """A condition on sizes of inputs.

    Args:
        text: as in Python.
        tree: its syntax.
    """

    text: str
    tree: ast.expr

    def holds(self, size: _Size) -> Any:
        """Compute it from sizes, which may be symbolic, of an input by its name and an axis.

        Raises:
            ValueError: it has something else than arithmetic on sizes.
        """
        return _value(self.tree, size)

    def places(self) -> list[tuple[str, int]]:
        """List the sizes that it reads."""
        return [place for node in ast.walk(self.tree) if (place := _place(node)) is not None]

    def numbers(self) -> set[int]:
        """Return the numbers in it."""
        return {n.value for n in ast.walk(self.tree) if isinstance(n, ast.Constant) and type(n.value) is int}


def conditions_of(program: Any) -> list[Condition]:
    """List the conditions of an exported program; those of another form than arithmetic on sizes are left out."""
    conditions: dict[str, Condition] = {}
    for code in getattr(program, "_guards_code", ()):
        tree = ast.parse(code.strip(), mode="eval").body
        condition = Condition(re.sub(r"L\['(\w+)'\]", r"\1", ast.unparse(tree)), tree)
        try:
            condition.holds(lambda *_: 2)
        except ZeroDivisionError:
            pass
        except ValueError:
            continue
        conditions.setdefault(condition.text, condition)
    return [*conditions.values()]


def never_of(number: int, name: str, axis: int) -> Condition:
    """Return the condition that the size of an input's axis is another than a number."""
    tree = ast.parse(f"L[{name!r}].size()[{axis}] != {number}", mode="eval").body
    return Condition(f"{name}.size()[{axis}] != {number}", tree)


def _place(node: ast.AST) -> tuple[str, int] | None:
    """Return name and axis of ``L['x'].size()[0]``; what stands in lists and dicts is named by its path."""
    match node:
        case ast.Subscript(
            value=ast.Call(func=ast.Attribute(value=base, attr="size"), args=[]),
            slice=ast.Constant(value=int(axis)),
        ):
            path = []
            while isinstance(base, ast.Subscript) and isinstance(base.slice, ast.Constant):
                path.append(str(base.slice.value))
                base = base.value
            return "_".join(reversed(path)), axis
    return None


def _value(node: ast.AST, size: _Size) -> Any:
    place = _place(node)
    if place is not None:
        return size(*place)
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, size)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, size), _value(right, size))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, size), _value(right, size))
        case ast.BoolOp(op=op, values=values):
            return reduce(_BINARY[type(op)], [_value(v, size) for v in values])
        case ast.Call(func=ast.Name(id=name), args=args) if name.capitalize() in _CALLS:
            plain, symbolic = _CALLS[name.capitalize()]
            numbers: list[Any] = [_value(a, size) for a in args]
            return reduce(symbolic if TracedInt in map(type, numbers) else plain, numbers)
    raise ValueError(ast.unparse(node))


def breaking(
    condition: Condition, expressions: Mapping[tuple[str, int], Any], symbols: Mapping[Any, int]
) -> Iterator[dict[Any, int]]:
    """List sizes for which a condition does not hold, small ones first.

    Args:
        condition: one that holds for `symbols`.
        expressions: torch's expression for a size, by input and axis.
        symbols: the example's sizes by torch's symbols.
    """
    read = [expressions.get(place) for place in condition.places()]
    free = sorted({s for e in read if e is not None for s in e.free_symbols if s in symbols}, key=str)
    tried = []
    for changed in [*((s,) for s in free), tuple(free)]:
        numbers = {1, 2, 3, *(m for c in condition.numbers() for m in (c - 1, c, c + 1, 2 * c))}
        for s in changed:
            n = symbols[s]
            numbers |= {n - 1, n + 1, n // 2, 2 * n, 2 * n + 1, 3 * n}
        tried += [{**symbols, **dict.fromkeys(changed, n)} for n in numbers if n > 0]
    yield from (
        s
        for s in sorted(tried, key=lambda t: sum(t.values()))
        if broken([condition], sizes_of(expressions, s))
    )


def sizes_of(expressions: Mapping[tuple[str, int], Any], sizes: Mapping[Any, int]) -> _Size:
    """Return the function that computes the size of an input's axis from torch's symbols."""
    return lambda name, axis: int(expressions[name, axis].subs(sizes))


def broken(conditions: Iterable[Condition], size: _Size) -> bool:
    """Return whether one of the conditions does not hold for some sizes."""
    for condition in conditions:
        with suppress(KeyError, ZeroDivisionError, TypeError):
            if not condition.holds(size):
                return True
    return False


def axes_of(fakes: Iterable[tuple[str, Any]]) -> dict[tuple[str, int], Any]:
    """Return torch's expressions for the sizes of inputs, by input and axis."""
    return {
        (name, axis): n.node.expr
        for name, fake in fakes
        for axis, n in enumerate(getattr(fake, "shape", ()))
        if isinstance(n, torch.SymInt)
    }


def guarded(
    values: Mapping[str, Any], conditions: Iterable[Condition], read: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Guard inputs of the graph: each is reshaped to its own shape where the conditions hold, to another elsewhere.

    Args:
        values: the inputs by name.
        conditions: what is required of their sizes.
        read: the names of those whose numbers the graph reads; the others cannot refuse anything.

    Returns:
        the inputs, and by text the conditions that none of them can refuse, as numbers that are 1 where they break.
    """
    result, left = dict(values), {}
    for condition in conditions:
        places = condition.places()
        if not all(isinstance(values.get(name), Tensor) for name, _ in places):
            continue
        open_places = [(n, axis) for n, axis in places if isinstance(values[n].shape[axis], TracedInt)]
        if not open_places:
            continue
        broken = 1 - condition.holds(lambda name, axis: values[name].shape[axis])
        text = f"requires {condition.text}"
        name, axis = next((place for place in open_places if place[0] in read), ("", 0))
        if name:
            result[name] = refused_where(result[name], broken, text, axis)
        else:
            left[text] = broken
    return result, left


def refusing(outputs: Iterable[Any], left: Mapping[str, Any]) -> list[Any]:
    """Let outputs refuse what no input can; see `guarded`."""
    if not left:
        return [*outputs]
    text, broken = " and ".join(left), sum(left.values())

    return [refused_where(v, broken, text) if isinstance(v, Tensor) else v for v in outputs]


def read_inputs(program: Any) -> set[str]:
    """Return the names of a program's inputs of which it reads more than the sizes."""
    return {
        node.name
        for node in program.graph.nodes
        if node.op == "placeholder" and not all(_reads_size(user, node) for user in node.users)
    }


def _reads_size(user: Any, node: Any) -> bool:
    """Whether a call reads nothing but the size of one of its arguments."""
    name = getattr(user.target, "__name__", str(user.target)).split(".")[0]
    return name.startswith(("sym_", "new_")) or name.endswith("_like" if user.args[0] is node else "_as")
