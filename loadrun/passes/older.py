"""Graphs for older runtimes, and computing in float16: operators become others that run where the graph goes."""

from collections.abc import Callable, Sequence

import numpy as np

from ..base.errors import EngineError, LoadRunError, UsageError
from ..base.registry import Registry
from ..graph import Graph, Opr, StoredTensor, Var, params as P
from ..graph.dtypes import DType, encode
from ..graph.params import ElemwiseMode as M, ElemwiseMultiTypeMode as Multi, Record, ReduceMode
from ..ops.catalog import CATALOG, TypeParam, types
from ..ops.infer import infer_dtypes, infer_shapes
from ..ops.op import Trait
from .constants import subgraph
from .guards import guarded
from .rewriter import Rewriter

# Graphs for older runtimes: newer operators become ones that every release knows.
#
# MegEngine does this whenever it dumps, unless it is told ``no_change_graph=True``. Which operators it
# rewrites follows its serialization registries; the formulas here are chosen for their rounding, and are
# right where MegEngine 1.13.0's are not (CLIP, SIGN, ISINF, ASINH of negative numbers, affine GroupNorm).

_F32, _I32, _BOOL = DType("Float32"), DType("Int32"), DType("Bool")
Formula = Callable[..., Var]
_ELEMWISE: Registry[M, Formula] = Registry("formula for older runtimes")
_MULTI: Registry[Multi, Formula] = Registry("formula for older runtimes")
_ALWAYS: Registry[str, Formula] = Registry("formula for older runtimes")
_IN_V1: Registry[str, Formula] = Registry("formula for v1 files")
_elemwise, _multi, _always, _in_v1 = _ELEMWISE.register, _MULTI.register, _ALWAYS.register, _IN_V1.register


def newer(graph: Graph, format: str = "FBS_V2") -> list[Opr]:
    """Return the operators that `for_older` rewrites.

    >>> import loadrun
    >>> [o.title for o in newer(loadrun.load("fixtures/ops/norm/group_norm_2.mge").graph)]
    ['GroupNorm']
    """
    read = {v.id for o in graph.oprs for v in o.inputs} | {v.id for v in graph.outputs}
    return [
        o
        for o in graph.oprs
        if (_formula(o, format) is not None and not any(v.id in read for v in o.outputs[1:]))
    ]


def for_older(graph: Graph, format: str = "FBS_V2") -> Graph:
    """Copy a graph, rewriting newer operators as MegEngine does when it dumps.

    Elemwise SQRT, SQUARE, TAN, SINH, COSH, ASINH, ACOSH, ATANH, CLIP, SIGN, HSIGMOID, RELU6, PRELU, SOFTPLUS and
    LOGSIGMOID, ElemwiseMultiType EQ, NEQ, LT, LEQ, ISNAN and ISINF, Where, GroupNorm and InstanceNorm; in version 1
    files also LayerNorm, Softmax and Dropout. A normalization whose mean or variance is read stays as it is, and so
    does a dropout whose mask is.

    Args:
        graph: the source, which stays as it is.
        format: the format of the file that it is for.

    Raises:
        UsageError: the dtypes of the variables cannot be inferred.

    >>> import loadrun
    >>> graph = loadrun.load("fixtures/ops/elemwise/relu6_float32.mge").graph
    >>> [o.title for o in newer(graph)], newer(for_older(graph))
    (['RELU6'], [])
    """
    chosen = {id(o) for o in newer(graph, format)}
    if chosen:
        try:
            infer_dtypes(graph.needed())
        except LoadRunError as e:
            raise UsageError(f"rewriting for older runtimes needs the dtypes of all variables: {e}") from e
    ranks = _ranks(graph) if chosen else {}

    def convert(target: Graph, opr: Opr, inputs: list[Var]) -> Var | None:
        formula = _formula(opr, format)
        if id(opr) not in chosen or formula is None or opr.outputs[0].dtype is None:
            return None
        first = len(target.oprs)
        maker = _Maker(target, opr, ranks.get(opr.inputs[0].id))
        if opr.type == "Elemwise":
            # The operator's constructor converts its inputs likewise, so that every step computes in one dtype.
            inputs = [maker.cast(v, maker.dtype) for v in inputs]
        out = formula(maker, *inputs)
        out.name, out.owner.name = opr.outputs[0].name, opr.name
        for added in target.oprs[first:]:
            added.dumped = added.dumped._replace(priority=opr.dumped.priority)
        return out

    return guarded(subgraph(graph, graph.outputs, everything=True, convert=convert)[0])


