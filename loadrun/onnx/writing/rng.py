"""Random operators: the same distributions; numbers differ from run to run, as they do in MegEngine."""

from __future__ import annotations

import numpy as np

from ...graph import Opr, Var
from ...graph import params as P
from ..encode import ElemType
from .emitter import UnsupportedOprError
from .writer import REASONS, OnnxWriter, translation

__all__: list[str] = []

REASONS.add("GammaRNG", "ONNX has no gamma distribution")
REASONS.add("BetaRNG", "ONNX has no beta distribution")
REASONS.add("PoissonRNG", "ONNX has no Poisson distribution")

_TINY = float(np.finfo(np.float32).tiny)


def _zeros(w: OnnxWriter, shape: Var) -> str:
    return w.expand(w.f32(0), w.vector(w.split_dims(shape)))


def _uniform_like(w: OnnxWriter, x: str) -> str:
    """Draw numbers in (0, 1]: ONNX's are in [0, 1)."""
    return w.op("Sub", w.f32(1), w.op("RandomUniformLike", x, dtype=int(ElemType.FLOAT)))


@translation("UniformRNGV1")
def uniform(w: OnnxWriter, opr: Opr) -> str:
    """Emit RandomUniformLike."""
    return w.stored(_uniform_like(w, _zeros(w, opr.inputs[0])), w.dtype(opr.outputs[0]))


@translation("GaussianRNGV1")
def gaussian(w: OnnxWriter, opr: Opr) -> str:
    """Emit RandomNormalLike."""
    p = opr.get(P.GaussianRNG)
    out = w.op(
        "RandomNormalLike",
        _zeros(w, opr.inputs[0]),
        dtype=int(ElemType.FLOAT),
        mean=float(p.mean),
        scale=float(p.std),
    )
    return w.stored(out, w.dtype(opr.outputs[0]))


@translation("ExponentialRNG")
def exponential(w: OnnxWriter, opr: Opr) -> str:
    """Divide the negative logarithm of RandomUniformLike by the rate."""
    rate = w.float(opr.inputs[0])
    drawn = w.op("Neg", w.op("Log", _uniform_like(w, rate)))
    return w.stored(w.op("Div", drawn, rate), w.dtype(opr.outputs[0]))


def _random_order(w: OnnxWriter, n: str) -> str:
    """Shuffle the numbers below n (an int64 vector of one), int64."""
    keys = w.op("RandomUniformLike", w.expand(w.f32(0), n), dtype=int(ElemType.FLOAT))
    w.need(10, "a random order")
    return w.ops("TopK", keys, n, out=2, axis=0)[1]


@translation("PermutationRNG")
def permutation(w: OnnxWriter, opr: Opr) -> str:
    """Order random keys by TopK."""
    dims = w.split_dims(opr.inputs[0])
    total = w.product(dims)
    out = w.reshape(_random_order(w, w.vector([total])), dims)
    return w.cast(out, ElemType.of(w.dtype(opr.outputs[0]).np))


@translation("ShuffleRNG")
def shuffle(w: OnnxWriter, opr: Opr) -> list[str]:
    """Gather in a random order."""
    (x,) = opr.inputs
    at = _random_order(w, w.vector([w.dim(x, 0)]))
    return [w.op("Gather", w.name(x), at, axis=0), w.cast(at, ElemType.INT32)]


@translation("MultinomialRNG")
def multinomial(w: OnnxWriter, opr: Opr) -> str:
    """Emit Multinomial of logarithms; without replacement the order of exponential keys."""
    p, (probs,) = opr.get(P.MultinomialRNG), opr.inputs
    value = w.float(probs)
    if p.replacement:
        logs = w.op("Log", w.op("Max", value, w.f32(_TINY)))
        return w.op("Multinomial", logs, sample_size=int(p.num_samples), dtype=int(ElemType.INT32))
    if not p.num_samples:
        raise UnsupportedOprError("no samples")
    keys = w.op("Div", w.op("Neg", w.op("Log", _uniform_like(w, value))), value)
    return w.cast(w.topk(keys, int(p.num_samples), 1, largest=0)[1], ElemType.INT32)


@translation("Dropout")
def dropout(w: OnnxWriter, opr: Opr) -> list[str]:
    """Multiply the input by a random mask; drop nothing if the probability is 0."""
    (x,) = opr.inputs
    dtype, prob = w.dtype(x), np.float32(opr.get(P.Dropout).drop_prob)
    if not prob:
        ones = w.expand(w.const(np.uint8(1)), w.vector([w.product(w.dims(x))]))
        return [w.op("Identity", w.name(x)), ones]
    value = w.float(x)
    kept = w.op("Not", w.op("Less", _uniform_like(w, value), w.const(prob)))
    scaled = w.op("Mul", value, w.const(np.float32(1) / (np.float32(1) - prob)))
    mask = w.reshape(w.cast(kept, ElemType.UINT8), [-1])
    return [w.stored(w.where(kept, scaled, w.f32(0)), dtype), mask]
