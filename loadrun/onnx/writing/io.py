"""Operators that only pass values on."""

from __future__ import annotations

from ...base.errors import EngineError
from ...graph import Opr
from .writer import REASONS, OnnxWriter, translation

__all__: list[str] = []

REASONS.add("AssertEqual", "checks are not part of the model; what they expect becomes test data sets")
REASONS.add("AddUpdate", "it changes a weight; ONNX's graphs do not keep state")
REASONS.add("VirtualGrad", "it stands for gradients")


@translation(
    "Copy", "Identity", "MarkDynamicVar", "MarkNoBroadcastElemwise", "PersistentOutputStorage", "Sleep"
)
def same(w: OnnxWriter, opr: Opr) -> str:
    """Return the input itself."""
    return w.name(opr.inputs[0])


@translation("VirtualDep")
def virtual_dep(w: OnnxWriter, opr: Opr) -> str:
    """Return the first input: the others only had to be computed."""
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
