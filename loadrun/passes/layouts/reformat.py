"""Changing the layout of tensors with the operators that MegEngine writes for it: Reshape, Dimshuffle, Reshape.

The shape arithmetic is in the graph, so that the result follows other batch sizes.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from ...graph import Var
from ...graph.dtypes import DType
from ...graph.params import Axis, Dimshuffle, ElemwiseMode, IndexDescMaskDump, IndexItem, OptionalAxisV1
from ..arithmetic.identities import elemwise
from ..rewriter import Rewriter

_FORMATS = {
    "NCHW": "N C H W",
    "NHWC": "N H W C",
    "NCHWc4": "N C/4 H W C%4",
    "NCHWc8": "N C/8 H W C%8",
    "NCHWc32": "N C/32 H W C%32",
    "NCHWc64": "N C/64 H W C%64",
    "CHWNc4": "C/4 H W N C%4",
    "KCRS": "K C R S",
    "KRSC": "K R S C",
    "KCRSc4": "K C/4 R S C%4",
    "KCRSc32": "K C/32 R S C%32",
    "KCRSc64": "K C/64 R S C%64",
    "KRSCk4": "K/4 R S C K%4",
    "KRSCk8": "K/8 R S C K%8",
    "KCRSc4k4": "K/4 C/4 R S C%4 K%4",
    "KCRSk4c4": "K/4 C/4 R S K%4 C%4",
    "KCRSc8k8": "K/8 C/8 R S C%8 K%8",
    "GKCRS": "G K C R S",
    "GKCRSc4": "G K C/4 R S C%4",
    "GKCRSc4k4": "G K/4 C/4 R S C%4 K%4",
    "GKCRSk4c4": "G K/4 C/4 R S K%4 C%4",
    "GKCRSc8k8": "G K/8 C/8 R S C%8 K%8",
    "C11RS": "C 1 1 R S",
    "C11RSc4": "C/4 1 1 R S C%4",
    "C11RSc8": "C/8 1 1 R S C%8",
}
"""Axes of every layout: ``C/4`` is a quarter of the channels, ``C%4`` the four of each."""
_INT = DType("Int32")


@dataclass(frozen=True)
class _Dim:
    """One axis: every `stride`-th step along `name`, `extent` of them or (None) as many as there are."""

    name: str
    stride: int
    extent: int | None


@cache
def _dims(layout: str) -> tuple[_Dim, ...]:
    dims = []
    for i, token in enumerate(_FORMATS[layout].split()):
        name, _, outer = token.partition("/")
        name, _, inner = name.partition("%")
        if name == "1":
            dims.append(_Dim(f"1{i}", 1, 1))
        elif inner:
            dims.append(_Dim(name, 1, int(inner)))
        else:
            dims.append(_Dim(name, int(outer or 1), None))
    return tuple(dims)


@dataclass(frozen=True)
class _ReformatPlan:
    """Steps: split axes, move them, merge them. A size is (axis of the source, factor); axis None is a number.

    Attributes:
        split: sizes after splitting, None if nothing is split; merged: sizes of the result, None likewise.
    """

    split: tuple[tuple[int | None, int, bool], ...] | None
    order: tuple[int, ...]
    merged: tuple[tuple[int | None, int, bool], ...] | None


@cache
def _plan(source: str, target: str) -> _ReformatPlan:
    before, after = _dims(source), _dims(target)
    strides: dict[str, set[int]] = {}
    for d in (*before, *after):
        strides.setdefault(d.name, set()).add(d.stride)
    split = tuple(a for d in before for a in _atoms(d, strides[d.name]))
    wanted = tuple(a for d in after for a in _atoms(d, strides[d.name]))
    order = tuple(split.index(a) for a in wanted)
    return _ReformatPlan(
        None if split == before else _factors(before, split),
        order,
        None if wanted == after else _factors(before, after),
    )


def _atoms(d: _Dim, strides: set[int]) -> list[_Dim]:
    """Return the pieces of an axis, cut at all strides of its name, the outermost first."""
    top = None if d.extent is None else d.stride * d.extent
    atoms: list[_Dim] = []
    for s in sorted((s for s in strides if s >= d.stride and (top is None or s < top)), reverse=True):
        above = atoms[-1].stride if atoms else top
        atoms.append(_Dim(d.name, s, None if above is None else above // s))
    return atoms


def _factors(source: tuple[_Dim, ...], target: tuple[_Dim, ...]) -> tuple[tuple[int | None, int, bool], ...]:
    whole = {d.name: (i, d.stride) for i, d in enumerate(source) if d.extent is None}
    factors: list[tuple[int | None, int, bool]] = []
    for d in target:
        if d.extent is not None:
            factors.append((None, d.extent, False))
            continue
        axis, stride = whole[d.name]
        grows = stride > d.stride
        factors.append((axis, stride // d.stride if grows else d.stride // stride, grows))
    return tuple(factors)


def reformat(r: Rewriter, var: Var, source: str, target: str) -> Var:
    """Append what turns a variable of one layout into another.

    Args:
        source: name of the layout that it has, as in ``NCHW``, ``NCHWc4`` or ``KCRSc4k4``.
        target: name of the layout to give it.
    """
    plan = _plan(source, target)
    result = var
    if plan.split is not None:
        result = _reshape(r, result, _target(r, var, plan.split))
    if plan.order != tuple(range(len(plan.order))):
        pattern = Dimshuffle(pattern=plan.order, ndim=len(plan.order))
        (result,) = r.add("Dimshuffle", pattern, inputs=[result])
    if plan.merged is not None:
        result = _reshape(r, result, _target(r, var, plan.merged))
    return result


def _reshape(r: Rewriter, var: Var, shape: Var) -> Var:
    return r.add("ReshapeV1", OptionalAxisV1(), inputs=[var, shape])[0]


def _int_constant(r: Rewriter, value: int) -> Var:
    return r.put(np.array([value], np.int32), _INT)


def shape_of(r: Rewriter, var: Var, axes: tuple[int, ...]) -> Var:
    """Append what computes some of the sizes of a variable, as a shape to give to another one."""
    return _target(r, var, tuple((a, 1, False) for a in axes))


def _target(r: Rewriter, var: Var, sizes: tuple[tuple[int | None, int, bool], ...]) -> Var:
    (shape,) = r.add("GetVarShapeV1", OptionalAxisV1(), inputs=[var])
    parts = []
    for axis, factor, grows in sizes:
        if axis is None:
            parts.append(_int_constant(r, factor))
            continue
        at = IndexDescMaskDump(items=(IndexItem(axis=0, idx=True),))
        (size,) = r.add("Subtensor", at, inputs=[shape, _int_constant(r, axis)])
        if factor != 1:
            by = _int_constant(r, factor)
            size = (
                elemwise(r, ElemwiseMode.MUL, by, size)
                if grows
                else elemwise(r, ElemwiseMode.FLOOR_DIV, size, by)
            )
        parts.append(size)
    return r.add("Concat", Axis(axis=0), inputs=parts)[0]
