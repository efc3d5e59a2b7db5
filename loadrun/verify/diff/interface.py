"""What two models promise to those who call them: their inputs and outputs, compared before anything runs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ...base.errors import LoadRunError
from ...graph import Var
from ...graph.dtypes import DType
from ...ops.infer import infer_dtypes
from ...testcase import Bundle

_GENERATED = re.compile(r".*\[\d+\]")
"""What MegEngine calls values to which nobody gave a name."""


@dataclass(frozen=True)
class _Port:
    """An input or output: its name, its dtype and rank, None where they are not known."""

    name: str
    dtype: DType | None
    rank: int | None = None


def interface_changes(mine: Bundle, other: Bundle, inputs: Mapping[str, str]) -> list[str]:
    """Describe how the inputs and outputs of two models differ: in number, names, order, dtypes and ranks of inputs.

    A name that MegEngine made counts for nothing, and between a dump and another file neither does that a dump holds no
    wide integers and no float64. The order of inputs counts where both files tell it.

    Args:
        mine, other: the two models.
        inputs: the names of the other's inputs -> those of the first one's that they stand for.
    """
    alike = _is_dump(mine) == _is_dump(other)
    ordered = bool(mine.input_order and other.input_order)
    changes = [*_changes("input", _inputs(mine), _inputs(other), inputs, alike=alike, ordered=ordered)]
    outputs, theirs = _outputs(mine, alike), _outputs(other, alike)
    if outputs is not None and theirs is not None:
        changes += _changes("output", outputs, theirs, _paired_outputs(outputs, theirs), alike=alike)
    return changes


def rank_changes(
    pairs: Sequence[tuple[Var, Var]],
    mine: Bundle,
    other: Bundle,
    shapes: Mapping[int, Sequence[Sequence[int]]],
) -> Iterator[str]:
    """Describe which outputs have another number of axes, once both models ran.

    Args:
        pairs: the outputs of the two models that stand for each other.
        mine, other: the models; a dump holds a scalar as one element along one axis.
        shapes: the shapes of an output in the two models, by its id in the first one.
    """
    dumps = _is_dump(mine) or _is_dump(other)
    for var, there in pairs:
        if var.id not in shapes:
            continue
        named = var.label in mine.scalars, there.label in other.scalars
        ranks = [
            0 if (scalar or dumps) and tuple(s) == (1,) else len(s)
            for s, scalar in zip(shapes[var.id], named, strict=True)
        ]
        if ranks[0] != ranks[1]:
            yield f"output {var.label!r} has {_count(ranks[0], 'axis')} against {ranks[1]}"


def _is_dump(bundle: Bundle) -> bool:
    """Return whether a model is a dump, which holds no wide numbers and no scalars."""
    return bundle.source.file is None


def _inputs(bundle: Bundle) -> list[_Port]:
    tensors = [(v.name or "", v.owner.tensors[0]) for v in bundle.inputs]
    return [
        _Port(name, t.dtype, None if t.shape is None else 0 if name in bundle.scalars else len(t.shape))
        for name, t in tensors
    ]


def _outputs(bundle: Bundle, alike: bool) -> list[_Port] | None:
    """List outputs; None where what could be expressed of a model does not tell."""
    declared = bundle.source.file.outputs if bundle.source.file is not None else {}
    if alike and declared:
        return [_Port(n, d) for n, d in declared.items()]
    if bundle.source.refusal is not None:
        return None
    with suppress(LoadRunError):
        infer_dtypes(bundle.graph.needed(bundle.outputs.values()))
    return [_Port(n, v.dtype) for n, v in bundle.outputs.items()]


def _paired_outputs(mine: Sequence[_Port], other: Sequence[_Port]) -> dict[str, str]:
    """Map the other's outputs to the first one's, by name; if as many are left on both sides, these in order."""
    names, theirs = [p.name for p in mine], [p.name for p in other]
    left, right = [n for n in names if n not in theirs], [n for n in theirs if n not in names]
    paired = {n: n for n in theirs if n in names}
    return {**paired, **(dict(zip(right, left, strict=True)) if len(left) == len(right) else {})}


def _changes(
    what: str,
    mine: Sequence[_Port],
    other: Sequence[_Port],
    paired: Mapping[str, str],
    *,
    alike: bool,
    ordered: bool = True,
) -> Iterator[str]:
    if len(mine) != len(other):
        yield f"{_count(len(mine), what)} against {len(other)}"
    by_name = {p.name: p for p in mine}
    standing = {p.name: by_name[n] for p in other if (n := paired.get(p.name)) in by_name}
    yield from (f"{what} {p.name!r} is missing" for p in other if p.name not in standing)
    taken = {p.name for p in standing.values()}
    yield from (f"{what} {p.name!r} is not in the reference" for p in mine if p.name not in taken)
    order = [standing[p.name].name for p in other if p.name in standing]
    shared = [p.name for p in mine if p.name in taken]
    if ordered and shared != order:
        yield f"the {what}s come in another order: {', '.join(shared)} against {', '.join(order)}"
    for there in other:
        if there.name in standing:
            yield from _unlike(what, standing[there.name], there, alike)


def _count(n: int, what: str) -> str:
    plural = "axes" if what == "axis" else what + "s"
    return f"{n} {what if n == 1 else plural}"


def _unlike(what: str, x: _Port, y: _Port, alike: bool) -> Iterator[str]:
    name = x.name
    if name != y.name and not (_GENERATED.fullmatch(name) or _GENERATED.fullmatch(y.name)):
        yield f"{what} {name!r} is called {y.name!r} in the reference"
    if x.dtype is not None and y.dtype is not None and not _are_alike(x.dtype, y.dtype, alike):
        yield f"{what} {name!r} is {x.dtype} against {y.dtype}"
    if x.rank is not None and y.rank is not None and x.rank != y.rank and (alike or max(x.rank, y.rank) > 1):
        yield f"{what} {name!r} has {_count(x.rank, 'axis')} against {y.rank}"


def _are_alike(x: DType, y: DType, alike: bool) -> bool:
    """Return whether two types are one, or one is what the other becomes in another format."""
    if x == y or x.is_quantized != y.is_quantized:
        return x == y or (not alike and x.np == y.np)
    if alike or not (x.is_wide or y.is_wide):
        return False
    return x.is_float == y.is_float and (x.np.kind == "b") == (y.np.kind == "b")
