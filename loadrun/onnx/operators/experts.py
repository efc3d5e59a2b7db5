"""Mixtures of experts: every row is computed by the few of some small networks that a router chooses."""

from __future__ import annotations

from ...arrays.names import np
from ...graph.composite import Flag
from ...graph.dtypes import Array
from . import operator
from .activations import gelu, sigmoid, silu, softmax
from .common import like_first, one_of, refuse_unless
from .quantized import unpacked

CONTRIB = "com.microsoft"
_ACTIVATIONS = ("relu", "gelu", "silu", "identity", "swiglu")


@operator("MoE", domain=CONTRIB, shape=like_first)
def experts(
    x: Array,
    router: Array,
    w1: Array,
    b1: Array | None,
    w2: Array,
    b2: Array | None = None,
    w3: Array | None = None,
    b3: Array | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: Flag = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: Flag = 0,
) -> Array:
    """Add up what the experts that the router chooses make of every row, by their probabilities."""
    refuse_unless(w3 is None and b3 is None, "a third layer of experts")
    refuse_unless(
        not use_sparse_mixer and not swiglu_limit_after_activation, "a sparse mixer, or a late limit"
    )
    shares = _shares(router, w1.shape[0], k, normalized=bool(normalize_routing_weights))
    bounds = swiglu_fusion, activation_alpha, activation_beta, swiglu_limit
    return _mixed(x, (w1, b1), (w2, b2), shares, activation_type, bounds)


@operator("QMoE", domain=CONTRIB, shape=like_first)
def quantized_experts(
    x: Array,
    router: Array,
    w1: Array,
    s1: Array,
    b1: Array | None,
    w2: Array,
    s2: Array,
    b2: Array | None = None,
    w3: Array | None = None,
    s3: Array | None = None,
    b3: Array | None = None,
    z1: Array | None = None,
    z2: Array | None = None,
    z3: Array | None = None,
    *others: Array | None,
    accuracy_level: int = 0,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    block_size: int = 0,
    expert_weight_bits: int = 4,
    k: int = 1,
    normalize_routing_weights: Flag = 0,
    quant_type: str = "int",
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: Flag = 0,
    weights_prepacked: int = -1,
) -> Array:
    """Mix experts whose weights are whole numbers of a few bits, exactly.

    ONNX Runtime rounds its input to 8 bits where weights have 8 bits in blocks, or where accuracy_level is 4.
    """
    refuse_unless(all(v is None for v in (w3, s3, b3, z3)), "a third layer of experts")
    beside = "router weights, or scales of experts and of activations, beside its own"
    refuse_unless(all(v is None for v in others), beside)
    refuse_unless(
        not use_sparse_mixer and not swiglu_limit_after_activation, "a sparse mixer, or a late limit"
    )
    refuse_unless(quant_type == "int" and weights_prepacked <= 0, "weights that are packed for one device")
    refuse_unless(expert_weight_bits in (2, 4, 8), f"weights of {expert_weight_bits} bits")
    first, second = (
        _dequantized(w, s, z, expert_weight_bits, block_size).astype(x.dtype)
        for w, s, z in ((w1, s1, z1), (w2, s2, z2))
    )
    # ONNX Runtime takes the softmax of the chosen ones alone here.
    shares = _shares(router, w1.shape[0], k, normalized=True)
    bounds = swiglu_fusion, activation_alpha, activation_beta, swiglu_limit
    return _mixed(x, (first, b1), (second, b2), shares, activation_type, bounds)


def _dequantized(raw: Array, scales: Array, points: Array | None, bits: int, block: int) -> Array:
    """Return quantized weights (experts, out, in) as floats."""
    values = unpacked(raw, bits)
    count, out, n = values.shape
    scales = scales.reshape(count, out, -1)
    blocks = -(-n // block) if block > 0 else 1
    refuse_unless(scales.shape[2] == blocks, f"{scales.shape[2]} scales for {blocks} blocks")
    zero = np.full((1, 1, blocks), 1 << (bits - 1), scales.dtype)
    if points is not None:
        # Those of blocks are packed along the blocks, those of whole rows along the rows.
        wide = unpacked(points, bits).reshape(count, *((out, -1) if block > 0 else (-1, 1)))
        zero = wide[:, :out, :blocks].astype(scales.dtype)
    each = block if block > 0 else n
    return (values - np.repeat(zero, each, 2)[:, :, :n]) * np.repeat(scales, each, 2)[:, :, :n]


def _shares(logits: Array, count: int, k: int, *, normalized: bool) -> Array:
    """Return how much every expert adds to a row: its probability if it is one of the k largest, else 0."""
    refuse_unless(0 < k <= count, f"{k} of {count} experts")
    logits = logits.reshape(-1, count)
    rank = np.argsort(np.argsort(-logits, axis=1, kind="stable"), axis=1)
    kept = np.where(rank < k, softmax(logits), 0)
    return kept / kept.sum(1, keepdims=True) if normalized else kept


def _mixed(
    x: Array,
    first: tuple[Array, Array | None],
    second: tuple[Array, Array | None],
    shares: Array,
    activation: str,
    bounds: tuple[int, float, float, float | None],
) -> Array:
    """Compute the experts that rows need, and add up what they give.

    Args:
        x: (..., in).
        first, second: weights (experts, out, in) and biases (experts, out) of both layers.
        shares: of every row and expert.
        activation: between the layers.
        bounds: fusion, alpha, beta and limit of swiglu.
    """
    one_of("activation_type", activation, *_ACTIVATIONS)
    rows = x.reshape(-1, x.shape[-1])
    total: Array | float = 0.0
    for i in range(shares.shape[1]):
        y = rows
        for step, (w, b) in enumerate((first, second)):
            y = np.matmul(y, w[i].swapaxes(0, 1))
            y = y if b is None else y + b[i]
            y = y if step else _activated(y, activation, *bounds)
        total = total + y * shares[:, i : i + 1]
    return np.asarray(total).reshape(x.shape)


def _activated(x: Array, name: str, fusion: int, alpha: float, beta: float, limit: float | None) -> Array:
    if name == "relu":
        return np.maximum(x, 0)
    if name != "swiglu":
        return gelu(x, tanh=True) if name == "gelu" else silu(x) if name == "silu" else x
    refuse_unless(fusion in (1, 2), f"its swiglu_fusion is {fusion}, expected 1 or 2")
    half = x.shape[-1] // 2
    gate, line = (x[..., ::2], x[..., 1::2]) if fusion == 1 else (x[..., :half], x[..., half:])
    if limit is not None:
        gate, line = np.minimum(gate, limit), np.clip(line, -limit, limit)
    return gate * sigmoid(gate * alpha) * (line + beta)
