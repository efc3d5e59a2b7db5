"""Layouts of 8-bit convolutions on graphics processors: NCHW4, NCHW32 and CHWN4 (MegEngine's EnableNCHW4,
EnableTensorCore and EnableCHWN4 in one pass each)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ...graph import Graph, Opr, Var
from ...graph import params as P
from ...ops.registry import Shape
from ..rewriter import Rewriter
from .layouts import CONVOLUTIONS, ELEMENTWISE, Layouts, convert_layouts, fills_packs
from .reformat import reformat

_C4, _C32, _CHWN = "NCHWc4", "NCHWc32", "CHWNc4"
_FORMAT = {_C4: P.Format.NCHW4, _C32: P.Format.NCHW32, _CHWN: P.Format.CHWN4}


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
        return t.attempt(opr, layout, operands, p.replace(format=_FORMAT[layout]), *opr.params[1:])

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
        p = p.replace(format=P.Format.NCHW4_NCHW if plain_result else _FORMAT[layout])
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
