"""RelayoutFormatV1: packing channels of data and filters, and unpacking them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..graph import Opr, params as P
from ..graph.dtypes import Array, DType
from ..graph.params import RelayoutMode as M
from .registry import Call, Shape, kernel


@dataclass(frozen=True)
class _Mode:
    """One mode: axes of source and target, capital letters whole or outer, small ones the pack inside.

    Attributes:
        pack: size of every small axis.
        whole: axes that must be multiples of the pack.
        filled: axes that the target pads to a multiple of the pack; those that it splits are padded as well.
        small: an axis that may not be longer than the pack.
    """

    source: str
    target: str
    pack: int = 4
    whole: str = ""
    filled: str = ""
    small: str = ""


_MODES: dict[M, tuple[_Mode, ...]] = {
    M.NHWC_NHWCD4: (_Mode("NHWC", "NHCWc", whole="C"),),
    M.NHWC_NHWCD4I: (_Mode("NHWC", "NHCWc"),),
    M.NCHW_NHWCD4: (_Mode("NCHW", "NHCWc"),),
    M.NCHW_NHWCD4I: (_Mode("NCHW", "NHCWc"),),
    M.NHWCD4_NHWC: (_Mode("NHCWc", "NHWC"),),
    M.NHWCD4I_NHWC: (_Mode("NHCWc", "NHWC"),),
    M.NHWCD4_NCHW: (_Mode("NHCWc", "NCHW"),),
    M.NHWCD4I_NCHW: (_Mode("NHCWc", "NCHW"),),
    M.INTER_WEIGHT_DENSE: (_Mode("OIHW", "OHWIo", whole="O", filled="I"),),
    M.INTER_WEIGHT_DENSEI: (_Mode("OIHW", "OHWIo", whole="O", filled="I"),),
    M.INTER_WEIGHT_GROUP: (_Mode("GOIHW", "GOHWIo", whole="OI"),),
    M.INTER_WEIGHT_GROUPI: (_Mode("GOIHW", "GOHWIo", whole="OI"),),
    M.INTER_WEIGHT_CHAN: (_Mode("G11HW", "G1HWg", whole="G"),),
    M.INTER_WEIGHT_CHANI: (_Mode("G11HW", "G1HWg", whole="G"),),
    M.INTER_WEIGHT_DENSEI_DOT: (_Mode("OIHW", "OHWIoi", whole="O"),),
    M.INTER_WEIGHT_GROUPI_DOT: (_Mode("GOIHW", "GOHWIoi", whole="OI"),),
    M.NCHW4_CHWN4: (_Mode("NCHWc", "CHWNc"),),
    M.CHWN4_NCHW4: (_Mode("CHWNc", "NCHWc"),),
    M.NCHW_NCHW88_CONV_DENSE_WEIGHT: (_Mode("OIHW", "OIHWio", 8, whole="O"),),
    M.NCHW_NCHW88_CONV_CHAN_WEIGHT: (_Mode("GOIHW", "GOIHWg", 8),),
    M.NCHW_NCHW88_CONV_GROUP_WEIGHT: (_Mode("GOIHW", "GOIHWio", 8, whole="O"),),
    M.NCHW_NCHW88: (_Mode("NCHW", "NCHWc", 8),),
    M.NCHW88_NCHW: (_Mode("NCHWc", "NCHW", 8),),
    M.NCHW_NCHW4_IC_SMALL: (_Mode("NCHW", "NCHWc", small="C"),),
    M.NCHW_NCHW4_IC_SMALL_CONV_DENSE_WEIGHT: (_Mode("OIHW", "OIHWi", small="I"),),
    M.NCHW_NCHW4: (_Mode("NCHW", "NCHWc"),),
    M.NCHW4_NCHW: (_Mode("NCHWc", "NCHW"),),
    M.NCHW_NCHW4_WEIGHT: (_Mode("OIHW", "OIHWi", filled="O"), _Mode("GOIHW", "GOIHWi", filled="O")),
    M.NCHW_NCHW64: (_Mode("NCHW", "NCHWc", 64),),
    M.NCHW64_NCHW: (_Mode("NCHWc", "NCHW", 64),),
    M.NCHW_NHWC: (_Mode("NCHW", "NHWC", 1),),
    M.NHWC_NCHW: (_Mode("NHWC", "NCHW", 1),),
}
_CUT = (M.NCHW4_NCHW, M.NCHW64_NCHW)


@dataclass(frozen=True)
class _Plan:
    """Steps from source to target: merge, cut or pad, split.

    Attributes:
        order: source axes as (outer, inner) pairs in the order of the whole axes.
        plain: the whole axes' lengths; padded, the same after padding.
        split: padded axes with packs as axes of their own; final, those in the target's order.
    """

    order: tuple[int, ...]
    plain: Shape
    padded: Shape
    split: Shape
    final: tuple[int, ...]
    shape: Shape


def _mode(p: P.RelayoutFormat, shape: Shape) -> _Mode:
    """Return the form of a mode for inputs of that shape; raise if they do not fit it."""
    for mode in _MODES[p.mode]:
        if len(mode.source) == len(shape):
            break
    else:
        ranks = " or ".join(str(len(m.source)) for m in _MODES[p.mode])
        raise ValueError(f"{p.mode.name} takes {ranks} axes, got shape {list(shape)}")
    wanted = {a: mode.pack if a.islower() else 1 for a in mode.source if a.islower() or a == "1"}
    if any(a in wanted and n != wanted[a] for a, n in zip(mode.source, shape, strict=True)):
        raise ValueError(
            f"{p.mode.name} takes axes {mode.source} with packs of {mode.pack}, got {list(shape)}"
        )
    lengths = _whole_axes(mode, shape)
    for a in mode.whole:
        if lengths[a] % mode.pack:
            raise ValueError(f"{p.mode.name} needs a multiple of {mode.pack} along {a}, got {list(shape)}")
    for a in mode.small:
        if lengths[a] > mode.pack:
            raise ValueError(f"{p.mode.name} takes at most {mode.pack} along {a}, got {list(shape)}")
    return mode


def _whole_axes(mode: _Mode, shape: Shape) -> dict[str, int]:
    """Return the lengths of the axes with their packs, in the source's order."""
    lengths = dict.fromkeys((a for a in mode.source if a.isupper()), 1)
    for letter, n in zip(mode.source, shape, strict=True):
        if letter != "1":
            lengths[letter.upper()] *= n
    return lengths


