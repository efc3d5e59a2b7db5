"""Passes that remove what changes nothing or is known in advance."""

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from ..graph import Graph, Opr, StoredTensor, TensorFormat, Var, params as P
from ..graph.dtypes import DType, encode
from ..ops.catalog import TypeParam, select, types
from ..ops.elemwise.table import ROWS, ModeTrait as T, modes
from ..ops.op import Trait
from .arithmetic.identities import elemwise, neutral
from .constants import is_pure
from .rewriter import Rewriter, each, repeat

# Constant folding is MegEngine's ParamFuse pass. What follows from weights that a program may exchange
# (SharedDeviceTensor) is stored as such a weight, the rest as an ImmutableTensor.

_IMAGES = {
    P.RelayoutMode.NCHW_NHWCD4I: 2,
    P.RelayoutMode.INTER_WEIGHT_DENSEI: 3,
    P.RelayoutMode.INTER_WEIGHT_DENSEI_DOT: 3,
    P.RelayoutMode.INTER_WEIGHT_GROUPI: 4,
    P.RelayoutMode.INTER_WEIGHT_GROUPI_DOT: 4,
    P.RelayoutMode.INTER_WEIGHT_CHANI: 1,
}
"""The axis at which a row of an image begins, by the mode that makes the image."""
_GROWTH = 1 << 20
"""How many bytes a folded value may be larger than all constants that it comes from."""


def fold_constants(graph: Graph) -> Graph:
    """Replace operators on constants by their values, where that is not much larger than the constants.

    Random operators and operators with effects are never computed in advance. Results are the same bits: the kernels
    that fold are those that would run.

    >>> import loadrun
    >>> graph = loadrun.load("fixtures/nets/layout_float_unoptimized.mge").graph
    >>> len(fold_constants(graph).oprs) <= len(graph.oprs)
    True
    """
    r = Rewriter(graph)
    folder = _Folder(r)
    for opr in r.oprs:
        operands = [r.var(v) for v in opr.inputs]
        if is_pure(opr) and all(map(r.constant, operands)) and not r.checking(opr):
            r.copy(opr)
        else:
            r.copy(opr, [folder.input(v) for v in opr.inputs])
    for old in graph.outputs:
        new = folder.input(old)
        if new is not r.var(old):
            r.replace(old, new)
    return r.finish()


class _Folder:
    def __init__(self, rewriter: Rewriter) -> None:
        self.r = rewriter
        self.folded: dict[int, Var] = {}

    def input(self, old: Var) -> Var:
        """Return what stands for a variable of the old graph: a stored value, unless it is part of a check."""
        new = self.r.var(old)
        return new if self.r.checking(old.owner) else self(new)

    def __call__(self, var: Var) -> Var:
        """Return the stored value of a computed constant, any other variable itself."""
        if self.r.stored(var) or not self.r.constant(var):
            return var
        if var.id not in self.folded:
            self.folded[var.id] = self._fold(var)
        return self.folded[var.id]

    def _fold(self, var: Var) -> Var:
        value = self.r.value(var)
        if value is None or not value.size or not value.ndim:
            return var
        size, param = self._sources(var.owner)
        if value.nbytes > size + _GROWTH:
            return var
        image = (
            _IMAGES.get(var.owner.get(P.RelayoutFormat).mode)
            if var.owner.type == "RelayoutFormatV1"
            else None
        )
        if image is not None:
            dtype = self.r.dtype(var)
            form = TensorFormat(kind=2, align_axis=image)
            tensor = StoredTensor(dtype, value.shape, None, encode(value, dtype), format=form)
            return self.r.add("SharedDeviceTensorWithFormat", tensors=[tensor])[0]
        return self.r.put(value, self.r.dtype(var), param=param)

    def _sources(self, opr: Opr) -> tuple[int, bool]:
        """Return the bytes of the constants behind an operator's value, and whether any is an exchangeable weight."""
        size, param = 0, False
        seen: set[int] = set()
        stack = [opr]
        while stack:
            at = stack.pop()
            if id(at) in seen:
                continue
            seen.add(id(at))
            if at.tensors:
                size += sum(t.data.nbytes for t in at.tensors if t.data is not None)
                param |= at.type != "ImmutableTensor"
            # MegEngine does not infer such values statically and stores them as weights.
            param |= at.type == "RelayoutFormatV1"
            stack.extend(v.owner for v in at.inputs)
        return size, param


M = P.ElemwiseMode
_LEFT_OUT, _CHAINS, _CANCELS, _PRODUCTS = map(modes, (T.LEFT_OUT, T.ASSOCIATIVE, T.CANCELS, T.PRODUCT))
_FOLDED, _CONSTANTS = types(Trait.FOLDED), types(Trait.CONSTANT)
_SPREAD = "Broadcast"
"""The operator that stays where nothing computes with it."""
_SMALL = 1024
"""How many elements such a value has at most."""


