"""Layouts of 8-bit and 4-bit convolutions on graphics processors."""

from collections.abc import Callable, Sequence
from math import prod

from ...graph import Graph, Opr, Var, params as P
from ...ops.registry import Shape
from ..rewriter import Rewriter
from .layouts import CONVOLUTIONS, ELEMENTWISE, Layouts, convert_layouts, fills_packs, reformat
from .pad_channels import Alignment

# Layouts of 8-bit convolutions on graphics processors: NCHW4, NCHW32 and CHWN4 (MegEngine's EnableNCHW4,
# EnableTensorCore and EnableCHWN4 in one pass each).

_C4, _C32, _CHWN = "NCHWc4", "NCHWc32", "CHWNc4"
_FORMAT_OF_8 = {_C4: P.Format.NCHW4, _C32: P.Format.NCHW32, _CHWN: P.Format.CHWN4}


def to_nchw4(graph: Graph, wide: str | None = None) -> Graph:
    """Convert 8-bit convolutions whose channels are multiples of 4; float ones stay.

    A first layer of less than 4 channels gets zeros beside them. Grouped convolutions are packed where every group's
    channels are multiples of 4.

    Args:
        wide: "NCHWc32" for dense convolutions whose channels are multiples of 32, "CHWNc4" for all dense ones, that
            give QuantizedS8; None for NCHW4 alone.
    """
    return convert_layouts(graph, _Quantized(wide).visit, _Layouts4)


class _Layouts4(Layouts):
    """Layouts where CHWN4, which is made from NCHW4, is among them."""

    def __init__(self, rewriter: Rewriter) -> None:
        super().__init__(rewriter)
        # Variables as CHWN4 by the ids of the same ones as NCHW4, and the other way round.
        self.twin: dict[int, Var] = {}

    def to(self, var: Var, layout: str, change: Callable[[Var, str, str], Var] | None = None) -> Var:
        turned = {(_CHWN, _C4): P.RelayoutMode.CHWN4_NCHW4, (_C4, _CHWN): P.RelayoutMode.NCHW4_CHWN4}
        mode = turned.get((self.of(var), layout))
        if mode is None:
            return super().to(var, layout, change)
        if var.id not in self.twin:
            converted = self.mark(_relayout(self, var, mode), layout)
            self.twin[var.id], self.twin[converted.id] = converted, var
        return self.twin[var.id]


def _relayout(t: Layouts, var: Var, mode: P.RelayoutMode) -> Var:
    return t.r.add("RelayoutFormatV1", P.RelayoutFormat(mode=mode), inputs=[var])[0]


def _bias_or_residual(t: Layouts, var: Var, layout: str) -> Var | None:
    """Return what a convolution adds, in its layout; None if its channels do not fill packs."""
    if t.r.dtype(var).name == "Float32":
        return t.plain(var)
    if fills_packs(t.r.shape(var), 4) or (t.of(var) != "NCHW" and t.r.shape(var) is not None):
        return t.to(var, layout)
    return None


