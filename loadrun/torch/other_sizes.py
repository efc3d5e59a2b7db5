"""Comparison of a trace with torch where sizes may differ: at the example's sizes, at others, and at 1.

A rule that tests whether a size is 1 (a squeeze, a branch, a mean of one) is decided by the example. Where torch gives
another result at 1, the trace refuses 1 there, in calls and in dumps.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations, islice
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

from ..base.errors import EngineError, InputError, UnsupportedError
from ..graph.dtypes import Array
from ..tracing.checking import error_between
from .complex import parts
from .exporting import name_of_target, submodules
from .guards import Condition, axes_of, breaking, broken, conditions_of, least_of, never_of, only_of, sizes_of
from .registry import DATA_SIZED
from .signature import Signature
from .truth import outputs_of

__all__ = [
    "SizeOneError",
    "at_another_size",
    "beyond_rounding",
    "differing_outputs",
    "draws_numbers",
    "every_size",
    "holds_at",
    "is_dynamic",
    "needed_axes",
    "needed_conditions",
    "never_a_one",
    "never_one",
    "open_sizes",
    "refuse_one",
    "resizing",
    "runs_at",
    "shaken",
    "shapes_that_follow",
    "why_different",
    "why_invalid",
]

_LIMITS = {torch.float16: 5e-2, torch.bfloat16: 5e-2}
_LIMIT = 1e-3
"""The error above which a result differs from torch's, for programs that compute in none of the dtypes of `_LIMITS`."""
_NOISE = 4
"""How many times as large an error may be as the effect of the arguments' last digits."""
_TRIES = 4
"""Sets of sizes that are tried for each condition on sizes."""
_MOST = 1 << 16
"""The product of dynamic sizes up to which they are tried."""

_Place = tuple[str, int]
"""An axis of an input: the input's name, and the number of the axis."""
_NO_PLACES: Mapping[_Place, int] = MappingProxyType({})
_Axes = frozenset[tuple[int, int]]
"""Axes of arguments: the number of a leaf among all, and that of the axis."""
_SUBSETS = 4
"""Axes of one size, up to which every choice of some of them is changed; of more, each by itself."""
_CHANGES = 48
"""Sets of sizes that are tried for sizes that torch took for equal or computed from others."""

_FREE = {
    "topk kthvalue sort argsort median nanmedian mode": (
        "{} may name any place of equal values: compare values, sort with stable=True, or make the values differ"
    ),
    "linalg_eigh _linalg_eigh linalg_svd _linalg_svd linalg_qr linalg_eig": (
        "the vectors of {} may have either sign: settle it in the module, as by v * v.sum(-2, keepdim=True).sign()"
    ),
}
"""What torch leaves open, by its operators."""


def draws_numbers(program: Any) -> bool:
    """Whether a program draws random numbers, so that no two runs agree."""
    return any(isinstance(n.target, torch._ops.OpOverload) and _draws(n) for n in program.graph.nodes)


def _draws(node: Any) -> bool:
    """Whether a call draws random numbers; dropout outside of training does not."""
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    schema = node.target._schema
    arguments = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    arguments |= dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | node.kwargs
    rate = arguments.get("p", arguments.get("dropout_p", arguments.get("dropout")))
    trained = arguments.get("train", arguments.get("training", True))
    return not (trained is False or rate == 0)


def _trusts_offsets(program: Any) -> bool:
    """Whether a program has bags of embeddings, for which torch reads where offsets say, beyond the end as well."""
    return any("embedding_bag" in str(n.target) and n.args[2:3] for n in program.graph.nodes)


class SizeOneError(InputError):
    """A call with a size of 1 for which the graph does not hold."""


class Trace(Protocol):
    """The part of a traced torch module that is compared with torch."""

    program: Any
    signature: Signature
    _example: list[Any]
    _fixed: _Axes
    _interpreter: Any
    _keys: list[str]

    def check(self, flat: Sequence[Any]) -> None:
        """Refuse arguments that the graph does not take."""

    def truth(self, flat: Sequence[Any]) -> list[Array]:
        """Return torch's own results."""

    def _run(self, flat: Sequence[Any]) -> list[Any]:
        """Return the results of the graph."""