def stabilize(graph: Graph) -> Graph:
    """Do the simplifications that MegEngine does while it makes an operator, at every level but 0.

    - ``x + 0``, ``x * 1`` and ``x ** 1`` are ``x``, for a number of one axis (other neutral ones stay);
    - ``x - x`` is 0 and ``x / x`` is 1, also for infinities, NaN and 0, where computing would give NaN;
    - ``log(exp(x))`` is ``x``, ``log(exp(x) + exp(y))`` is ``log_sum_exp(x, y)``, ``log(exp(x) * y)`` is
      ``x + log(y)``, as for the quotient: these neither overflow nor lose digits;
    - ``log(1 + x)`` is ``log1p(x)``, ``exp(x) - 1`` is ``expm1(x)``.

    What takes the place of an operator has its name. At every level what follows from small constants and weights is
    a constant, and a sum of ``x ** 2`` or ``square(x)`` is one operator.

    >>> from loadrun.graph.dtypes import DType
    >>> from loadrun.graph import StoredTensor
    >>> from loadrun.graph.params import Host2DeviceCopy
    >>> g = Graph()
    >>> (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), names=["x"],
    ...              tensors=[StoredTensor(DType("Float32"), (2,), "x")])
    >>> (e,) = g.add("Elemwise", P.Elemwise(mode=M.EXP), inputs=[x])
    >>> g.outputs = g.add("Elemwise", P.Elemwise(mode=M.LOG), inputs=[e], names=["y"])
    >>> [o.title for o in stabilize(g).oprs]
    ['Host2DeviceCopy', 'Identity']
    """
    return each(graph, _simpler, "Elemwise")


def as_made(graph: Graph, level: int) -> Graph:
    """Return what MegEngine makes of operators: constants folded, squares summed, above level 0 what `stabilize` does.

    Args:
        level: the trace's level of optimization.

    >>> import loadrun
    >>> from loadrun.megengine.functional import sum
    >>> traced = loadrun.tracing.trace(symbolic=True, capture_as_const=True)(lambda x: sum(x**2))
    >>> traced(loadrun.tensor([1.0, 2.0])).item()
    5.0
    >>> [o.title for o in as_made(traced.graph(), 0).oprs if not o.tensors]
    ['ReduceV2']
    """
    return each(graph, _simplified if level else _folded, *_FOLDED)


def _simplified(r: Rewriter, opr: Opr) -> Var | None:
    return _folded(r, opr) or (_simpler(r, opr) if opr.type == "Elemwise" else None)


def _folded(r: Rewriter, opr: Opr) -> Var | None:
    return _constant(r, opr) or (_sum_of_squares(r, opr) if opr.type == "ReduceV2" else None)


def _sum_of_squares(r: Rewriter, opr: Opr) -> Var | None:
    operands = [r.var(v) for v in opr.inputs]
    p, inner = opr.get(P.Reduce), operands[0].owner
    if p.mode != P.ReduceMode.SUM or p.data_type != P.ReduceDataType.DEFAULT or inner.type != "Elemwise":
        return None
    mode = inner.get(P.Elemwise).mode
    if mode != M.SQUARE and not (mode == M.POW and _is_number(r, inner.inputs[1], 2.0)):
        return None
    x = inner.inputs[0]
    if not r.dtype(x).is_float or r.dtype(x) != r.dtype(operands[0]):
        return None
    (y,) = r.add("ReduceV2", p.replace(mode=P.ReduceMode.SUM_SQR), inputs=[x, *operands[1:]], like=opr)
    y.owner.name = opr.name
    return y


def _is_number(r: Rewriter, var: Var, number: float) -> bool:
    """Return whether a variable is that number, as a constant of one axis."""
    return r.shape(var) == (1,) and r.immutable(var) and r.scalar(var) == number


def _simpler(r: Rewriter, opr: Opr) -> Var | None:
    before = len(r.new.oprs)
    simpler = _visit(r, opr)
    if simpler is not None and simpler.owner.id >= before:
        simpler.owner.name = opr.name
    return simpler


def _constant(r: Rewriter, opr: Opr) -> Var | None:
    operands = [r.var(v) for v in opr.inputs]
    if not operands or not all(_known(r, v) for v in operands):
        return None
    dtype = opr.outputs[0].dtype
    if dtype is None:
        return None
    at = r.copy(opr)[0]
    value = r.value(at)
    if value is None or not 0 < value.size <= _SMALL:
        return None
    return r.put(value, dtype)


def _known(r: Rewriter, var: Var) -> bool:
    """Return whether a variable is a small constant, or one repeated along new axes."""
    owner = var.owner
    if owner.type == _SPREAD:
        shape = r.shape(var)
        return shape is not None and prod(shape) <= _SMALL and all(_known(r, v) for v in owner.inputs)
    return (
        owner.type in _CONSTANTS and len(owner.tensors) == 1 and prod(owner.tensors[0].shape or ()) <= _SMALL
    )


