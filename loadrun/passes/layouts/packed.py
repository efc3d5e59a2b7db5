"""Channels in packs of 4 or 8 for processors: NCHW44, NCHW44_DOT and NCHW88 (MegEngine's EnableNchwxx and
EnableNchw44Dot)."""

from dataclasses import dataclass

from ...graph import Graph, Opr, Var
from ...graph import params as P
from ...graph.dtypes import DType
from ...ops.registry import Shape
from ..rewriter import Rewriter
from .layouts import CONVOLUTIONS, ELEMENTWISE, Layouts, convert_layouts, fills_packs
from .reformat import reformat

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