def open_sizes(traced: Trace) -> dict[Any, int]:
    """Map the symbols of a program's dynamic sizes to their values in the example."""
    sizes: dict[Any, int] = {}
    for _, value, fake in traced.signature.inputs(traced._example):
        for axis, n in enumerate(getattr(fake, "shape", ())):
            if isinstance(n, torch.SymInt) and n.node.expr.is_symbol:
                sizes.setdefault(n.node.expr, value.shape[axis])
    return sizes


def _resized(traced: Trace, sizes: Mapping[Any, int], alone: Mapping[_Place, int] = _NO_PLACES) -> list[Any]:
    """Repeat or cut the example's leaves to other sizes, some axes `alone`, so that indices stay in range."""
    leaves = []
    for name, value, fake in traced.signature.inputs(traced._example):
        if not isinstance(value, torch.Tensor) or not isinstance(fake, torch.Tensor):
            leaves.append(value)
            continue
        example = value
        shape = [n if isinstance(n, int) else int(n.node.expr.subs(sizes)) for n in fake.shape]
        for axis, tied in enumerate(shape):
            n = alone.get((name, axis), tied)
            if n != value.shape[axis]:
                value = value.index_select(axis, torch.arange(n) % max(value.shape[axis], 1))
        same = value.numel() and bool((value == value.flatten()[0]).all())
        if value.is_floating_point() and (same or value.numel() > example.numel()):
            # Many functions agree on all zeros or all ones; the place of one of several equal values is anyone's.
            low, high = (0.25, 0.75) if same else (0.0, 1e-3)
            value = value + torch.linspace(low, high, value.numel()).reshape(value.shape).to(value.dtype)
        # Borders, offsets and positions stay in order.
        leaves.append(value.sort(-1).values if _is_sorted(example) else value)
    return leaves


def _is_sorted(x: torch.Tensor) -> bool:
    """Whether numbers go up along the last axis."""
    return x.ndim > 0 and not x.is_complex() and x.shape[-1] > 1 and bool((x[..., 1:] >= x[..., :-1]).all())


def differing_outputs(
    traced: Trace, outputs: Sequence[Any], truth: Sequence[Any], limit: float | None = None
) -> dict[str, float]:
    """List the outputs in which the graph and torch differ by more than a limit, with their errors."""
    limit = _limit(traced) if limit is None else limit
    errors = {n: error_between(b, a) for n, a, b in zip(traced._keys, outputs, truth, strict=True)}
    return {n: e for n, e in errors.items() if not e <= limit}


def _limit(traced: Trace) -> float:
    return max(_LIMITS.get(dtype, _LIMIT) for dtype in _dtypes(traced.program))


def _dtypes(program: Any) -> Iterator[torch.dtype]:
    """Yield the dtypes that a program computes in, which mixed precision makes others than those of its results."""
    yield torch.float32
    for module in submodules(program):
        for node in module.graph.nodes:
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                yield value.dtype


def _at(
    traced: Trace,
    sizes: Mapping[Any, int],
    checked: bool = True,
    alone: Mapping[_Place, int] = _NO_PLACES,
) -> dict[str, float] | None:
    """Compute the graph's errors at some sizes; None if torch does not run there, empty if the graph refuses.

    Args:
        traced: a trace.
        sizes: by torch's symbols.
        checked: whether sizes count as refused for which torch's export does not hold.
        alone: sizes of axes of inputs, whatever torch's symbols say of them.
    """
    if _trusts_offsets(traced.program):
        return None
    try:
        flat = _resized(traced, sizes, alone)
        if checked:
            traced.check(flat)
        truth = traced.truth(flat)
    except (InputError, EngineError, RuntimeError, TypeError):
        return None
    try:
        errors = differing_outputs(traced, traced._run(flat), truth)
    except (InputError, EngineError):
        # The graph refuses these sizes, so nothing is silently wrong.
        return {}
    return beyond_rounding(traced, flat, errors, truth)


