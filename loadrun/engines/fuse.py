"""Fusing elementwise operators into the convolution before them.

A convolution computes its output in blocks that stay in the processor's cache; what follows it (bias, batch norm's
affine form, activation, residual sum) is applied to each block at once instead of in passes of its own over the
whole array. The arithmetic is that of the separate operators, in the same order, so results are the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np

from ..base.registry import late
from ..graph import Opr
from ..graph.composite import Composite
from ..graph.dtypes import Array
from ..graph.params import ConvBias, Convolution, Elemwise, ElemwiseMode, Format
from ..ops.elemwise.modes import float_step
from ..ops.elemwise.table import ModeTrait, modes
from ..ops.infer import Inference
from ..ops.numeric.parallel import replaced
from ..ops.numeric.special import filled
from ..ops.registry import Added, Bound, Call, Finish, InTurn, Limits, Shape, ShapeCall
from .pairs import PAIR
from .program import Step, readers_of

with late(__name__):
    from ..ops.conv import convolution

_BY_PLACE = modes(ModeTrait.BY_PLACE)
_VECTOR = 16
"""Elements that MegEngine's kernels take at a time."""
_BLOCK, _SCALAR, _CHANNEL, _FULL = "block", "scalar", "channel", "full"


Limit = Callable[[Array, np.float32, int, int, int], None]


class _FusedStep(NamedTuple):
    """One elementwise operator: its function, and where each input comes from (operands by their place).

    Attributes:
        limits: for MAX and MIN with a single number, and for both in a row, their functions (`_maximum`); then the
            sources are these numbers.
    """

    opr: Opr
    func: Callable[..., object]
    sources: tuple[tuple[str, int], ...]
    limits: tuple[Limit, ...] = ()


class FusedKernel:
    """A convolution with what follows it; operands come after the convolution's own inputs.

    Attributes:
        before: the stride of the next convolution, whose phases the result has one after the other.
        apart: whether the data have them so.
    """

    before: tuple[int, ...] | None = None
    apart = False

    def __init__(self, n_inputs: int, items: Sequence[_FusedStep], shape: Shape) -> None:
        self.sizes = shape[1], prod(shape[2:]), prod(shape)
        self.n_inputs = n_inputs
        self.items = tuple(items)
        self.full = {place for item in items for kind, place in item.sources if kind == _FULL}

    def bind(self, c: Call, s: ShapeCall) -> Bound:
        """Bind the items to known shapes."""
        n = self.n_inputs
        call = replace(c, inputs=c.inputs[:n], const=c.const[:n])
        shapes = ShapeCall(s.opr, call.inputs, s.shapes[:n], s.values[:n])
        convolve = convolution.bind_float(call, shapes, before=self.before, apart=self.apart)
        assert convolve is not None
        made: Finish | None = None
        const = all(k == _BLOCK or c.const[n + place] for item in self.items for k, place in item.sources)

        def bound(out: Array | None, *args: Array) -> Array:
            nonlocal made
            finish = made
            if finish is None:
                operands = [self._flat(i, a) for i, a in enumerate(args[n:])]
                steps = [self._step(item, operands) for item in self.items]
                finish = steps[0] if len(steps) == 1 else InTurn(tuple(steps))
                made = finish if const else None
            return convolve(finish, *args[:n])

        return bound

    def _step(self, item: _FusedStep, operands: Sequence[Array]) -> Finish:
        return _plain(item, operands) or self._applied(item, operands)

    def _applied(self, item: _FusedStep, operands: Sequence[Array]) -> Finish:
        """Return the function that applies one item to a block in place; single numbers are read once."""
        _, func, sources, limits = item
        if limits:
            every, points, size = self.sizes
            bounds = [operands[place].reshape(-1)[0] for _, place in sources]

            def limit(block: Array, sample: int, first: int, positions: slice) -> None:
                at = (sample * every + first) * points + (positions.start or 0)
                _limit(block, limits, bounds, (at, points, size))

            return limit
        single = [operands[place].reshape(()) if kind == _SCALAR else None for kind, place in sources]
        if all(kind in (_BLOCK, _SCALAR) for kind, _ in sources):

            def alone(block: Array, sample: int, first: int, positions: slice) -> None:
                func(block, *[block if v is None else v for v in single])

            return alone

        def apply(block: Array, sample: int, first: int, positions: slice) -> None:
            channels = slice(first, first + block.shape[0])
            values: list[Array] = []
            for kind, place in sources:
                if kind == _BLOCK:
                    values.append(block)
                elif kind == _FULL:
                    values.append(operands[place][sample, channels, positions])
                else:
                    values.append(operands[place] if kind == _SCALAR else operands[place][channels])
            func(block, *values)

        return apply

    def _flat(self, place: int, x: Array) -> Array:
        """Reshape an operand to lie beside blocks: (batch, channels, positions) or (n, 1)."""
        return x.reshape(*x.shape[:2], -1) if place in self.full else x.reshape(-1, 1)