def _plan(p: P.RelayoutFormat, shape: Shape) -> _Plan:
    mode = _mode(p, shape)
    plain = _whole_axes(mode, shape)
    packed = {a.upper() for a in mode.target if a.islower()}
    rounded = packed | set(mode.filled)
    padded = {a: -(-n // mode.pack) * mode.pack if a in rounded else n for a, n in plain.items()}
    split: dict[str, int] = {}
    for a, n in padded.items():
        split |= {a: n // mode.pack, a.lower(): mode.pack} if a in packed else {a: n}
    if "1" in mode.target:
        split["1"] = 1
    letters = list(split)
    ones = [i for i, a in enumerate(mode.source) if a == "1"]
    return _Plan(
        (*ones, *(i for a in plain for i, b in enumerate(mode.source) if b.upper() == a)),
        tuple(plain.values()),
        tuple(padded.values()),
        tuple(split.values()),
        tuple(letters.index(a) for a in mode.target),
        tuple(split[a] for a in mode.target),
    )


def _groups(p: P.RelayoutFormat, channels: int) -> int:
    if p.group < 1 or channels % p.group:
        raise ValueError(f"{channels} channels cannot be cut into {p.group} groups")
    return p.group


def _grouped_plan(p: P.RelayoutFormat, shape: Shape) -> tuple[_Plan, int]:
    """Plan NCHW_NCHW4, which packs every group of channels on its own: groups are like samples."""
    if p.mode == M.NCHW_NCHW4 and p.group != 1 and len(shape) == 4:
        n, c, h, w = shape
        groups = _groups(p, c)
        return _plan(p, (n * groups, c // groups, h, w)), groups
    return _plan(p, shape), 1


def _target(p: P.RelayoutFormat, shape: Shape) -> Shape:
    plan, groups = _grouped_plan(p, shape)
    if groups > 1:
        n, c, *rest = plan.shape
        return (n // groups, c * groups, *rest)
    if p.mode in _CUT:
        n, c, h, w = plan.shape
        kept = p.oc or c
        _groups(p, kept)
        _groups(p, c)
        if kept > c:
            raise ValueError(f"{p.mode.name} cannot take {kept} channels from {c}")
        return (n, kept, h, w)
    return plan.shape


_CONVERSIONS = {
    ("Quantized8Asymm", "QuantizedS8"),
    ("Uint8", "QuantizedS8"),
    ("QuantizedS8", "QuantizedS8"),
    ("QuantizedS32", "QuantizedS32"),
    ("QuantizedS4", "QuantizedS4"),
    ("Quantized4Asymm", "Quantized4Asymm"),
}


def _dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    target = opr.output_dtype or inputs[0]
    if target != inputs[0] and (inputs[0].name, target.name) not in _CONVERSIONS:
        raise ValueError(f"relayout does not convert {inputs[0]} to {target}")
    return (target,)


def _fill(p: P.RelayoutFormat, source: DType, target: DType) -> int:
    """Return the fill of padded channels: real zero where MegEngine has it, else stored zero."""
    if p.mode in (M.NCHW_NHWCD4I, M.NHWC_NHWCD4I, M.NCHW_NCHW4_WEIGHT) or p.group != 1:
        return 0
    if source.name == "Uint8" and target.name == "QuantizedS8":
        return 128
    return source.zero_point


def _convert(x: Array, source: DType, target: DType) -> Array:
    """Change the quantization, through real numbers as `quantize(dequantize(x))`."""
    if source == target:
        return x
    real = x.astype(np.float32)
    if source.is_quantized:
        real -= np.float32(source.zero_point)
        real *= np.float32(source.scale)
    else:
        real -= np.float32(128)
    real /= np.float32(target.scale)
    whole = np.trunc(real)
    whole += np.trunc((real - whole) * 2)
    whole += np.float32(target.zero_point)
    low, high = target.range
    return np.clip(whole, low, min(high, 2147483520)).astype(target.np)


@kernel("RelayoutFormatV1", dtype=_dtype, shape=lambda s: (_target(s.get(P.RelayoutFormat), s.shape(0)),))
def relayout(c: Call, x: Array) -> Array:
    """Move channels into or out of packs (MegEngine dnn naive relayout_format).

    New channels hold zero (the zero point of asymmetric types); NCHW4_NCHW and NCHW64_NCHW keep `oc` channels
    if that is given, `group` tells how many groups are packed or cut each on its own.

    Raises:
        ValueError: a shape that does not fit the mode.
    """
    return _convert(moved(c, x), c.inputs[0], c.outputs[0])


def moved(c: Call, x: Array) -> Array:
    """Move channels, and leave the quantization as it is."""
    p = c.get(P.RelayoutFormat)
    shape = _target(p, x.shape)
    plan, groups = _grouped_plan(p, x.shape)
    if groups > 1:
        x = x.reshape(x.shape[0] * groups, x.shape[1] // groups, *x.shape[2:])
    plain = x.transpose(plan.order).reshape(plan.plain)
    if plan.padded != plan.plain:
        widths = [(0, b - a) for a, b in zip(plan.plain, plan.padded, strict=True)]
        plain = np.pad(plain, widths, constant_values=_fill(p, c.inputs[0], c.outputs[0]))
    result = plain.reshape(plan.split).transpose(plan.final)
    if p.mode in _CUT and shape != plan.shape:
        n, channels, h, w = plan.shape
        parts = result.reshape(n, p.group, channels // p.group, h, w)
        result = parts[:, :, : shape[1] // p.group]
    return result.reshape(shape)
