"""Models in wider numbers: in float64, to see what rounding does to them, and in integers of 64 bits."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from ..base import __version__
from ..base.about import About
from ..base.errors import EngineError, InputError, LoadRunError
from ..graph import Graph, Opr, StoredTensor, Var, params as P
from ..graph.composite import Composite
from ..graph.dtypes import Array, DType, dtype_of, plain, round_bfloat16
from ..ops.catalog import TypeParam, select
from ..ops.control import find_branches
from ..ops.formulas import FORMULAS, MOVING
from ..ops.infer import describe, infer_dtypes
from ..ops.numeric.parallel import blas_serial
from ..ops.numeric.stream import OperatorStreams, RandomNumbers
from ..ops.registry import Call, Shape, ShapeCall, UnknownShape, implementation
from .program import ABSENT, Step, computed, make_step, mark_dying, run_step
from .protocol import graph_inputs, ranked
from .reference import ReferenceEngine

# The wide engine: a model computed in float64, to see what rounding does to it, and where a dtype is too small.
#
# Every variable of Float32, Float16 or BFloat16 is stored as float64 where the operator that makes it has a
# float64 formula (`formulas`), only moves numbers, or converts between such dtypes, which then changes
# nothing. Other operators run on the reference engine's kernels, on inputs rounded to their dtypes;
# `WideEngine.narrow` says which. Integers and quantized values are part of what a model means, so operators
# on these run as they are.

_F32 = DType("Float32")
_HELD = ("Float32", "Float16", "BFloat16")
"""The dtypes of variables that are stored as float64."""
_CAST = "TypeCvtV2"


@dataclass(frozen=True)
class _Wide(DType):
    """Float32 held as float64."""

    @property
    def np(self) -> np.dtype[Any]:
        return np.dtype(np.float64)


_WIDE = _Wide("Float32")


class WideEngine:
    """Executes a graph once in float64, operator by operator.

    A value that its own dtype cannot hold (a sum of 262,144 in float16) is what it is here, and infinite in the model.

    Args:
        graph: the graph to execute.
        targets: the variables to compute, default the graph's outputs.
        seed: seed of the random operators.

    Attributes:
        wide: how many operators on floats the last run computed in float64.
        narrow: the types of those that it computed in their own dtypes, with their number.

    Raises:
        UnsupportedError: an operator that the targets need has no kernel.

    >>> import loadrun
    >>> bundle = loadrun.load("fixtures/nets/mlp.mge")
    >>> engine = WideEngine(bundle.graph, [bundle.checks[0].get])
    >>> engine.run(bundle.testcases[0].arrays)[0].dtype, engine.wide, dict(engine.narrow)
    (dtype('float64'), 19, {})
    """

    def __init__(self, graph: Graph, targets: Iterable[Var] | None = None, *, seed: int = 0) -> None:
        self.targets = list(graph.outputs if targets is None else targets)
        self.seed = seed
        self.wide = 0
        self.narrow: Counter[str] = Counter()
        oprs = graph.needed(self.targets)
        infer_dtypes(oprs)
        branches = find_branches(oprs)
        self._inputs = graph_inputs(oprs)
        self._steps = [make_step(o, (), branches) for o in oprs if o.type != "Host2DeviceCopy"]
        self._count = sum(not o.tensors for o in oprs)
        mark_dying(self._steps, {v.id for v in self.targets})

    @property
    def inputs(self) -> dict[str, Var]:
        """The graph inputs that the targets depend on, by name."""
        return dict(self._inputs)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Execute once; floats come as float64 where they were computed so.

        Raises:
            InputError: an input is missing.
            EngineError: an operator failed.
        """
        values: dict[int, Array] = {}
        for _ in self._walk(feeds, values):
            pass
        return computed(self.targets, values)

    def walk(self, feeds: Mapping[str, Array]) -> Iterator[tuple[Opr, list[Array]]]:
        """Execute once, operator by operator: each comes with its outputs when it has run.

        Raises:
            InputError: an input is missing.
            EngineError: an operator failed.
        """
        return self._walk(feeds, {})

    def _walk(
        self, feeds: Mapping[str, Array], values: dict[int, Array]
    ) -> Iterator[tuple[Opr, list[Array]]]:
        """Do `walk`; `values` keeps the targets."""
        self.wide, self.narrow = 0, Counter()
        for name, var in self._inputs.items():
            tensor = var.owner.tensors[0]
            if name not in feeds and tensor.data is None:
                raise InputError(f"input {name!r} is missing")
            value = feeds[name] if name in feeds else tensor.value()
            values[var.id] = ranked(value, var)
        rng = OperatorStreams(self.seed)
        for step in self._steps:
            if step.guard is None or (step.guard in values and values[step.guard].any()):
                with np.errstate(all="ignore"), blas_serial():
                    self._execute(step, values, rng)
                yield step.call.opr, [values[v] for v in step.writes]
            for v in step.dying:
                values.pop(v, None)

    def _execute(self, step: Step, values: dict[int, Array], rng: RandomNumbers | None) -> None:
        call = step.call
        args = [values.get(v) if step.merges else values[v] for v in step.reads]
        counted = any(map(_is_held, call.inputs)) and any(map(_is_held, call.outputs))
        outs = self._widely(step, args, counted)
        if outs is None:
            self.narrow.update([call.opr.title] if counted else [])
            plain = [ABSENT if a is None else _narrowed(a, d) for a, d in zip(args, call.inputs, strict=True)]
            outs = run_step(step, plain, [], rng)
        else:
            self.wide += counted
        values.update(zip(step.writes, outs, strict=True))

    def _widely(self, step: Step, args: list[Array | None], counted: bool) -> Sequence[Array] | None:
        """Compute an operator in float64; None if it is no operator on plain floats or has no formula."""
        call = step.call
        dtypes = (*call.inputs, *call.outputs)
        kind = call.opr.type
        present = [a for a in args if a is not None]
        if len(present) < len(args) or any(d.is_quantized for d in dtypes):
            return None
        wide = [a.astype(np.float64) if _is_held(d) else a for a, d in zip(present, call.inputs, strict=True)]
        if kind == _CAST:
            return _cast(wide[0], *dtypes)
        if (
            not counted
            or (kind not in FORMULAS and kind not in MOVING)
            or any(d.name == "Float64" for d in dtypes)
        ):
            return None
        try:
            # Sizes of memory that a result is count in the dtype in which it is computed.
            computed = _with(call, _F32 if kind in FORMULAS else _WIDE)
            shapes = _shapes(computed, wide)
            result = FORMULAS[kind](computed, *wide) if kind in FORMULAS else step.kernel(computed, *wide)
        except Exception as e:
            raise EngineError(f"{describe(call.opr)} failed: {e}") from e
        if result is None:
            return None
        outs: Sequence[Array] = result if isinstance(result, tuple) else (result,)
        for out, shape in zip(outs, shapes, strict=True):
            if shape is not None and out.shape != shape:
                raise EngineError(
                    f"{describe(call.opr)} returned shape {list(out.shape)}, but its shape rule says {list(shape)}"
                )
        return outs