def _ranks(graph: Graph) -> dict[int, int]:
    """Return the numbers of dimensions by variable, as far as the file's shapes tell."""
    try:
        known = infer_shapes(graph, graph.needed())
    except LoadRunError:
        return {}
    return {v: len(s) for v, s in known.shapes.items() if s is not None}


class _Maker:
    """Adds operators to a graph in place of one."""

    def __init__(self, graph: Graph, opr: Opr, rank: int | None) -> None:
        self.graph = graph
        self.opr = opr
        self.rank = rank
        assert opr.outputs[0].dtype is not None
        self.dtype = opr.outputs[0].dtype

    def add(
        self, type: str, *params: Record, inputs: Sequence[Var] = (), tensor: StoredTensor | None = None
    ) -> Var:
        tensors = [] if tensor is None else [tensor]
        (out,) = self.graph.add(
            type, *params, inputs=inputs, tensors=tensors, comp_node=self.opr.dumped.comp_node[:1]
        )
        infer_dtypes([out.owner])
        return out

    def __call__(self, mode: M, *inputs: Var) -> Var:
        return self.add("Elemwise", P.Elemwise(mode=mode), inputs=inputs)

    def number(self, value: float, dtype: DType | None = None) -> Var:
        dtype = dtype or self.dtype
        return self._tensor(np.array([value], dtype.np), dtype)

    def ints(self, *values: int) -> Var:
        return self._tensor(np.array(values, np.int32), _I32)

    def _tensor(self, value: np.ndarray, dtype: DType) -> Var:
        (node,) = self.opr.dumped.comp_node[:1] or ("xpux:0",)
        tensor = StoredTensor(dtype, value.shape, None, encode(value, dtype), node)
        return self.add("ImmutableTensor", tensor=tensor)

    def cast(self, x: Var, dtype: DType) -> Var:
        # MegEngine refuses to load a conversion of a dtype to itself.
        return x if x.dtype == dtype else self.add("TypeCvtV2", TypeParam(dtype=dtype), inputs=[x])

    def reduce(self, mode: ReduceMode, x: Var, axis: int) -> Var:
        return self.add("ReduceV2", P.Reduce(mode=mode, axis=axis), inputs=[x])

    def shape(self, x: Var, **axis: int) -> Var:
        return self.add("GetVarShapeV1", P.OptionalAxisV1(**axis), inputs=[x])

    def reshape(self, x: Var, target: Var, **axis: int) -> Var:
        return self.add("ReshapeV1", P.OptionalAxisV1(**axis), inputs=[x, target])

    def widened(self, *inputs: Var) -> list[Var]:
        """Convert inputs to float32, in which statistics are computed."""
        return [self.cast(x, _F32) for x in inputs]

    def narrowed(self, x: Var) -> Var:
        return self.cast(x, self.dtype)


@_elemwise(M.SINH)
def _sinh(e: _Maker, x: Var) -> Var:
    difference = e(M.SUB, e(M.EXPM1, x), e(M.EXPM1, e(M.NEGATE, x)))
    return e(M.MUL, difference, e.number(0.5))


@_elemwise(M.COSH)
def _cosh(e: _Maker, x: Var) -> Var:
    """Compute ``1 + (expm1(x) + expm1(-x)) / 2``; MegEngine's ``exp`` is never infinite."""
    total = e(M.ADD, e(M.EXPM1, x), e(M.EXPM1, e(M.NEGATE, x)))
    return e(M.ADD, e(M.MUL, total, e.number(0.5)), e.number(1))


@_elemwise(M.SIGN)
def _sign(e: _Maker, x: Var) -> Var:
    zero = e.number(0)
    return e(M.SUB, e(M.LT, zero, x), e(M.LT, x, zero))


