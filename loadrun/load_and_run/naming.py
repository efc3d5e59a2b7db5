"""The numbers, names and order that MegEngine gives to what it executes.

MegEngine numbers operators and variables with one counter while it loads a dump: an operator, then its outputs,
scratch memory included. load_and_run compiles a copy: operators that depend on an input are numbered anew, from the
outputs' dependencies upward; the others keep their numbers. A graph that MegEngine rewrites while it compiles (one that
was dumped without optimization) gets other numbers there; names that stand in the file are the same.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..graph import Graph, Opr, Var
from ..ops.catalog import CATALOG
from ..ops.infer import Inference
from ..ops.op import Trait
from ..params import CondExecPredLogical, PowC, Reduce

__all__ = ["Numbering", "OprNames", "compiled", "executed", "host_inputs", "loaded", "sequence"]

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
"""What a name begins with, where it is not the class in small letters."""

_SHOWN = {
    **dict.fromkeys(("CondExecMerge",), 0),
    **dict.fromkeys(
        (
            *("ArgsortBackward", "BatchedMeshIndexing", "Broadcast", "CondExecMark", "CondExecPred"),
            *("FakeQuantForward", "GroupLocalForward", "Images2NeibsBackward", "IndexingMultiAxisVec"),
            *("IndexingOneHot", "IndexingRemap", "IndexingRemapBackward", "IndexingSetOneHot", "LSQForward"),
            *(
                "LocalForward",
                "MaskedFill",
                "MeshIndexing",
                "PoolingBackward",
                "RNN",
                "Reduce",
                "RemapForward",
            ),
            *("Reshape", "Resize3DForward", "ResizeForward", "SlidingWindowTransposeBackward", "Split"),
            *("Subtensor", "TQTForward", "WarpAffineForward"),
        ),
        1,
    ),
    **dict.fromkeys(
        (
            *("AssertEqual", "BatchedIncrMeshIndexing", "BatchedSetMeshIndexing", "ConvolutionBackwardData"),
            *("Convolution3DBackwardData", "IncrMeshIndexing", "IncrSubtensor", "IndexingIncrMultiAxisVec"),
            *(
                "IndexingSetMultiAxisVec",
                "Linspace",
                "SetMeshIndexing",
                "SetSubtensor",
                "WarpPerspectiveForward",
            ),
        ),
        2,
    ),
    "RegionRestrictedConvolutionBackwardData": 4,
}
"""How many inputs stand in a name, where that is not all of them."""

_LIMITED = {
    *("BatchConvBiasForward", "BatchNormForward", "BatchedMatrixMul", "ConvBiasForward"),
    *(
        "Convolution3DBackwardData",
        "Convolution3DForward",
        "ConvolutionBackwardData",
        "ConvolutionBackwardFilter",
    ),
    *("ConvolutionForward", "DeformableConvForward", "LocalShareForward", "MatrixMul", "PoolingForward"),
    "RegionRestrictedConvolutionBackwardData",
}
"""The first operator of these brings a constant and its variable along, the limit of scratch memory."""

_OUTPUTS = {"BatchNormForward": 6, "SVD": 3, "TopK": 2}
"""How many outputs there are in truth, where a file may name fewer."""

_BATCH_NORM = (0, 1, 4, 5)
"""The outputs that a file names when it names four."""
_HOLDERS = ("MultipleDeviceTensorHolder", "MultipleDeviceTensorWithFormatHolder")

_HOST = {
    "AdaptivePoolingForward": 1,
    "Alloc": 0,
    "ArgsortBackward": 2,
    "Broadcast": 1,
    "CondExecPred": 0,
    "ConvolutionBackwardData": 2,
    "Convolution3DBackwardData": 2,
    "ConvolutionBackwardFilter": 2,
    "Eye": 0,
    "GaussianRNG": 0,
    "GetVarShape": 0,
    "Images2NeibsBackward": 1,
    "IncrSubtensor": 2,
    "IndexingRemapBackward": 2,
    "Linspace": 0,
    "PermutationRNG": 0,
    "ROIPoolingForward": 2,
    "Reduce": 1,
    "RegionRestrictedConvolutionBackwardData": 4,
    "Reshape": 1,
    "Resize3DForward": 1,
    "ResizeForward": 1,
    "SetSubtensor": 2,
    "SlidingWindowTransposeBackward": 1,
    "Split": 1,
    "Subtensor": 1,
    "UniformRNG": 0,
    "WarpAffineForward": 2,
}
"""From which input on values are wanted on the host: where possible, they are computed beforehand."""
_LAST_HOST = {"WarpPerspectiveForward"}
"""Here it is the last input alone."""
_SORTED = frozenset(
    (
        "ADD",
        "FUSE_ADD_RELU",
        "FUSE_ADD_SIGMOID",
        "FUSE_ADD_TANH",
        "MUL",
        "RMULH",
        "MAX",
        "MIN",
        "EQ",
        "LOG_SUM_EXP",
    )
)
"""Modes of Elemwise whose inputs MegEngine puts in the order of their numbers."""
_INPUTS_FIRST = -(2**31)


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
        """Number and name of a variable."""
        return self.vars[var.id]

    def inputs(self, opr: Opr) -> list[Var]:
        """The inputs of an operator in MegEngine's order."""
        if opr.type == "Elemwise" and opr.title in _SORTED:
            return sorted(opr.inputs, key=lambda v: self.vars[v.id][0])
        return list(opr.inputs)


