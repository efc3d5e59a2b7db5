"""Conditions on sizes that torch took for granted when it exported a program, as text, as numbers and in the graph.

A branch such as ``if x.shape[0] <= 50`` is decided by the example. Where torch gives something else than the graph at
sizes that break the condition, the graph has to refuse them: a file does not bring torch's own checks.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import Any

from ..base.errors import InputError
from ..graph.dtypes import Array
from ..layers.shared.sizes import refused_where
from ..tensors import Tensor, largest, least
from ..tensors.symbolic import TracedInt
from .signature import Signature, open_sizes_in

_Size = Callable[[str, int], Any]
_LARGEST = 1 << 31
_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    getattr(ast, syntax): getattr(operator, function)
    for syntax, function in zip(
        "Add Sub Mult FloorDiv Mod Lt LtE Gt GtE Eq NotEq And Or".split(),
        "add sub mul floordiv mod lt le gt ge eq ne and_ or_".split(),
        strict=True,
    )
}
_CALLS: dict[str, tuple[Any, Any]] = {"max": (max, largest), "min": (min, least)}
_OF_NUMBERS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Div: operator.truediv,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.Pow: math.pow,
}
"""Operators that the graph does not compute with sizes."""
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "round": round,
    "sym_float": float,
    **{n: getattr(math, n) for n in ("ceil", "exp", "floor", "log", "log2", "sqrt", "trunc")},
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
        """Compute it from sizes, which may be symbolic if `is_integral`, of an input by its name and an axis.

        Raises:
            ValueError: it has something else than arithmetic on sizes.
        """
        return _value(self.tree, size)

    @property
    def is_integral(self) -> bool:
        """Whether it is computed from integers alone, as a graph can, without fractions."""
        return not any(
            type(getattr(n, "op", None)) in _OF_NUMBERS
            or (isinstance(n, ast.Call) and _function(n) in _FUNCTIONS)
            or (isinstance(n, ast.Constant) and isinstance(n.value, float))
            for n in ast.walk(self.tree)
        )

    def places(self) -> list[tuple[str, int]]:
        """List the sizes that it reads."""
        return [place for node in ast.walk(self.tree) if (place := _place(node)) is not None]

    def numbers(self) -> set[int]:
        """Return the numbers in it."""
        constants = (n.value for n in ast.walk(self.tree) if isinstance(n, ast.Constant))
        return {int(n) for n in constants if isinstance(n, int | float) and abs(n) < _LARGEST}


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


def compared(name: str, axis: int, relation: str, number: int) -> Condition:
    """Return the condition that compares the size of an input's axis with a number, by an operator of Python."""
    tree = ast.parse(f"L[{name!r}].size()[{axis}] {relation} {number}", mode="eval").body
    return Condition(f"{name}.size()[{axis}] {relation} {number}", tree)


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
        case ast.Constant(value=int(number) | float(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, size)
        case (
            ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right])
        ) if (apply := _BINARY.get(type(op)) or _OF_NUMBERS.get(type(op))) is not None:
            return apply(_value(left, size), _value(right, size))
        case ast.BoolOp(op=op, values=values):
            return reduce(_BINARY[type(op)], [_value(v, size) for v in values])
        case ast.Call(func=ast.Name(id=name), args=args) if name.lower() in _CALLS:
            plain, symbolic = _CALLS[name.lower()]
            numbers: list[Any] = [_value(a, size) for a in args]
            return reduce(symbolic if TracedInt in map(type, numbers) else plain, numbers)
        case ast.Call(args=args) if (name := _function(node)) in _FUNCTIONS:
            return _FUNCTIONS[name](*[_value(a, size) for a in args])
    raise ValueError(ast.unparse(node))


def _function(call: ast.Call) -> str:
    """Return the name of a function, without that of its module."""
    return ast.unparse(call.func).rpartition(".")[2]


