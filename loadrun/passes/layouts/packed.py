"""Channels in packs of 4 or 8, for processors and for OpenCL images."""

from dataclasses import dataclass, replace

from ...graph import Graph, Opr, Var, params as P
from ...graph.dtypes import DType
from ...ops.registry import Shape
from ..rewriter import Rewriter, each
from .layouts import CONVOLUTIONS, ELEMENTWISE, Layouts, convert_layouts, fills_packs, reformat, shape_of

# Channels in packs of 4 or 8 for processors: NCHW44, NCHW44_DOT and NCHW88 (MegEngine's EnableNchwxx and
# EnableNchw44Dot).

_FORMATS = {4: P.Format.NCHW44, 8: P.Format.NCHW88}
_SIMPLE = (P.NonlineMode.IDENTITY, P.NonlineMode.RELU, P.NonlineMode.H_SWISH)


@dataclass(frozen=True)
class _FirstLayer:
    """Limits of MegEngine's kernel for a first layer: nonlinearities, square windows, a single pixel of stride 1."""

    nonlinearities: tuple[P.NonlineMode, ...] = _SIMPLE
    windows: tuple[int, ...] = (2, 3, 5, 7)
    single: bool = False


_FIRST_LAYERS = {
    (8, "Float16", "Float16", "Float16"): _FirstLayer(),
    (4, "QuantizedS8", "QuantizedS8", "QuantizedS8"): _FirstLayer(single=True),
    (4, "Float32", "Float32", "Float32"): _FirstLayer(),
    (4, "Int8", "Int8", "Int16"): _FirstLayer(nonlinearities=(P.NonlineMode.IDENTITY,)),
}
"""By pack and the dtypes of data, filter and result; float32 in packs of 8 takes everything."""


def to_packed(graph: Graph, pack: int, *, dot: bool = False) -> Graph:
    """Convert convolutions whose channels fill packs, and what is between them.

    Args:
        pack: 4 or 8 channels a pack.
        dot: whether convolutions of 8-bit filters use NCHW44_DOT.

    A first layer of few channels takes plain data and gives packed ones. Results are those of the plain graph, to
    within rounding. Grouped convolutions are packed where every group fills packs, or has one channel.
    """
    return convert_layouts(graph, _Packed(pack, dot).visit)


