"""Layouts of 4-bit convolutions on graphics processors: NCHW64 and NHWC, with NCHW4 and NCHW32 for 8-bit ones
(MegEngine's EnableNCHW64)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...graph import Graph, Opr, Var
from ...graph import params as P
from ...ops.registry import Shape
from .layouts import ELEMENTWISE, Layouts, convert_layouts
from .pad_channels import Alignment
from .reformat import reformat

_C4, _C32, _C64, _NHWC = "NCHWc4", "NCHWc32", "NCHWc64", "NHWC"
_FORMAT = {_C4: P.Format.NCHW4, _C32: P.Format.NCHW32, _C64: P.Format.NCHW64, _NHWC: P.Format.NHWC}
_FOUR = ("QuantizedS4", "Quantized4Asymm")
_PACK = {_C4: 4, _C32: 32, _C64: 64, _NHWC: 1}
_RELAYOUT = {
    ("NCHW", _C64): P.RelayoutMode.NCHW_NCHW64,
    (_C64, "NCHW"): P.RelayoutMode.NCHW64_NCHW,
    ("NCHW", _NHWC): P.RelayoutMode.NCHW_NHWC,
    (_NHWC, "NCHW"): P.RelayoutMode.NHWC_NCHW,
}


def _missing_4(channels: int) -> int:
    return -channels % (8 if channels <= 32 else 64)


def _missing_8(channels: int) -> int:
    return -channels % (4 if channels <= 16 else 32)


NARROW_PACKS: dict[str, Alignment] = {
    "QuantizedS4": _missing_4,
    "Quantized4Asymm": _missing_4,
    "QuantizedS8": _missing_8,
}
"""How channels are filled up for these layouts."""


def to_nchw64(graph: Graph) -> Graph:
    """Convert quantized dense convolutions to the widest layout that their channels fill.

    8 bits: NCHW32 or NCHW4; 4 bits: NCHW64 or, for multiples of 8, NHWC. Others stay.
    """
    return convert_layouts(graph, _visit, _Narrow)


class _Narrow(Layouts):
    """Layouts where values of 4 bits are moved by RelayoutFormat, since parts of bytes cannot be reshaped."""

    def converted(self, var: Var, source: str, target: str) -> Var:
        # Between these two the innermost axis, where two values share a byte, stays the same.
        if self.r.dtype(var).name not in _FOUR or {source, target} == {_NHWC, _C64}:
            return reformat(self.r, var, source, target)
        if (source, target) not in _RELAYOUT:
            return self.converted(self.converted(var, source, "NCHW"), "NCHW", target)
        mode = P.RelayoutFormat(mode=_RELAYOUT[source, target])
        return self.r.add("RelayoutFormatV1", mode, inputs=[var])[0]


def _visit(t: Layouts, opr: Opr) -> bool:
    if opr.type == "ConvBiasForwardV4":
        return _convolution(t, opr)
    if opr.type == "ConvolutionBackwardDataV2":
        return _transposed(t, opr)
    if opr.type in ELEMENTWISE:
        return _elementwise(t, opr)
    p = opr.params[0] if opr.params else None
    if isinstance(p, P.Pooling | P.WarpPerspective) and p.format == P.Format.NCHW:
        return _window(t, opr, p)
    return False


def _names(t: Layouts, opr: Opr) -> tuple[str, ...]:
    return tuple(t.r.dtype(t.r.var(v)).name for v in opr.inputs)


def _convolution(t: Layouts, opr: Opr) -> bool:
    r, p = t.r, opr.get(P.ConvBias)
    operands = [r.var(v) for v in opr.inputs]
    weight = r.shape(operands[1])
    if weight is None or p.sparse != P.Sparse.DENSE or p.format != P.Format.NCHW or len(weight) != 4:
        return False
    if t.of(operands[1]) != "NCHW" or (p.dilate_h, p.dilate_w) != (1, 1):
        return False
    types, result = _names(t, opr), opr.outputs[0].dtype
    to_float = result is not None and result.name == "Float32"
    layout = _choice(types, weight, to_float)
    if layout is None or any(not _fills_packs(t, v, _PACK[layout]) for v in operands[2:] if not to_float):
        return False
    inputs = [t.to(operands[0], layout), _filter(t, operands[1], layout)]
    # The addends of a float result stay plain.
    inputs += [t.plain(v) if to_float else t.to(v, layout) for v in operands[2:]]
    p = p.replace(format=P.Format.NCHW4_NCHW if to_float else _FORMAT[layout])
    return t.attempt(opr, "NCHW" if to_float else layout, inputs, p, *opr.params[1:])


def _choice(types: Sequence[str], weight: Shape, to_float: bool) -> str | None:
    out, into = weight[:2]
    if types[:2] == ("QuantizedS8", "QuantizedS8"):
        rest = ("Float32",) if to_float else ("QuantizedS32",)
        if types[2:3] not in ((), rest):
            return None
        if not to_float and out % 32 == into % 32 == 0 and types[3:] in ((), ("QuantizedS8",)):
            return _C32
        return _C4 if out % 4 == into % 4 == 0 else None
    if types[0] in _FOUR and types[1] == "QuantizedS4" and types[2:3] in ((), ("QuantizedS32",)):
        if types[3:] not in ((), types[:1]):
            return None
        return _C64 if out % 64 == into % 64 == 0 else _NHWC if out % 8 == into % 8 == 0 else None
    return None


def _fills_packs(t: Layouts, var: Var, pack: int) -> bool:
    shape = t.r.shape(var)
    return t.of(var) != "NCHW" or (shape is not None and len(shape) == 4 and shape[1] % pack == 0)


def _filter(t: Layouts, var: Var, layout: str) -> Var:
    if t.r.dtype(var).name in _FOUR:
        return t.converted(var, "NCHW", layout)
    return reformat(t.r, var, "KCRS", {_C4: "KCRSc4", _C32: "KCRSc32"}[layout])


def _transposed(t: Layouts, opr: Opr) -> bool:
    r, p = t.r, opr.get(P.Convolution)
    operands = [r.var(v) for v in opr.inputs]
    weight = r.shape(operands[0])
    if _names(t, opr) != ("QuantizedS8", "QuantizedS8") or weight is None or len(weight) != 4:
        return False
    if p.sparse != P.Sparse.DENSE or p.format != P.Format.NCHW or weight[0] % 4 or weight[1] % 4:
        return False
    inputs = [reformat(r, operands[0], "KCRS", "KCRSc4"), t.to(operands[1], _C4)]
    return t.attempt(opr, _C4, inputs, p.replace(format=P.Format.NCHW4), *opr.params[1:])


def _elementwise(t: Layouts, opr: Opr) -> bool:
    """Give all inputs the layout of most elements."""
    r = t.r
    operands = [r.var(v) for v in opr.inputs]
    sizes: dict[str, int] = {}
    for var in operands:
        shape = r.shape(var)
        if shape is None:
            return False
        if shape != (1,):
            sizes[t.of(var)] = sizes.get(t.of(var), 0) + prod(shape)
    layout = max(sizes, key=lambda name: sizes[name], default="NCHW")
    if layout == "NCHW":
        return False
    inputs = []
    for var in operands:
        if r.shape(var) != (1,):
            if not _fills_packs(t, var, _PACK[layout]):
                return False
            var = t.to(var, layout)
        inputs.append(var)
    return t.attempt(opr, layout, inputs)


def _window(t: Layouts, opr: Opr, p: P.Pooling | P.WarpPerspective) -> bool:
    r = t.r
    source, *rest = [r.var(v) for v in opr.inputs]
    source_layout, name, shape = t.of(source), r.dtype(source).name, r.old_shape(opr.inputs[0])
    if any(t.of(v) != "NCHW" for v in rest) or shape is None:
        return False
    if name in _FOUR:
        layout = _C64 if source_layout == _C64 else _NHWC
    elif name != "QuantizedS8" or shape[1] % 4:
        return False
    elif isinstance(p, P.WarpPerspective):
        layout = _C4
    else:
        wide = source_layout in (_C32, _C64) or (source_layout in ("NCHW", _NHWC) and shape[1] % 32 == 0)
        layout = _C32 if wide else _C4
    inputs = [t.to(source, layout), *rest]
    return t.attempt(opr, layout, inputs, p.replace(format=_FORMAT[layout]), *opr.params[1:])
