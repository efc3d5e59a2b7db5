"""Differences before anything is computed: of two matched operators, and of what two models promise to callers."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import eq

import numpy as np

from ...base.errors import LoadRunError
from ...graph import Graph, Opr, Var
from ...graph.composite import Composite, alike
from ...graph.dtypes import Array, DType
from ...graph.params import Record
from ...ops.infer import infer_dtypes
from ...testcase import Bundle
from .matching import Matching, is_constant, kind_of


@dataclass(frozen=True)
class ChangedConstant:
    """A stored tensor that is not the same on both sides.

    Attributes:
        var: the variable of the model under suspicion.
        count: how many elements differ.
        size: how many there are.
        index: where the difference is largest.
        found, expected: the two values there.
        is_scaled: whether it is the other one times a factor for each channel, as where batch norm is folded into it.
    """

    var: Var
    count: int
    size: int
    index: tuple[int, ...]
    found: float
    expected: float
    is_scaled: bool = False

    @property
    def is_weight(self) -> bool:
        """Whether it is numbers along more than one axis, which a bias and a mask are not."""
        tensor = self.var.owner.tensors[self.var.index]
        return tensor.dtype.np.kind != "b" and sum(n > 1 for n in tensor.shape or ()) > 1


def changed_constants(graph: Graph, matching: Matching) -> list[ChangedConstant]:
    """List matched constants whose values are not the same; another format may hold a matrix transposed.

    Arithmetic of sizes has numbers of its own in every format.
    """
    unequal: list[ChangedConstant] = []
    for opr in graph.oprs:
        if opr.type == "Host2DeviceCopy":
            continue
        for var, tensor in zip(opr.outputs, opr.tensors, strict=False):
            other = matching.pairs.get(var.id)
            if other is None or tensor.data is None or other.index >= len(other.owner.tensors):
                continue
            there = other.owner.tensors[other.index]
            if there.data is None or there.dtype != tensor.dtype:
                continue
            if not matching.alike and tensor.dtype.np.kind in "iu" and not tensor.dtype.is_quantized:
                continue
            x, y = tensor.value(), there.value()
            if not matching.alike:
                y = laid_out_like(x, y)
            if x.shape == y.shape:
                unequal += _unequal(var, x, y)
    return unequal


def laid_out_like(x: Array, y: Array) -> Array:
    """Return a matrix transposed if that is closer to another one, and vectors in the other's shape."""
    if x.ndim == y.ndim == 2 and x.shape == y.T.shape:
        if x.shape != y.shape or np.count_nonzero(x != y.T) < np.count_nonzero(x != y):
            return y.T
    elif x.shape != y.shape and [n for n in x.shape if n > 1] == [n for n in y.shape if n > 1]:
        return y.reshape(x.shape)
    return y


def _unequal(var: Var, x: Array, y: Array) -> Iterator[ChangedConstant]:
    a, b = x.astype(np.float64), y.astype(np.float64)
    wrong = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if not wrong.any():
        return
    with np.errstate(all="ignore"):
        apart = np.where(wrong, np.nan_to_num(np.abs(a - b), nan=np.inf), -1.0)
    at = np.unravel_index(int(np.argmax(apart)), a.shape)
    yield ChangedConstant(
        var,
        int(np.count_nonzero(wrong)),
        a.size,
        tuple(int(i) for i in at),
        float(a[at]),
        float(b[at]),
        _is_scaled(a, b),
    )


def _is_scaled(a: Array, b: Array) -> bool:
    """Return whether two weights differ only by a factor for each output channel."""
    if a.ndim < 2 or a[0].size < 2:
        return False
    x, y = a.reshape(len(a), -1), b.reshape(len(b), -1)
    with np.errstate(all="ignore"):
        factor = (x * y).sum(1, keepdims=True) / (y * y).sum(1, keepdims=True)
        is_near = (np.abs(x - factor * y) <= 1e-4 * np.abs(x).max(1, keepdims=True)).all()
        return bool(is_near and (np.abs(factor - 1) > 1e-4).any())