def _is_held(dtype: DType) -> bool:
    return dtype.name in _HELD


def _cast(x: Array, source: DType, target: DType) -> Sequence[Array] | None:
    """Convert real numbers to float64 for a dtype that is held so; None for other conversions."""
    return (x.astype(np.float64, copy=False),) if _is_held(target) and x.dtype.kind in "fiub" else None


def _narrowed(x: Array, dtype: DType) -> Array:
    """Round what is held as float64 to a dtype."""
    if x.dtype == dtype.np:
        return x
    with np.errstate(all="ignore"):
        narrow = x.astype(dtype.np, copy=False)
    return round_bfloat16(narrow) if dtype.name == "BFloat16" else narrow


def _shapes(call: Call, args: list[Array]) -> Sequence[Shape | None]:
    """Check inputs by the operator's shape rule, so that formulas see only what goes together."""
    rule = implementation(call.opr.type).shape
    try:
        return rule(ShapeCall(call.opr, call.inputs, tuple(a.shape for a in args), tuple(args)))
    except UnknownShape:
        return [None] * len(call.outputs)


def _with(call: Call, dtype: DType) -> Call:
    """Return the call with one dtype in place of those that are held as float64."""
    inputs, outputs = (
        tuple(dtype if _is_held(d) else d for d in dtypes) for dtypes in (call.inputs, call.outputs)
    )
    return replace(call, inputs=inputs, outputs=outputs, memo={}, donated=[])


def computed_alike(opr: Opr) -> bool:
    """Tell whether the reference engine has the same code for an operator as this one: its numbers are float64 already.

    Such an operator cannot be judged by computing it again.
    """
    params = opr.params[0] if opr.params else None
    moves = opr.type in MOVING or (isinstance(params, Composite) and params.definition.views)
    return not moves and any(
        v.dtype is not None and v.dtype.name == "Float64" for v in (*opr.inputs, *opr.outputs)
    )


