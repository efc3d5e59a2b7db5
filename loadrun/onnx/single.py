"""Nodes that are one operator of MegEngine: what its kernels compute as ONNX says, on float32 with at least one axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..base.registry import Registry
from ..graph import StoredTensor, Var
from ..graph import params as P
from ..graph.composite import Definition
from ..ops.elemwise.table import ROWS

if TYPE_CHECKING:
    from .graph import GraphReader, Name
    from .messages import NodeProto

__all__ = ["operator"]

Rule = Callable[["GraphReader", Sequence["Name"], dict[str, Any]], "list[Var] | None"]
_RULES: Registry[str, Rule] = Registry("operator of MegEngine for a node")
_MODES = {row.onnx: mode for mode, row in ROWS.items() if row.onnx and row.real is not None}


def operator(
    r: GraphReader,
    node: NodeProto,
    definition: Definition,
    inputs: Sequence[Name],
    attributes: dict[str, Any],
) -> list[Var] | None:
    """Record a node as one operator of MegEngine, None if none computes it.

    Args:
        r: the reader, whose graph gets the operator.
        node: the node.
        definition: what it computes.
        inputs: its inputs.
        attributes: its attributes.
    """
    if definition.domain or len([n for n in node.outputs if n]) != 1:
        return None
    if definition.name == "Identity":
        return r.record("Identity", [r.var(inputs[0], node.outputs[0])])
    floats = all(v is None or (v.dtype is not None and v.dtype.name == "Float32") for v in inputs)
    shapes = [r.shape(v) for v in inputs if v is not None]
    if not floats or not shapes or any(s is None for s in shapes):
        return None
    mode = _MODES.get(definition.name)
    if mode is not None and not attributes and max(len(s or ()) for s in shapes):
        param = P.Elemwise(mode=mode)
        return r.record("Elemwise", [r.var(v) for v in inputs], param)
    rule = _RULES.get(definition.name)
    return rule(r, inputs, attributes) if rule is not None else None


@_RULES.register("Conv")
def _conv(r: GraphReader, inputs: Sequence[Name], a: dict[str, Any]) -> list[Var] | None:
    """Record a convolution of images whose pads are the same on both sides."""
    x, w, bias = [*inputs, None][:3]
    shape = r.shape(w)
    if shape is None or len(shape) != 4 or not isinstance(w, StoredTensor) or 0 in shape:
        return None
    if a.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or a.get("kernel_shape", [*shape[2:]]) != [
        *shape[2:]
    ]:
        return None
    pads = a.get("pads", [0, 0, 0, 0]) if a.get("auto_pad", "NOTSET") == "NOTSET" else [0, 0, 0, 0]
    groups = a.get("group", 1)
    if (
        pads[:2] != pads[2:]
        or min(pads) < 0
        or groups < 1
        or shape[0] % groups
        or (bias is not None and not isinstance(bias, StoredTensor))
    ):
        return None
    (sh, sw), (dh, dw) = a.get("strides", (1, 1)), a.get("dilations", (1, 1))
    sparse = P.Sparse.DENSE
    if groups > 1:
        sparse = P.Sparse.GROUP
        w = reshaped(r, w, (groups, shape[0] // groups, *shape[1:]))
    geometry = {
        "pad_h": pads[0],
        "pad_w": pads[1],
        "stride_h": sh,
        "stride_w": sw,
        "dilate_h": dh,
        "dilate_w": dw,
        "sparse": sparse,
    }
    policy = P.ExecutionPolicy()
    if bias is None:
        return r.record("ConvolutionV2", [r.var(x), r.var(w)], P.Convolution(**geometry), policy)
    row = reshaped(r, bias, (1, shape[0], 1, 1))
    return r.record(
        "ConvBiasForwardV4", [r.var(x), r.var(w), r.var(row)], P.ConvBias(**geometry), policy
    )


def reshaped(r: GraphReader, value: StoredTensor, shape: tuple[int, ...]) -> StoredTensor:
    """Return a stored value in another shape, over the same bytes; one object for each, as operators may share it."""
    made = r.reshaped.get((id(value), shape))
    if made is None:
        made = value.copied()
        made.shape = shape
        r.reshaped[id(value), shape] = made
    return made


@_RULES.register("MatMul")
def _matmul(r: GraphReader, inputs: Sequence[Name], a: dict[str, Any]) -> list[Var] | None:
    """Record a product of two matrices."""
    if any(len(r.shape(v) or ()) != 2 for v in inputs):
        return None
    return r.record("MatrixMulV2", [r.var(v) for v in inputs], P.MatrixMul(), P.ExecutionPolicy())