def _visit(r: Rewriter, opr: Opr) -> Var | None:
    operands = [r.var(v) for v in opr.inputs]
    dtype = opr.outputs[0].dtype
    if dtype is None or dtype.is_quantized or any(r.dtype(v) != dtype for v in operands):
        return None
    mode = opr.get(P.Elemwise).mode
    number = ROWS[mode].neutral
    if mode in _LEFT_OUT and number is not None:
        for at in (0, 1) if mode in _CHAINS else (1,):
            if _is_number(r, operands[at], number):
                return operands[1 - at]
    if mode in _CANCELS and number is not None and operands[0] is operands[1]:
        return _number_like(r, operands[0], number)
    if not dtype.is_float:
        return None
    if mode == M.LOG:
        return _log(r, operands[0])
    if (
        mode == M.SUB
        and (inner := _of(operands[0], M.EXP)) is not None
        and neutral(r, operands[1], 1.0, inner)
    ):
        return elemwise(r, M.EXPM1, inner)
    return None


def _of(var: Var, mode: P.ElemwiseMode) -> Var | None:
    """Return the first input of the operator that gives a variable, if that is of the mode."""
    owner = var.owner
    return owner.inputs[0] if owner.type == "Elemwise" and owner.get(P.Elemwise).mode == mode else None


def _log(r: Rewriter, x: Var) -> Var | None:
    if (inner := _of(x, M.EXP)) is not None:
        return inner
    owner = x.owner
    if owner.type != "Elemwise" or len(owner.inputs) != 2:
        return None
    a, b = owner.inputs
    mode = owner.get(P.Elemwise).mode
    ea, eb = _of(a, M.EXP), _of(b, M.EXP)
    if mode in _PRODUCTS and (ea is not None or eb is not None):
        parts = [v if e is None else e for v, e in ((a, ea), (b, eb))]
        logs = [
            p if e is not None else _log(r, p) or elemwise(r, M.LOG, p)
            for p, e in zip(parts, (ea, eb), strict=True)
        ]
        return elemwise(r, M.ADD if mode == M.MUL else M.SUB, *logs)
    if mode == M.ADD:
        if ea is not None and eb is not None:
            return elemwise(r, M.LOG_SUM_EXP, ea, eb)
        for one, other in ((a, b), (b, a)):
            if neutral(r, one, 1.0, other):
                return elemwise(r, M.LOG1P, other)
    return None


def _number_like(r: Rewriter, x: Var, number: float) -> Var:
    """Return a number in the shape of a variable."""
    constant = r.put(np.full((1,), number, r.dtype(x).np), r.dtype(x))
    (shape,) = r.add("GetVarShapeV1", P.OptionalAxisV1(), inputs=[x])
    return r.add("Broadcast", P.Empty(), inputs=[constant, shape])[0]


# MegEngine's RemoveNonComputingOpr, RemoveShapeHint and RemoveRedundantCopy.


def remove_noops(graph: Graph) -> Graph:
    """Remove Identity and MarkNoBroadcastElemwise, and joins of a single part; outputs keep their names."""
    return each(graph, _forwarded, "Identity", "MarkNoBroadcastElemwise", "Concat")


def _forwarded(r: Rewriter, opr: Opr) -> Var | None:
    return r.var(opr.inputs[0]) if len(opr.inputs) == 1 else None


def remove_copies(graph: Graph) -> Graph:
    """Remove the first of two copies after each other."""

    def visit(r: Rewriter, opr: Opr) -> Var | None:
        source = r.var(opr.inputs[0])
        inner = source.owner
        if inner.type != "Copy" or not r.single(opr.inputs[0]):
            return None
        return r.add("Copy", *opr.params, inputs=[inner.inputs[0]], like=opr)[0]

    return each(graph, visit, "Copy")


_INTEGERS = ("Int8", "Uint8", "Int16", "Int32")
_EVERY = (*_INTEGERS, "Uint16", "Uint32", "Int64", "Uint64")
_BITS = {"Bool": 1, "Float16": 11, "Float32": 24, "Float64": 53}


def holds(target: DType, source: DType) -> bool:
    """Return whether every value of `source` is a value of `target`.

    >>> holds(DType("Float32"), DType("Int16")), holds(DType("Float32"), DType("Int32"))
    (True, False)
    """
    if source == target or source.name == "Bool":
        return True
    if source.name in _EVERY:
        low = -(1 << source.bits - 1) if source.np.kind == "i" else 0
        high = (1 << source.bits - (source.np.kind == "i")) - 1
        if target.name in _EVERY:
            least = -(1 << target.bits - 1) if target.np.kind == "i" else 0
            most = (1 << target.bits - (target.np.kind == "i")) - 1
            return least <= low and high <= most
        return target.name in _BITS and max(high, -low) <= 1 << _BITS[target.name]
    return (source.name, target.name) in (
        ("Float16", "Float32"),
        ("Float16", "Float64"),
        ("Float32", "Float64"),
    )


