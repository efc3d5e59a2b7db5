"""One operator on one input of shape 2x3."""

from __future__ import annotations

import numpy as np

from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import DType
from loadrun.graph.params import Elemwise, ElemwiseMode, Host2DeviceCopy
from loadrun.ops.catalog import TypeParam

F32 = DType("Float32")
X = np.array([[1, -2, 3], [4, 5, -6]], "f4")


def unary(mode: ElemwiseMode = ElemwiseMode.NEGATE, to: DType | None = None) -> Graph:
    graph = Graph()
    tensor = StoredTensor(F32, (2, 3), "x")
    (x,) = graph.add("Host2DeviceCopy", Host2DeviceCopy(), names=["x"], tensors=[tensor])
    (y,) = graph.add("Elemwise", Elemwise(mode=mode), inputs=[x], names=["y"])
    if to is not None:
        (y,) = graph.add("TypeCvtV2", TypeParam(dtype=to), inputs=[y], names=["c"])
    graph.outputs = [y]
    return graph
