"""The steps after the sum of a convolution: bias, a residual, the nonlinearity, quantization."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod

import numpy as np

from ...graph.dtypes import Array, DType
from ...graph.params import NonlineMode
from ..numeric.chunks import filled, short_buffers
from ..numeric.intmul import largest
from ..numeric.parallel import parallel, splits
from ..numeric.quant import Quantizer
from ..registry import Finish, Shape

__all__ = ["PIECE", "Finish", "Real", "Requantize", "Run", "activate", "finisher", "run_parts"]

Run = Callable[[Array, Array, Array, "Finish | None"], None]
"""Convolves data by filters into an output, all contiguous, and applies what follows."""

PIECE = 1 << 16
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
        np.negative(x, out=x)
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
    flat = value.reshape(value.shape[0], value.shape[1], -1)
    n = sample if flat.shape[0] > 1 else 0
    rows = flat[n, channel : channel + count]
    return rows[:, span] if rows.shape[1] > 1 else rows


@dataclass(frozen=True, eq=False)
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

    def __call__(self, block: Array, sample: int, channel: int, span: slice) -> None:
        """Change a block in place."""
        count = block.shape[0]
        if self.bias is not None:
            block += _part(self.bias, sample, channel, span, count)
        if self.scale:
            block *= block.dtype.type(self.scale)
        if self.z is not None:
            block += _part(self.z, sample, channel, span, count)
        activate(block, self.mode)
        if self.then is not None:
            self.then(block, sample, channel, span)

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
