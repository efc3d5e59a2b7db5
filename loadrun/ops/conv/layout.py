"""Memory layouts of convolution data and filters, to and from plain (batch, channel, height, width).

Facts from MegEngine's layout deduction (dnn common convolution) and naive kernels; which of several filter
layouts applies follows from the number of axes, as there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ...graph.dtypes import Array
from ...graph.params import Format
from ..registry import Shape


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
