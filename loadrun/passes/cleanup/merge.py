"""All weights in one operator (MegEngine's ParamMerge)."""

from dataclasses import replace

from ...graph import Graph, Opr
from ..rewriter import Rewriter

_HOLDERS = {f"SharedDeviceTensor{form}": f"MultipleDeviceTensor{form}Holder" for form in ("", "WithFormat")}


def merge_weights(graph: Graph) -> Graph:
    """Replace weights by one MultipleDeviceTensorHolder, those with a memory format by one of their own."""
    r = Rewriter(graph)
    for source, holder in _HOLDERS.items():
        weights = [o for o in r.oprs if o.type == source]
        if weights:
            _merge(r, weights, holder)
    for opr in r.rest():
        if opr.type not in _HOLDERS:
            r.copy(opr)
    return r.finish()


def _merge(r: Rewriter, weights: list[Opr], holder: str) -> None:
    tensors = [
        replace(t, name=t.name or v.name) for o in weights for t, v in zip(o.tensors, o.outputs, strict=True)
    ]
    merged = r.add(holder, n_outputs=len(tensors), tensors=tensors, like=weights[0])
    # Each tensor has its own device; MegEngine refuses one on the operator.
    merged[0].owner.comp_node = []
    for opr, new in zip(weights, merged, strict=True):
        new.format = opr.outputs[0].format
        r.replace(opr.outputs[0], new)
