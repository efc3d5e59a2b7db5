"""The class of every kind of operator, made from the catalog and named as MegEngine's classes are.

Source of semantics: MegEngine ``utils/network_node.py``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ...graph import Opr
from ...graph.params import IndexDescMaskDump
from ...ops.catalog import CATALOG, Op
from .nodes import OpNode
from .providers import Host2DeviceCopy, ImmutableTensor, SharedDeviceTensor

__all__ = ["CLASSES", "IndexingBase", "RNGOpr", "ReadOnlyOpNode", "class_of", "str_to_mge_class"]

_SHORT = {"ConvolutionBackwardData": "ConvTranspose", "BatchedMatrixMul": "BatchedMatmul"}
"""Kinds that MegEngine calls otherwise than their class."""
_NAMES = (
    "Elemwise ElemwiseMultiType Reduce TypeCvt MatrixInverse MatrixMul BatchedMatrixMul Dot SVD "
    "ConvolutionForward ConvolutionBackwardData DeformableConvForward GroupLocalForward "
    "PoolingForward AdaptivePoolingForward ROIPoolingForward DeformablePSROIPoolingForward "
    "ConvBiasForward BatchConvBiasForward BatchNormForward ROIAlignForward WarpPerspectiveForward "
    "WarpAffineForward RemapForward ResizeForward IndexingOneHot IndexingSetOneHot Copy "
    "ArgsortForward Argmax Argmin CondTake TopK NvOf Linspace Eye GetVarShape Concat Broadcast "
    "Identity NMSKeep Dimshuffle Reshape AxisAddRemove Subtensor SetSubtensor IncrSubtensor "
    "IndexingMultiAxisVec IndexingSetMultiAxisVec IndexingIncrMultiAxisVec MeshIndexing "
    "SetMeshIndexing IncrMeshIndexing BatchedMeshIndexing BatchedSetMeshIndexing "
    "BatchedIncrMeshIndexing AssertEqual CvtColorForward"
)
_MADE = frozenset(_NAMES.split())
"""The operators for which MegEngine has a class of nodes; all others are of `ReadOnlyOpNode` there."""


class ReadOnlyOpNode(OpNode):
    """An operator for whose kind MegEngine has no class; here its parameters may be changed all the same."""


class RNGOpr(ReadOnlyOpNode):
    """An operator that draws random numbers."""


class IndexingBase(OpNode):
    """An operator that selects by indices; its parameter ``items`` says which axes have which index inputs."""


_WRITTEN: dict[str, type[OpNode]] = {
    kind.__name__: kind for kind in (Host2DeviceCopy, ImmutableTensor, SharedDeviceTensor)
}


def _made(op: Op) -> type[OpNode]:
    """Return the class of an operator's nodes."""
    name = op.class_name
    if name in _WRITTEN:
        return _WRITTEN[name]
    if name not in _MADE:
        base: type[OpNode] = RNGOpr if op.category == "rng" else ReadOnlyOpNode
        short = name
    else:
        base = IndexingBase if IndexDescMaskDump in op.params else OpNode
        short = _SHORT.get(name, name.removesuffix("Forward"))
    about = f"Operator {op.name}. Parameters: {', '.join(p.__name__ for p in op.params) or 'none'}."
    body: dict[str, Any] = {"type": short, "opdef": op.params, "__doc__": about, "__module__": __name__}
    return type(name, (base,), body)


def _all() -> dict[str, type[OpNode]]:
    classes = {op.class_name: _made(op) for op in CATALOG.values()}
    # Left out of dumps by MegEngine's own loader, and named by its module all the same.
    for name in _MADE:
        classes.setdefault(name, type(name, (OpNode,), {"type": name, "__module__": __name__}))
    return classes


CLASSES: dict[str, type[OpNode]] = _all()
"""Classes by the name of MegEngine's class of operators."""


@cache
def class_of(registered: str) -> type[OpNode]:
    """Return the class of the nodes of a registered operator.

    >>> class_of("ConvolutionV2").__name__, class_of("ConvolutionV2").type
    ('ConvolutionForward', 'Convolution')
    """
    return CLASSES[CATALOG[registered].class_name]


def str_to_mge_class(classname: str) -> type[OpNode]:
    """Return the class of a name, `ReadOnlyOpNode` for one that MegEngine has no class for.

    >>> str_to_mge_class("Elemwise").type, str_to_mge_class("SoftmaxForward").__name__
    ('Elemwise', 'ReadOnlyOpNode')
    """
    kind = CLASSES.get(classname)
    return kind if kind is not None and (classname in _MADE or classname in _WRITTEN) else ReadOnlyOpNode


def node_of(opr: Opr) -> OpNode:
    """Return the node of an operator, without its variables."""
    return class_of(opr.type).load(opr)