def _plain(item: _FusedStep, operands: Sequence[Array]) -> Limits | Added | None:
    """Return an item that does no more than to round, to keep within two numbers, or to add an array."""
    opr, sources = item.opr, [kind for kind, _ in item.sources]
    p = opr.param
    if isinstance(p, Composite) and p.definition is PAIR:
        return Limits(rounds=True, **{k: float(v) for k, v in p.keywords.items()})
    if isinstance(p, Composite):
        if p.title != "Clip" or sources != [_BLOCK, _SCALAR, _SCALAR]:
            return None
        return Limits(*(operands[place].item() for _, place in item.sources[1:]))
    mode = opr.get(Elemwise).mode if opr.exact else None
    if mode is ElemwiseMode.RELU:
        return Limits(0.0)
    if mode is ElemwiseMode.ADD and sorted(sources) == [_BLOCK, _FULL]:
        return Added(operands[item.sources[sources.index(_FULL)][1]])
    return None


def fuse(steps: Sequence[Step], known: Inference, keep: Collection[int]) -> list[Step]:
    """Replace convolutions and the elementwise steps that follow them by single steps.

    Args:
        steps: a program in order.
        known: shapes of its variables.
        keep: ids of variables that the caller wants, which must stay.
    """
    readers = readers_of(steps)
    out: list[Step | None] = list(steps)
    taken: set[int] = set()
    fused: dict[int, tuple[Step, FusedKernel]] = {}
    # Where two convolutions meet in a sum, the later one fuses it: the other's output is ready then.
    for i, s in reversed(list(enumerate(steps))):
        if not _is_head(s) or any(v not in known.shapes for v in (*s.reads, *s.writes)):
            continue
        chain, items, operands = _chain(steps, s, readers, known, keep, taken)
        if not chain:
            continue
        last = steps[chain[-1]]
        dtypes = {v: d for j in chain for v, d in zip(steps[j].reads, steps[j].call.inputs, strict=True)}
        const = {v: f for j in chain for v, f in zip(steps[j].reads, steps[j].call.const, strict=True)}
        call = replace(
            s.call,
            inputs=(*s.call.inputs, *(dtypes[v] for v in operands)),
            const=(*s.call.const, *(const[v] for v in operands)),
        )
        kernel = FusedKernel(len(s.reads), items, known.shapes[s.writes[0]])
        oprs = tuple([steps[j].call.opr for j in chain])
        taken.update(chain)
        for j in (i, *chain):
            out[j] = None
        # At the end of the chain every operand is ready.
        reads = (*s.reads, *operands)
        out[chain[-1]] = Step(s.kernel, call, reads, last.writes, binder=kernel.bind, fused=oprs)
        fused[last.writes[0]] = s, kernel
    if replaced("depthwise") is None:
        _sort(fused, known, {v for v, at in readers.items() if len(at) == 1}.difference(keep))
    return [s for s in out if s is not None]


def _sort(fused: Mapping[int, tuple[Step, FusedKernel]], known: Inference, once: set[int]) -> None:
    """Let convolutions put stride phases one after the other, where only a convolution with that stride reads them.

    Args:
        fused: convolutions before anything was fused to them, and their kernels, by what they write now.
        once: variables that are read once and that the caller does not want.
    """
    for s, kernel in fused.values():
        if s.reads[0] not in once.intersection(fused):
            continue
        first, maker = fused[s.reads[0]]
        if not maker.full and not any(item.limits for item in maker.items):
            shapes = [[known.shapes[v] for v in step.reads] for step in (first, s)]
            maker.before = convolution.phases_between(first.call, s.call, shapes)
            kernel.apart = maker.before is not None


