"""Operators of ONNX's first versions that it has dropped, as ONNX Runtime still runs them."""

from __future__ import annotations

import numpy as np

from ...build import emit as e
from ...tensors import Tensor, const
from ...tensors.access import dtype_of, static_shape
from ..call import NodeCall, lower
from ..values import UnsupportedNodeError
from . import M, const_like
from .functions import activation

__all__: list[str] = []


@lower("Affine", "Scale", "ScaledTanh", "ParametricSoftplus")
def _scaled(c: NodeCall) -> Tensor:
    x = c.t(0)
    alpha, beta = (c.real(name, default) for name, default in (("alpha", 1.0), ("beta", 0.0)))
    if c.op in ("Affine", "Scale"):
        return activation("Affine", x, c.real("scale", 1.0) if c.op == "Scale" else alpha, beta)
    missing = [name for name in ("alpha", "beta") if name not in c.attributes]
    if missing:
        raise UnsupportedNodeError(f"its attribute {missing[0]} is missing")
    if c.op == "ScaledTanh":
        return activation("ScaledTanh", x, alpha, beta)
    soft = e.elem(M.SOFTPLUS, e.elem(M.MUL, const_like(beta, x), x))
    return e.elem(M.MUL, const_like(alpha, x), soft)


@lower("ImageScaler")
def _image_scaler(c: NodeCall) -> Tensor:
    """Scale all channels and add a number to each."""
    x, bias = c.t(0), c.floats("bias") or []
    if x.ndim != 4 or len(bias) != static_shape(x)[1]:
        raise UnsupportedNodeError(f"{len(bias)} numbers for the channels of {list(static_shape(x))}")
    added = e.cast(const(np.array(bias, np.float32).reshape(1, -1, 1, 1)), dtype_of(x))
    return e.elem(M.ADD, e.elem(M.MUL, const_like(c.real("scale", 1.0), x), x), added)


@lower("Crop")
def _crop(c: NodeCall) -> Tensor:
    """Cut borders off images: on the left, at the top, on the right, below; or a size behind the first two."""
    x, border, size = c.t(0), c.ints("border") or [], c.ints("scale")
    if x.ndim != 4 or len(border) != 4 or (size is not None and len(size) != 2):
        raise UnsupportedNodeError(f"borders {border} of {x.ndim} axes")
    left, top, right, bottom = border
    height, width = static_shape(x)[2:]
    ends = (height - bottom, width - right) if size is None else (top + size[0], left + size[1])
    if min(border) < 0 or not (top <= ends[0] <= height and left <= ends[1] <= width):
        raise UnsupportedNodeError(f"it has {[top, left]} to {list(ends)} of {[height, width]} elements")
    # Counted from the end, they hold for images of other sizes, too.
    below, beyond = ends if size is not None else (-bottom or None, -right or None)
    return e.subtensor(x, [(2, top, below, None, None), (3, left, beyond, None, None)])