def breaking(
    condition: Condition,
    conditions: Sequence[Condition],
    expressions: Mapping[tuple[str, int], Any],
    symbols: Mapping[Any, int],
) -> list[dict[Any, int]]:
    """List sizes for which a condition does not hold, first those for which all others do.

    Of these, those next to the example and those farthest from it take turns: what one size more leaves as it is, many
    more may change, and the other way round.

    Args:
        condition: one that holds for `symbols`.
        conditions: all of them.
        expressions: torch's expression for a size, by input and axis.
        symbols: the example's sizes by torch's symbols.
    """
    read = [expressions.get(place) for place in condition.places()]
    free = sorted({s for e in read if e is not None for s in e.free_symbols if s in symbols}, key=str)
    tried = {}
    for changed in dict.fromkeys([*((s,) for s in free), tuple(free)]):
        numbers = {1, 2, 3, *(m for c in condition.numbers() for m in (c - 1, c, c + 1, 2 * c))}
        for s in changed:
            n = symbols[s]
            numbers |= {n - 1, n + 1, n // 2, 2 * n, 2 * n + 1, 3 * n}
            # A remainder of a quotient changes alone where a number of its own is added.
            numbers |= {n + sign * (1 << bit) for bit in range(n.bit_length()) for sign in (-1, 1)}
            numbers |= {n + sign * c for c in condition.numbers() for sign in (-1, 1)}
        for n in numbers:
            tried[changed, n] = {**symbols, **dict.fromkeys(changed, n)}
    breaks = [s for (_, n), s in tried.items() if n > 0 and broken([condition], sizes_of(expressions, s))]
    others = {id(s): sum(broken([c], sizes_of(expressions, s)) for c in conditions) for s in breaks}
    groups: dict[int, list[dict[Any, int]]] = {}
    for sizes in sorted(breaks, key=lambda f: sum(abs(n - symbols[s]) for s, n in f.items())):
        groups.setdefault(others[id(sizes)], []).append(sizes)
    return [group.pop(-(i % 2)) for _, group in sorted(groups.items()) for i in range(len(group))]


def sizes_of(expressions: Mapping[tuple[str, int], Any], sizes: Mapping[Any, int]) -> _Size:
    """Return the function that computes the size of an input's axis from torch's symbols."""

    def size(name: str, axis: int) -> int:
        expression = expressions[name, axis]
        # Substitution takes much longer.
        return sizes[expression] if expression in sizes else int(expression.subs(sizes))

    return size


def broken(conditions: Iterable[Condition], size: _Size) -> bool:
    """Return whether one of the conditions does not hold for some sizes."""
    for condition in conditions:
        with suppress(KeyError, ZeroDivisionError, TypeError):
            if not condition.holds(size):
                return True
    return False


def axes_of(fakes: Iterable[tuple[str, Any]]) -> dict[tuple[str, int], Any]:
    """Return torch's expressions for the sizes of inputs, by input and axis."""
    return {(name, axis): size for name, fake in fakes for axis, size in open_sizes_in(fake)}


def linear(expression: Any) -> tuple[Any, int, int] | None:
    """Return symbol, factor and summand of torch's expression ``factor * symbol + summand``, None for others."""
    symbols = expression.free_symbols
    if len(symbols) != 1:
        return None
    (symbol,) = symbols
    plus = expression.subs(symbol, 0)
    times = expression.subs(symbol, 1) - plus
    if not (plus.is_Integer and times.is_Integer and times > 0 and expression == times * symbol + plus):
        return None
    return symbol, int(times), int(plus)


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


_ALWAYS = 2
"""The least size that torch notes for an axis without a bound; it runs smaller ones all the same."""
_UNBOUNDED = 1 << 40


def refusal_of_sizes(program: Any, signature: Signature) -> Callable[[Mapping[str, Array]], None]:
    """Return what refuses arrays of sizes that a program was not exported for; see `loadrun.testcase.Bundle`.

    Args:
        program: the exported program.
        signature: its signature.
    """
    fakes = signature.graph_inputs()
    declared = [*_declared(axes_of(fakes), program.range_constraints), *conditions_of(program)]
    conditions = [*{c.text: c for c in declared}.values()]

    def refuse(arrays: Mapping[str, Array]) -> None:
        shapes = {n: arrays[n].shape for n, _ in fakes if n in arrays}
        sizes = {(name, axis): n for name, shape in shapes.items() for axis, n in enumerate(shape)}
        for condition in conditions:
            if broken([condition], lambda name, axis: sizes[name, axis]):
                names = dict.fromkeys(name for name, _ in condition.places())
                shown = " and ".join(f"input {n!r} has shape {[*shapes[n]]}" for n in names)
                raise InputError(
                    f"{shown}, but the program was exported for sizes with {condition.text}; export it with other "
                    "dynamic_shapes, or give data of such sizes (--resize-input for images)"
                )

    return refuse


def _declared(axes: Mapping[tuple[str, int], Any], ranges: Mapping[Any, Any]) -> Iterator[Condition]:
    """Yield the bounds of sizes, and how sizes follow from others.

    Args:
        axes: torch's expressions for the sizes of inputs, by input and axis.
        ranges: the bounds of symbols.
    """
    roots: dict[str, str] = {}
    # Symbols that are sizes themselves come first, as the others follow from them.
    for place, expression in sorted(axes.items(), key=lambda item: not item[1].is_symbol):
        size = f"{place[0]}.size()[{place[1]}]"
        names = {str(s) for s in expression.free_symbols}
        if names and names <= roots.keys():
            text = re.sub(r"\b\w+\b", lambda m: roots.get(m[0], m[0]), str(expression))
            if text != size:
                yield _condition(f"{size} == {text}")
            continue
        step = linear(expression)
        if step is None:
            continue
        symbol, times, plus = step
        root = size
        if (times, plus) != (1, 0):
            root = f"(({size} - {plus}) // {times})"
            if times > 1:
                yield _condition(f"{size} % {times} == {plus % times}")
        roots[str(symbol)] = root
        bounds = ranges.get(symbol)
        if bounds is not None and _ALWAYS < bounds.lower < _UNBOUNDED:
            yield _condition(f"{size} >= {times * int(bounds.lower) + plus}")
        if bounds is not None and bounds.upper < _UNBOUNDED:
            yield _condition(f"{size} <= {times * int(bounds.upper) + plus}")


def _condition(text: str) -> Condition:
    tree = ast.parse(re.sub(r"\b(\w+)\.size\(\)", r"L['\1'].size()", text), mode="eval").body
    return Condition(text, tree)
