"""Channels in packs of 4 inside image rows, for OpenCL images: NHWCD4 (MegEngine's ConvertFormat)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...graph import Graph, Opr, Var
from ...graph import params as P
from ...ops.registry import Shape
from ..rewriter import Rewriter, each
from .layouts import CONVOLUTIONS, ELEMENTWISE, Layouts, convert_layouts, fills_packs
from .reformat import shape_of

_IMAGE = "NHCWc4"
_MODES = {"NCHW": P.RelayoutMode.NHWCD4I_NCHW, _IMAGE: P.RelayoutMode.NCHW_NHWCD4I}
_DOT = ("QuantizedS8", "Quantized8Asymm")


def to_nhwcd4(graph: Graph) -> Graph:
    """Convert convolutions of whole packs, and what else works on images of whole packs of channels.

    Results are those of the plain graph, to within rounding.
    """
    return _without_transposition(convert_layouts(graph, _visit, _Images))


class _Images(Layouts):
    """Layouts that RelayoutFormat makes, and no other operator."""

    def converted(self, var: Var, source: str, target: str) -> Var:
        return _relayout(self.r, var, _MODES[target])


def _relayout(r: Rewriter, var: Var, mode: P.RelayoutMode) -> Var:
    return r.add("RelayoutFormatV1", P.RelayoutFormat(mode=mode), inputs=[var])[0]


def _visit(t: Layouts, opr: Opr) -> bool:
    if opr.type in CONVOLUTIONS:
        return _convolution(t, opr, 1)
    if opr.type == "ConvolutionBackwardDataV2":
        return _convolution(t, opr, 0)
    if opr.type in ELEMENTWISE:
        return _elementwise(t, opr)
    p = opr.params[0] if opr.params else None
    if isinstance(p, P.Pooling | P.Resize | P.WarpPerspective | P.WarpAffine):
        operands = [t.r.var(v) for v in opr.inputs]
        shape = t.r.old_shape(opr.inputs[0])
        if (
            p.format != P.Format.NCHW
            or shape is None
            or shape[1] % 4
            or any(t.of(v) == _IMAGE for v in operands[1:])
        ):
            return False
        operands[0] = t.to(operands[0], _IMAGE)
        return t.attempt(opr, _IMAGE, operands, p.replace(format=P.Format.NHWCD4), *opr.params[1:])
    if opr.type == "Concat":
        operands = [t.r.var(v) for v in opr.inputs]
        axis = {0: 0, 1: 2, 2: 1}.get(opr.get(P.Axis).axis)
        if axis is not None and all(t.of(v) == _IMAGE for v in operands):
            return t.attempt(opr, _IMAGE, operands, P.Axis(axis=axis))
    return False


def _elementwise(t: Layouts, opr: Opr) -> bool:
    r = t.r
    operands = [r.var(v) for v in opr.inputs]
    inputs = []
    for var in operands:
        shape = r.shape(var)
        if t.of(var) == _IMAGE or shape == (1,):
            inputs.append(var)
        elif shape is not None and len(shape) == 4 and shape[1] and shape[1] % 4 == 0:
            inputs.append(t.to(var, _IMAGE))
        else:
            return False
    # As in MegEngine, a plain Elemwise becomes one on images; others take their inputs' layout.
    wanted = (t.of(v) == _IMAGE for v in (inputs if opr.type == "Elemwise" else operands))
    return any(wanted) and t.attempt(opr, _IMAGE, inputs)


@dataclass(frozen=True)
class _Filter:
    """The filter of a convolution: groups, channels that it gives and takes, of each group."""

    groups: int
    out: int
    into: int
    grouped: bool

    @property
    def channelwise(self) -> bool:
        """True if every channel is convolved by itself."""
        return self.grouped and self.out == self.into == 1

    def fits(self, image: bool) -> bool:
        """Return whether it can work on images, given data that are images or are to become such."""
        if image:
            return self.out % 4 == 0 or self.channelwise
        return self.out % 4 == 0 and (self.into % 4 == 0 or self.groups == 1)

    def relayout(self, dot: bool) -> P.RelayoutMode:
        """Return the mode that makes it a filter for images."""
        if self.channelwise:
            return P.RelayoutMode.INTER_WEIGHT_CHANI
        return _FILTERS[self.grouped, dot]


_FILTERS = {
    (False, False): P.RelayoutMode.INTER_WEIGHT_DENSEI,
    (False, True): P.RelayoutMode.INTER_WEIGHT_DENSEI_DOT,
    (True, False): P.RelayoutMode.INTER_WEIGHT_GROUPI,
    (True, True): P.RelayoutMode.INTER_WEIGHT_GROUPI_DOT,
}
"""Modes by whether the filter has groups and whether packs of inputs are multiplied at once."""


def _filter(shape: Shape | None, grouped: bool, forward: bool) -> _Filter | None:
    if shape is None or len(shape) != 4 + grouped:
        return None
    groups, first, second = shape[:3] if grouped else (1, *shape[:2])
    return _Filter(groups, *((first, second) if forward else (second, first)), grouped)


def _convolution(t: Layouts, opr: Opr, at: int) -> bool:
    """Change convolution, ConvBias (filter at input 1) and transposed convolution (filter at input 0)."""
    r = t.r
    operands = [r.var(v) for v in opr.inputs]
    p = opr.params[0]
    if not isinstance(p, P.Convolution | P.ConvBias) or p.format != P.Format.NCHW or len(operands) > 2 + at:
        return False
    data, weight = operands[1 - at], operands[at]
    form = _filter(r.shape(weight), p.sparse == P.Sparse.GROUP, forward=at == 1)
    if form is None or t.of(weight) == _IMAGE or not form.fits(t.of(data) == _IMAGE):
        return False
    if form.grouped and form.groups == 1 and not form.channelwise:
        sizes = shape_of(r, weight, (1, 2, 3, 4))
        (weight,) = r.add("ReshapeV1", P.OptionalAxisV1(), inputs=[weight, sizes])
        p = p.replace(sparse=P.Sparse.DENSE)
        form = replace(form, grouped=False)
    filter_ = _relayout(r, weight, form.relayout(dot=r.dtype(weight).name in _DOT))
    image = t.to(data, _IMAGE)
    rest = operands[2:]
    if not all(t.of(v) == _IMAGE or fills_packs(r.shape(v), 4) for v in rest):
        return False
    inputs = [image, filter_] if at else [filter_, image]
    inputs += [t.to(v, _IMAGE) for v in rest]
    return t.attempt(opr, _IMAGE, inputs, p.replace(format=P.Format.NHWCD4), *opr.params[1:])


def _without_transposition(graph: Graph) -> Graph:
    """Make images from NHWC data directly, and NHWC data from images."""

    def visit(r: Rewriter, opr: Opr) -> Var | None:
        inner = r.var(opr.inputs[0]).owner
        if opr.type == "RelayoutFormatV1":
            turned = inner.type == "Dimshuffle" and inner.get(P.Dimshuffle).pattern == (0, 3, 1, 2)
            if turned and opr.get(P.RelayoutFormat).mode == P.RelayoutMode.NCHW_NHWCD4I:
                return _relayout(r, inner.inputs[0], P.RelayoutMode.NHWC_NHWCD4I)
            return None
        back = (
            inner.type == "RelayoutFormatV1"
            and inner.get(P.RelayoutFormat).mode == P.RelayoutMode.NHWCD4I_NCHW
        )
        if back and opr.get(P.Dimshuffle).pattern == (0, 2, 3, 1):
            return _relayout(r, inner.inputs[0], P.RelayoutMode.NHWCD4I_NHWC)
        return None

    return each(graph, visit, "RelayoutFormatV1", "Dimshuffle")
