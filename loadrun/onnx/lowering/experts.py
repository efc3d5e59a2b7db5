"""Mixtures of experts: every row is computed by the few of some small networks that a router chooses."""

from __future__ import annotations

import numpy as np

from ...build import emit as e
from ...build.layers.activation import gelu, softmax
from ...graph import params as P
from ...ops.registry import pay
from ...tensors import Tensor, const
from ...tensors.access import dtype_of, static_shape
from ..call import CONTRIB, NodeCall, lower
from ..values import UnsupportedNodeError
from . import M, cast, const_like, folded
from .linalg import matmul
from .nbits import unpacked

__all__: list[str] = []

_EQ, _LT = P.ElemwiseMultiTypeMode.EQ, P.ElemwiseMultiTypeMode.LT


@lower("MoE", domain=CONTRIB)
def _experts(c: NodeCall) -> Tensor:
    weights = [folded(_turned, e.real(c.t(i))) for i in (2, 4)]
    return _mixed(c, weights, [c.maybe(3), c.maybe(5)], c.has(6) or c.has(7))


@lower("QMoE", domain=CONTRIB)
def _quantized_experts(c: NodeCall) -> Tensor:
    if any(c.has(i) for i in range(14, len(c.inputs))) or c.text("quant_type", "int") != "int":
        raise UnsupportedNodeError("router weights, or scales of experts and of activations, beside its own")
    if c.number("weights_prepacked") > 0:
        raise UnsupportedNodeError("weights that are packed for one device")
    if c.number("accuracy_level") == 4 or (c.number("block_size") and c.number("expert_weight_bits", 4) == 8):
        how = "of 8 bits in blocks, or with accuracy_level 4,"
        c.importer.note(f"QMoE is exact; {how} ONNX Runtime rounds its input to 8 bits")
    weights = [const(_stored(c, *places)) for places in ((2, 3, 11), (5, 6, 12))]
    return _mixed(c, weights, [c.maybe(4), c.maybe(7)], c.has(8))


def _stored(c: NodeCall, at: int, scaled: int, shifted: int) -> np.ndarray:
    """Return quantized weights (experts, out, in) as float32 (experts, in, out)."""
    bits, block = c.number("expert_weight_bits", 4), c.number("block_size")
    if bits not in (2, 4, 8):
        raise UnsupportedNodeError(f"weights of {bits} bits")
    values = unpacked(c.constant(at, "weights"), bits)
    count, out, n = values.shape
    pay(16 * values.size)
    scales = c.constant(scaled, "scales").astype(np.float32).reshape(count, out, -1)
    blocks = -(-n // block) if block > 0 else 1
    if scales.shape[2] != blocks:
        raise UnsupportedNodeError(f"{scales.shape[2]} scales for {blocks} blocks")
    zero = np.full((count, out, blocks), 1 << (bits - 1), np.float32)
    if c.has(shifted):
        # Those of blocks are packed along the blocks, those of whole rows along the rows.
        points = unpacked(c.constant(shifted, "zero points"), bits)
        zero = points.reshape(count, *((out, -1) if block > 0 else (-1, 1)))[:, :out, :blocks].astype(
            np.float32
        )
    wide = [np.repeat(v, block if block > 0 else n, 2)[:, :, :n] for v in (zero, scales)]
    return np.ascontiguousarray(((values - wide[0]) * wide[1]).transpose(0, 2, 1))


def _turned(w: Tensor) -> Tensor:
    return e.permute(w, (0, 2, 1))


def _mixed(c: NodeCall, weights: list[Tensor], biases: list[Tensor | None], gated: bool) -> Tensor:
    """Compute all experts for all rows, and add up those that the router chooses."""
    if gated or c.flag("use_sparse_mixer"):
        raise UnsupportedNodeError("a third layer of experts, or a sparse mixer")
    x = e.real(c.t(0))
    rows = e.reshape(x, (1, -1, static_shape(x)[-1]))
    layers = [
        (w, None if b is None else e.add_axes(e.real(b), [1])) for w, b in zip(weights, biases, strict=True)
    ]
    (first, b1), (second, b2) = layers
    y = matmul(rows, first)
    y = _activated(c, y if b1 is None else e.elem(M.ADD, y, b1))
    y = matmul(y, second)
    y = y if b2 is None else e.elem(M.ADD, y, b2)
    shares = e.add_axes(e.permute(_shares(c, static_shape(y)[0]), (1, 0)), [2])
    total = e.reduce(e.elem(M.MUL, y, shares), P.ReduceMode.SUM, [0])
    return cast(e.reshape(total, x.shape), dtype_of(c.t(0)))


def _shares(c: NodeCall, count: int) -> Tensor:
    """Return how much every expert adds to a row: its probability if it is one of the k largest, else 0."""
    logits = e.reshape(e.real(c.t(1)), (-1, count))
    k = c.number("k", 1)
    if not 0 < k <= count:
        raise UnsupportedNodeError(f"{k} of {count} experts")
    one, other = e.add_axes(logits, [2]), e.add_axes(logits, [1])
    earlier = const(np.tri(count, k=-1, dtype=np.bool_))
    same = e.elem(M.AND, e.compare(_EQ, one, other), earlier)
    before = cast(e.elem(M.OR, e.compare(_LT, one, other), same), "float32")
    rank = e.reduce(before, P.ReduceMode.SUM, [2])
    chances = softmax(logits, 1)
    kept = e.where(e.compare(_LT, rank, const_like(float(k), rank)), chances, const_like(0.0, chances))
    # The quantized operator of ONNX Runtime takes the softmax of the chosen ones alone.
    if not c.flag("normalize_routing_weights") and c.op == "MoE":
        return kept
    return e.elem(M.TRUE_DIV, kept, e.add_axes(e.reduce(kept, P.ReduceMode.SUM, [1]), [1]))


def _activated(c: NodeCall, x: Tensor) -> Tensor:
    name = c.choice("activation_type", "relu", "gelu", "silu", "identity", "swiglu")
    if name != "swiglu":
        return {
            "relu": lambda: e.elem(M.RELU, x),
            "gelu": lambda: gelu(x, tanh=True),
            "silu": lambda: e.elem(M.SILU, x),
            "identity": lambda: x,
        }[name]()
    fusion = c.number("swiglu_fusion")
    if fusion not in (1, 2):
        raise UnsupportedNodeError(f"its swiglu_fusion is {fusion}, expected 1 or 2")
    half = static_shape(x)[2] // 2
    ends = [(0, None, 2), (1, None, 2)] if fusion == 1 else [(None, half, None), (half, None, None)]
    gate, line = (e.subtensor(x, [(2, *span, None)]) for span in ends)
    if "swiglu_limit" in c.attributes:
        most = const_like(c.real("swiglu_limit"), gate)
        gate = e.elem(M.MIN, gate, most)
        line = e.elem(M.MAX, e.elem(M.MIN, line, most), e.elem(M.NEGATE, most))
    steep = e.elem(M.MUL, gate, const_like(c.real("activation_alpha", 1.0), gate))
    gate = e.elem(M.MUL, gate, e.elem(M.SIGMOID, steep))
    return e.elem(M.MUL, gate, e.elem(M.ADD, line, const_like(c.real("activation_beta"), line)))