class _Quantized:
    def __init__(self, wide: str | None) -> None:
        self.wide = wide

    def visit(self, t: Layouts, opr: Opr) -> bool:
        """Handle one operator; False leaves it plain."""
        if opr.type in CONVOLUTIONS:
            return self.convolution(t, opr)
        if opr.type == "BatchConvBiasForwardV1":
            return self.batch(t, opr)
        if opr.type == "ConvolutionBackwardDataV2":
            return self.transposed(t, opr)
        if opr.type in ELEMENTWISE:
            return self.joined(t, opr)
        if opr.inputs and t.of(t.r.var(opr.inputs[0])) != "NCHW":
            return self.window(t, opr)
        return False

    def window(self, t: Layouts, opr: Opr) -> bool:
        """Pack pooling, resizing and warping."""
        r = t.r
        source, *rest = [r.var(v) for v in opr.inputs]
        p = opr.params[0] if opr.params else None
        if not isinstance(p, P.Pooling | P.Resize | P.WarpPerspective) or p.format != P.Format.NCHW:
            return False
        if r.dtype(source).name != "QuantizedS8" or any(t.of(v) != "NCHW" for v in rest):
            return False
        layout = _C4
        shape = r.old_shape(opr.inputs[0])
        if isinstance(p, P.Pooling):
            if self.wide == _C32 and shape is not None and shape[1] % 32 == 0:
                layout = _C32
            elif t.of(source) == _CHWN:
                layout = _CHWN
        operands = [t.to(source, layout), *rest]
        return t.attempt(opr, layout, operands, p.replace(format=_FORMAT_OF_8[layout]), *opr.params[1:])

    def joined(self, t: Layouts, opr: Opr) -> bool:
        """Give elementwise operators the layout of their packed inputs."""
        r = t.r
        operands = [r.var(v) for v in opr.inputs]
        layouts = [t.of(v) for v in operands]
        if all(name == "NCHW" for name in layouts):
            return False
        special = sum(name in (_C32, _CHWN) for name in layouts)
        special_layout = next((n for n in layouts if n in (_C32, _CHWN)), _C4)
        layout = special_layout if special and special >= len(operands) // 2 else _C4
        pack = 32 if layout == _C32 else 4
        inputs = []
        for var in operands:
            shape = r.shape(var)
            if shape == (1,):
                inputs.append(var)
            elif t.of(var) != "NCHW" or (shape is not None and len(shape) == 4 and shape[1] % pack == 0):
                inputs.append(t.to(var, layout))
            else:
                return False
        return t.attempt(opr, layout, inputs)

    def convolution(self, t: Layouts, opr: Opr) -> bool:
        """Pack convolution and ConvBias."""
        r = t.r
        operands = [r.var(v) for v in opr.inputs]
        p = opr.params[0]
        if (
            not isinstance(p, P.Convolution | P.ConvBias)
            or p.format != P.Format.NCHW
            or r.dtype(operands[0]).is_float
        ):
            return False
        weight = r.shape(operands[1])
        if weight is None or t.of(operands[1]) != "NCHW" or (p.dilate_h, p.dilate_w) != (1, 1):
            return False
        grouped = p.sparse == P.Sparse.GROUP
        out, into = weight[1:3] if grouped else weight[:2]
        small = not grouped and into < 4
        if len(weight) != 4 + grouped or out % 4 or (into % 4 and not small):
            return False
        result = opr.outputs[0].dtype
        plain_result = isinstance(p, P.ConvBias) and result is not None and result.name == "Float32"
        layout = self.layout(t, opr, p, weight, small)
        inputs = self.data_and_filter(t, operands, layout, grouped, small)
        for var in operands[2:]:
            added = _bias_or_residual(t, var, layout)
            if added is None:
                return False
            inputs.append(added)
        p = p.replace(format=P.Format.NCHW4_NCHW if plain_result else _FORMAT_OF_8[layout])
        return t.attempt(opr, "NCHW" if plain_result else layout, inputs, p, *opr.params[1:])

    def layout(self, t: Layouts, opr: Opr, p: P.Convolution | P.ConvBias, weight: Shape, small: bool) -> str:
        """Return the layout of a convolution: NCHW4, or the wide one where that can be."""
        result, shape = opr.outputs[0].dtype, t.r.old_shape(opr.inputs[0])
        dense8 = p.sparse != P.Sparse.GROUP and result is not None and result.name == "QuantizedS8"
        if not dense8 or not isinstance(p, P.ConvBias):
            return _C4
        if self.wide == _CHWN:
            return _CHWN
        if self.wide != _C32 or small or shape is None or min(shape[2:]) < 3:
            return _C4
        return _C32 if weight[0] % 32 == 0 and weight[1] % 32 == 0 else _C4

    def data_and_filter(
        self, t: Layouts, operands: Sequence[Var], layout: str, grouped: bool, small: bool
    ) -> list[Var]:
        """Return the first two inputs of a convolution in a layout."""
        r = t.r
        if small:
            data = t.to(
                t.plain(operands[0]), _C4, lambda v, a, b: _relayout(t, v, P.RelayoutMode.NCHW_NCHW4_IC_SMALL)
            )
            filter_ = _relayout(t, operands[1], P.RelayoutMode.NCHW_NCHW4_IC_SMALL_CONV_DENSE_WEIGHT)
            data = t.to(data, layout)
        else:
            data = t.to(operands[0], layout)
            source = "GKCRS" if grouped else "KCRS"
            filter_ = reformat(r, operands[1], source, source + ("c32" if layout == _C32 else "c4"))
        if layout == _CHWN:
            filter_ = _relayout(t, filter_, P.RelayoutMode.NCHW4_CHWN4)
        return [data, filter_]

    def batch(self, t: Layouts, opr: Opr) -> bool:
        """Pack a convolution with one filter per sample."""
        r = t.r
        operands = [r.var(v) for v in opr.inputs]
        p, weight = opr.get(P.BatchConvBias), r.shape(operands[1])
        if r.dtype(operands[0]).is_float or p.format != P.Format.NCHW or weight is None or len(weight) != 5:
            return False
        if weight[1] % 4 or weight[2] % 4 or p.sparse != P.Sparse.DENSE:
            return False
        inputs = [t.to(operands[0], _C4), reformat(r, operands[1], "GKCRS", "GKCRSc4")]
        for var in operands[2:]:
            if t.of(var) == "NCHW" and not fills_packs(r.shape(var), 4):
                return False
            inputs.append(t.to(var, _C4))
        return t.attempt(opr, _C4, inputs, p.replace(format=P.Format.NCHW4), *opr.params[1:])

    def transposed(self, t: Layouts, opr: Opr) -> bool:
        """Pack a dense transposed convolution."""
        r = t.r
        operands = [r.var(v) for v in opr.inputs]
        p, weight = opr.get(P.Convolution), r.shape(operands[0])
        if (
            r.dtype(operands[1]).is_float
            or p.format != P.Format.NCHW
            or p.sparse != P.Sparse.DENSE
            or len(operands) > 2
        ):
            return False
        if weight is None or len(weight) != 4 or weight[0] % 4 or weight[1] % 4 or prod(weight) == 0:
            return False
        inputs = [reformat(r, operands[0], "KCRS", "KCRSc4"), t.to(operands[1], _C4)]
        return t.attempt(opr, _C4, inputs, p.replace(format=P.Format.NCHW4), *opr.params[1:])


# Layouts of 4-bit convolutions on graphics processors: NCHW64 and NHWC, with NCHW4 and NCHW32 for 8-bit ones
# (MegEngine's EnableNCHW64).

_C64, _NHWC = "NCHWc64", "NHWC"
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
