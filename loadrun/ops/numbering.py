"""The numbers and names that MegEngine gives to operators and variables while it loads a dump.

One counter numbers them all: an operator, then its outputs, scratch memory included. What has no name in the file gets
one made of its inputs' names and its number.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..graph import Graph, Opr, Var
from ..graph.params import CondExecPredLogical, PowC, Reduce
from .catalog import CATALOG
from .op import Op, Trait

_LONGEST = 62
"""A name that is longer takes no further input."""

_BASES = {
    "AddUpdate": "inplace_add",
    "ArgsortBackward": "argsort_bwd",
    "AssertEqual": "assert_eq",
    "AxisAddRemove": "axis_add_rm",
    "CondExecMark": "cond_mark",
    "CondExecMerge": "cond_merge",
    "CondExecPred": "cond_pred",
    "Convolution3DBackwardData": "conv3d_bwd_data",
    "Convolution3DForward": "conv3d",
    "ConvolutionBackwardData": "conv_bwd_data",
    "ConvolutionBackwardFilter": "conv_bwd_filter",
    "ConvolutionForward": "conv",
    "Cumsum": "Cumsum",
    "DeformablePSROIPoolingForward": "deformable_ps_roi_pooling",
    "FakeQuantForward": "fakequant_fwd",
    "GetVarShape": "shape_of",
    "GroupLocalForward": "glocal",
    "Host2DeviceCopy": "h2d",
    "Images2NeibsBackward": "images2neibs_grad",
    "Images2NeibsForward": "images2neibs",
    "IndexingRemapBackward": "indexing_remap_bwd",
    "LRNForward": "lrn",
    "LSQForward": "lsq_fwd",
    "LSTM": "lstm",
    "Linspace": "linspce",
    "MarkDynamicVar": "mark_dyn",
    "MarkNoBroadcastElemwise": "no_brdcst",
    "MaskConvolution": "mask_conv_fwd",
    "MatrixInverse": "matrix_inv",
    "MultipleDeviceTensorHolder": "multi_dv",
    "MultipleDeviceTensorWithFormatHolder": "multi_dv",
    "NMSKeep": "nms_keep",
    "PoolingBackward": "pooling_bwd",
    "RNN": "rnn_fwd",
    "ROIAlignForward": "roi_align",
    "ROIPoolingForward": "roi_pooling",
    "RegionRestrictedConvolutionBackwardData": "region_restricted_conv_bwd_data",
    "RegionRestrictedConvolutionForward": "region_restricted_conv_fwd",
    "SVD": "svd",
    "SharedDeviceTensor": "shared",
    "SharedDeviceTensorWithFormat": "shared",
    "SlidingWindowTransposeBackward": "sliding_window_transpose_grad",
    "SoftmaxBackward": "Softmax_backward",
    "TQTForward": "tqt_fwd",
    "VolatileSharedDeviceTensor": "shared",
}
"""Prefixes of names, where they are not the class in small letters."""

_SHOWN = {
    name: count
    for count, names in (
        (0, "CondExecMerge"),
        (
            1,
            """
            ArgsortBackward BatchedMeshIndexing Broadcast CondExecMark CondExecPred FakeQuantForward
            GroupLocalForward Images2NeibsBackward IndexingMultiAxisVec IndexingOneHot IndexingRemap
            IndexingRemapBackward IndexingSetOneHot LSQForward LocalForward MaskedFill MeshIndexing
            PoolingBackward RNN Reduce RemapForward Reshape Resize3DForward ResizeForward
            SlidingWindowTransposeBackward Split Subtensor TQTForward WarpAffineForward
            """,
        ),
        (
            2,
            """
            AssertEqual BatchedIncrMeshIndexing BatchedSetMeshIndexing Convolution3DBackwardData
            ConvolutionBackwardData IncrMeshIndexing IncrSubtensor IndexingIncrMultiAxisVec
            IndexingSetMultiAxisVec Linspace SetMeshIndexing SetSubtensor WarpPerspectiveForward
            """,
        ),
        (4, "RegionRestrictedConvolutionBackwardData"),
    )
    for name in names.split()
}
"""How many inputs are in a name, where that is not all of them."""

_BATCH_NORM = (0, 1, 4, 5)
"""The outputs that a file names when it names four."""

_SORTED = frozenset(
    "ADD FUSE_ADD_RELU FUSE_ADD_SIGMOID FUSE_ADD_TANH MUL RMULH MAX MIN EQ LOG_SUM_EXP".split()
)
"""Modes of Elemwise whose inputs MegEngine puts in the order of their numbers."""


@dataclass(frozen=True)
class OprNames:
    """An operator as MegEngine has it.

    Attributes:
        id: its number.
        name: its name.
        cls: the name of its class.
    """

    id: int
    name: str
    cls: str


@dataclass(eq=False)
class Numbering:
    """Names by operator id, and number and name by variable id, of the file's own ids.

    Attributes:
        scratch: number and name of an operator's scratch variable, by operator id.
        next: the number that comes after all others.
    """

    oprs: dict[int, OprNames] = field(default_factory=dict)
    vars: dict[int, tuple[int, str]] = field(default_factory=dict)
    scratch: dict[int, tuple[int, str]] = field(default_factory=dict)
    next: int = 0

    def var(self, var: Var) -> tuple[int, str]:
        """Return number and name of a variable."""
        return self.vars[var.id]

    def inputs(self, opr: Opr) -> list[Var]:
        """Return the inputs of an operator in the order in which MegEngine keeps them; names have that of the file."""
        return ascending(opr, lambda v: self.vars[v.id][0])


def ascending(opr: Opr, number: Callable[[Var], Any]) -> list[Var]:
    """Return the inputs of an operator, those that may change places in the order of their numbers.

    Args:
        opr: the operator.
        number: gives the number of a variable, or anything that can be compared.
    """
    inputs = list(opr.inputs)
    if opr.type != "Elemwise":
        return inputs
    if opr.title in _SORTED:
        return sorted(inputs, key=number)
    if opr.title == "FUSE_MUL_ADD3":
        return [*sorted(inputs[:2], key=number), inputs[2]]
    if opr.title == "FUSE_MUL_ADD4":
        pairs = (sorted(inputs[:2], key=number), sorted(inputs[2:], key=number))
        return [v for pair in sorted(pairs, key=lambda pair: number(pair[0])) for v in pair]
    return inputs


def short(name: str) -> str:
    """Shorten a variable's name for use in another name: what is in brackets is left out.

    >>> short("conv(data,const{6,3,7,7}[2682])[2684]")
    'conv[2684]'
    """
    begin, end = name.find("("), name.rfind(")")
    return name if begin < 0 or end < begin else name[:begin] + name[end + 1 :]


def default_name(opr: Opr, number: int, inputs: Sequence[str]) -> str:
    """Return the name of an operator that has none of its own.

    Args:
        number: the operator's number.
        inputs: the names of its inputs.
    """
    cls = CATALOG[opr.type].class_name
    if cls == "ImmutableTensor":
        shape = ",".join(str(n) for n in opr.tensors[0].shape or ())
        return f"const{{{shape}}}[{number}]"
    text = _base(opr, cls)
    names = [short(n) for n in inputs[: _SHOWN.get(cls, len(inputs))]]
    if names:
        text += f"({names[0]}"
        for name in names[1:]:
            if len(text) > _LONGEST:
                text += ",..."
                break
            text += f",{name}"
        text += ")"
    return f"{text}[{number}]"


def _base(opr: Opr, cls: str) -> str:
    if opr.title != opr.type:
        return opr.title
    if cls == "CondExecPredLogical":
        return opr.get(CondExecPredLogical).mode.name
    if cls == "TypeCvt":
        return f"as{opr.outputs[0].dtype.name if opr.outputs[0].dtype else ''}"
    if cls == "Reduce":
        return f"reduce{int(opr.get(Reduce).mode)}"
    if cls == "PowC":
        return f"powc_{opr.get(PowC).exp:g}"
    if cls in _BASES:
        return _BASES[cls]
    plain = re.sub("Forward$", "", cls)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", plain).lower()


def loaded(graph: Graph) -> Numbering:
    """Return numbers and names once MegEngine has read the file; dtypes must be inferred."""
    numbering = Numbering()
    limited = False
    late = graph.header.format == "FBS" or all(
        v.name is None for o in graph.oprs if not o.tensors for v in o.outputs
    )
    for opr in graph.oprs:
        number = numbering.next
        ins = [_while_loading(numbering, v) if late else numbering.var(v)[1] for v in opr.inputs]
        name = opr.name or default_name(opr, number, ins)
        add_numbers(numbering, opr, name, name, number)
        if Trait.LIMITED in CATALOG[opr.type].traits and not limited:
            # The constant that limits scratch memory, and its variable.
            limited = True
            numbering.next += 2
    return numbering


def _while_loading(numbering: Numbering, var: Var) -> str:
    """Name a variable while a file is read whose inputs get their names afterwards."""
    return numbering.oprs[var.owner.id].name if var.owner.type == "Host2DeviceCopy" else numbering.var(var)[1]


def add_numbers(numbering: Numbering, opr: Opr, name: str, scratch: str, number: int) -> None:
    """Assign numbers to an operator, its outputs and its scratch memory."""
    op = CATALOG[opr.type]
    numbering.oprs[opr.id] = OprNames(number, name, op.class_name)
    count = max(op.all_outputs, len(opr.outputs))
    slots = _BATCH_NORM if op.class_name == "BatchNormForward" and len(opr.outputs) == 4 else range(count)
    for slot, var in zip(slots, opr.outputs, strict=False):
        numbering.vars[var.id] = (number + 1 + slot, var.name or name + _ending(op, slot, count))
    number += 1 + count
    if Trait.NO_WORKSPACE not in op.traits:
        numbering.scratch[opr.id] = (number, f"{scratch}:workspace")
        number += 1
    numbering.next = number


def _ending(op: Op, slot: int, count: int) -> str:
    """Return the suffix that tells the outputs of one operator apart."""
    if op.class_name == "NMSKeep":
        return (":indices", ":sizes")[slot]
    # Holders of a variable number of tensors number even a single one.
    holder = Trait.CONSTANT in op.traits and callable(op.outputs)
    if op.class_name == "MultiHeadAttnForward" or (count == 1 and not holder):
        return ""
    return f":o{slot}"


def upward(ends: Iterable[Opr], inputs_of: Callable[[Opr], Sequence[Var]] | None = None) -> list[Opr]:
    """List the operators so that inputs come first, in order.

    Args:
        ends: where to begin, one after another.
        inputs_of: gives the inputs of an operator in the order in which they are gone to, by default its own.
    """
    inputs_of = inputs_of or (lambda opr: opr.inputs)
    order: list[Opr] = []
    seen: set[int] = set()
    for end in ends:
        stack = [(end, iter(inputs_of(end)))]
        while stack:
            opr, inputs = stack[-1]
            if opr.id in seen:
                stack.pop()
                continue
            following = next((v.owner for v in inputs if v.owner.id not in seen), None)
            if following is None:
                seen.add(opr.id)
                order.append(opr)
                stack.pop()
            else:
                stack.append((following, iter(inputs_of(following))))
    return order