def _is_head(s: Step) -> bool:
    opr = s.call.opr
    if s.guard is not None or s.binder is not None:
        return False
    if opr.type == "ConvolutionV2":
        plain = opr.get(Convolution).format == Format.NCHW
    elif opr.type == "ConvBiasForwardV4":
        plain = opr.get(ConvBias).format == Format.NCHW
    else:
        return False
    return plain and all(d.name == "Float32" for d in (*s.call.inputs, *s.call.outputs))


def _chain(
    steps: Sequence[Step],
    head: Step,
    readers: dict[int, list[int]],
    known: Inference,
    keep: Collection[int],
    taken: set[int],
) -> tuple[list[int], list[_FusedStep], list[int]]:
    """Return the elementwise steps that can follow a convolution block by block, and the operands that they read."""
    shape = known.shapes[head.writes[0]]
    current = head.writes[0]
    chain: list[int] = []
    items: list[_FusedStep] = []
    operands: list[int] = []
    while current not in keep:
        readings = sorted(set(readers.get(current, ())))
        if not readings or not taken.isdisjoint(readings):
            break
        j = readings[-1]
        s = steps[j]
        sources = _fusable(s, current, shape, known)
        if not sources:
            break
        if len(readings) > 1:
            first, *others = readings
            gate = steps[first]
            if others != [j] or _fusable(gate, current, shape, known) != [_BLOCK]:
                break
            if not _is_gate(gate, s, current, readers, keep):
                break
            items.append(_FusedStep(s.call.opr, _gated(gate.call.opr), ((_BLOCK, 0),)))
            chain += readings
            current = s.writes[0]
            continue
        placed: list[tuple[str, int]] = []
        for v, kind in zip(s.reads, sources, strict=True):
            if kind == _BLOCK:
                placed.append((_BLOCK, 0))
                continue
            if v not in operands:
                operands.append(v)
            placed.append((kind, operands.index(v)))
        _append(items, s.call.opr, placed)
        chain.append(j)
        current = s.writes[0]
    return chain, items, operands


def _is_gate(
    gate: Step, s: Step, current: int, readers: Mapping[int, Sequence[int]], keep: Collection[int]
) -> bool:
    """Return whether a step multiplies what both read by what the other one makes of it, and nothing else does."""
    opr, made = s.call.opr, gate.writes[0]
    product = opr.type == "Elemwise" and opr.get(Elemwise).mode is ElemwiseMode.MUL
    return product and {*s.reads} == {current, made} and len(readers[made]) == 1 and made not in keep


def _gated(opr: Opr) -> Callable[..., object]:
    """Return the product of a block and what an operator makes of it."""
    made = _in_place(opr.param) if isinstance(opr.param, Composite) else float_step(opr)[0]

    def multiply(out: Array, x: Array) -> None:
        gate = np.empty_like(x)
        made(gate, x)
        np.multiply(x, gate, out=out)

    return multiply


def _fusable(s: Step, current: int, shape: Shape, known: Inference) -> list[str]:
    """Return where the inputs of an elementwise step on a convolution's result come from; empty if it cannot follow."""
    opr = s.call.opr
    if s.guard is not None or s.binder is not None:
        return []
    if len(s.writes) != 1 or known.shapes.get(s.writes[0]) != shape:
        return []
    if any(d.name != "Float32" for d in (*s.call.inputs, *s.call.outputs)):
        return []
    if opr.called == "BatchNormalization" and s.reads[0] == current:
        # Its other inputs have one number for each channel.
        return (
            [_BLOCK, *[_CHANNEL] * 4] if all(known.shapes.get(v) == shape[1:2] for v in s.reads[1:]) else []
        )
    if opr.type != "Elemwise" and opr.type != "CompositePointwise":
        return []
    sources = [source for v in s.reads if (source := _source(v, current, shape, known)) is not None]
    if len(sources) < len(s.reads):
        return []
    if isinstance(opr.param, Composite):
        return [] if opr.param.definition.shape is not None and _CHANNEL in sources else sources
    # What MAX and MIN make of NaN depends on the place in the whole array; only scalars work block by block.
    mode = s.call.opr.get(Elemwise).mode
    if s.call.opr.exact:
        return sources
    limits = mode in _BY_PLACE and sorted(sources) == [_BLOCK, _SCALAR] and prod(shape) > 1
    return [] if mode in _BY_PLACE and not limits else sources