def changes(opr: Opr, other: Opr, matching: Matching) -> Iterator[str]:
    """Describe how two matched operators differ, but for the values of constants.

    Args:
        opr: an operator of the model under suspicion.
        other: its partner.
        matching: the partners of its inputs.

    >>> from loadrun.graph.params import Convolution
    >>> pair = [Opr("ConvolutionV2", (Convolution(stride_h=s, stride_w=s),)) for s in (2, 1)]
    >>> list(changes(*pair, Matching()))
    ['stride (2, 2) against (1, 1)']
    """
    swapped = list(_other_inputs(opr, other, matching))
    if opr.title != other.title:
        # Other operators stand for the same in files of other formats, or where they read something else.
        same = matching.alike or kind_of(opr) == kind_of(other)
        if same and not swapped and len(opr.inputs) == len(other.inputs):
            yield f"{opr.title} against {other.title}"
        return
    transposed = _transposed(opr, other)
    for one, two in zip(opr.params, other.params, strict=False):
        if type(one) is type(two):
            yield from (t for t in _other_fields(one, two) if t.split()[0] not in transposed)
    for i, (x, y) in enumerate(zip(opr.inputs, other.inputs, strict=False)):
        if is_constant(x) and is_constant(y) and i not in transposed.values():
            yield from _other_tensor(x, y)
    # Where inputs have other dtypes, those of the outputs may follow from them.
    if not any(_have_other_dtypes(x, y) for x, y in zip(opr.inputs, other.inputs, strict=False)):
        outputs = zip(opr.outputs, other.outputs, strict=False)
        yield from (f"{x.dtype} against {y.dtype}" for x, y in outputs if _have_other_dtypes(x, y))
    yield from swapped


def _have_other_dtypes(x: Var, y: Var) -> bool:
    known = x.dtype is not None and y.dtype is not None
    return known and x.dtype != y.dtype and not _is_stored(x.dtype, y.dtype)


def _transposed(opr: Opr, other: Opr) -> dict[str, int]:
    """Map parameters that differ to the inputs that they are about, which are matrices that differ likewise."""
    operands = {}
    for i, (name, x, y) in enumerate(
        zip(("transposeA", "transposeB"), opr.inputs, other.inputs, strict=False)
    ):
        if is_constant(x) and is_constant(y):
            one, two = (v.owner.tensors[v.index].value() for v in (x, y))
            if one.ndim == two.ndim == 2 and laid_out_like(one, two) is not two:
                operands[name] = i
    return operands


def _other_fields(one: Record, two: Record) -> Iterator[str]:
    """Describe which fields differ, with sizes along the axes together."""
    mine, theirs = dict(one.pairs()), dict(two.pairs())
    fields = {n: (mine.get(n, "its default"), theirs.get(n, "its default")) for n in (*mine, *theirs)}
    same = alike if isinstance(one, Composite) else eq
    names = [n for n, (x, y) in fields.items() if not same(x, y) and not _is_stored(x, y)]
    for name in dict.fromkeys(_stem(n) for n in names):
        group = [pair for n, pair in fields.items() if _stem(n) == name]
        x, y = ([_shown(value) for value in values] for values in zip(*group, strict=True))
        if len(group) == 1:
            yield f"{name} {x[0]} against {y[0]}"
        else:
            yield f"{name} ({', '.join(x)}) against ({', '.join(y)})"


def _is_stored(x: object, y: object) -> bool:
    """Return whether one dtype is the integers that the other one stores: ONNX keeps no scale in a type."""
    return isinstance(x, DType) and isinstance(y, DType) and x.is_quantized != y.is_quantized and x.np == y.np


def _stem(name: str) -> str:
    return name[:-2] if name[-2:] in ("_d", "_h", "_w") else name


def _shown(value: object) -> str:
    return str(getattr(value, "name", value))


def _other_tensor(x: Var, y: Var) -> Iterator[str]:
    one, two = x.owner.tensors[x.index], y.owner.tensors[y.index]
    if one.shape != two.shape:
        yield f"constant {x.label!r} of shape {list(one.shape or ())} against {list(two.shape or ())}"
    elif one.dtype != two.dtype and not _is_stored(one.dtype, two.dtype):
        yield f"constant {x.label!r} in {one.dtype} against {two.dtype}"


def _other_inputs(opr: Opr, other: Opr, matching: Matching) -> Iterator[str]:
    """Describe which inputs are swapped or come from elsewhere, if all of them have partners."""
    partners = [matching.pairs.get(v.id) for v in opr.inputs]
    if len(opr.inputs) != len(other.inputs) or None in partners:
        return
    wrong = [i for i, (p, v) in enumerate(zip(partners, other.inputs, strict=True)) if p is not v]
    if len(wrong) == 2 and partners[wrong[0]] is other.inputs[wrong[1]]:
        yield f"inputs {wrong[0]} and {wrong[1]} are swapped"
        return
    for i in wrong if matching.alike else ():
        yield f"input {i} is {opr.inputs[i].label!r} against {other.inputs[i].label!r}"


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