def short(name: str) -> str:
    """A variable's name inside of another name: what stands in brackets is left out.

    >>> short("conv(data,const{6,3,7,7}[2682])[2684]")
    'conv[2684]'
    """
    begin, end = name.find("("), name.rfind(")")
    return name if begin < 0 or end < begin else name[:begin] + name[end + 1 :]


def default_name(opr: Opr, number: int, inputs: Sequence[str]) -> str:
    """The name of an operator that has none of its own.

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
    if cls in ("Elemwise", "ElemwiseMultiType"):
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
    """Numbers and names when MegEngine has read the file; dtypes must be inferred."""
    found = Numbering()
    limited = False
    late = graph.format == "FBS" or all(
        v.name is None for o in graph.oprs if not o.tensors for v in o.outputs
    )
    for opr in graph.oprs:
        cls = CATALOG[opr.type].class_name
        number = found.next
        ins = [_while_loading(found, v) if late else found.var(v)[1] for v in opr.inputs]
        name = opr.name or default_name(opr, number, ins)
        _add(found, opr, name, name, number)
        if cls in _LIMITED and not limited:
            limited = True
            found.next += 2
    return found


def _while_loading(found: Numbering, var: Var) -> str:
    """What a variable is called while a file is read whose inputs get their names afterwards."""
    return found.oprs[var.owner.id].name if var.owner.type == "Host2DeviceCopy" else found.var(var)[1]


def _add(found: Numbering, opr: Opr, name: str, scratch: str, number: int) -> None:
    """Number an operator, its outputs and its scratch memory."""
    op = CATALOG[opr.type]
    found.oprs[opr.id] = OprNames(number, name, op.class_name)
    count = max(_OUTPUTS.get(op.class_name, 0), len(opr.outputs))
    slots = _BATCH_NORM if op.class_name == "BatchNormForward" and len(opr.outputs) == 4 else range(count)
    for slot, var in zip(slots, opr.outputs, strict=False):
        found.vars[var.id] = (number + 1 + slot, var.name or name + _ending(op.class_name, slot, count))
    number += 1 + count
    if Trait.NO_WORKSPACE not in op.traits:
        found.scratch[opr.id] = (number, f"{scratch}:workspace")
        number += 1
    found.next = number


def _ending(cls: str, slot: int, count: int) -> str:
    """What tells the outputs of one operator apart."""
    if cls == "NMSKeep":
        return (":indices", ":sizes")[slot]
    if cls == "MultiHeadAttnForward" or (count == 1 and cls not in _HOLDERS):
        return ""
    return f":o{slot}"


def compiled(graph: Graph, before: Numbering) -> Numbering:
    """Numbers and names of the copy that load_and_run executes."""
    found = Numbering(dict(before.oprs), dict(before.vars), dict(before.scratch), before.next)
    fed: set[int] = set()
    for opr in graph.oprs:
        if opr.type == "Host2DeviceCopy" or any(v.owner.id in fed for v in opr.inputs):
            fed.add(opr.id)
    for opr in _upward(v.owner for v in graph.outputs):
        if opr.id not in fed:
            continue
        number = found.next
        ins = [found.var(v)[1] for v in opr.inputs]
        if opr.type == "Host2DeviceCopy":
            name = before.var(opr.outputs[0])[1]
        else:
            name = opr.name or default_name(opr, number, ins)
        _add(found, opr, name, before.oprs[opr.id].name, number)
        for var in opr.outputs:
            found.vars[var.id] = (
                found.vars[var.id][0],
                before.var(var)[1] if var.name else found.vars[var.id][1],
            )
    return found


def _upward(ends: Iterable[Opr]) -> list[Opr]:
    """The operators that others depend on before those, inputs in order."""
    order: list[Opr] = []
    seen: set[int] = set()
    for end in ends:
        stack = [(end, iter(end.inputs))]
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
                stack.append((following, iter(following.inputs)))
    return order


def host_inputs(opr: Opr) -> frozenset[int]:
    """Which inputs an operator wants on the host: sizes and places, and inputs of which it looks at the shape alone."""
    cls = CATALOG[opr.type].class_name
    if cls in _LAST_HOST:
        return frozenset((len(opr.inputs) - 1,))
    return frozenset(range(_HOST.get(cls, len(opr.inputs)), len(opr.inputs)))


def _waited_for(opr: Opr, known: Inference) -> list[Var]:
    """The inputs that must be computed before an operator: all but those that are known on the host beforehand."""
    host = host_inputs(opr)
    there = known.shapes if Trait.SHAPE_ONLY in CATALOG[opr.type].traits else known.values
    return [v for i, v in enumerate(opr.inputs) if i not in host or v.id not in there]


def executed(graph: Graph, known: Inference) -> list[Opr]:
    """The operators that MegEngine executes: those whose values are wanted and not known beforehand."""
    todo = [v.owner for v in graph.outputs]
    wanted: dict[int, Opr] = {}
    while todo:
        opr = todo.pop()
        if opr.id not in wanted:
            wanted[opr.id] = opr
            todo += [v.owner for v in _waited_for(opr, known)]
    return [o for o in graph.oprs if o.id in wanted]


def sequence(
    oprs: Sequence[Opr], numbers: Numbering, known: Inference, *, inputs_first: bool = True
) -> list[Opr]:
    """The order of execution: inputs first, then what follows the freshest value, then the highest number.

    Args:
        oprs: what is executed.
        numbers: their numbers.
        known: what is known beforehand, so that nobody waits for it.
        inputs_first: whether the graph's inputs come first, as in load_and_run.
    """
    there = {o.id: o for o in oprs}
    readers: dict[int, list[Opr]] = {}
    missing: dict[int, int] = {}
    for opr in oprs:
        before = {v.owner.id for v in _waited_for(opr, known)} & there.keys()
        missing[opr.id] = len(before)
        for one in before:
            readers.setdefault(one, []).append(opr)
    fresh = dict.fromkeys(there, 0)

    def entry(opr: Opr) -> tuple[int, int, int, int]:
        first = _INPUTS_FIRST if inputs_first and opr.type == "Host2DeviceCopy" else opr.priority
        return first, -fresh[opr.id], -numbers.oprs[opr.id].id, opr.id

    heap = [entry(o) for o in oprs if not missing[o.id]]
    heapq.heapify(heap)
    order: list[Opr] = []
    while heap:
        opr = there[heapq.heappop(heap)[-1]]
        order.append(opr)
        for reader in readers.get(opr.id, ()):
            fresh[reader.id] = len(order)
            missing[reader.id] -= 1
            if not missing[reader.id]:
                heapq.heappush(heap, entry(reader))
    return order
