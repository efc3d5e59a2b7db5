"""Static inference of dtypes and shapes, and the kernel that computes a call.

A call of dtypes that MegEngine does not compute in has another kernel than the operator's own: Float64 is computed by
`formulas`; Float16 and BFloat16 in a graph of another framework (`Opr.exact`) are computed in float32 and rounded once,
ties to even, which is what ONNX Runtime and PyTorch do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from ..base.errors import EngineError, LoadRunError
from ..base.registry import late
from ..graph import Graph, Opr, Var
from ..graph.dtypes import Array, DType, plain, round_bfloat16
from .catalog import types
from .control import find_branches
from .op import Trait
from .registry import Call, Kernel, OpImpl, Shape, ShapeCall, UnknownShape, implementation

with late(__name__):
    from . import formulas

_HALF = ("Float16", "BFloat16")
_OWN = types(Trait.MOVES | Trait.CONSTANT | Trait.GENERIC)
"""Operators whose own kernels take every dtype."""


def kernel_of(c: Call) -> Kernel:
    """Return what computes a call; BFloat16 results are rounded to it.

    Raises:
        UnsupportedError: the operator has no kernel.
    """
    run = _unrounded(c)
    if "BFloat16" not in [d.name for d in c.outputs]:
        return run

    def rounded(call: Call, *arrays: Array) -> Array | tuple[Array, ...]:
        result = run(call, *arrays)
        outs = result if isinstance(result, tuple) else (result,)
        outputs = tuple(
            round_bfloat16(out) if d.name == "BFloat16" else out
            for out, d in zip(outs, call.outputs, strict=True)
        )
        return outputs if isinstance(result, tuple) else outputs[0]

    return rounded


def _unrounded(c: Call) -> Kernel:
    kernel = implementation(c.opr.type).kernel
    dtypes = (*c.inputs, *c.outputs)
    if c.opr.type in _OWN:
        return kernel
    if any(d.name == "Float64" for d in dtypes):
        return _in_float64
    if c.opr.exact and any(d.name in _HALF for d in dtypes):
        return _in_float32(kernel)
    return kernel


def _in_float64(c: Call, *arrays: Array) -> Array | tuple[Array, ...]:
    """Compute the operator's formula on float64 arrays."""
    formula = formulas.FORMULAS.get(c.opr.type)
    shapes: list[Shape | None] = []
    if formula is not None:
        # Formulas see only what goes together.
        rule = implementation(c.opr.type).shape
        shapes = list(rule(ShapeCall(c.opr, c.inputs, tuple(a.shape for a in arrays), arrays)))
    result: Array | tuple[Array, ...] | None = formula(c, *arrays) if formula is not None else None
    if result is None:
        result = _empty(c, shapes)
    if result is None:
        raise ValueError(f"{c.opr.title} is not computed in float64; convert its inputs to float32")
    outs = result if isinstance(result, tuple) else (result,)
    outputs = tuple(np.asarray(out).astype(d.np, copy=False) for out, d in zip(outs, c.outputs, strict=True))
    return outputs if isinstance(result, tuple) else outputs[0]


def _empty(c: Call, shapes: list[Shape | None]) -> Array | tuple[Array, ...] | None:
    """Return outputs without elements, of which formulas know nothing."""
    if not shapes or any(s is None or 0 not in s for s in shapes):
        return None
    outputs = tuple(np.zeros(s, d.np) for s, d in zip(shapes, c.outputs, strict=True) if s is not None)
    return outputs if len(outputs) > 1 else outputs[0]


def _in_float32(kernel: Kernel) -> Callable[..., Any]:
    """Return a kernel that widens float16 and bfloat16 to float32, and rounds results to float16."""

    def run(c: Call, *arrays: Array) -> Array | tuple[Array, ...]:
        inner: Call | None = c.memo.get("float32")
        if inner is None:
            inner = replace(c, inputs=_widened(c.inputs), outputs=_widened(c.outputs), memo={}, donated=[])
            c.memo["float32"] = inner
        inner = inner.in_run(c.rng, [])
        result = kernel(inner, *(a.astype(np.float32) if a.dtype == np.float16 else a for a in arrays))
        outs = result if isinstance(result, tuple) else (result,)
        pairs = zip(outs, c.outputs, strict=True)
        outputs = tuple(out.astype(np.float16) if d.name == "Float16" else out for out, d in pairs)
        return outputs if isinstance(result, tuple) else outputs[0]

    return run


