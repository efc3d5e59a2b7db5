"""RelayoutFormatV1: Transpose, Pad and Reshape."""

import numpy as np

from ...graph import Opr
from ...graph import params as P
from ...graph.dtypes import DType
from ...ops.relayout import relayout_plan
from .elemwise import convert
from .emitter import Dim, UnsupportedOprError
from .writer import OnnxWriter, elem_of, translation


@translation("RelayoutFormatV1")
def relayout(w: OnnxWriter, opr: Opr) -> str:
    """Move channels into packs or out of them; sizes other than the batch must be fixed."""
    p, (x,) = opr.get(P.RelayoutFormat), opr.inputs
    shape = w.shape(x)
    plan = relayout_plan(p, w.example(x), w.dtype(x), w.dtype(opr.outputs[0]))
    at = [i for i, n in enumerate(shape) if n is None]
    if at and (plan.groups > 1 or plan.cut):
        raise UnsupportedOprError("groups of channels of data whose sizes change")
    value = w.name(x)
    if plan.groups > 1:
        n, c, *rest = w.fixed(x)
        value = w.reshape(value, [n * plan.groups, c // plan.groups, *rest])
    sizes = _merged_sizes(w, opr, plan.order, plan.owner, plan.plain) if at else list(plan.plain)
    merged = w.transpose(value, plan.order)
    if len(plan.order) != len(plan.plain):
        merged = w.reshape(merged, sizes)
    if plan.padded != plan.plain:
        more = [b - a for a, b in zip(plan.plain, plan.padded, strict=True)]
        fill = w.const(np.asarray(plan.fill, elem_of(w.dtype(x)).numpy))
        merged = w.pad(merged, [0] * len(more) + more, value=fill)
    split: list[Dim] = []
    for i, parts in enumerate(plan.parts):
        if len(parts) == 1:
            split.append(parts[0] if not isinstance(sizes[i], str) else sizes[i])
        elif isinstance(sizes[i], str):
            raise UnsupportedOprError("a number of channels that changes")
        else:
            split += parts
    if "1" in plan.target:
        split.append(1)
    out = w.transpose(w.reshape(merged, split) if len(split) != len(plan.plain) else merged, plan.final)
    if plan.cut:
        groups, kept, whole = plan.cut
        n, _, h, width = plan.shape
        out = w.reshape(out, [n, groups, whole // groups, h, width])
        out = w.slice(out, [0], [kept // groups], [2])
        out = w.reshape(out, [n, kept, h, width])
    elif plan.groups > 1:
        out = w.reshape(out, list(w.fixed(opr.outputs[0])))
    return _converted(w, out, w.dtype(x), w.dtype(opr.outputs[0]))


def _merged_sizes(
    w: OnnxWriter, opr: Opr, order: tuple[int, ...], owner: tuple[int, ...], plain: tuple[int, ...]
) -> list[Dim]:
    """Return the sizes of the whole axes, each the product of those that it is merged from."""
    out: list[Dim] = []
    for i in range(len(plain)):
        out.append(w.product([w.dim(opr.inputs[0], a) for a, o in zip(order, owner, strict=True) if o == i]))
    return out


def _converted(w: OnnxWriter, x: str, source: DType, target: DType) -> str:
    if source.name == "Uint8" and target.name == "QuantizedS8":
        return convert(w, x, DType("Quantized8Asymm", 1.0, 128), target)
    return convert(w, x, source, target)
