"""Filling up output channels to whole packs (MegEngine's PaddingChannel).

A convolution with 6 filters gets two more of zeros, and what reads it gets weights of zero for the two channels; where
a value of the true number of channels is needed, the first ones are cut out. Only what stays finite on padded channels
is computed on them, since infinity times a weight of zero is NaN.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...graph import Graph, Opr, Var, params as P
from ...graph.dtypes import DType
from ...ops.catalog import types
from ...ops.elemwise.table import ModeTrait, modes
from ...ops.op import Trait
from ..arithmetic.terms import mode_of
from ..rewriter import EMPTY, Rewriter
from .layouts import CONVOLUTIONS, shape_of

M = P.ElemwiseMode
_FINITE = modes(ModeTrait.FINITE)
_CHANNELWISE = types(Trait.CHANNELWISE)
Alignment = Callable[[int], int]
"""How many channels are missing to whole packs."""


def whole_packs(pack: int) -> dict[str, Alignment]:
    """Align all data types to packs of one size.

    >>> whole_packs(4)["Float32"](6)
    2
    """
    return dict.fromkeys(("QuantizedS8", "Quantized8Asymm", "Float32", "Float16"), lambda n: -n % pack)


def pad_channels(graph: Graph, missing: Mapping[str, Alignment], *, inputs: bool = False) -> Graph:
    """Pad the filters of dense convolutions with constant weights.

    Args:
        missing: for every dtype of data that is to be padded, how many channels are missing.
        inputs: whether data that come with too few channels are padded too.
    """
    r = Rewriter(graph)
    pads = _Pads(r, missing, inputs)
    for opr in r.oprs:
        if r.frozen(opr) or not pads.visit(opr):
            r.copy(opr, [pads.cut(v) for v in opr.inputs])
    for old in graph.outputs:
        unpadded = pads.cut(old)
        if unpadded is not r.var(old):
            r.replace(old, unpadded)
    return r.finish()


class _Pads:
    def __init__(self, rewriter: Rewriter, missing: Mapping[str, Alignment], inputs: bool) -> None:
        self.r = rewriter
        self.missing = missing
        self.inputs = inputs
        # Ids of old variables that new ones with more channels stand for.
        self.padded: set[int] = set()

    def cut(self, old: Var) -> Var:
        """Return the new variable with the channels that the old one has."""
        r, new = self.r, self.r.var(old)
        shape = r.old_shape(old)
        if old.id not in self.padded or shape is None:
            return new
        one, end = (r.put(np.array([n], np.int32), DType("Int32")) for n in (1, shape[1]))
        items = tuple(
            P.IndexItem(axis=a, end=True) if a == 1 else P.IndexItem(axis=a, step=True) for a in (3, 2, 1, 0)
        )
        return r.add("Subtensor", P.IndexDescMaskDump(items=items), inputs=[new, one, one, end, one])[0]

    def visit(self, opr: Opr) -> bool:
        """Handle one operator; False lets it read what has the true number of channels."""
        if opr.type in CONVOLUTIONS:
            return self.convolution(opr)
        if not any(v.id in self.padded for v in opr.inputs):
            return False
        if opr.type == "ConvolutionBackwardDataV2":
            return self.transposed(opr)
        if opr.type == "ReduceV2":
            forward = len(opr.inputs) == 1 and opr.get(P.Reduce).axis in (-2, -1, 2, 3)
        elif opr.type in _CHANNELWISE:
            forward = (
                opr.params[0].__dict__.get("format") == P.Format.NCHW and opr.inputs[0].id in self.padded
            )
            forward &= not any(v.id in self.padded for v in opr.inputs[1:])
        else:
            forward = self.elementwise(opr)
        if forward:
            self.r.copy(opr)
            self.padded.add(opr.outputs[0].id)
        return forward

    def elementwise(self, opr: Opr) -> bool:
        """Return whether an elementwise operator may be computed on padded channels."""
        r = self.r
        if opr.type == "Elemwise":
            safe = mode_of(opr) in _FINITE
        elif opr.type == "ElemwiseMultiType":
            name = opr.get(P.ElemwiseMultiType).mode.name
            safe = name.startswith("Q") and M.__members__.get(name[1:]) in _FINITE
        else:
            safe = opr.type == "TypeCvtV2" or (opr.type == "PowC" and opr.get(P.PowC).exp > 0)
        if not safe:
            return False
        shapes = {r.shape(r.var(v)) for v in opr.inputs if r.old_shape(v) != (1,)}
        all_padded = all(v.id in self.padded or r.old_shape(v) == (1,) for v in opr.inputs)
        channels = {s[1] for s in shapes if s is not None and len(s) == 4}
        return all_padded and None not in shapes and len(channels) == 1

    def extended(self, var: Var, axis: int, more: int) -> Var:
        """Extend a constant by real zeros along an axis."""
        r = self.r
        shape, dtype = r.shape(var), r.dtype(var)
        assert shape is not None
        zeros = np.full([more if i == axis else n for i, n in enumerate(shape)], dtype.zero_point, dtype.np)
        return r.add("Concat", P.Axis(axis=axis), inputs=[var, r.put(zeros, dtype)])[0]

    def filled(self, data: Var, more: int) -> Var:
        """Extend data by channels of real zeros."""
        r, dtype = self.r, self.r.dtype(data)
        sizes = [
            shape_of(r, data, (0,)),
            r.put(np.array([more], np.int32), DType("Int32")),
            shape_of(r, data, (2, 3)),
        ]
        (shape,) = r.add("Concat", P.Axis(axis=0), inputs=sizes)
        zeros = r.put(np.full((1, more, 1, 1), dtype.zero_point, dtype.np), dtype)
        filled = r.add("Broadcast", *EMPTY, inputs=[zeros, shape])
        return r.add("Concat", P.Axis(axis=1), inputs=[data, *filled])[0]

    def convolution(self, opr: Opr) -> bool:
        """Pad convolution and ConvBias."""
        r = self.r
        p = opr.params[0]
        if not isinstance(p, P.Convolution | P.ConvBias) or p.format != P.Format.NCHW:
            return False
        source, *rest = opr.inputs
        operands = [r.var(v) for v in opr.inputs]
        weight, data = r.shape(operands[1]), r.shape(operands[0])
        if (
            weight is None
            or data is None
            or not r.constant(operands[1])
            or any(v.id in self.padded for v in rest)
        ):
            return False
        align = self.missing.get(r.dtype(operands[0]).name)
        if align is None:
            return False
        if p.sparse == P.Sparse.GROUP:
            return self.depthwise(opr, operands)
        more_in = data[1] - weight[1] if source.id in self.padded else 0
        if self.inputs and align(data[1]):
            more_in += align(data[1])
            operands[0] = self.filled(operands[0], align(data[1]))
        if more_in:
            operands[1] = self.extended(operands[1], 1, more_in)
        more = align(weight[0])
        if more and not self.biases(operands[2:]):
            more = 0
        if more:
            operands[1] = self.extended(operands[1], 0, more)
            operands[2:] = [self.extended(v, 1, more) for v in operands[2:]]
            self.padded.add(opr.outputs[0].id)
        r.copy(opr, operands)
        return True

    def biases(self, operands: Sequence[Var]) -> bool:
        """Return whether a bias can be extended."""
        return (
            all(self.r.constant(v) and len(self.r.shape(v) or ()) == 4 for v in operands)
            and len(operands) <= 1
        )

    def depthwise(self, opr: Opr, operands: list[Var]) -> bool:
        """Pad a convolution of every channel by itself."""
        r = self.r
        weight, data = r.shape(operands[1]), r.shape(operands[0])
        if opr.inputs[0].id not in self.padded or weight is None or data is None:
            return False
        if weight[1:3] != (1, 1) or not self.biases(operands[2:]):
            return False
        more = data[1] - weight[0]
        r.copy(
            opr,
            [
                operands[0],
                self.extended(operands[1], 0, more),
                *(self.extended(v, 1, more) for v in operands[2:]),
            ],
        )
        self.padded.add(opr.outputs[0].id)
        return True

    def transposed(self, opr: Opr) -> bool:
        """Let a transposed convolution read padded data; its own channels stay."""
        r = self.r
        filter_, data = (r.var(v) for v in opr.inputs[:2])
        weight, shape = r.shape(filter_), r.shape(data)
        p = opr.get(P.Convolution)
        plain = p.sparse == P.Sparse.DENSE and p.format == P.Format.NCHW and len(opr.inputs) == 2
        if not plain or weight is None or shape is None or not r.constant(filter_):
            return False
        if opr.inputs[1].id not in self.padded or opr.inputs[0].id in self.padded:
            return False
        r.copy(opr, [self.extended(filter_, 0, shape[1] - weight[0]), data])
        return True