@_elemwise(M.CLIP)
def _clip(e: _Maker, x: Var, low: Var, high: Var) -> Var:
    """Return ``low`` where x is not above it, else ``min(x, high)``, also where the bounds are in the wrong order."""
    if _in_order(low, high):
        return e(M.MIN, e(M.MAX, x, low), high)
    below, above = e(M.COND_LEQ_MOV, x, low, low), e(M.COND_LT_MOV, low, x, e(M.MIN, x, high))
    return e(M.ADD, below, above)


def _in_order(low: Var, high: Var) -> bool:
    """Return whether both bounds are stored numbers, the lower one not above the other."""
    constants = [v.owner.tensors[0] for v in (low, high) if v.owner.type == "ImmutableTensor"]
    return len(constants) == 2 and bool(np.all(constants[0].value() <= constants[1].value()))


@_elemwise(M.ASINH)
def _asinh(e: _Maker, x: Var) -> Var:
    """Compute ``sign(x) log1p(a + a^2 / (1 + sqrt(a^2 + 1)))`` with ``a = |x|``: no digits cancel.

    The quotient grows like ``a`` from where its square would overflow.
    """
    one, a = e.number(1), e(M.ABS, x)
    low = e(M.MIN, a, e.number(250 if e.dtype.name == "Float16" else 1e18))
    square = e(M.MUL, low, low)
    root = e(M.POW, e(M.ADD, square, one), e.number(0.5))
    quotient = e(M.ADD, e(M.TRUE_DIV, square, e(M.ADD, root, one)), e(M.SUB, a, low))
    inner = e(M.ADD, a, quotient)
    return e(M.MUL, _sign(e, x), e(M.LOG1P, inner))


@_elemwise(M.ACOSH)
def _acosh(e: _Maker, x: Var) -> Var:
    """Compute ``log1p(t + sqrt(t) sqrt(t + 2))`` with ``t = x - 1``."""
    t, half = e(M.SUB, x, e.number(1)), e.number(0.5)
    root = e(M.MUL, e(M.POW, t, half), e(M.POW, e(M.ADD, t, e.number(2)), half))
    return e(M.LOG1P, e(M.ADD, t, root))


@_elemwise(M.ATANH)
def _atanh(e: _Maker, x: Var) -> Var:
    difference = e(M.SUB, e(M.LOG1P, x), e(M.LOG1P, e(M.NEGATE, x)))
    return e(M.MUL, difference, e.number(0.5))


@_elemwise(M.HSIGMOID)
def _hsigmoid(e: _Maker, x: Var) -> Var:
    six = e.number(6)
    gate = e(M.MIN, e(M.MAX, e(M.ADD, x, e.number(3)), e.number(0)), six)
    return e(M.TRUE_DIV, gate, six)


@_elemwise(M.PRELU)
def _prelu(e: _Maker, x: Var, weight: Var) -> Var:
    zero = e.number(0)
    return e(M.FUSE_MUL_ADD3, e(M.MIN, x, zero), weight, e(M.MAX, x, zero))


@_elemwise(M.SOFTPLUS)
def _softplus(e: _Maker, x: Var) -> Var:
    tail = e(M.LOG1P, e(M.EXP, e(M.NEGATE, e(M.ABS, x))))
    return e(M.ADD, tail, e(M.RELU, x))


_elemwise(M.SQRT)(lambda e, x: e(M.POW, x, e.number(0.5)))
_elemwise(M.SQUARE)(lambda e, x: e(M.MUL, x, x))
_elemwise(M.TAN)(lambda e, x: e(M.TRUE_DIV, e(M.SIN, x), e(M.COS, x)))
_elemwise(M.RELU6)(lambda e, x: e(M.MIN, e(M.MAX, x, e.number(0)), e.number(6)))


@_elemwise(M.LOGSIGMOID)
def _log_sigmoid(e: _Maker, x: Var) -> Var:
    return e(M.NEGATE, _softplus(e, e(M.NEGATE, x)))


@_multi(Multi.EQ)
def _same(e: _Maker, x: Var, y: Var) -> Var:
    return e.cast(e(M.EQ, x, y), _BOOL)