class _Packed:
    def __init__(self, pack: int, dot: bool) -> None:
        self.pack, self.dot = pack, dot
        self.format = _FORMATS[pack]
        self.layout = f"NCHWc{pack}"

    def visit(self, t: Layouts, opr: Opr) -> bool:
        """Handle one operator; False leaves it plain."""
        if opr.type in CONVOLUTIONS:
            return self.convolution(t, opr)
        if opr.type in ELEMENTWISE:
            return self.joined(t, opr)
        if opr.type == "Concat":
            axis = opr.get(P.Axis).axis
            return 0 <= axis <= 3 and self.joined(t, opr)
        if not opr.inputs or t.of(t.r.var(opr.inputs[0])) != self.layout:
            return False
        operands = [t.r.var(v) for v in opr.inputs]
        if any(t.of(v) != "NCHW" for v in operands[1:]):
            return False
        if opr.type == "ReduceV2":
            return (
                len(operands) == 1
                and opr.get(P.Reduce).axis in (2, 3)
                and t.attempt(opr, self.layout, operands)
            )
        p = opr.params[0] if opr.params else None
        if not isinstance(p, P.Pooling | P.AdaptivePooling | P.Resize) or p.format != P.Format.NCHW:
            return False
        return t.attempt(opr, self.layout, operands, p.replace(format=self.format), *opr.params[1:])

    def joined(self, t: Layouts, opr: Opr) -> bool:
        """Pack elementwise operators and Concat when all inputs can be packed."""
        operands = [t.r.var(v) for v in opr.inputs]
        if all(t.of(v) == "NCHW" for v in operands):
            return False
        packed = []
        for var in operands:
            shape = t.r.shape(var)
            if t.of(var) == self.layout or shape == (1,):
                packed.append(var)
            elif shape is not None and len(shape) == 4 and shape[1] % self.pack == 0 and shape[1]:
                packed.append(t.to(var, self.layout))
            else:
                return False
        return t.attempt(opr, self.layout, packed)

    def convolution(self, t: Layouts, opr: Opr) -> bool:
        """Pack convolution and ConvBias."""
        r = t.r
        operands = [r.var(v) for v in opr.inputs]
        p = opr.params[0]
        if not isinstance(p, P.Convolution | P.ConvBias) or p.format != P.Format.NCHW or len(operands) > 3:
            return False
        weight = r.shape(operands[1])
        if weight is None or (p.dilate_h, p.dilate_w) != (1, 1) or t.of(operands[1]) != "NCHW":
            return False
        plan = self.weight_layout(r, opr, p, operands, weight)
        if plan is None:
            return False
        layout, target, hybrid = plan
        inputs = [t.plain(operands[0]) if hybrid else t.to(operands[0], self.layout)]
        inputs.append(reformat(r, operands[1], layout, target))
        if len(operands) == 3:
            # The bias has to be packed, or can be.
            if t.of(operands[2]) != self.layout and not fills_packs(r.shape(operands[2]), self.pack):
                return False
            inputs.append(t.to(operands[2], self.layout))
        dense_dot = self.dot and r.dtype(operands[1]).name in ("QuantizedS8", "Int8") and layout != "C11RS"
        p = p.replace(format=P.Format.NCHW44_DOT if dense_dot else self.format)
        return t.attempt(opr, self.layout, inputs, p, *opr.params[1:])

    def weight_layout(
        self, r: Rewriter, opr: Opr, p: P.Convolution | P.ConvBias, operands: list[Var], weight: Shape
    ) -> tuple[str, str, bool] | None:
        """Return (layout of the filter, packed layout, whether data stay plain), None if it cannot be packed."""
        n = self.pack
        inner = (
            f"k{n}c{n}" if self.dot and r.dtype(operands[1]).name in ("QuantizedS8", "Int8") else f"c{n}k{n}"
        )
        if p.sparse == P.Sparse.DENSE:
            if len(weight) != 4:
                return None
            if weight[0] % n == 0 and weight[1] % n == 0:
                return "KCRS", "KCRS" + inner, False
            return ("KCRS", f"KRSCk{n}", True) if self.first_layer(r, opr, p, operands, weight) else None
        if len(weight) != 5:
            return None
        groups, out, into = weight[:3]
        if out == into == 1 and groups % n == 0:
            return "C11RS", f"C11RSc{n}", False
        return ("GKCRS", "GKCRS" + inner, False) if out % n == 0 and into % n == 0 else None

    def first_layer(
        self, r: Rewriter, opr: Opr, p: P.Convolution | P.ConvBias, operands: list[Var], weight: Shape
    ) -> bool:
        """Return whether MegEngine has a kernel from few plain channels to packed ones."""
        out, into, height, width = weight
        result = opr.outputs[0].dtype or DType("Float32")
        if p.mode != P.ConvMode.CROSS_CORRELATION or into >= self.pack or not out or out % self.pack:
            return False
        if len(operands) == 3 and r.shape(operands[2]) == r.old_shape(opr.outputs[0]):
            return False
        types = (r.dtype(operands[0]).name, r.dtype(operands[1]).name, result.name)
        if self.pack == 8 and types == ("Float32",) * 3:
            return True
        nonlinearity = p.nonlineMode if isinstance(p, P.ConvBias) else P.NonlineMode.IDENTITY
        kernel = _FIRST_LAYERS.get((self.pack, *types))
        if kernel is None or nonlinearity not in kernel.nonlinearities:
            return False
        if height != width or p.stride_h != p.stride_w or p.stride_h not in (1, 2):
            return False
        return height in kernel.windows or (height == p.stride_h == 1 and kernel.single)


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