def _widened(dtypes: tuple[DType, ...]) -> tuple[DType, ...]:
    return tuple(plain("Float32") if d.name in _HALF else d for d in dtypes)


_SMALL = 1024
"""Values of at most this many elements are computed, as MegEngine's static inference does for shapes."""
_INFERRED, _SHAPE_ONLY = types(Trait.INFERRED), types(Trait.SHAPE_ONLY)


def describe(opr: Opr) -> str:
    """Name an operator with its place in the file, for messages: ``ConvolutionV2 'conv1' (operator 7)``."""
    name = opr.name or next((v.name for v in opr.outputs if v.name), None)
    number = opr.id if opr.number is None else opr.number
    kind = opr.called or opr.type
    return f"{kind} {name!r} (operator {number})" if name else f"{kind} (operator {number})"


def infer_dtypes(oprs: Iterable[Opr]) -> None:
    """Set `Var.dtype` of every output of the operators, which are in execution order.

    Raises:
        UnsupportedError: an operator has no implementation.
        EngineError: an operator cannot take inputs of these dtypes.
    """
    for opr in oprs:
        ins = tuple(map(dtype_of, opr.inputs))
        impl = implementation(opr.type)
        try:
            dtypes = tuple(impl.dtype(opr, ins))
        except LoadRunError:
            raise
        except Exception as e:
            raise EngineError(
                f"{describe(opr)} cannot take {', '.join(map(str, ins)) or 'no inputs'}: {e}"
            ) from e
        if len(dtypes) != len(opr.outputs):
            raise EngineError(f"{describe(opr)} has {len(opr.outputs)} outputs, its rule gives {len(dtypes)}")
        for var, dtype in zip(opr.outputs, dtypes, strict=True):
            var.dtype = dtype


def dtype_of(var: Var) -> DType:
    """Return the data type of a variable after inference.

    Raises:
        EngineError: it is not inferred yet.
    """
    if var.dtype is None:
        raise EngineError(f"the dtype of {var.label!r} is not inferred yet")
    return var.dtype


@dataclass(eq=False)
class Inference:
    """Shapes and small values that are known before data is fed.

    Attributes:
        shapes: shape by variable id, absent when unknown.
        values: value by variable id of constants and shape arithmetic.
        flops: operations by operator id, where all shapes are known.
    """

    shapes: dict[int, Shape] = field(default_factory=dict)
    values: dict[int, Array] = field(default_factory=dict)
    flops: dict[int, int] = field(default_factory=dict)


def infer_shapes(
    graph: Graph,
    oprs: Iterable[Opr] | None = None,
    inputs: Mapping[str, Shape] | None = None,
) -> Inference:
    """Follow shapes (and shape arithmetic) through the graph; `Var.dtype` must be set.

    Args:
        oprs: operators in execution order, default all of the graph.
        inputs: shapes of graph inputs by name; the others have the shapes that the file gives.

    Raises:
        EngineError: shapes that cannot go together; the message names the operator.
    """
    return ShapeInference(graph.oprs if oprs is None else oprs).infer(inputs or {})


class ShapeInference:
    """Follows shapes through operators, again and again: what no shape changes is looked up once.

    Args:
        oprs: operators in execution order, whose `Var.dtype` must be set.
    """

    def __init__(self, oprs: Iterable[Opr]) -> None:
        oprs = list(oprs)
        guard = find_branches(oprs).guard
        self._rules = [_Rule(opr, opr.id in guard) for opr in oprs]

    def infer(self, inputs: Mapping[str, Shape], before: Inference | None = None) -> Inference:
        """Follow the shapes of graph inputs; `before` is what is known of operators before these."""
        known = Inference()
        if before is not None:
            known = Inference({**before.shapes}, {**before.values}, {**before.flops})
        try:
            for rule in self._rules:
                rule.follow(known, inputs)
        except EngineError as e:
            raise EngineError(f"{e}{self._resized(inputs)}") from e
        return known

    def _resized(self, inputs: Mapping[str, Shape]) -> str:
        """Tell which inputs have another shape than in the file, in the order of the operators."""
        said = []
        for rule in self._rules:
            name = (rule.opr.outputs[0].name or "") if rule.opr.type == "Host2DeviceCopy" else ""
            if (
                name in inputs
                and not name.endswith(":expect")
                and tuple(inputs[name]) != rule.opr.tensors[0].shape
            ):
                said.append(
                    f"{name!r} is {_text(inputs[name])}, in the file {_text(rule.opr.tensors[0].shape)}"
                )
        return f"; input {', '.join(said[:3])}" if said else ""