@_multi(Multi.ISINF)
def _infinite(e: _Maker, x: Var) -> Var:
    return e.cast(e(M.EQ, e(M.ABS, e.cast(x, _F32)), e.number(np.inf, _F32)), _BOOL)


_multi(Multi.NEQ)(lambda e, x, y: e(M.NOT, _same(e, x, y)))
_multi(Multi.LT)(lambda e, x, y: e.cast(e(M.LT, x, y), _BOOL))
_multi(Multi.LEQ)(lambda e, x, y: e.cast(e(M.LEQ, x, y), _BOOL))
_multi(Multi.ISNAN)(lambda e, x: e(M.NOT, _same(e, x, x)))


@_always("Where")
def _where(e: _Maker, mask: Var, x: Var, y: Var) -> Var:
    if e.dtype == _BOOL:
        return e(M.OR, e(M.AND, mask, x), e(M.AND, e(M.NOT, mask), y))
    yes, no = e.cast(mask, e.dtype), e.cast(e(M.NOT, mask), e.dtype)
    return e(M.ADD, e(M.SWITCH_GT0, yes, x), e(M.SWITCH_GT0, no, y))


@_in_v1("Softmax")
def _softmax(e: _Maker, x: Var) -> Var:
    axis = e.opr.get(P.Softmax).axis
    axis += e.rank if axis < 0 and e.rank is not None else 0
    (x,) = e.widened(x)
    power = e(M.EXP, e(M.SUB, x, e.reduce(ReduceMode.MAX, x, axis)))
    return e.narrowed(e(M.TRUE_DIV, power, e.reduce(ReduceMode.SUM, power, axis)))


def _normalized(e: _Maker, x: Var, axes: Sequence[int], eps: float) -> Var:
    """Normalize to mean 0 and variance 1 along the axes."""

    def mean(v: Var) -> Var:
        for axis in axes:
            v = e.reduce(ReduceMode.MEAN, v, axis)
        return v

    d = e(M.SUB, x, mean(x))
    std = e(M.POW, e(M.ADD, mean(e(M.MUL, d, d)), e.number(eps, _F32)), e.number(0.5, _F32))
    return e(M.TRUE_DIV, d, std)


def _scaled(e: _Maker, x: Var, affine: Sequence[Var], target: tuple[int, ...], axis: int) -> Var:
    """Multiply by weight and add bias, which get the shape `target`."""
    if not affine:
        return x
    weight, bias = (e.reshape(v, e.ints(*target), axis=axis) for v in affine)
    return e(M.ADD, e(M.MUL, x, weight), bias)


@_in_v1("LayerNorm")
def _layer_norm(e: _Maker, x: Var, *affine: Var) -> Var:
    p = e.opr.get(P.LayerNorm)
    x, *affine_ = e.widened(x, *(affine if p.affine else ()))
    rows = e.reshape(x, e.ints(-1, p.normalized_size), axis=0)
    y = _scaled(e, _normalized(e, rows, (1,), p.eps), affine_, (1, -1), 1)
    return e.narrowed(e.reshape(y, e.shape(x)))


@_always("GroupNorm", "InstanceNorm")
def _group_norm(e: _Maker, x: Var, *affine: Var) -> Var:
    p = e.opr.get(P.GroupNorm)
    x, *affine_ = e.widened(x, *(affine if p.affine else ()))
    if e.opr.type == "InstanceNorm":
        y = _normalized(e, x, (3, 2), p.eps)
    else:
        sizes = [e.shape(x, axis=0), e.ints(p.group), e.ints(-1)]
        groups = e.reshape(x, e.add("Concat", P.Axis(axis=0), inputs=sizes), axis=2)
        y = e.reshape(_normalized(e, groups, (2,), p.eps), e.shape(x))
    return e.narrowed(_scaled(e, y, affine_, (1, -1, 1, 1), 1))


