"""Memory layouts of images: to and from plain (batch, channel, height, width) by Transpose and Reshape."""

from collections.abc import Sequence

from ...graph import Var
from ...ops.conv.layout import Packing
from .emitter import Dim, NodeEmitter
from .writer import OnnxWriter


def _split(packing: Packing) -> bool:
    """Return whether the layout splits channels into two axes."""
    return len(packing.order) > len(packing.plain)


def plain_dims(e: NodeEmitter, dims: Sequence[Dim], packing: Packing) -> list[Dim]:
    """Convert the sizes of a packed value to those of the plain one."""
    moved = [dims[a] for a in packing.order]
    if not _split(packing):
        return moved
    return [moved[0], e.arith("Mul", moved[1], moved[2]), *moved[3:]]


def to_plain(w: OnnxWriter, x: str, var: Var, packing: Packing) -> str:
    """Convert a packed value to a plain one.

    Args:
        x: the value, of the shape of `var`.
    """
    out = w.transpose(x, packing.order)
    return w.reshape(out, plain_dims(w, w.dims(var), packing)) if _split(packing) else out


def to_packed(e: NodeEmitter, x: str, dims: Sequence[Dim], packing: Packing) -> str:
    """Convert a plain value of those sizes to a packed layout."""
    if _split(packing):
        pack = packing.shape[packing.order[2]]
        x = e.reshape(x, [dims[0], e.arith("Div", dims[1], pack), pack, *dims[2:]])
    return e.transpose(x, [packing.order.index(a) for a in range(len(packing.order))])