def follow(opr: Opr, known: Inference, inputs: Mapping[str, Shape], sometimes: bool = False) -> None:
    """Add to `known` what follows for the outputs of one operator whose inputs were inferred before.

    Args:
        inputs: shapes of graph inputs by name; the others have the shapes that the file gives.
        sometimes: whether the operator is in a branch, which need not fit the shapes.

    Raises:
        EngineError: shapes that cannot go together.
    """
    _Rule(opr, sometimes).follow(known, inputs)


class _Rule:
    """One operator with what its inference looks up."""

    __slots__ = ("dtypes", "impl", "opr", "reads", "sometimes", "valued")

    def __init__(self, opr: Opr, sometimes: bool) -> None:
        self.opr = opr
        self.sometimes = sometimes
        self.impl = implementation(opr.type)
        self.dtypes = tuple(map(dtype_of, opr.inputs))
        self.reads = [v.id for v in opr.inputs]
        holds = bool(opr.tensors) and opr.type != "Host2DeviceCopy"
        self.valued = holds or opr.type in _INFERRED

    def follow(self, known: Inference, inputs: Mapping[str, Shape]) -> None:
        opr = self.opr
        shapes = tuple([known.shapes.get(v) for v in self.reads])
        values = tuple([known.values.get(v) for v in self.reads])
        full = [s for s in shapes if s is not None]
        flops: int | None = None
        try:
            out_shapes = _output_shapes(self.impl, ShapeCall(opr, self.dtypes, shapes, values), inputs)
            if len(full) == len(shapes) and None not in out_shapes:
                # Some rules detect only here that shapes do not fit.
                flops = int(self.impl.flops(opr, full, [s for s in out_shapes if s is not None]))
        except LoadRunError:
            raise
        except Exception as e:
            if self.sometimes:
                # A branch need not fit shapes for which it is not taken.
                return
            raise misfit(opr, shapes, e) from e
        for var, shape in zip(opr.outputs, out_shapes, strict=True):
            if shape is not None:
                known.shapes[var.id] = tuple(map(int, shape))
        if flops is not None:
            known.flops[opr.id] = flops
            if self.valued:
                _value(opr, known, self.dtypes, full, values)


def _output_shapes(impl: OpImpl, call: ShapeCall, inputs: Mapping[str, Shape]) -> tuple[Shape | None, ...]:
    """Return the shapes of the outputs, None if they are not known in advance."""
    opr = call.opr
    if opr.type == "Host2DeviceCopy":
        return (inputs.get(opr.outputs[0].name or "", opr.tensors[0].shape),)
    try:
        return tuple(impl.shape(call))
    except UnknownShape:
        return (None,) * len(opr.outputs)


def misfit(opr: Opr, shapes: Iterable[Shape | None], e: Exception) -> EngineError:
    """Return what to raise for an operator whose inputs' shapes do not go together."""
    return EngineError(f"{describe(opr)} cannot take shapes {', '.join(map(_text, shapes))}: {e}")


def _value(
    opr: Opr, known: Inference, ins: tuple[DType, ...], shapes: list[Shape], values: tuple[Array | None, ...]
) -> None:
    if opr.tensors and opr.type != "Host2DeviceCopy":
        for var, tensor in zip(opr.outputs, opr.tensors, strict=True):
            if tensor.shape is not None and prod(tensor.shape) <= _SMALL:
                known.values[var.id] = tensor.value()
        return
    if opr.type not in _SHAPE_ONLY and any(v is None for v in values):
        return
    if any(prod(known.shapes[v.id]) > _SMALL for v in opr.outputs):
        return
    args: list[Array] = []
    for value, shape, dtype in zip(values, shapes, ins, strict=True):
        if value is None:
            # Only the shape is read: one broadcast element suffices.
            try:
                value = np.broadcast_to(np.zeros((), dtype.np), shape)
            except ValueError:
                # No array has that shape, so the run will not come to it.
                return
        args.append(value)
    outs = tuple(map(dtype_of, opr.outputs))
    call = Call(opr, ins, outs)
    try:
        with np.errstate(all="ignore"):
            result = kernel_of(call)(call, *args)
    except Exception:
        # A value that cannot be computed yet is no error here; the run will report it.
        return
    for var, value in zip(opr.outputs, result if isinstance(result, tuple) else (result,), strict=True):
        known.values[var.id] = value


def _text(shape: Shape | None) -> str:
    return "unknown" if shape is None else str(list(shape))