@_in_v1("Dropout")
def _dropout(e: _Maker, x: Var) -> Var:
    p = e.opr.get(P.Dropout)
    uniform = e.add("UniformRNGV1", P.UniformRNG(seed=p.seed), inputs=[e.shape(x)])
    kept = e(M.LT, e.number(p.drop_prob, _F32), uniform)
    (x,) = e.widened(x)
    return e.narrowed(e(M.MUL, e(M.MUL, x, kept), e.number(1 / (1 - p.drop_prob), _F32)))


def _formula(opr: Opr, format: str) -> Formula | None:
    """Return how an operator is rewritten, None when it stays."""
    if opr.type == "Elemwise":
        return _ELEMWISE.get(opr.get(P.Elemwise).mode)
    if opr.type == "ElemwiseMultiType":
        return _MULTI.get(opr.get(P.ElemwiseMultiType).mode)
    older = _IN_V1.get(opr.type) if format == "FBS" else None
    return older or _ALWAYS.get(opr.type)


_FLOAT, _F16 = DType("Float32"), DType("Float16")
_UNCHANGED = types(Trait.FLOAT32_ONLY)


def to_half(graph: Graph, *, wide_sums: bool) -> Graph:
    """Convert inputs, weights and everything between them to float16; outputs have their old dtypes.

    An operator that takes no float16 computes in float32 between two conversions.

    Args:
        wide_sums: convolutions, products and reductions add in float32 and round the sum.
    """
    r = Rewriter(graph)
    half = _Half(r, wide_sums)
    for opr in r.oprs:
        half.visit(opr)
    for old in graph.outputs:
        if old.dtype == _FLOAT:
            half.narrow.pop(old.id, None)
            r.replace(old, half.wide(old))
    return r.finish()


class _Half:
    def __init__(self, rewriter: Rewriter, wide_sums: bool) -> None:
        self.r = rewriter
        self.wide_sums = wide_sums
        # float16 variables by the ids of the old ones that they stand for
        self.narrow: dict[int, Var] = {}

    def wide(self, old: Var) -> Var:
        """Return an old float32 variable as float32."""
        new = self.r.var(old)
        return new if self.r.dtype(new) == old.dtype else self._convert(new, _FLOAT)

    def _convert(self, var: Var, target: DType) -> Var:
        return self.r.add("TypeCvtV2", TypeParam(dtype=target), inputs=[var])[0]

    def visit(self, opr: Opr) -> None:
        r = self.r
        operands = [self.narrow.get(v.id, r.var(v)) for v in opr.inputs]
        for i in CATALOG[opr.type].float32_inputs:
            operands[i] = self.wide(opr.inputs[i])
        if opr.type in _UNCHANGED:
            operands = [self.wide(v) for v in opr.inputs]
        if opr.type == "TypeCvtV2" and opr.get(TypeParam).dtype == _FLOAT:
            new = operands[0] if r.dtype(operands[0]) == _F16 else self._convert(operands[0], _F16)
            r.replace(opr.outputs[0], new)
            self.narrow[opr.outputs[0].id] = new
            return
        try:
            outputs = r.copy(opr, operands, *self._params(opr, operands))
        except EngineError:
            outputs = r.copy(opr, [self.wide(v) for v in opr.inputs])
        for old, new in zip(opr.outputs, outputs, strict=True):
            if old.dtype != _FLOAT or opr.type in _UNCHANGED:
                continue
            self.narrow[old.id] = new if r.dtype(new) == _F16 else self._convert(new, _F16)

    def _params(self, opr: Opr, operands: Sequence[Var]) -> tuple[P.Record, ...]:
        """Return the parameters with which sums are float32."""
        if not self.wide_sums or not operands or self.r.dtype(operands[0]) != _F16:
            return opr.params
        return tuple(_with_wide_sums(opr, p) for p in opr.params)


def _with_wide_sums(opr: Opr, p: P.Record) -> P.Record:
    if isinstance(p, P.Convolution | P.ConvBias):
        return p.replace(compute_mode=P.ComputeMode.FLOAT32)
    if isinstance(p, P.MatrixMul):
        return p.replace(compute_mode=P.MatrixMulComputeMode.FLOAT32)
    if isinstance(p, P.Reduce) and opr.type == "ReduceV2":
        return p.replace(data_type=P.ReduceDataType.FLOAT_O16xC32)
    return p
