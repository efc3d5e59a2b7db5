"""The sizes that an exported program declares: bounds of ``Dim``, sizes computed from others, conditions on them."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..base.errors import InputError
from ..graph.dtypes import Array
from .guards import Condition, axes_of, broken, conditions_of, linear
from .signature import Signature

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