class Float64Engine(WideEngine):
    """A `WideEngine` whose results are rounded to the dtypes that the model gives.

    Operators on float64 are the reference engine's; `about` counts them.

    >>> import loadrun
    >>> loadrun.Runner("fixtures/nets/mlp.mge", "float64").replay_one(0).verdict.value
    'pass'
    """

    @property
    def about(self) -> About:
        """The executing engine, and how it computes."""
        alike = sum(computed_alike(s.call.opr) for s in self._steps)
        arithmetic = "float64"
        if alike:
            arithmetic += f", with the reference engine's code for {alike} of {self._count} operators"
        return About("float64", __version__, arithmetic, f"numpy {np.__version__}", operators=self._count)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Execute once; see `WideEngine.run`."""
        values = super().run(feeds)
        return [
            _narrowed(a, v.dtype) if v.dtype is not None else a
            for v, a in zip(self.targets, values, strict=True)
        ]


_INT = plain("Int32")
_PRODUCTS = select(lambda op: P.MatrixMul in op.params)
_HALVES = P.ElemwiseMultiTypeMode.FUSE_MUL_ADD3_INT16x32x32x32
_SHIFTS = [0, 8, 16, 24, 8, 16, 24, 16, 24, 24]
"""How far products of bytes are shifted that make the product of 32 bits; see `passes.narrowing`."""
_SMALL = 1 << 15
_SUMS = ("Elemwise", "ReduceV2", "CumsumV1")
"""Operators whose results may be larger than what they are given."""


def first_overflow(
    graph: Graph, outputs: Sequence[Var], feeds: Mapping[str, Array], wide: Container[str]
) -> str | None:
    """Say which integer of a graph does not fit 32 bits, in the order of the operators; None if all do.

    Every operator gets what the one before computed in 32 bits, so that the first one that differs is at fault.

    Args:
        graph: a graph that was narrowed.
        outputs: what is computed.
        feeds: arrays by input name.
        wide: names of the inputs, and of what is cast inside, that hold 64 bits in the model that the file was made of.
    """
    oprs = graph.needed(list(outputs))
    infer_dtypes(oprs)
    found = [(o, kind, read) for o, kind, read in _narrow_operators(oprs, wide) if o.outputs[0].dtype == _INT]
    if not found:
        return None
    asked = {v.id: v for o, _, read in found for v in (*chain(*read), o.outputs[0])}
    try:
        engine = ReferenceEngine(graph, list(asked.values()))
        values = dict(zip(asked, engine.run({n: feeds[n] for n in engine.inputs}), strict=True))
    except (LoadRunError, KeyError):
        return None
    for opr, kind, read in found:
        narrow = values[opr.outputs[0].id]
        taken = [_joined([values[v.id] for v in digits]) for digits in read]
        if _is_small(kind, taken):
            continue
        try:
            whole = _in_64_bits(kind, taken)
        except LoadRunError:
            continue
        if kind.type == "TypeCvtV2":
            # Infinity, and what 64 bits do not hold either, may become anything.
            whole = np.where(np.abs(taken[0]) < 2.0**63, whole, narrow)
        if whole.shape == narrow.shape and not np.array_equal(whole, narrow):
            at = int(np.flatnonzero((whole != narrow).reshape(-1))[0])
            return (
                f"integers of 64 bits do not fit the 32 that the file has for them: {opr.outputs[0].label!r} is "
                f"{whole.reshape(-1)[at]} in the model and {narrow.reshape(-1)[at]} here; use the model itself, or an "
                ".onnx file of it, for such data"
            )
    return None


def _narrow_operators(
    oprs: Sequence[Opr], wide: Container[str]
) -> Iterator[tuple[Opr, Opr, list[list[Var]]]]:
    """Yield the last operator of what stands for one on such integers, its kind, and what it reads, maybe in bytes."""
    reached: set[int] = set()
    products = _matrix_products(oprs)
    parts = {id(part) for o in oprs if _is_product(o) for part in _upper_half(o)}
    for opr in oprs:
        begun = {v.id for v in opr.outputs if v.name in wide}
        reached |= begun
        if begun and opr.type == "TypeCvtV2":
            yield opr, opr, [[v] for v in opr.inputs]
            continue
        product = products.get(id(opr))
        read = [[v] for v in opr.inputs]
        if product is not None:
            # The bytes of both matrices, the lowest first.
            read = [[product[i].inputs[0] for i in (0, 4, 7, 9)], [o.inputs[1] for o in product[:4]]]
        # What is a product of bytes in the model as well wraps there, too.
        if not any(v.id in reached for v in chain(*read)) or (product is None and opr.type in _PRODUCTS):
            continue
        reached.update(v.id for v in opr.outputs if v.dtype is not None and v.dtype.np.kind == "i")
        if id(opr) in parts or _is_remainder(opr):
            continue
        if product is not None:
            yield opr, product[0], read
        elif opr.type in _SUMS:
            yield opr, opr, read
        elif _is_product(opr):
            yield opr, opr, [[opr.inputs[0].owner.inputs[0]], [opr.inputs[1]]]


def _matrix_products(oprs: Sequence[Opr]) -> dict[int, list[Opr]]:
    """Find the sums that stand for products of matrices, with the products of bytes that each is made of, in order."""
    sums: dict[int, list[tuple[Opr, int]]] = {}
    found: dict[int, list[Opr]] = {}
    for opr in oprs:
        terms = [(opr, 0)] if opr.type in _PRODUCTS else _terms(opr, sums)
        if [shift for _, shift in terms] == _SHIFTS:
            found[id(opr)] = [product for product, _ in terms]
        elif terms:
            sums[opr.outputs[0].id] = terms
    return found


def _terms(opr: Opr, sums: Mapping[int, list[tuple[Opr, int]]]) -> list[tuple[Opr, int]]:
    """Return the products of bytes that an operator adds up or shifts, and how far; none where it does neither."""
    if opr.type != "Elemwise" or len(opr.inputs) != 2:
        return []
    mode, (first, second) = opr.get(P.Elemwise).mode, (sums.get(v.id, []) for v in opr.inputs)
    if mode == P.ElemwiseMode.ADD and first and second:
        return first + second if len(second) == 1 else second + first
    stored = opr.inputs[1].owner.tensors
    if mode == P.ElemwiseMode.SHL and len(first) == 1 and stored and stored[0].data is not None:
        return [(first[0][0], int(stored[0].value().flat[0]))]
    return []


def _is_remainder(opr: Opr) -> bool:
    """Return whether an operator subtracts from a number its lower bits, which wraps for the largest ones."""
    if opr.type != "Elemwise" or opr.get(P.Elemwise).mode != P.ElemwiseMode.SUB:
        return False
    low = opr.inputs[1].owner
    cast = low.inputs[0].owner if low.type == "TypeCvtV2" else low
    return cast.type == "TypeCvtV2" and cast.inputs[0] is opr.inputs[0]


def _is_product(opr: Opr) -> bool:
    """Return whether an operator adds the product of a lower half to that of the upper one; see `passes.narrowing`."""
    if opr.type != "ElemwiseMultiType" or opr.get(P.ElemwiseMultiType).mode != _HALVES:
        return False
    return opr.inputs[0].owner.type == "TypeCvtV2"


def _upper_half(opr: Opr) -> Iterator[Opr]:
    """Yield the operators that multiply by the upper half, from the last one up to the one behind the factor."""
    factor, shift = opr.inputs[0].owner.inputs[0], opr.inputs[2].owner
    if shift.type != "Elemwise":
        return
    product = shift.inputs[0].owner
    yield from (shift, product)
    step = product.inputs[0].owner
    while step.inputs and step.outputs[0] is not factor:
        yield step
        step = step.inputs[0].owner


def _joined(digits: Sequence[Array]) -> Array:
    """Return the numbers of which these are the bytes; one array stands for itself."""
    if len(digits) == 1:
        return digits[0]
    total: Array = sum(np.int64(256**i) * d for i, d in enumerate(digits))
    return total


def _is_small(opr: Opr, values: Sequence[Array]) -> bool:
    """Return whether numbers are so small that no sum and no product of two of them is too large."""
    if opr.type != "Elemwise" or opr.get(P.Elemwise).mode in (P.ElemwiseMode.POW, P.ElemwiseMode.SHL):
        return False
    return all(v.min(initial=0) > -_SMALL and v.max(initial=0) < _SMALL for v in values)


def _in_64_bits(opr: Opr, values: Sequence[Array]) -> Array:
    graph = Graph(exact=True)
    wide = [v.astype(np.int64) if v.dtype == np.int32 else v for v in values]
    inputs: list[Var] = []
    for i, value in enumerate(wide):
        tensor = StoredTensor(dtype_of(value), value.shape, f"x{i}")
        inputs += graph.add("Host2DeviceCopy", P.Host2DeviceCopy(), tensors=[tensor], names=[f"x{i}"])
    if opr.type == "TypeCvtV2":
        outputs = graph.add("TypeCvtV2", TypeParam(dtype=plain("Int64")), inputs=inputs)
    elif opr.type == "ElemwiseMultiType":
        outputs = graph.add("Elemwise", P.Elemwise(mode=P.ElemwiseMode.MUL), inputs=inputs)
    else:
        outputs = graph.add(opr.type, *opr.params, inputs=inputs)
    (whole,) = ReferenceEngine(graph, [outputs[0]]).run({f"x{i}": v for i, v in enumerate(wide)})
    return whole
