"""Differences of two matched operators before anything is computed: parameters, dtypes, constants, inputs."""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import eq

import numpy as np

from ...graph import Graph, Opr, Var
from ...graph.composite import Composite, alike
from ...graph.dtypes import Array, DType
from ...graph.params import Record
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
