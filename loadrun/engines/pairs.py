"""Pairs of QuantizeLinear and DequantizeLinear as one step, which rounds floats to what the integers stand for."""

from collections.abc import Collection, Sequence

import numpy as np

from ..graph import Opr
from ..graph.composite import Composite, Definition, NodeTypes
from ..graph.dtypes import Array, plain
from ..ops.infer import Inference, kernel_of
from ..ops.registry import Call
from .program import Step

_RANGES = {"Uint4": (0, 15), "Int4": (-8, 7), "Uint2": (0, 3), "Int2": (-2, 1)}
_INTEGERS = ("Uint8", "Int8", "Uint16", "Int16", *_RANGES)
_F32 = plain("Float32")


def _rounded(
    x: Array, scale: Array, zero: Array | None = None, *, low: int, high: int, out: Array | None = None
) -> Array:
    """Round to the multiples of a scale within the range of the integers, as both operators do one after the other."""
    step = scale.reshape(())
    start = x.dtype.type(0 if zero is None else zero.reshape(()))
    out = np.divide(x, step, out=out)
    np.rint(out, out=out)
    np.clip(out, low - start, high - start, out=out)
    return np.multiply(out, step, out=out)


_PAIR = Definition(
    "", "QuantizeLinear, DequantizeLinear", _rounded, pointwise=True, shape=lambda x, *o, **a: x.shape
)


def joined(steps: Sequence[Step], known: Inference, keep: Collection[int]) -> list[Step]:
    """Replace pairs with one scale and one zero point by single steps, where nothing else reads the integers.

    Args:
        steps: a program in order.
        known: shapes of its variables.
        keep: ids of variables that the caller wants, which must stay.
    """
    quantized = {s.writes[0]: i for i, s in enumerate(steps) if s.call.opr.called == "QuantizeLinear"}
    if not quantized:
        return list(steps)
    counts: dict[int, int] = {}
    for s in steps:
        for v in s.reads:
            counts[v] = counts.get(v, 0) + 1
    out: list[Step | None] = list(steps)
    for i, s in enumerate(steps):
        at = quantized.get(s.reads[0]) if s.call.opr.called == "DequantizeLinear" else None
        if (
            at is not None
            and counts[s.reads[0]] == 1
            and s.reads[0] not in keep
            and _fits(steps[at], s, known)
        ):
            out[at], out[i] = None, _pair(steps[at], s)
    return [s for s in out if s is not None]


def _fits(quantize: Step, dequantize: Step, known: Inference) -> bool:
    integers = quantize.call.outputs[0].name
    ends = (*quantize.call.inputs[:2], *dequantize.call.outputs, dequantize.call.inputs[1])
    return (
        integers in _INTEGERS
        and all(d == _F32 for d in ends)
        and quantize.reads[1:] == dequantize.reads[1:]
        and quantize.guard is dequantize.guard is None
        and all(np.prod(known.shapes.get(v, (0,))) == 1 for v in quantize.reads[1:])
    )


def _pair(quantize: Step, dequantize: Step) -> Step:
    dtype, last = quantize.call.outputs[0], dequantize.call.opr
    low, high = _RANGES.get(dtype.name) or (np.iinfo(dtype.np).min, np.iinfo(dtype.np).max)
    types = NodeTypes(quantize.call.inputs, (_F32,), 1, (True,))
    params = Composite(_PAIR, {"low": int(low), "high": int(high)}, types)
    opr = Opr("CompositePointwise", (params,), quantize.call.opr.inputs, last.outputs, last.name, id=last.id)
    opr.exact, opr.called, opr.number = True, _PAIR.name, last.number
    call = Call(opr, quantize.call.inputs, (_F32,), quantize.call.const)
    return Step(kernel_of(call), call, quantize.reads, dequantize.writes)
