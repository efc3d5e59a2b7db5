"""Convolutions of images and volumes: one product for every filter tap."""

from math import prod
from typing import Any

import numpy as np

from ...graph import params as P
from ...graph.dtypes import Array
from ...graph.params import NonlineMode
from ..conv.layout import from_plain, to_plain
from ..conv.rules import Geometry, Plan, backward_plan, conv_plan
from ..elemwise.formulas import Formula, h_swish, relu, sigmoid
from ..registry import Call
from .windows import taps

_ACTIVATE: dict[NonlineMode, Formula] = {
    NonlineMode.IDENTITY: lambda x: x,
    NonlineMode.RELU: relu,
    NonlineMode.SIGMOID: sigmoid,
    NonlineMode.H_SWISH: h_swish,
}


def convolve(x: Array, w: Array, geo: Geometry) -> Array:
    """Add up ``w[g, o, i, tap] * x[n, g, i, position of the tap]`` over input channels and taps.

    Args:
        x: [N, groups * IC, size...].
        w: [groups, OC, IC, kernel...].
        geo: how windows lie.

    Returns:
        [N, groups * OC, out...].
    """
    x = x.reshape(len(x), geo.groups, geo.icg, *geo.size)
    y = np.zeros((len(x), geo.groups, geo.ocg, *geo.out))
    # numpy multiplies matrices quickly only where their memory is contiguous.
    w = np.ascontiguousarray(np.moveaxis(w, (0, 1, 2), (-3, -2, -1)))
    for tap, to, at in taps(geo):
        y[to] += _products(w[tap], x[at])
    return y.reshape(len(x), geo.channels, *geo.out)


def _spread(y: Array, w: Array, geo: Geometry) -> Array:
    """Add every output of `convolve` times the filter to the inputs that it was made of."""
    y = y.reshape(len(y), geo.groups, geo.ocg, *geo.out)
    x = np.zeros((len(y), geo.groups, geo.icg, *geo.size))
    w = np.ascontiguousarray(np.moveaxis(w, (0, 2, 1), (-3, -2, -1)))
    for tap, to, at in taps(geo):
        x[at] += _products(w[tap], y[to])
    return x.reshape(len(y), geo.groups * geo.icg, *geo.size)


def _products(w: Array, x: Array) -> Array:
    """Multiply [G, O, I] with [N, G, I, positions...], summed over I."""
    n, groups, depth, *size = x.shape
    y = np.matmul(w, x.reshape(n, groups, depth, prod(size)))
    return y.reshape(n, groups, w.shape[1], *size)


def _filters(w: Array, plan: Plan) -> Array:
    plain = to_plain(w, plan.w)
    return np.flip(plain, tuple(range(3, plain.ndim))) if plan.flip else plain


def convolution(c: Call, x: Array, w: Array, *rest: Array) -> Array:
    """Convolve images or volumes in every layout, then add bias and residual and apply the nonlinearity."""
    p: Any = c.opr.params[0]
    plan = conv_plan(p, c.inputs, x.shape, w.shape)
    y = from_plain(convolve(to_plain(x, plan.x), _filters(w, plan), plan.geo), plan.out)
    for addend in rest:
        y = y + addend
    return y if isinstance(p, P.Convolution | P.Convolution3D) else np.asarray(_ACTIVATE[p.nonlineMode](y))


def batched(c: Call, x: Array, w: Array, *rest: Array) -> Array:
    """Convolve every sample with a filter of its own."""
    samples = (
        convolution(c, x[n : n + 1], w[n], *(r if len(r) == 1 else r[n : n + 1] for r in rest))
        for n in range(len(x))
    )
    return np.concatenate(list(samples))


def transposed(c: Call, w: Array, diff: Array, like: Array | None = None) -> Array:
    """Transpose the convolution of images or volumes."""
    p: Any = c.opr.params[0]
    like_shape = None if like is None else like.shape
    plan = backward_plan(p, c.inputs, w.shape, diff.shape, like_shape)
    return from_plain(_spread(to_plain(diff, plan.out), _filters(w, plan), plan.geo), plan.x)
