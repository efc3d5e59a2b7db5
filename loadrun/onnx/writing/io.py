"""Operators that only pass values on."""

import numpy as np

from ...base.errors import EngineError
from ...graph import Opr
from ...graph import params as P
from ..tensors import ElemType
from .writer import OnnxWriter, translation


@translation(
    "Copy",
    "Identity",
    "MarkDynamicVar",
    "MarkNoBroadcastElemwise",
    "PersistentOutputStorage",
    "Sleep",
    "VirtualDep",
)
def same(w: OnnxWriter, opr: Opr) -> str:
    """Return the first input itself; others only had to be computed."""
    return w.name(opr.inputs[0])


@translation(
    "ImmutableTensor",
    "SharedDeviceTensor",
    "VolatileSharedDeviceTensor",
    "SharedDeviceTensorWithFormat",
    "MultipleDeviceTensorHolder",
    "MultipleDeviceTensorWithFormatHolder",
    "Host2DeviceCopy",
)
def stored(w: OnnxWriter, opr: Opr) -> str:
    """Raise: initializers and graph inputs are created when they are first read."""
    raise EngineError(f"{opr.type} is not written as a node")


@translation("Dropout")
def dropout(w: OnnxWriter, opr: Opr) -> list[str]:
    """Multiply the input by a random mask; drop nothing if the probability is 0."""
    (x,) = opr.inputs
    dtype, prob = w.dtype(x), np.float32(opr.get(P.Dropout).drop_prob)
    if not prob:
        ones = w.expand(w.const(np.uint8(1)), w.vector([w.product(w.dims(x))]))
        return [w.op("Identity", w.name(x)), ones]
    value = w.float(x)
    # ONNX's numbers are in [0, 1), MegEngine's in (0, 1].
    drawn = w.op("Sub", w.f32(1), w.op("RandomUniformLike", value, dtype=int(ElemType.FLOAT)))
    kept = w.op("Not", w.op("Less", drawn, w.const(prob)))
    scaled = w.op("Mul", value, w.const(np.float32(1) / (np.float32(1) - prob)))
    mask = w.reshape(w.cast(kept, ElemType.UINT8), [-1])
    return [w.stored(w.where(kept, scaled, w.f32(0)), dtype), mask]
