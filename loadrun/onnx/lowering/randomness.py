"""Random numbers: drawn by MegEngine's operators, so that only their distribution is ONNX's."""

from __future__ import annotations

from ...build import emit as e
from ...build.random import seed_of_operator
from ...graph import params as P
from ...tensors import Tensor, apply1
from ...tensors.convert import shape_tensor
from ..call import NodeCall, lower
from ..values import FLOAT, Value, graph_type
from . import M, cast, const_like

__all__ = ["uniform"]


def uniform(shape: tuple[int, ...], seed: int) -> Tensor:
    """Draw numbers from 0 to 1."""
    target = shape_tensor(shape or (1,))
    y = apply1("UniformRNGV1", P.UniformRNG(seed=seed), inputs=[target], scalar=False)
    return y if shape else e.reshape(y, ())


def _seed(c: NodeCall) -> int:
    return int(abs(c.real("seed")) * 1000) % (1 << 31) or seed_of_operator()


@lower("RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", foldable=False)
def _random(c: NodeCall) -> Value:
    like = c.op.endswith("Like")
    shape = tuple(c.value(0).shape) if like else tuple(c.ints("shape") or [])
    kind = c.number("dtype", c.kind(0) if like else FLOAT)
    if "Normal" in c.op:
        param = P.GaussianRNG(seed=_seed(c), mean=c.real("mean"), std=c.real("scale", 1.0))
        y = apply1("GaussianRNGV1", param, inputs=[shape_tensor(shape or (1,))], scalar=False)
        y = y if shape else e.reshape(y, ())
    else:
        low, high = c.real("low"), c.real("high", 1.0)
        y = uniform(shape, _seed(c))
        if (low, high) != (0.0, 1.0):
            y = e.elem(M.ADD, e.elem(M.MUL, y, const_like(high - low, y)), const_like(low, y))
    return Value(kind, cast(y, graph_type(kind)))


@lower("Bernoulli", foldable=False)
def _bernoulli(c: NodeCall) -> Value:
    x = cast(c.t(0), "float32")
    kind = c.number("dtype", c.kind(0))
    y = uniform(tuple(c.value(0).shape), _seed(c))
    return Value(kind, cast(e.compare(P.ElemwiseMultiTypeMode.LT, y, x), graph_type(kind)))
