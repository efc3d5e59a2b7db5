"""The engine `numba`: the reference engine with kernels that numba compiles, where they are faster than numpy's.

Depthwise convolutions, pointwise operators (alone and behind convolutions and products), layer normalization, softmax
and LSTMs of float32 are taken; all else is left to the reference engine's kernels, matrix products to its BLAS.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numba
import numpy as np

from ..base.about import About
from ..graph import Opr
from ..graph.composite import Composite
from ..graph.dtypes import Array
from ..graph.params import ConvBias, Convolution, Format
from ..ops.conv.convolution import bind_float
from ..ops.conv.gemm import PIECE, run_parts
from ..ops.conv.layout import to_plain
from ..ops.conv.rules import Geometry, Plan, conv_plan
from ..ops.infer import Inference
from ..ops.numeric.parallel import splits
from ..ops.registry import Bound, Call, Shape, ShapeCall
from .chains import Chain, Member, flat, member
from .compiled import chain, depthwise, layer_norm, lstm_step, softmax
from .fuse import fuse
from .pairs import joined
from .program import Program, Step
from .reference import ReferenceEngine

_EMPTY = np.zeros(0, np.float32)
_F32 = "Float32"
_LONGEST = 32
"""Pointwise operators of one step: each is looked at again for every one that follows it."""


class NumbaEngine(ReferenceEngine):
    """The reference engine with compiled kernels.

    Finite results differ from the reference engine's by rounding, powers of e below 2e-38 are 0, and NaN stays NaN.
    """

    name = "numba"
    _compiles_at_once = True

    @property
    def about(self) -> About:
        """The kernels, and what they run on."""
        return replace(super().about, version=numba.__version__)

    def _rewritten(self, program: Program, known: Inference, keep: Collection[int]) -> list[Step]:
        steps = joined(program, known, keep)
        return fuse(_Rewriting(steps, program.constants, known, keep).steps(), known, keep)


class _Group(NamedTuple):
    """Steps that become one: perhaps a convolution, then pointwise operators, each after what it reads.

    Attributes:
        head: the number of the convolution's step, None without one.
        members: numbers of the pointwise steps.
        chain: what they compute.
    """

    head: int | None
    members: list[int]
    chain: Chain


class _Rewriting:
    """Steps of a program, some of which become compiled kernels."""

    def __init__(
        self, steps: Sequence[Step], constants: Mapping[int, Array], known: Inference, keep: Collection[int]
    ) -> None:
        self.old, self.constants, self.shapes, self.keep = steps, constants, known.shapes, set(keep)
        self.readers: dict[int, list[int]] = {}
        for i, s in enumerate(steps):
            for v in s.needs:
                self.readers.setdefault(v, []).append(i)
        self.members: list[Member | None] = [member(s, known.shapes) for s in steps]
        self.taken: set[int] = set()

    def steps(self) -> list[Step]:
        """Return the steps with compiled kernels; each stands where its last operator stood."""
        out: list[Step | None] = list(self.old)
        # Where two convolutions meet in a sum, the later one takes it.
        heads = [i for i, s in enumerate(self.old) if _is_convolution(s) and s.writes[0] in self.shapes]
        for i in reversed(heads):
            self._replace(out, i, True)
        for i, s in enumerate(self.old):
            if i in self.taken:
                continue
            if self.members[i] is not None:
                self._replace(out, i, False)
            elif all(v in self.shapes for v in s.reads) and s.guard is None:
                out[i] = _of_rows(s, [self.shapes[v] for v in s.reads]) or s
        return [s for s in out if s is not None]

    def _replace(self, out: list[Step | None], i: int, convolution: bool) -> None:
        group = self._grown(i, convolution)
        if group is None:
            return
        step = self._of_convolution(group) if convolution else self._alone(group)
        if step is None:
            return
        every = [i, *group.members]
        self.taken.update(every)
        for j in every:
            out[j] = None
        out[every[-1]] = step

    def _grown(self, i: int, convolution: bool) -> _Group | None:
        """Return the longest group from a step on whose values nothing else reads."""
        shape = self.shapes.get(self.old[i].writes[0], ())
        members: list[int] = [] if convolution else [i]
        best: _Group | None = None
        while 0 not in shape and len(members) <= _LONGEST:
            every = [i, *members] if convolution else members
            if self._closed(every):
                head = i if convolution else None
                made = self._chain(head, members, shape)
                best = best if made is None else _Group(head, list(members), made)
            values = [self.old[j].writes[0] for j in every]
            ready = {j for v in values for j in self.readers.get(v, ())}.difference(every)
            j = min(ready, default=-1)
            found = None if j < 0 or j in self.taken else self.members[j]
            if found is None or found.shape != shape or not self.keep.isdisjoint(values):
                break
            members.append(j)
        return best

    def _closed(self, every: Sequence[int]) -> bool:
        """Return whether nobody else reads the values of steps but the last's."""
        values = [self.old[j].writes[0] for j in every[:-1]]
        return all(v not in self.keep and set(every).issuperset(self.readers[v]) for v in values)

    def _chain(self, head: int | None, members: Sequence[int], shape: Shape) -> Chain | None:
        current = None if head is None else self.old[head].writes[0]
        made = Chain(shape, current, self.constants, self.shapes)
        if head is not None and not made.begin(self.old[head]):
            return None
        following = [found for j in members if (found := self.members[j]) is not None]
        if not all(map(made.follow, following)):
            return None
        result = following[-1].output if following else current
        return made if result is not None and made.close(result) else None

    def _alone(self, group: _Group) -> Step | None:
        """Make a step of pointwise operators."""
        made, last = group.chain, self.old[group.members[-1]]
        if not made.worth:
            return None
        run, shape, size = made.runner(), made.shape, prod(made.shape)
        parts_of = size * len(made.code)

        def bound(out: Array | None, *args: Array) -> Array:
            out = np.empty(shape, np.float32) if out is None else out
            operands = run(args)
            whole = out.reshape(-1)
            parts = splits(parts_of)
            if parts == 1:
                chain(made.code, made.numbers, made.places, whole, 0, *operands)
                return out

            def piece(i: int) -> None:
                part = whole[i * PIECE : (i + 1) * PIECE]
                chain(made.code, made.numbers, made.places, part, i * PIECE, *operands)

            run_parts(piece, -(-size // PIECE), parts)
            return out

        step = _step(last.call, bound, made.reads, last.writes, self.constants)
        step.writes_into = True
        return step

    def _of_convolution(self, group: _Group) -> Step | None:
        """Make a step of a convolution and what follows it."""
        assert group.head is not None
        head, made = self.old[group.head], group.chain
        last = self.old[group.members[-1]] if group.members else head
        call = replace(head.call, inputs=head.call.inputs[:2], const=head.call.const[:2])
        shapes = self.shapes[head.reads[0]], self.shapes[head.reads[1]]
        p: Any = head.call.opr.params[0]
        plan = conv_plan(p, call.inputs, *shapes)
        reads = (*head.reads[:2], *made.reads)
        run = made.runner()
        make = _depthwise if plan.geo.icg == 1 and plan.geo.groups > 1 else _dense
        if make is _dense and not made.code.size:
            return None
        bound = make(call, shapes, plan, made, run)
        return None if bound is None else _step(head.call, bound, reads, last.writes, self.constants)


def _step(
    call: Call, bound: Bound, reads: tuple[int, ...], writes: tuple[int, ...], constants: Mapping[int, Array]
) -> Step:
    """Make a step of a bound kernel on float32 arrays."""
    f32 = call.outputs[0]
    own = replace(call, inputs=(f32,) * len(reads), const=tuple([v in constants for v in reads]), memo={})
    return Step(lambda c, *args: bound(None, *args), own, reads, writes, binder=lambda c, s: bound)


def _is_convolution(s: Step) -> bool:
    opr = s.call.opr
    if (
        s.guard is not None
        or len(s.reads) > 3
        or any(d.name != _F32 for d in (*s.call.inputs, *s.call.outputs))
    ):
        return False
    if opr.type == "ConvolutionV2":
        return opr.get(Convolution).format == Format.NCHW
    return opr.type == "ConvBiasForwardV4" and opr.get(ConvBias).format == Format.NCHW


Run = Callable[[Sequence[Array]], Sequence[Array]]


def _dense(call: Call, shapes: tuple[Shape, Shape], plan: Plan, made: Chain, run: Run) -> Bound | None:
    """Finish the blocks that the reference engine's convolution computes."""
    p = call.opr.params[0]
    names = ("mode", "pad_h", "pad_w", "stride_h", "stride_w", "dilate_h", "dilate_w", "sparse", "format")
    plain = Convolution(**{n: getattr(p, n) for n in names})
    twin = Opr("ConvolutionV2", (plain, *call.opr.params[1:]), list(call.opr.inputs[:2]), call.opr.outputs)
    convolve = bind_float(
        replace(call, opr=twin, memo={}), ShapeCall(twin, call.inputs, shapes, (None, None))
    )
    if convolve is None:
        return None
    _, channels, *size = made.shape
    points, code, numbers, places = prod(size), made.code, made.numbers, made.places

    def bound(out: Array | None, x: Array, w: Array, *args: Array) -> Array:
        operands = run(args)

        def finish(block: Array, sample: int, channel: int, span: slice) -> None:
            at = (sample * channels + channel) * points + (span.start or 0)
            chain(code, numbers, places, block.reshape(-1), at, *operands)

        return convolve(finish, x, w)

    return bound


def _depthwise(call: Call, shapes: tuple[Shape, Shape], plan: Plan, made: Chain, run: Run) -> Bound | None:
    """Convolve each channel with its own filters, and finish pieces of channels."""
    geo: Geometry = plan.geo
    images, each, work = shapes[0][0] * geo.groups, geo.ocg * geo.points, prod(made.shape) * geo.taps
    sizes, taps, order = _taps(geo)
    fixed: list[Array] = []
    nothing = np.zeros(geo.channels, np.float32)
    bias, rounds, low, high = made.taken_over(geo.points, geo.channels)
    per = max(1, PIECE // each) if made.code.size else images
    code, numbers, places = made.code, made.numbers, made.places

    def filters(w: Array) -> Array:
        if fixed:
            return fixed[0]
        plain = to_plain(w, plan.w).reshape(geo.channels, *geo.kernel)
        plain = np.flip(plain, (1, 2)) if plan.flip else plain
        ordered = np.ascontiguousarray(plain.reshape(geo.channels, -1)[:, order]).reshape(-1)
        if call.const[1]:
            fixed.append(ordered)
        return ordered

    def bound(out: Array | None, x: Array, w: Array, *args: Array) -> Array:
        out = np.empty(made.shape, np.float32)
        operands, kernels = run(args), filters(w)
        source, result = flat(x), out.reshape(-1)
        addend = nothing if bias is None else operands[bias]
        parts = splits(work)
        step = min(per, -(-images // parts))

        def piece(i: int) -> None:
            first, last = i * step, min(images, (i + 1) * step)
            depthwise(source, kernels, addend, result, sizes, taps, low, high, rounds, first, last)
            if code.size:
                chain(code, numbers, places, result[first * each : last * each], first * each, *operands)

        run_parts(piece, -(-images // step), parts)
        return out

    return bound


def _taps(geo: Geometry) -> tuple[Array, Array, list[int]]:
    """Return the sizes that the kernel takes, where taps read, and their order: first threes of rows of three."""
    (height, width), (oh, ow), (sy, sx) = geo.size, geo.out, geo.stride
    (ky, kx), (dy, dx), (pad_y, pad_x) = geo.kernel, geo.dilate, geo.pad
    rows = -(-max(height + 2 * pad_y, (ky - 1) * dy + 1 + (oh - 1) * sy) // sy) + 1
    wide = -(-max(width + 2 * pad_x, (kx - 1) * dx + 1 + (ow - 1) * sx) // sx)
    threes: list[tuple[int, int]] = []
    singles: list[tuple[int, int]] = []
    for y in range(ky):
        for phase in range(sx):
            row = []
            for x in range(kx):
                if x * dx % sx == phase:
                    plane = y * dy % sy * sx + phase
                    row.append(((plane * rows + y * dy // sy) * wide + x * dx // sx, y * kx + x))
            while len(row) >= 3 and row[2][0] == row[0][0] + 2:
                threes += row[:3]
                del row[:3]
            singles += row
    sizes = (
        height,
        width,
        oh,
        ow,
        pad_y,
        pad_x,
        sy,
        sx,
        rows,
        wide,
        geo.groups,
        geo.ocg,
        len(threes) // 9 * 9,
    )
    taps = [*threes, *singles]
    return np.array(sizes, np.int64), np.array([t for t, _ in taps], np.int64), [n for _, n in taps]


def _of_rows(s: Step, shapes: Sequence[Shape]) -> Step | None:
    """Make a step of an operator on rows that has a kernel of its own; None if it has none."""
    opr = s.call.opr
    if any(d.name != _F32 for d in (*s.call.inputs, *s.call.outputs)) or not shapes or 0 in shapes[0]:
        return None
    p = opr.param if opr.params else None
    name = opr.type
    if isinstance(p, Composite):
        name = "" if p.definition.domain else p.definition.name
    make = _ROWS.get(name)
    kernel = None if make is None else make(s, p, shapes)
    if kernel is None:
        return None
    made = Step(lambda c, *args: kernel(*args), s.call, s.reads, s.writes)
    if len(s.writes) == 1:
        made.binder = lambda c, _: lambda out, *args: kernel(*args)
    return made


def _by_rows(func: Callable[[int, int], None], rows: int, width: int) -> None:
    """Call a function with the first row and that after the last, for parts that the pool shares."""
    parts = splits(10 * rows * width)
    step = -(-rows // parts)
    run_parts(lambda i: func(i * step, min(rows, (i + 1) * step)), -(-rows // step), parts)


Kernel = Callable[..., Any]


def _softmax(s: Step, p: Any, shapes: Sequence[Shape]) -> Kernel | None:  # noqa: ANN401
    shape = shapes[0]
    flat_from = isinstance(p, Composite) and p.definition.since < 13
    axis = p.attributes.get("axis", 1 if flat_from else -1) if isinstance(p, Composite) else p.axis
    axis = axis + len(shape) if axis < 0 else axis
    if not 0 <= axis < len(shape) or (axis != len(shape) - 1 and not flat_from):
        return None
    width = prod(shape[axis:])
    rows = prod(shape[:axis])

    def run(x: Array) -> Array:
        out, source = np.empty(shape, np.float32), flat(x).reshape(rows, width)
        target = out.reshape(rows, width)
        _by_rows(lambda a, b: softmax(source, target, a, b), rows, width)
        return out

    return run


def _layer_norm(s: Step, p: Any, shapes: Sequence[Shape]) -> Kernel | None:  # noqa: ANN401
    shape, *affine = shapes
    if isinstance(p, Composite):
        axis, epsilon = p.attributes.get("axis", -1), p.attributes.get("epsilon", 1e-5)
        axis = axis + len(shape) if axis < 0 else axis
        outer = (*shape[:axis], *(1,) * (len(shape) - axis))
    else:
        axis, epsilon = len(shape) - p.normalized_dim, p.eps
        outer = shape[:axis]
    if not 0 <= axis < len(shape) or any(a != shape[axis:] for a in affine):
        return None
    width, rows = prod(shape[axis:]), prod(shape[:axis])
    plain = [np.ones(width, np.float32), np.zeros(width, np.float32)][len(affine) :]
    count = len(s.writes)

    def run(x: Array, *affine: Array) -> Any:  # noqa: ANN401
        out, source = np.empty(shape, np.float32), flat(x).reshape(rows, width)
        means, inverses = np.empty(rows, np.float32), np.empty(rows, np.float32)
        scale, bias = [flat(a) for a in affine] + plain
        target = out.reshape(rows, width)
        _by_rows(
            lambda a, b: layer_norm(source, scale, bias, epsilon, target, means, inverses, a, b), rows, width
        )
        return out if count == 1 else (out, means.reshape(outer), inverses.reshape(outer))[:count]

    return run


_PLAIN_GATES = ["sigmoid", "tanh", "tanh"]
_LSTM_INPUTS = 8


def _lstm(s: Step, p: Any, shapes: Sequence[Shape]) -> Kernel | None:  # noqa: ANN401
    """Take the steps of an LSTM of ONNX; the products are BLAS'."""
    if not isinstance(p, Composite):
        return None
    a, here = p.attributes, p.present
    names = [n.lower() for n in a.get("activations") or _PLAIN_GATES]
    (steps, batch, _), directions, hidden, count = shapes[0], shapes[1][0], shapes[2][2], len(s.writes)
    backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    turned = backward.get(a.get("direction", "forward"), [])
    peepholes = len(here) == _LSTM_INPUTS and here[-1]
    if peepholes or a.get("clip") or a.get("input_forget") or a.get("layout") or len(turned) != directions:
        return None
    if names != _PLAIN_GATES * (len(names) // 3) or len(names) not in (3, 3 * directions):
        return None
    prepared: list[list[tuple[Array, Array, Array]]] = []
    fixed = all(s.call.const[1 : 3 + any(here[3:4])])

    def weights(w: Array, r: Array, b: Array | None) -> list[tuple[Array, Array, Array]]:
        made = prepared[0] if prepared else []
        for d in range(directions) if not prepared else ():
            bias = np.zeros(4 * hidden, np.float32) if b is None else b[d, : 4 * hidden] + b[d, 4 * hidden :]
            made.append((w[d].T, np.ascontiguousarray(r[d].T), bias))
        if fixed and not prepared:
            prepared.append(made)
        return made

    def run(*args: Array) -> Any:  # noqa: ANN401
        x, w, r, b, _, h0, c0, _ = p.placed(args) + [None] * (_LSTM_INPUTS - len(here))
        out = np.empty((steps, directions, batch, hidden), np.float32)
        last = np.zeros((2, directions, batch, hidden), np.float32)
        for d, (of_input, of_state, bias) in enumerate(weights(w, r, b)):
            gates = (x.reshape(steps * batch, -1) @ of_input + bias).reshape(steps, batch, 4 * hidden)
            h, cell = last[0, d] if h0 is None else h0[d], last[1, d]
            cell[...] = 0 if c0 is None else c0[d]
            carried = np.empty((batch, 4 * hidden), np.float32)
            for t in range(steps - 1, -1, -1) if turned[d] else range(steps):
                np.matmul(h, of_state, out=carried)
                h = out[t, d]
                lstm_step(gates[t], carried, cell, h)
            last[0, d] = h
        return out if count == 1 else (out, *last)[:count]

    return run


_ROWS: dict[str, Callable[..., Kernel | None]] = {
    "LSTM": _lstm,
    "LayerNorm": _layer_norm,
    "LayerNormalization": _layer_norm,
    "Softmax": _softmax,
}
"""By operator, what makes its kernel from its step, parameters and the shapes that it reads."""