def _append(items: list[_FusedStep], opr: Opr, placed: Sequence[tuple[str, int]]) -> None:
    """Add an elementwise operator whose inputs come from there."""
    if isinstance(opr.param, Composite):
        items.append(_FusedStep(opr, _in_place(opr.param), tuple(placed)))
        return
    func, swapped = float_step(opr)
    mode = opr.get(Elemwise).mode
    if mode not in _BY_PLACE or opr.exact:
        items.append(_FusedStep(opr, func, tuple(reversed(placed) if swapped else placed)))
        return
    limit = _maximum if mode is ElemwiseMode.MAX else _minimum
    bound = tuple(p for p in placed if p[0] == _SCALAR)
    # MAX and MIN in a row become one step.
    joins = items and len(items[-1].limits) == 1 and items[-1].limits[0] is not limit
    before = items.pop() if joins else _FusedStep(opr, func, ())
    items.append(_FusedStep(opr, func, before.sources + bound, (*before.limits, limit)))


def _in_place(p: Composite) -> Callable[..., object]:
    """Return a composite operator as a function that writes its result into the block."""
    if p.title == "BatchNormalization":
        epsilon = p.attributes.get("epsilon", 1e-5)

        def normalize(out: Array, x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> None:
            factor = scale / np.sqrt(variance + np.float32(epsilon))
            np.multiply(x, factor, out=out)
            np.add(out, bias - mean * factor, out=out)

        return normalize
    if p.definition.writes_into:
        # Called for every block: nothing but the function.
        function, keywords = p.definition.function, p.keywords
        if all(p.present):
            return lambda out, *values: function(*values, out=out, **keywords)
        return lambda out, *values: p.call(values, out=out)
    return lambda out, *values: np.copyto(out, p.call(values))


def _limit(
    block: Array, limits: Sequence[Limit], bounds: Sequence[np.float32], place: tuple[int, int, int]
) -> None:
    """Take MAX, MIN or both of a block and single numbers."""
    if len(limits) == 2:
        # This settles all numbers; only NaN is left for the functions.
        low, high = bounds if limits[0] is _maximum else bounds[::-1]
        if low <= high:
            block.clip(low, high, out=block)
            if not _has_nan(block):
                return
    for limit, bound in zip(limits, bounds, strict=True):
        limit(block, bound, *place)


def _has_nan(block: Array) -> bool:
    return bool(np.isnan(np.maximum.reduce(block.reshape(-1))))


def _maximum(block: Array, bound: np.float32, at: int, points: int, size: int) -> None:
    """Take MAX of a block and a number as the kernel on the whole array does (`elemwise.floats.maximum`).

    Args:
        at: the place of the block's first element in the whole array.
        points: elements of a channel.
        size: elements of the whole array.
    """
    if not (_has_nan(block) or np.isnan(bound)):
        np.maximum(block, filled(float(bound), block), out=block)
        return
    rows, columns = block.shape
    places = at + np.arange(rows)[:, None] * points + np.arange(columns)
    vectors = places < size // _VECTOR * _VECTOR
    block[...] = np.where(vectors & ~(block > bound) | (block < bound), bound, block)


def _minimum(block: Array, bound: np.float32, at: int, points: int, size: int) -> None:
    """Take MIN likewise; it gives the bound for NaN wherever it is."""
    if _has_nan(block) or np.isnan(bound):
        block[...] = np.where(block < bound, block, bound)
    else:
        np.minimum(block, filled(float(bound), block), out=block)


def _source(var: int, current: int, shape: Shape, known: Inference) -> str | None:
    """Return how an elementwise input lies beside the block; None when it is of another form."""
    if var == current:
        return _BLOCK
    shape_of_var = known.shapes.get(var)
    if shape_of_var is None:
        return None
    if shape_of_var == shape:
        return _FULL
    if prod(shape_of_var) == 1 and len(shape_of_var) <= 4:
        return _SCALAR
    if (
        len(shape_of_var) in (3, 4)
        and shape_of_var[-3:] == (shape[1], 1, 1)
        and prod(shape_of_var) == shape[1]
    ):
        return _CHANNEL
    return None
