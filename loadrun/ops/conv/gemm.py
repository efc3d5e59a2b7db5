"""Convolution as a matrix product: windows as columns, and the steps after the sum (bias, residual, rounding)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ...graph.dtypes import Array, DType
from ...graph.params import NonlineMode
from ..numeric.parallel import parallel, replaced, scratch, splits
from ..numeric.quant import Quantizer
from ..numeric.special import filled, largest, short_buffers
from ..registry import Added, Finish, InTurn, Limits, Shape
from .rules import Geometry

Fill = Callable[[Array, Array], None]
"""Copies what the taps read in (channels, H, W), contiguous, into (channels, taps, rows, width), contiguous."""

_KEPT = 64
"""Blocks whose copies are worked out in advance; those of large images take far longer than that."""


class Block(NamedTuple):
    """Whole output rows that a convolution computes at a time.

    Attributes:
        fill: copies their columns; None if the input itself is the matrix.
        rows: how many there are.
        span: their positions.
    """

    fill: Fill | None
    rows: int
    span: slice


def row_blocks(geo: Geometry, rows: int) -> tuple[int, Callable[[int], Block]]:
    """Return the number of blocks of so many output rows, and a function that gives a block by its number.

    >>> geo = Geometry((3, 3), (1, 1), (1, 1), (1, 1), (5, 4), (5, 4), 1, 1, 1)
    >>> count, block = row_blocks(geo, 2)
    >>> count, block(2).rows, block(2).span
    (3, 1, slice(16, 20, None))
    """
    height, width = geo.out

    def block(number: int) -> Block:
        first, last = number * rows, min(height, (number + 1) * rows)
        fill = None if geo.pointwise else filler(geo, first, last)
        return Block(fill, last - first, slice(first * width, last * width))

    count = -(-height // rows)
    return count, block if count > _KEPT else [block(b) for b in range(count)].__getitem__


def phases(x: Array, planes: Array, top: int, left: int) -> None:
    """Spread images with their padding over one plane per stride phase.

    Args:
        x: (channels, H, W).
        planes: (channels, stride y, stride x, rows, columns), written; plane row ``a`` of phase ``ry`` holds the
            input row ``a * stride + ry - top``, or zeros outside.
        top: padding above; negative starts inside the input.
        left: padding on the left.
    """
    sy, sx = planes.shape[1:3]
    planes[...] = 0
    for ry in range(sy):
        for rx in range(sx):
            a, y = _first(ry - top, sy)
            b, c = _first(rx - left, sx)
            part = x[:, y::sy, c::sx]
            to = planes[:, ry, rx, a : a + part.shape[1], b : b + part.shape[2]]
            to[...] = part[:, : to.shape[1], : to.shape[2]]


def _first(offset: int, stride: int) -> tuple[int, int]:
    """Return the first plane index that is inside the input, and the input position there."""
    a = max(0, -(offset // stride))
    return a, a * stride + offset


def same_width(geo: Geometry) -> bool:
    """Return whether output rows are as long as the input's of one stride phase, so that every tap is a flat shift."""
    return geo.out[1] == -(-geo.size[1] // geo.stride[1])


def filler(geo: Geometry, first: int, last: int) -> Fill:
    """Return a function that copies the columns of output rows ``first:last``, for any number of channels.

    Args:
        geo: of two spatial axes.

    >>> geo = Geometry((1, 2), (0, 0), (1, 1), (1, 1), (1, 3), (1, 2), 1, 1, 1)
    >>> columns = np.empty((1, 2, 1, 2), "f4")
    >>> filler(geo, 0, 1)(np.array([[[1, 2, 3]]], "f4"), columns)
    >>> columns[0, :, 0].tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    (sy, sx), width = geo.stride, geo.out[1]
    padded = any(geo.pad)
    if geo.taps == 1 and not padded:
        rows = slice(first * sy, (last - 1) * sy + 1, sy)
        places = slice(0, (width - 1) * sx + 1, sx)

        def strided(x: Array, columns: Array) -> None:
            columns[:, 0] = x[:, rows, places]

        return strided
    if padded and same_width(geo):
        return _shifts(geo, first, last)
    return _phases(geo, first, last)


def _phases(geo: Geometry, first: int, last: int) -> Fill:
    """Copy columns from planes of the phases with their padding."""
    (ky, kx), (sy, sx), (dy, dx) = geo.kernel, geo.stride, geo.dilate
    rows, width = last - first, geo.out[1]
    high = -(-((rows - 1) * sy + (ky - 1) * dy + 1) // sy)
    wide = -(-((width - 1) * sx + (kx - 1) * dx + 1) // sx)
    # Windows without padding need no planes if they go by single steps, or do not overlap.
    apart = sy > (ky - 1) * dy and sx > (kx - 1) * dx
    bare = not any(geo.pad) and (geo.stride == (1, 1) or apart)
    together = geo.stride == (1, 1) or geo.dilate == (1, 1)

    def fill(x: Array, columns: Array) -> None:
        count = x.shape[0]
        target = columns.reshape(count, ky, kx, rows, width)
        if bare:
            channel, line, unit = x.strides
            strides = (channel, dy * line, dx * unit, sy * line, sx * unit)
            np.copyto(target, as_strided(x[:, first * sy :], target.shape, strides, writeable=False))
            return
        planes = scratch("planes", (count, sy, sx, high, wide), x.dtype)
        phases(x, planes, geo.pad[0] - first * sy, geo.pad[1])
        if not together:
            for y in range(ky):
                for z in range(kx):
                    (qy, ry), (qx, rx) = divmod(y * dy, sy), divmod(z * dx, sx)
                    target[:, y, z] = planes[:, ry, rx, qy : qy + rows, qx : qx + width]
            return
        channel, line, unit = planes.strides[0], planes.strides[3], planes.strides[4]
        strides = (channel, dy * line, dx * unit, line, unit)
        for ry in range(min(sy, ky)):
            for rx in range(min(sx, kx)):
                part = target[:, ry::sy, rx::sx]
                np.copyto(part, as_strided(planes[:, ry, rx], part.shape, strides, writeable=False))

    return fill


def _shifts(geo: Geometry, first: int, last: int) -> Fill:
    """Copy the columns of a convolution whose rows are as long as those of a stride phase ("same" padding).

    Each tap reads its phase at a fixed distance, so that all its rows are one copy; what comes from the neighbouring
    row then is overwritten with the zeros of the padding.
    """
    (ky, kx), (sy, sx), (dy, dx) = geo.kernel, geo.stride, geo.dilate
    rows, width = last - first, geo.out[1]
    tops = [divmod(k * dy - geo.pad[0], sy) for k in range(ky)]
    lefts = [divmod(k * dx - geo.pad[1], sx) for k in range(kx)]
    # Extra rows on both sides, which shifts to the left or right reach.
    more = max(1, -(-max(abs(lefts[0][0]), abs(lefts[-1][0])) // width))
    low, high = tops[0][0] - more, tops[-1][0] + rows + more
    step_y, step_x = sy // gcd(sy, dy), sx // gcd(sx, dx)
    shift_y, shift_x = dy * step_y // sy * width, dx * step_x // sx
    every = slice(None)
    moves = []
    for a in range(min(step_y, ky)):
        for b in range(min(step_x, kx)):
            (qy, ry), (qx, rx) = tops[a], lefts[b]
            part = (every, slice(a, None, step_y), slice(b, None, step_x))
            taps = (-(-(ky - a) // step_y), -(-(kx - b) // step_x))
            moves.append((_phase(geo, ry, rx, first + low, high - low), part, taps, (qy - low) * width + qx))
    edges = []
    for k, (q, _) in enumerate(lefts):
        if q:
            edges.append((every, every, k, every, slice(0, -q) if q < 0 else slice(max(0, width - q), None)))
    lines, span = high - low, rows * width

    def fill(x: Array, columns: Array) -> None:
        count, item = x.shape[0], x.itemsize
        plane = scratch("planes", (count, lines, width), x.dtype)
        strides = (lines * width * item, shift_y * item, shift_x * item, item)
        flat = columns.reshape(count, ky, kx, span)
        for phase, part, taps, start in moves:
            phase(x, plane)
            # as_strided would take as long as this copy.
            flat[part] = np.ndarray((count, *taps, span), plane.dtype, plane, start * item, strides)
        target = columns.reshape(count, ky, kx, rows, width)
        for edge in edges:
            target[edge] = 0

    return fill


def _phase(geo: Geometry, ry: int, rx: int, at: int, lines: int) -> Callable[[Array, Array], None]:
    """Return a function that copies `lines` rows of a stride phase, from row `at`, into a plane with zeros outside."""
    (sy, sx), width = geo.stride, geo.out[1]
    high, wide = len(range(ry, geo.size[0], sy)), len(range(rx, geo.size[1], sx))
    begin, end = max(0, -at), min(lines, high - at)
    if begin >= end:
        begin = end = lines
    every = slice(None)
    zeros = [(every, slice(0, begin))] if begin else []
    if end < lines:
        zeros.append((every, slice(end, None)))
    inside = (every, slice(begin, end), slice(0, wide))
    beside = (every, slice(begin, end), slice(wide, None)) if wide < width and begin < end else None
    source: tuple[int | slice, ...]
    source = (every, slice(ry + (at + begin) * sy, ry + (at + end) * sy, sy), slice(rx, None, sx))
    if geo.apart:
        source = (every, ry * sx + rx, slice(at + begin, at + end))

    def copy(x: Array, plane: Array) -> None:
        if geo.apart:
            x = x.reshape(-1, sy * sx, high, wide)
        for part in zeros:
            plane[part] = 0
        if begin < end:
            plane[inside] = x[source]
        if beside is not None:
            plane[beside] = 0

    return copy


Run = Callable[[Array, Array, Array, "Finish | None"], None]
"""Convolves data by filters into an output, all contiguous, and applies what follows."""

PIECE = 1 << 17
"""Elements that are finished in one go, so that the passes over them stay in the second-level cache."""
_LONG = 512
"""Elements of a channel from which on numpy does better without its buffers."""
_FEW = 1 << 20
"""Elements that one thread finishes sooner than others wake up for it."""
_as_it_is = nullcontext()


def activate(x: Array, mode: NonlineMode) -> None:
    """Apply the nonlinearity in place.

    >>> x = np.array([-1.0, 2.0], "f4")
    >>> activate(x, NonlineMode.H_SWISH)
    >>> x.round(3).tolist()
    [-0.3330000042915344, 1.6670000553131104]
    """
    if mode == NonlineMode.RELU:
        np.maximum(x, filled(0.0, x) if x.dtype == np.float32 else 0, out=x)
    elif mode == NonlineMode.SIGMOID:
        x *= -1
        np.exp(x, out=x)
        x += 1
        np.reciprocal(x, out=x)
    elif mode == NonlineMode.H_SWISH:
        gate = x + x.dtype.type(3)
        np.clip(gate, 0, 6, out=gate)
        x *= gate
        x *= x.dtype.type(1 / 6)


def _part(value: Array, sample: int, channel: int, span: slice, count: int) -> Array:
    """Return the piece of a plain bias (1, C, 1, 1) or full (N, C, H, W) array that belongs to a block."""
    flat = value if value.ndim == 3 else value.reshape(value.shape[0], value.shape[1], -1)
    n = sample if flat.shape[0] > 1 else 0
    rows = flat[n, channel : channel + count]
    return rows[:, span] if rows.shape[1] > 1 else rows


_ANY = Limits()


class Start(NamedTuple):
    """A bias of channels, bounds, a sum with another array (if any), bounds, and what follows them."""

    bias: Array
    before: Limits
    z: Array | None = None
    after: Limits = _ANY
    rest: Finish | None = None


@dataclass(eq=False)
class Real:
    """Bias, residual and nonlinearity of floating-point results.

    Attributes:
        bias: plain (1, C, 1, 1) or of the output's plain shape.
        z: the same, added after the bias.
        scale: what integer sums are multiplied with after `bias` and before `z`, 0 for none.
        then: what follows the nonlinearity.
    """

    mode: NonlineMode = NonlineMode.IDENTITY
    bias: Array | None = None
    z: Array | None = None
    scale: float = 0.0
    then: Finish | None = None
    _start: Start | None = field(default=None, init=False)
    _parsed: bool = field(default=False, init=False)

    def __call__(self, block: Array, sample: int, channel: int, span: slice) -> None:
        """Change a block in place."""
        count = block.shape[0]
        if (faster := replaced("ends", block)) and (start := self.start) is not None:
            z = None if start.z is None else _part(start.z, sample, channel, span, count)
            if faster(block, start.bias[channel : channel + count], z, start):
                if start.rest is not None:
                    start.rest(block, sample, channel, span)
                return
        if self.bias is not None:
            block += _part(self.bias, sample, channel, span, count)
        if self.scale:
            block *= block.dtype.type(self.scale)
        if self.z is not None:
            block += _part(self.z, sample, channel, span, count)
        if self.mode is not NonlineMode.IDENTITY:
            activate(block, self.mode)
        if self.then is not None:
            self.then(block, sample, channel, span)

    @property
    def start(self) -> Start | None:
        """What compiled kernels do in one pass; None where it begins with something else than a bias of channels."""
        if not self._parsed:
            self._parsed, self._start = True, self._parse()
        return self._start

    def _parse(self) -> Start | None:
        if self.bias is None or self.bias.size != self.bias.shape[1] or self.z is not None or self.scale:
            return None
        if self.mode not in (NonlineMode.IDENTITY, NonlineMode.RELU):
            return None
        steps: list[Any] = [Limits(0.0)] if self.mode is NonlineMode.RELU else []
        if self.then is not None:
            steps += self.then.steps if isinstance(self.then, InTurn) else (self.then,)
        before, z, after = _ANY, None, _ANY
        if steps and isinstance(steps[0], Limits):
            before = steps.pop(0)
        if steps and isinstance(steps[0], Added):
            z = steps.pop(0).z
            if steps and isinstance(steps[0], Limits):
                after = steps.pop(0)
        return Start(self.bias.reshape(-1), before, z, after, InTurn(tuple(steps)) if steps else None)

    @property
    def idle(self) -> bool:
        """True if nothing is to be done."""
        nothing = all(v is None for v in (self.bias, self.z, self.then))
        return nothing and self.mode == NonlineMode.IDENTITY and not self.scale


@dataclass(eq=False)
class Requantize:
    """Integer sums (exact in float32 or float64) to another quantized type, through real numbers.

    MegEngine's kernels differ in the order of the float32 operations, which decides values close to a half;
    `rule` names the order, found by comparison with MegEngine 1.13 on x86:

    * "separate": sum and bias are scaled one by one, then added; the result times 1 / scale (int8 NCHW).
    * "product": (sum + bias) * (scale of the sum / scale of the result) (TypeCvt, chanwise, asymmetric).
    * "reciprocal": (sum + bias) * scale, nonlinearity, times 1 / scale of the result.
    * "division": the same, but a true division and exact halves (naive kernels).

    Attributes:
        scale: what one unit of the sum is worth.
        target: the result's dtype; the whole parts of blocks end as its stored values.
        bias: integers of the sum's scale, in the layouts of `Real`.
        addend: the bias as it is added, float32 where that holds it.
        z: real numbers in the layouts of `Real`, added after the bias.
    """

    scale: float
    target: DType
    rule: str = "division"
    mode: NonlineMode = NonlineMode.IDENTITY
    bias: Array | None = None
    z: Array | None = None

    def __post_init__(self) -> None:
        """Work out what every block needs."""
        self._one = np.asarray(self.scale, np.float32)
        self._quantizer = self.quantizer()
        self.addend = self.bias
        if self.bias is not None:
            if self.rule == "separate":
                self.addend = self.bias.astype(np.float32) * self._one
            elif largest(self.bias) <= 2**24:
                self.addend = self.bias.astype(np.float32)

    def quantizer(self, shape: Shape | None = None) -> Quantizer:
        """Return what comes last, for blocks of one shape if that is given."""
        one, unit = np.float32(self.scale), np.float32(self.target.scale)
        if self.rule == "division":
            factor = unit
        else:
            factor = one / unit if self.rule == "product" else np.float32(1) / unit
        exact = divide = self.rule == "division"
        return Quantizer(self.target, float(factor), divide, exact, self.mode == NonlineMode.RELU, shape)

    def __call__(self, block: Array, sample: int, channel: int, span: slice) -> None:
        """Change a block in place; what is left of fractions is for the cast to cut off."""
        count = block.shape[0]
        bias = None if self.addend is None else _part(self.addend, sample, channel, span, count)
        z = None if self.z is None else _part(self.z, sample, channel, span, count)
        real = block
        if block.dtype != np.float32:
            if bias is not None and self.rule != "separate":
                block += bias
                bias = None
            real = block.astype(np.float32)
        self.finish(real, bias, z, self._quantizer)
        if real is not block:
            block[...] = real

    def finish(self, real: Array, bias: Array | None, z: Array | None, last: Quantizer) -> None:
        """Turn float32 sums into numbers whose whole part is the stored value.

        Args:
            real: the sums, changed in place.
            bias: as it is in `addend`.
            z: real numbers.
            last: from `quantizer`.
        """
        separate = self.rule == "separate"
        if bias is not None and not separate:
            np.add(real, bias, real)
        if self.rule != "product":
            np.multiply(real, self._one, real)
        if bias is not None and separate:
            np.add(real, bias, real)
        if z is not None:
            np.add(real, z, real)
        if self.mode != NonlineMode.RELU:
            # RELU needs no step of its own: the quantizer clamps at zero.
            activate(real, self.mode)
        last.settle(real)


def finisher(shape: Shape, channel: int = 0) -> Callable[..., None]:
    """Return a function that applies a `Finish` to a contiguous array of that shape, in pieces of whole channels.

    Args:
        channel: the number of the first channel in the whole output.

    Returns:
        a function of the array, the `Finish` and the number of the first sample.
    """
    batch, channels, points = shape[0], shape[1], prod(shape[2:])
    if batch == 1 and channels * points <= PIECE:
        every = slice(0, points)

        def at_once(out: Array, finish: Finish, sample: int = 0) -> None:
            with short_buffers() if points >= _LONG else _as_it_is:
                finish(out.reshape(channels, points), sample, channel, every)

        return at_once
    per = max(1, PIECE // points)
    spans = max(1, -(-points // PIECE))
    blocks = -(-channels // per) * spans
    flat = (batch, channels, points)
    few = batch * channels * points < _FEW

    def end(out: Array, finish: Finish, sample: int = 0) -> None:
        whole = out.reshape(flat)

        def piece(i: int) -> None:
            n, i = divmod(i, blocks)
            c, start = i // spans * per, i % spans * PIECE
            span = slice(start, min(points, start + PIECE))
            finish(whole[n, c : c + per, span], sample + n, channel + c, span)

        def alone(i: int) -> None:
            with short_buffers() if points >= _LONG else _as_it_is:
                piece(i)

        parts = 1 if few else splits()
        if parts > 1:
            parallel(alone, batch * blocks)
            return
        with short_buffers() if points >= _LONG else _as_it_is:
            for i in range(batch * blocks):
                piece(i)

    return end


def run_parts(func: Callable[[int], None], count: int, parts: int) -> None:
    """Call a function with ``0 ... count - 1``, on the thread pool for more than one part."""
    if parts > 1:
        parallel(func, count)
    else:
        for i in range(count):
            func(i)
