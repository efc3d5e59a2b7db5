"""What sizes a trace refuses, in calls and in dumps: those at which it is tried beside torch and differs.

A rule that tests whether a size is 1 (a squeeze, a branch, a mean of one) is decided by the example.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import Any

from ..base.errors import InputError
from .against_torch import Place, Trace, errors_at, open_sizes
from .guards import Condition, axes_of, breaking, broken, compared, conditions_of, sizes_of
from .signature import open_sizes_in

_TRIES = 4
"""Sets of sizes that are tried for each condition on sizes."""
_MOST = 1 << 16
"""The product of dynamic sizes up to which they are tried."""
_SUBSETS = 4
"""Axes of one size, up to which every choice of some of them is changed; of more, each by itself."""
_CHANGES = 48
"""Sets of sizes that are tried for sizes that torch took for equal or computed from others."""


class SizeOneError(InputError):
    """A call with a size of 1 for which the graph does not hold."""


def never_one(traced: Trace) -> frozenset[Any]:
    """Return the symbols of sizes that may not be 1, since torch and the graph differ there."""
    sizes = open_sizes(traced)
    symbols = [s for s, n in sizes.items() if n != 1]
    alone = frozenset(s for s in symbols if errors_at(traced, {**sizes, s: 1}))
    if alone or len(symbols) < 2 or not errors_at(traced, {**sizes, **dict.fromkeys(symbols, 1)}):
        return alone
    return frozenset(symbols)


def needed_conditions(traced: Trace) -> list[Condition]:
    """Return what torch took for granted of sizes, where torch and the graph differ at sizes that break it."""
    symbols = open_sizes(traced)
    needed: list[Condition] = []
    expressions = axes_of(traced.signature.graph_inputs())
    elements = max(_MOST, 8 * _elements(expressions, symbols))
    conditions = conditions_of(traced.program)
    known: dict[tuple[int, ...], dict[str, float] | None] = {}

    def differs(sizes: Mapping[Any, int]) -> bool | None:
        """Whether torch and the graph differ; None if torch does not run."""
        key = tuple(sizes.values())
        if key not in known:
            known[key] = errors_at(traced, sizes, checked=False)
        errors = known[key]
        return None if errors is None else bool(errors)

    for condition in conditions:
        # What another condition refuses already is not tried again.
        open_ones = [
            s
            for s in breaking(condition, conditions, expressions, symbols)
            if not broken(needed, sizes_of(expressions, s))
        ]
        small = [s for s in open_ones if _elements(expressions, s) <= elements]
        ran = (d for d in map(differs, small[: 2 * _TRIES]) if d is not None)
        if any(islice(ran, _TRIES)) or (open_ones and not small):
            needed.append(condition)
    example = {place: int(e.subs(symbols)) for place, e in expressions.items()}
    for alone in islice(_parted(expressions, example), _CHANGES):
        sizes = {**example, **alone}

        def size(name: str, axis: int, sizes: Mapping[Place, int] = sizes) -> int:
            return sizes[name, axis]

        parted = [c for c in conditions if broken([c], size)]
        if parted and not broken(needed, size) and errors_at(traced, symbols, checked=False, alone=alone):
            needed += parted
    # What a graph cannot compute holds for the example's sizes, at least.
    distinct = {c.text: c for n in needed for c in ([n] if n.is_integral else _stricter(n, example))}
    return [*distinct.values()]


def fixed_by_example(traced: Trace) -> list[Condition]:
    """Return the conditions by which torch fixed axes at the example's sizes, though the module runs at others."""
    symbols = open_sizes(traced)
    open_axes = {place for place, e in axes_of(traced.signature.graph_inputs()).items() if e.free_symbols}
    shapes = {
        name: value.shape
        for name, value, _ in traced.signature.inputs(traced._example)
        if hasattr(value, "shape")
    }
    fixed = []
    for condition in islice(conditions_of(traced.program), _CHANGES):
        places = [p for p in condition.places() if p not in open_axes and p[0] in shapes]
        others = ({place: shapes[place[0]][place[1]] + more} for place in places for more in (1, 2))
        if any(errors_at(traced, symbols, checked=False, alone=alone) is not None for alone in others):
            fixed.append(condition)
    return fixed


def _stricter(condition: Condition, sizes: Mapping[Place, int]) -> list[Condition]:
    """Return conditions that a graph can compute for one that it cannot: a least size, or else the example's sizes."""
    places = [*dict.fromkeys(place for place in condition.places() if place in sizes)]
    if len(places) == 1:
        n = sizes[places[0]]
        least = 1 + max(
            (m for m in range(1, 4 * n + 64) if broken([condition], lambda *_, m=m: m)), default=0
        )
        if least <= n:
            return [compared(*places[0], ">=", least)]
    return [compared(*place, "==", sizes[place]) for place in places]


def _parted(expressions: Mapping[Place, Any], example: Mapping[Place, int]) -> Iterator[dict[Place, int]]:
    """List other sizes for axes that torch's symbols hold equal to others, or compute from others."""
    equal: dict[Any, list[Place]] = {}
    for place, expression in expressions.items():
        equal.setdefault(expression, []).append(place)
    for expression, places in equal.items():
        most = len(places) - expression.is_symbol if len(places) <= _SUBSETS else 1
        for count in range(1, most + 1):
            for chosen in combinations(places, count):
                n = example[chosen[0]]
                yield from (dict.fromkeys(chosen, other) for other in (n + 1, 1, 3 * n) if other != n)


def _elements(expressions: Mapping[tuple[str, int], Any], sizes: Mapping[Any, int]) -> int:
    """Return the product of all sizes, which no input of the model exceeds."""
    return math.prod(max(sizes.get(e, 1), 1) for e in set(expressions.values()))


def refuse_one(traced: Trace, flat: Sequence[Any], symbols: frozenset[Any]) -> None:
    """Refuse a size of 1 in the arguments of a call.

    Raises:
        SizeOneError: a size is 1 that may not be.
    """
    for name, value, fake in traced.signature.inputs(flat):
        for axis, size in open_sizes_in(fake):
            if size in symbols and value.shape[axis] == 1:
                raise SizeOneError(
                    f"axis {axis} of argument {name!r} has size 1, for which the trace is not valid: torch computes "
                    "something else there than for larger sizes (a squeeze, a branch on the size); trace the module "
                    "with an example of that size"
                )


def never_a_one(inputs: Iterable[tuple[str, Any]], symbols: frozenset[Any]) -> list[Condition]:
    """Return the conditions that sizes are not 1 which must not be, of inputs by name with torch's fake values."""
    return [compared(*place, "!=", 1) for place, size in axes_of(inputs).items() if size in symbols]