def remove_exact_conversions(graph: Graph) -> Graph:
    """Drop conversions to the type that a value has, and detours through a type that holds every value.

    Results are the same bits.
    """

    def superfluous(source: DType, between: DType, target: DType) -> bool:
        if target.is_quantized and (source.name == "Bool" or target.name == "QuantizedS32"):
            return False
        return not source.is_quantized and not between.is_quantized and holds(between, source)

    return _remove(graph, superfluous)


def remove_conversions(graph: Graph) -> Graph:
    """Remove what `remove_exact_conversions` does, and what MegEngine's RemoveRedundantTypeCvt drops besides.

    A detour through a larger type of the same category, and through float32 on the way to a quantized or small
    integer type, goes although it rounds twice where the direct way rounds once.
    """

    def superfluous(source: DType, between: DType, target: DType) -> bool:
        both = (between, target)
        if all(d.is_float for d in both) or all(d.name in _INTEGERS for d in both):
            return between.bits >= target.bits
        small = target.name in _INTEGERS and target.bits <= 24
        return between.name == "Float32" and (target.is_quantized or small) and source.name != "Bool"

    return _remove(graph, superfluous)


def _remove(graph: Graph, superfluous: Callable[[DType, DType, DType], bool]) -> Graph:
    def visit(r: Rewriter, opr: Opr) -> Var | None:
        target = opr.get(TypeParam).dtype
        source = r.var(opr.inputs[0])
        while True:
            if r.dtype(source) == target:
                return source
            inner = source.owner
            if inner.type != "TypeCvtV2":
                break
            first = inner.inputs[0]
            if not superfluous(r.dtype(first), r.dtype(source), target):
                break
            source = first
        if source is r.var(opr.inputs[0]):
            return None
        return r.add("TypeCvtV2", TypeParam(dtype=target), inputs=[source], like=opr)[0]

    return each(graph, visit, "TypeCvtV2")


# MegEngine's ParamMerge.

_HOLDERS = {f"SharedDeviceTensor{form}": f"MultipleDeviceTensor{form}Holder" for form in ("", "WithFormat")}


def merge_weights(graph: Graph) -> Graph:
    """Replace weights by one MultipleDeviceTensorHolder, those with a memory format by one of their own."""
    r = Rewriter(graph)
    for source, holder in _HOLDERS.items():
        weights = [o for o in r.oprs if o.type == source]
        if weights:
            _merge(r, weights, holder)
    for opr in r.rest():
        if opr.type not in _HOLDERS:
            r.copy(opr)
    return r.finish()


def _merge(r: Rewriter, weights: list[Opr], holder: str) -> None:
    tensors = [
        replace(t, name=t.name or v.name) for o in weights for t, v in zip(o.tensors, o.outputs, strict=True)
    ]
    merged = r.add(holder, n_outputs=len(tensors), tensors=tensors, like=weights[0])
    # Each tensor has its own device; MegEngine refuses one on the operator.
    merged[0].owner.dumped = merged[0].owner.dumped._replace(comp_node=())
    for opr, new in zip(weights, merged, strict=True):
        new.format = opr.outputs[0].format
        r.replace(opr.outputs[0], new)


_ROUNDS = 16
_ARITHMETIC = select(lambda op: op.family == "elemwise.modes")


def sink_dimshuffle(graph: Graph) -> Graph:
    """Let elementwise operators of one variable and scalar constants change places with a Dimshuffle before them that
    reads an elementwise operator; results are the same bits."""
    return repeat(graph, _swapped, _ROUNDS, *_ARITHMETIC, "TypeCvtV2")


def _swapped(r: Rewriter, opr: Opr) -> Var | None:
    moved = [v for v in opr.inputs if v.owner.type == "Dimshuffle"]
    others = [v for v in opr.inputs if v not in moved]
    if len(moved) != 1 or any(r.old_shape(v) != (1,) or not r.constant(r.var(v)) for v in others):
        return None
    shuffle = moved[0].owner
    source = shuffle.inputs[0]
    if not r.single(moved[0]) or not r.single(source) or source.owner.type not in _ARITHMETIC:
        return None
    operands = [r.var(source) if v is moved[0] else r.var(v) for v in opr.inputs]
    (inner,) = r.add(opr.type, *opr.params, inputs=operands, output_dtype=opr.output_dtype, like=opr)
    return r.add("Dimshuffle", *shuffle.params, inputs=[inner], like=shuffle)[0]
