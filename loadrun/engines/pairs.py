"""Pairs of QuantizeLinear and DequantizeLinear as one step, which rounds floats to what the integers stand for.

Between two convolutions the scales go into their filters, so that what is left of a pair is rounding and two bounds.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from ..graph.composite import Composite, Definition, NodeTypes
from ..graph.dtypes import Array, plain
from ..ops.infer import Inference, kernel_of
from ..ops.registry import Call
from .program import Program, Step, readers_of

_RANGES = {"Uint4": (0, 15), "Int4": (-8, 7), "Uint2": (0, 3), "Int2": (-2, 1)}
_INTEGERS = ("Uint8", "Int8", "Uint16", "Int16", *_RANGES)
_F32 = plain("Float32")


def _rounded(
    x: Array,
    *,
    low: float,
    high: float,
    divide: Array | None = None,
    multiply: Array | None = None,
    out: Array | None = None,
) -> Array:
    """Round to the multiples of a scale within the range of the integers, as both operators do one after the other."""
    if divide is not None:
        x = out = np.divide(x, divide, out=out)
    out = np.rint(x, out=out)
    out.clip(low, high, out=out)
    return out if multiply is None else np.multiply(out, multiply, out=out)


PAIR = Definition("", "QuantizeLinear, DequantizeLinear", _rounded, pointwise=True)


def joined(program: Program, known: Inference, keep: Collection[int]) -> list[Step]:
    """Replace pairs with one scale and one zero point by single steps, where nothing else reads the integers.

    Args:
        program: its steps in order; gains filters that hold scales, as `known` does.
        known: shapes of its variables.
        keep: ids of variables that the caller wants, which must stay.
    """
    steps = program.steps
    quantized = {s.writes[0]: i for i, s in enumerate(steps) if s.call.opr.called == "QuantizeLinear"}
    if not quantized:
        return steps
    readers, writers = readers_of(steps), {v: i for i, s in enumerate(steps) for v in s.writes}
    out: list[Step | None] = list(steps)
    filters = _Filters(program, known)
    for i, s in enumerate(steps):
        at = quantized.get(s.reads[0]) if s.call.opr.called == "DequantizeLinear" else None
        if at is None or s.reads[0] in keep or readers[s.reads[0]] != [i] or not _fits(steps[at], s, program):
            continue
        (real, *_), (y,), scale = steps[at].reads, s.writes, program.constants[s.reads[1]].reshape(())
        alone = real in writers and real not in keep and readers[real] == [at]
        before = [steps[writers[real]]] if alone else []
        after = [] if y in keep else [steps[r] for r in readers.get(y, ())]
        if any(y in r.reads[1:] for r in after):
            after = []
        divided = filters.take(1 / scale, before, bias=True)
        multiplied = filters.take(scale, after, bias=False)
        out[at], out[i] = None, _pair(steps[at], s, program, divided=divided, multiplied=multiplied)
    return [s for s in out if s is not None]


def _fits(quantize: Step, dequantize: Step, program: Program) -> bool:
    ends = (*quantize.call.inputs[:2], *dequantize.call.outputs, dequantize.call.inputs[1])
    return (
        quantize.call.outputs[0].name in _INTEGERS
        and all(d == _F32 for d in ends)
        and quantize.reads[1:] == dequantize.reads[1:]
        and quantize.guard is dequantize.guard is None
        and all(v in program.constants and program.constants[v].size == 1 for v in quantize.reads[1:])
    )


class _Filters:
    """The constants of a program, where scales are multiplied into filters."""

    def __init__(self, program: Program, known: Inference) -> None:
        self.constants, self.shapes = program.constants, known.shapes
        # Ids below zero belong to the program alone.
        self.free = count(min((0, *self.constants)) - 1, -1)

    def take(self, factor: Array, convolutions: Sequence[Step], *, bias: bool) -> bool:
        """Multiply the filters of convolutions, and their bias too if `bias`; return whether all of them allow it."""
        if (
            not convolutions
            or not (np.isfinite(factor) and factor)
            or not all(
                s.call.opr.called == "Conv"
                and s.guard is None
                and all(v in self.constants for v in s.reads[1:])
                for s in convolutions
            )
        ):
            return False
        for s in convolutions:
            x, *others = s.reads
            for i, v in enumerate(others if bias else others[:1]):
                others[i] = new = next(self.free)
                self.constants[new] = self.constants[v] * factor
                self.shapes[new] = self.constants[v].shape
            s.reads = (x, *others)
            # What is derived from filters is kept there.
            s.call = replace(s.call, memo={})
        return True


def _pair(quantize: Step, dequantize: Step, program: Program, *, divided: bool, multiplied: bool) -> Step:
    dtype, last = quantize.call.outputs[0], dequantize.call.opr
    zero = program.constants[quantize.reads[2]].item() if len(quantize.reads) > 2 else 0
    low, high = _RANGES.get(dtype.name) or (np.iinfo(dtype.np).min, np.iinfo(dtype.np).max)
    scale = program.constants[quantize.reads[1]].reshape(())
    attributes: dict[str, Any] = {"low": float(low - zero), "high": float(high - zero)}
    if not divided:
        attributes["divide"] = scale
    if not multiplied:
        attributes["multiply"] = scale
    params = Composite(PAIR, attributes, NodeTypes((_F32,), (_F32,), 1, (True,)))
    opr = last.copied(quantize.call.opr.inputs[:1], last.id)
    opr.type, opr.params, opr.outputs, opr.called = "CompositePointwise", (params,), last.outputs, PAIR.name
    call = Call(opr, (_F32,), (_F32,), quantize.call.const[:1])
    return Step(kernel_of(call), call, quantize.reads[:1], dequantize.writes)