def beyond_rounding(
    traced: Trace, flat: Sequence[Any], errors: Mapping[str, float], truth: Sequence[Any]
) -> dict[str, float]:
    """Leave out errors that torch's own results have where the last digits of its arguments are others.

    They may decide, as in a matrix that is nearly singular, and in small numbers beside large ones.
    """
    if not errors:
        return {}
    noise = differing_outputs(traced, traced.truth([shaken(x) for x in flat]), truth, 0.0)
    limit = _limit(traced)
    return {n: e for n, e in errors.items() if noise.get(n, 0.0) <= min(limit, e / _NOISE)}


def shaken(x: Any) -> Any:
    """Return real numbers with other last digits."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return x
    signs = 1 - 2 * (torch.arange(x.numel()) % 2).reshape(x.shape)
    return x * (1 + 4 * torch.finfo(x.dtype).eps * signs).to(x.dtype)


def why_different(traced: Trace) -> str:
    """Say why a trace may differ from torch."""
    with suppress(Exception):
        of_program = outputs_of(traced, traced._example, traced.program.module())
        if not differing_outputs(traced, traced._run(traced._example), of_program):
            return (
                "torch's exported program gives what the graph gives, the module itself something else (it has a fast "
                "path in torch, as attention has for rows that are masked entirely); see which of both is meant"
            )
    names = {
        name_of_target(n.target).split(".")[1] for n in traced.program.graph.nodes if n.op == "call_function"
    }
    free = [(op, text) for ops, text in _FREE.items() for op in ops.split() if op in names]
    said = [text.format(op.strip("_").replace("linalg_", "linalg.")) for op, text in free]
    return "; ".join(said) or "an operator may be lowered wrongly"


def runs_at(traced: Trace, sizes: Mapping[Any, int]) -> bool:
    """Whether both torch and the graph run at some sizes, and agree there."""
    differences = _at(traced, sizes)
    if differences is None or differences:
        return False
    try:
        traced._run(_resized(traced, sizes))
    except (InputError, EngineError):
        return False
    return True


def holds_at(traced: Trace, sizes: Mapping[Any, int]) -> bool:
    """Whether what torch assumed of the sizes holds for others."""
    try:
        traced.check(_resized(traced, sizes))
    except InputError:
        return False
    return True


def resizing(fake: Any, shape: tuple[int, ...]) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
    """Return the shape of a value, in storage form, as a function of other sizes."""

    def resized(numbers: Mapping[str, int]) -> tuple[int, ...]:
        if not isinstance(fake, torch.Tensor) or not fake.ndim:
            return shape
        sizes = []
        for n, size in zip(fake.shape, shape, strict=True):
            if isinstance(n, torch.SymInt):
                known = {s: numbers[str(s)] for s in n.node.expr.free_symbols if str(s) in numbers}
                value = n.node.expr.subs(known)
                size = int(value) if value.is_Integer else size
            sizes.append(size)
        return tuple(sizes)

    return resized


def shapes_that_follow(
    traced: Trace, flat: Sequence[Any], tied: Mapping[Any, Any]
) -> dict[str, Callable[[Mapping[str, int]], tuple[int, ...]]]:
    """Return the shapes of inputs with sizes that follow from others, as those of a cache and its mask do.

    Args:
        traced: a trace.
        flat: the leaves of its example.
        tied: by a size's symbol, the one that stands for all that change together.
    """
    example = {str(s): n for s, n in open_sizes(traced).items()}

    def complete(resized: Callable[..., tuple[int, ...]]) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
        def from_sizes(numbers: Mapping[str, int]) -> tuple[int, ...]:
            others = {str(s): numbers[str(t)] for s, t in tied.items() if str(t) in numbers}
            return resized({**example, **numbers, **others})

        return from_sizes

    return {
        key: complete(resizing(fake, tuple(value.shape)))
        for name, value, fake in traced.signature.inputs(flat)
        if any(
            isinstance(n, torch.SymInt) and not (n.node.expr.is_number or n.node.expr.is_symbol)
            for n in getattr(fake, "shape", ())
        )
        for key, _ in parts(name, fake)
    }


def why_invalid(traced: Trace, flat: Sequence[Any], sizes: Mapping[str, tuple[int, ...]]) -> str:
    """Say why a trace does not hold for other shapes of its inputs, by name; "" where it does."""
    leaves = []
    for name, value, fake in traced.signature.inputs(flat):
        key = next((key for key, _ in parts(name, fake)), name)
        if isinstance(value, torch.Tensor) and value.ndim and key in sizes:
            value = value.new_zeros(1).expand(sizes[key])
        leaves.append(value)
    try:
        traced.check(leaves)
    except InputError as error:
        return str(error)
    return ""


def at_another_size(traced: Trace) -> tuple[dict[str, float], str]:
    """Compute the graph's errors with every dynamic size one more, or else twice as much; return the sizes too."""
    symbols = open_sizes(traced)
    for factor, more in ((1, 1), (2, 0)):
        sizes = {s: factor * n + more for s, n in symbols.items()}
        differences = _at(traced, sizes)
        if differences is not None:
            return differences, ", ".join(
                str([*x.shape]) for x in _resized(traced, sizes) if hasattr(x, "shape")
            )
    return {}, ""


