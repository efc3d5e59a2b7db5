"""Memory layouts of convolution data and filters, and the steps after the sum: bias, residual, nonlinearity, rounding.

Facts from MegEngine's layout deduction (dnn common convolution) and naive kernels; which of several filter
layouts applies follows from the number of axes, as there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod

import numpy as np

from ...graph.dtypes import Array, DType
from ...graph.params import Format, NonlineMode
from ..numeric.parallel import parallel, splits
from ..numeric.quant import Quantizer
from ..numeric.special import filled, largest, short_buffers
from ..registry import Finish, Shape

__all__ = [
    "PIECE",
    "Finish",
    "Packing",
    "Real",
    "Requantize",
    "Run",
    "activate",
    "filter_packing",
    "finisher",
    "from_plain",
    "input_packing",
    "output_packing",
    "run_parts",
    "to_plain",
]


@dataclass(frozen=True)
class Packing:
    """A layout of `shape` as a transposition of a plain array.

    Attributes:
        shape: the packed shape.
        order: the axes of the packed array in the order of the plain one.
        plain: the plain shape, in which split channels are merged.
    """

    shape: Shape
    order: tuple[int, ...]
    plain: Shape


_DATA: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    # layout -> (axes in plain order, how many packed axes make each plain axis)
    "NCHW": ((0, 1, 2, 3), (1, 1, 1, 1)),
    "NHWC": ((0, 3, 1, 2), (1, 1, 1, 1)),
    "NCHWx": ((0, 1, 4, 2, 3), (1, 2, 1, 1)),
    "NHWCD4": ((0, 2, 4, 1, 3), (1, 2, 1, 1)),
    "CHWN4": ((3, 0, 4, 1, 2), (1, 2, 1, 1)),
    "NCDHW": ((0, 1, 2, 3, 4), (1, 1, 1, 1, 1)),
    "NDHWC": ((0, 4, 1, 2, 3), (1, 1, 1, 1, 1)),
}
_PACK = {
    Format.NCHW4: (4, 4),
    Format.NCHW8: (8, 8),
    Format.NCHW32: (32, 32),
    Format.NCHW64: (64, 64),
    Format.NCHW88: (8, 8),
    Format.NCHW44: (4, 4),
    Format.NCHW44_DOT: (4, 4),
    Format.NCHW4_NCHW32: (4, 32),
    Format.NCHW32_NCHW4: (32, 4),
    Format.NCHW4_NCHW: (4, 0),
    Format.NCHW4_NHWC: (4, 0),
    Format.NHWCD4: (4, 4),
    Format.CHWN4: (4, 4),
}
_HYBRID = (Format.NCHW88, Format.NCHW44, Format.NCHW44_DOT)


def _name(fmt: Format, output: bool) -> str:
    if fmt in (Format.NCHW, Format.NHWC, Format.NHWCD4, Format.CHWN4):
        return fmt.name
    if fmt not in _PACK:
        raise ValueError(f"format {fmt.name} is not a format of convolutions")
    if output and fmt in (Format.NCHW4_NCHW, Format.NCHW4_NHWC):
        return fmt.name.partition("_")[2]
    return "NCHWx"


def _data(name: str, shape: Shape, pack: int) -> Packing:
    order, parts = _DATA[name]
    if len(shape) != len(order):
        raise ValueError(
            f"{name.replace('x', str(pack))} data must have {len(order)} axes, got {list(shape)}"
        )
    if sum(parts) > 4 and pack and shape[4] != pack:
        raise ValueError(
            f"the last axis of {name.replace('x', str(pack))} data must be {pack}, got {list(shape)}"
        )
    return Packing(shape, order, _merge([shape[a] for a in order], parts))


def _merge(sizes: Sequence[int], parts: Sequence[int]) -> Shape:
    plain, at = [], 0
    for n in parts:
        plain.append(prod(sizes[at : at + n]))
        at += n
    return tuple(plain)


def input_packing(fmt: Format | str, shape: Shape) -> Packing:
    """Return the layout of a convolution's input of that shape.

    Raises:
        ValueError: the shape does not fit the format, or no convolution has that format.

    >>> input_packing(Format.NCHW44, (1, 2, 8, 8, 4)).plain
    (1, 8, 8, 8)
    """
    if isinstance(fmt, str):
        return _data(fmt, shape, 0)
    if fmt in _HYBRID and len(shape) == 4:
        limit = _PACK[fmt][0]
        if shape[1] > limit:
            raise ValueError(
                f"a {fmt.name} layer on NCHW data takes at most {limit} channels, got {list(shape)}"
            )
        return _data("NCHW", shape, 0)
    return _data(_name(fmt, False), shape, _PACK.get(fmt, (0, 0))[0])


def output_packing(fmt: Format | str, plain: Shape) -> Packing:
    """Return the layout of a convolution's output of a plain shape.

    Raises:
        ValueError: the channels do not fill the packs.

    >>> output_packing(Format.NCHW4_NCHW32, (1, 64, 7, 7)).shape
    (1, 2, 7, 7, 32)
    """
    name = fmt if isinstance(fmt, str) else _name(fmt, True)
    pack = 0 if isinstance(fmt, str) else _PACK.get(fmt, (0, 0))[1]
    order, parts = _DATA[name]
    split: list[int] = []
    for n, count in zip(plain, parts, strict=True):
        if count == 2:
            if n % pack:
                label = fmt if isinstance(fmt, str) else fmt.name
                raise ValueError(f"{label} output channels must be a multiple of {pack}, got {n}")
            split += [n // pack, pack]
        else:
            split.append(n)
    shape = [0] * len(order)
    for position, axis in enumerate(order):
        shape[axis] = split[position]
    return Packing(tuple(shape), order, plain)


def filter_packing(fmt: Format | str, shape: Shape, grouped: bool, dot: bool = False) -> Packing:
    """Return the layout of a filter; its plain shape is (groups, out per group, in per group, kernel...).

    Args:
        fmt: the convolution's format ("NCDHW" and "NDHWC" for 3-D).
        shape: the filter's shape.
        grouped: whether the operator is sparse (GROUP).
        dot: whether the filter is 8-bit quantized, which NHWCD4 stores differently.

    Raises:
        ValueError: no filter of that format has such a shape.

    >>> filter_packing(Format.NCHW44, (2, 1, 1, 3, 3, 4), True).plain
    (8, 1, 1, 3, 3)
    """
    rank = len(shape)
    g = int(grouped)
    # Plain order is (group, out, in, kernel...); a letter stands for one packed axis.
    if isinstance(fmt, str):
        axes = {"NCDHW": "OIDHW", "NDHWC": "ODHWI"}[fmt]
        layout = ("G" if grouped else "") + axes
    elif fmt in _HYBRID:
        layout = _xx(fmt, shape, grouped)
    elif fmt == Format.NHWCD4:
        wide = "OHWIoi" if dot else "OHWIo"
        chan = grouped and rank == 5 and shape[1] == 1
        layout = "G1HWg" if chan else "G" * g + wide
    elif fmt in (Format.NCHW, Format.NHWC, Format.CHWN4):
        layout = "G" * g + {Format.NCHW: "OIHW", Format.NHWC: "OHWI", Format.CHWN4: "IHWOi"}[fmt]
    else:
        _name(fmt, False)
        layout = "G" * g + "OIHWi"
    if rank != len(layout):
        kind = "group" if grouped else "dense"
        label = fmt if isinstance(fmt, str) else fmt.name
        raise ValueError(f"a {label} {kind} filter must have {len(layout)} axes, got {list(shape)}")
    pack = 0 if isinstance(fmt, str) else _PACK.get(fmt, (0, 0))[0]
    for letter, n in zip(layout, shape, strict=True):
        allowed = (pack, 2 * pack) if fmt in _HYBRID and "i" in layout else (pack,)
        if letter.islower() and n not in allowed:
            raise ValueError(f"the innermost axes of this filter must be {pack}, got {list(shape)}")
    return _letters(layout, shape)


def _xx(fmt: Format, shape: Shape, grouped: bool) -> str:
    inner = "oi" if fmt == Format.NCHW44_DOT else "io"
    if not grouped:
        return "OHWIo" if len(shape) == 5 else "OIHW" + inner
    if len(shape) == 6 and shape[1] == shape[2] == 1:
        return "G11HWg"
    return "GOIHW" + inner


def _letters(layout: str, shape: Shape) -> Packing:
    groups = ("Gg", "Oo", "Ii", "D", "H", "W") if "D" in layout else ("Gg", "Oo", "Ii", "H", "W")
    order: list[int] = []
    plain: list[int] = []
    for letters in groups:
        axes = [layout.index(a) for a in letters if a in layout]
        order += axes
        plain.append(prod(shape[a] for a in axes))
    ones = [i for i, a in enumerate(layout) if a == "1"]
    return Packing(shape, (*ones, *order), tuple(plain))


def to_plain(x: Array, packing: Packing) -> Array:
    """Unpack an array (a view where no channels are split)."""
    return x.transpose(packing.order).reshape(packing.plain)


def from_plain(x: Array, packing: Packing) -> Array:
    """Pack a plain array, contiguous."""
    split = x.reshape([packing.shape[a] for a in packing.order])
    back = [packing.order.index(a) for a in range(len(packing.order))]
    result = split.transpose(back)
    return result if result.flags.c_contiguous else result.copy()


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
