"""The common base of the layout passes: which variable has which layout, and how one becomes another."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from ...base.errors import EngineError
from ...graph import Graph, Opr, Var, params as P
from ...graph.dtypes import DType
from ...ops.catalog import types
from ...ops.op import Trait
from ...ops.registry import Shape
from ..arithmetic.identities import elemwise
from ..rewriter import Rewriter

# Changing the layout of tensors with the operators that MegEngine writes for it: Reshape, Dimshuffle, Reshape.
#
# The shape arithmetic is in the graph, so that the result follows other batch sizes.

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
        pattern = P.Dimshuffle(pattern=plan.order, ndim=len(plan.order))
        (result,) = r.add("Dimshuffle", pattern, inputs=[result])
    if plan.merged is not None:
        result = _reshape(r, result, _target(r, var, plan.merged))
    return result


def _reshape(r: Rewriter, var: Var, shape: Var) -> Var:
    return r.add("ReshapeV1", P.OptionalAxisV1(), inputs=[var, shape])[0]


def _int_constant(r: Rewriter, value: int) -> Var:
    return r.put(np.array([value], np.int32), _INT)


def shape_of(r: Rewriter, var: Var, axes: tuple[int, ...]) -> Var:
    """Append what computes some of the sizes of a variable, as a shape to give to another one."""
    return _target(r, var, tuple((a, 1, False) for a in axes))


def _target(r: Rewriter, var: Var, sizes: tuple[tuple[int | None, int, bool], ...]) -> Var:
    (shape,) = r.add("GetVarShapeV1", P.OptionalAxisV1(), inputs=[var])
    parts = []
    for axis, factor, grows in sizes:
        if axis is None:
            parts.append(_int_constant(r, factor))
            continue
        at = P.IndexDescMaskDump(items=(P.IndexItem(axis=0, idx=True),))
        (size,) = r.add("Subtensor", at, inputs=[shape, _int_constant(r, axis)])
        if factor != 1:
            by = _int_constant(r, factor)
            size = (
                elemwise(r, P.ElemwiseMode.MUL, by, size)
                if grows
                else elemwise(r, P.ElemwiseMode.FLOOR_DIV, size, by)
            )
        parts.append(size)
    return r.add("Concat", P.Axis(axis=0), inputs=parts)[0]


ELEMENTWISE = types(Trait.ELEMENTWISE)
"""Operators to which a layout does not matter."""
CONVOLUTIONS = types(Trait.PACKED)
"""Those that layout passes convert alike: data, filter, then bias and residual if there are any."""
PLAIN = "NCHW"


def fills_packs(shape: Shape | None, pack: int) -> bool:
    """Return whether a shape is that of plain images (NCHW) whose channels fill packs."""
    return shape is not None and len(shape) == 4 and shape[1] % pack == 0


class Layouts:
    """The new graph while a layout pass makes it.

    Attributes:
        r: what makes the graph.
        layout: layout of the new variables that are not plain (NCHW), by their ids.
    """

    def __init__(self, rewriter: Rewriter) -> None:
        self.r = rewriter
        self.layout: dict[int, str] = {}
        self._origin: dict[int, tuple[Var, str]] = {}

    def of(self, var: Var) -> str:
        """Return the layout of a new variable."""
        return self.layout.get(var.id, PLAIN)

    def mark(self, var: Var, layout: str) -> Var:
        """Note the layout of a new variable."""
        if layout != PLAIN:
            self.layout[var.id] = layout
        return var

    def to(self, var: Var, layout: str, change: Callable[[Var, str, str], Var] | None = None) -> Var:
        """Convert the variable to another layout, from its original one if it was converted before.

        Args:
            change: how to change it, in place of `converted`.
        """
        origin, current = self._origin.get(var.id, (var, self.of(var)))
        if self.of(var) == layout:
            return var
        if current == layout:
            return origin
        converted = (change or self.converted)(origin, current, layout)
        self.mark(converted, layout)
        self._origin[converted.id] = (origin, current)
        return converted

    def converted(self, var: Var, source: str, target: str) -> Var:
        """Append what turns one layout into another: Reshape and Dimshuffle."""
        return reformat(self.r, var, source, target)

    def plain(self, var: Var) -> Var:
        """Convert the variable to NCHW."""
        return self.to(var, PLAIN)

    def keep(self, opr: Opr) -> None:
        """Copy an operator that knows no layout: it reads plain inputs."""
        self.r.copy(opr, [self.plain(self.r.var(v)) for v in opr.inputs])

    def attempt(self, opr: Opr, layout: str, inputs: Sequence[Var], *params: P.Record) -> bool:
        """Copy an operator whose outputs get a layout, unless it cannot take these inputs."""
        try:
            outputs = self.r.copy(opr, inputs, *params)
        except EngineError:
            return False
        for var in outputs:
            self.mark(var, layout)
        return True


def convert_layouts(
    graph: Graph, visit: Callable[[Layouts, Opr], bool], make: Callable[[Rewriter], Layouts] = Layouts
) -> Graph:
    """Run a layout pass: `visit` handles an operator and returns True, or leaves it to be kept plain.

    Operators in branches are kept plain; outputs are plain.
    """
    r = Rewriter(graph)
    layouts = make(r)
    for opr in r.oprs:
        if r.frozen(opr) or not _visited(layouts, opr, visit):
            layouts.keep(opr)
    for old in graph.outputs:
        new = r.var(old)
        plain = layouts.plain(new)
        if plain is not new:
            r.replace(old, plain)
    return r.finish()


def _visited(layouts: Layouts, opr: Opr, visit: Callable[[Layouts, Opr], bool]) -> bool:
    try:
        return visit(layouts, opr)
    except EngineError:
        # Data or weights of this shape or type cannot have the layout.
        return False