def never_one(traced: Trace) -> frozenset[Any]:
    """Return the symbols of sizes that may not be 1, since torch and the graph differ there."""
    symbols = {s: n for s, n in open_sizes(traced).items() if n != 1}
    alone = frozenset(s for s in symbols if _at(traced, {**open_sizes(traced), s: 1}))
    if alone or len(symbols) < 2 or not _at(traced, {**open_sizes(traced), **dict.fromkeys(symbols, 1)}):
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
            known[key] = _at(traced, sizes, checked=False)
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

        def size(name: str, axis: int, sizes: Mapping[_Place, int] = sizes) -> int:
            return sizes[name, axis]

        parted = [c for c in conditions if broken([c], size)]
        if parted and not broken(needed, size) and _at(traced, symbols, checked=False, alone=alone):
            needed += parted
    # What a graph cannot compute holds for the example's sizes, at least.
    distinct = {c.text: c for n in needed for c in ([n] if n.is_integral else _stricter(n, example))}
    return [*distinct.values()]


def _stricter(condition: Condition, sizes: Mapping[_Place, int]) -> list[Condition]:
    """Return conditions that a graph can compute for one that it cannot: a least size, or else the example's sizes."""
    places = [*dict.fromkeys(place for place in condition.places() if place in sizes)]
    if len(places) == 1:
        n = sizes[places[0]]
        least = 1 + max(
            (m for m in range(1, 4 * n + 64) if broken([condition], lambda *_, m=m: m)), default=0
        )
        if least <= n:
            return [least_of(least, *places[0])]
    return [only_of(sizes[place], *place) for place in places]


def _parted(expressions: Mapping[_Place, Any], example: Mapping[_Place, int]) -> Iterator[dict[_Place, int]]:
    """List other sizes for axes that torch's symbols hold equal to others, or compute from others."""
    equal: dict[Any, list[_Place]] = {}
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


def _axes(fake: Any, symbols: frozenset[Any]) -> Iterator[int]:
    for axis, n in enumerate(getattr(fake, "shape", ())):
        if isinstance(n, torch.SymInt) and n.node.expr in symbols:
            yield axis


def refuse_one(traced: Trace, flat: Sequence[Any], symbols: frozenset[Any]) -> None:
    """Refuse a size of 1 in the arguments of a call.

    Raises:
        SizeOneError: a size is 1 that may not be.
    """
    for name, value, fake in traced.signature.inputs(flat):
        for axis in _axes(fake, symbols):
            if value.shape[axis] == 1:
                raise SizeOneError(
                    f"axis {axis} of argument {name!r} has size 1, for which the trace is not valid: torch computes "
                    "something else there than for larger sizes (a squeeze, a branch on the size); trace the module "
                    "with an example of that size"
                )


def never_a_one(inputs: Iterable[tuple[str, Any]], symbols: frozenset[Any]) -> list[Condition]:
    """Return the conditions that sizes are not 1 which must not be, of inputs by name with torch's fake values."""
    return [never_of(1, name, axis) for name, fake in inputs for axis in _axes(fake, symbols)]


def every_size(fixed: _Axes, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Build dynamic shapes that let torch find which sizes may vary, in the structure of `forward`'s arguments.

    Args:
        fixed: axes that may not, each with the number of its argument among the leaves of all.
        module, args, kwargs: the module and its arguments.
    """
    places = {id(x): i for i, x in enumerate(pytree.tree_leaves((args, kwargs)))}

    def is_object(value: Any) -> bool:
        kind = pytree._get_node_type(value)
        return kind in pytree.SUPPORTED_NODES and kind not in pytree.BUILTIN_TYPES

    def auto(leaf: Any) -> Any:
        if is_object(leaf):
            # Of a registered class (a cache of transformers) torch takes what it consists of.
            return pytree.tree_map(
                auto, pytree.SUPPORTED_NODES[type(leaf)].flatten_fn(leaf)[0], is_leaf=is_object
            )
        if not isinstance(leaf, torch.Tensor):
            return None
        # A size of 0 or 1 is fixed, but for that of a batch of one.
        dim, place = torch.export.Dim, places[id(leaf)]
        return {
            i: dim.AUTO if (n > 1 or (n == 1 and i == 0)) and (place, i) not in fixed else dim.STATIC
            for i, n in enumerate(leaf.shape)
        }

    bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    return {name: pytree.tree_map(auto, value, is_leaf=is_object) for name, value in bound.items()}


def needed_axes(traced: Trace, args: tuple[Any, ...], kwargs: Mapping[str, Any], error: Exception) -> _Axes:
    """List the axes to fix after a trace at open sizes failed: those that operators must know, else all.

    Of all, the first ones, which are often those of a batch, come last.
    """
    leaves = pytree.tree_leaves((args, kwargs))
    every = frozenset(
        (i, axis) for i, x in enumerate(leaves) if isinstance(x, torch.Tensor) for axis in range(x.ndim)
    )
    inner = frozenset((i, axis) for i, axis in every if axis)
    if not inner <= traced._fixed:
        every = inner
    symbols = traced._interpreter.open_sizes if traced._interpreter is not None else frozenset()
    if not symbols or not isinstance(error, UnsupportedError):
        return every
    places = {id(x): i for i, x in enumerate(leaves)}
    axes = {
        (places[id(value)], axis)
        for _, value, fake in traced.signature.inputs(traced.signature.leaves(args, kwargs))
        for axis, n in enumerate(getattr(fake, "shape", ()))
        if isinstance(n, torch.SymInt) and n.node.expr.free_symbols & symbols and id(value) in places
    }
    return frozenset(axes) or every


_PUTS = ("aten.index_put.default", "aten._unsafe_index_put.default")


def _has_mask_among(indices: Sequence[Any]) -> bool:
    """Whether there are masks beside other indices, which are paired with the places where they are true."""
    dtypes = [i.meta["val"].dtype for i in indices if isinstance(i, torch.fx.Node)]
    return len(indices) > 1 and torch.bool in dtypes


def is_dynamic(node: Any) -> bool:
    """Return whether a result has a size that is no number for torch, or its lowering takes sizes from data."""

    def symbolic(leaf: Any) -> bool:
        if isinstance(leaf, torch.Tensor):
            return any(not isinstance(n, int) for n in leaf.shape)
        return isinstance(leaf, torch.SymInt)

    name = name_of_target(node.target) if node.op == "call_function" else ""
    known = name not in DATA_SIZED and not (name in _PUTS and _has_mask_among(node.args[1]))
    return not known or any(symbolic(leaf) for leaf in pytree.tree_leaves(node.meta.get("val")))
