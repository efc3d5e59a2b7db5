"""Attention, masks, caches, rotary positions, linear attention."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from ...build import emit as e
from ...build.exact_products import product
from ...build.layers.activation import softmax
from ...build.layers.attention import capped, mask_bias, scaled_scores, shared_heads
from ...graph import params as P
from ...graph.dtypes import DType
from ...tensors import Tensor
from ...tensors.access import dtype_of, static_shape
from ..call import NodeCall, lower
from ..values import UnsupportedNodeError, Value
from . import M, cast, const_like, of_length, transposed

__all__ = ["heads", "merged", "rotated_part"]

_LT, _LEQ, _EQ = P.ElemwiseMultiTypeMode.LT, P.ElemwiseMultiTypeMode.LEQ, P.ElemwiseMultiTypeMode.EQ


def heads(x: Tensor, count: int) -> Tensor:
    """Convert (B, S, H * D) to (B, H, S, D)."""
    if count < 1 or static_shape(x)[2] % count:
        raise UnsupportedNodeError(f"{static_shape(x)[2]} features in {count} heads")
    b, s, f = x.shape
    return transposed(e.reshape(x, (b, s, count, f // count)), (0, 2, 1, 3))


def merged(x: Tensor) -> Tensor:
    """Convert (B, H, S, D) to (B, S, H * D)."""
    b, h, s, d = x.shape
    return e.reshape(transposed(x, (0, 2, 1, 3)), (b, s, h * d))


class _Mask:
    """A bias for scores, with -inf for keys that a query may not see, whatever the bias says there."""

    def __init__(self, like: Tensor) -> None:
        self.like = like
        self.bias: Tensor | None = None

    def allow(self, allowed: Tensor) -> None:
        if self.bias is None:
            self.bias = mask_bias(allowed, self.like)
        else:
            self.bias = e.where(allowed, self.bias, const_like(-np.inf, self.bias))


def _given_mask(mask: _Mask, attn_mask: Tensor, length: int) -> None:
    short = int(length) - static_shape(attn_mask)[-1]
    if short > 0:
        shape = (*attn_mask.shape[:-1], short)
        if e.is_bool(attn_mask):
            attn_mask = cast(attn_mask, "uint8")
            attn_mask = cast(
                e.concat([attn_mask, e.full(const_like(0, attn_mask), shape)], attn_mask.ndim - 1), "bool"
            )
        else:
            attn_mask = e.real(attn_mask)
            attn_mask = e.concat(
                [attn_mask, e.full(const_like(-np.inf, attn_mask), shape)], attn_mask.ndim - 1
            )
    if e.is_bool(attn_mask):
        mask.allow(attn_mask)
    else:
        mask.bias = e.real(attn_mask)


def _positions(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return e.add_axes(e.arange(q.shape[2]), [1]), e.arange(k.shape[2])


def _mask_of(c: NodeCall, q: Tensor, k: Tensor, past: int, valid: Tensor | None) -> Tensor | None:
    mask = _Mask(q)
    if c.has(3):
        _given_mask(mask, c.t(3), k.shape[2])
    rows, columns = _positions(q, k)
    if valid is not None:
        valid = e.reshape(e.whole(valid), (-1, 1, 1, 1))
        mask.allow(e.compare(_LT, columns, valid))
    left, right = c.number("left_window_size", -1), c.number("right_window_size", -1)
    if c.flag("is_causal"):
        right = 0 if right < 0 else min(right, 0)
    if left < 0 and right < 0:
        return mask.bias
    offset = e.like(past, rows)
    if valid is not None and not c.has(4):
        offset = e.elem(M.SUB, valid, e.like(q.shape[2], valid))
    here = e.elem(M.ADD, rows, offset)
    if right >= 0:
        limit = e.elem(M.ADD, here, const_like(right, here)) if right else here
        mask.allow(e.compare(_LEQ, columns, limit))
    if left >= 0:
        mask.allow(e.compare(_LEQ, e.elem(M.SUB, here, const_like(left, here)), columns))
    return mask.bias


def _scale(c: NodeCall, q: Tensor) -> float:
    return c.real("scale") if "scale" in c.attributes else 1.0 / sqrt(static_shape(q)[3])


def _stored(x: Tensor, kind: DType) -> Tensor:
    """Return what is left of float32 scores in a type of 16 bits, where the largest are infinite.

    ONNX Runtime rounds the weights, too; the data of ONNX's tests are nearer to those of float32.
    """
    return e.real(cast(x, kind))


@lower("Attention")
def _attention(c: NodeCall) -> tuple[Tensor | None, ...]:
    q, k, v = c.t(0), c.t(1), c.t(2)
    flat = q.ndim == 3
    kind = dtype_of(q)
    if flat:
        q = heads(q, c.number("q_num_heads"))
        k, v = (heads(x, c.number("kv_num_heads")) for x in (k, v))
    past = 0
    if c.has(4):
        past = c.t(4).shape[2]
        k, v = e.concat([c.t(4), k], 2), e.concat([c.t(5), v], 2)
    present = k, v
    group = static_shape(q)[1] // max(static_shape(k)[1], 1)
    k, v = (shared_heads(e.real(x), group) for x in (k, v))
    q = e.real(q)
    scores = _stored(scaled_scores(q, k, _scale(c, q)), kind)
    shown = [scores]
    scores = _stored(capped(scores, c.real("softcap")), kind)
    shown.append(scores)
    valid = c.maybe(6)
    bias = _mask_of(c, q, k, past, valid)
    if bias is not None:
        scores = _stored(e.elem(M.ADD, scores, bias), kind)
    shown.append(scores)
    # Without a window on the left every query sees the first key.
    guard = c.has(3) or valid is not None or c.number("left_window_size", -1) >= 0
    weights = softmax(scores, 3, guard=guard)
    shown.append(weights)
    y = product(weights, v)
    y = cast(merged(y) if flat else y, kind)
    mode = c.number("qk_matmul_output_mode")
    if mode not in range(4):
        raise UnsupportedNodeError(f"qk_matmul_output_mode is {mode}")
    return y, present[0], present[1], cast(shown[mode], kind)


@lower("FlexAttention", domain="ai.onnx.preview", foldable=False)
def _flex(c: NodeCall) -> Tensor:
    q, k, v = (e.real(c.t(i)) for i in range(3))
    kind = dtype_of(c.t(0))
    group = static_shape(q)[1] // max(static_shape(k)[1], 1)
    k, v = shared_heads(k, group), shared_heads(v, group)
    scores = scaled_scores(q, k, _scale(c, q))
    precision = c.number("softmax_precision", 1)
    scores = _modified(c, "score_mod", scores, precision)
    weights = _modified(c, "prob_mod", softmax(scores, 3), precision)
    return cast(product(weights, v), kind)


def _modified(c: NodeCall, name: str, x: Tensor, precision: int) -> Tensor:
    if name not in c.attributes:
        return x
    from ..values import graph_type  # for start-up

    (result,) = c.run_graph(c.graph(name), [Value(precision, cast(x, graph_type(precision)))])
    if isinstance(result, list):
        raise UnsupportedNodeError(f"its {name} returns a sequence")
    return e.real(result.tensor)


# Positions


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool) -> Tensor:
    """Rotate pairs of features by angles: x is (..., D), cos and sin broadcast with (..., D/2)."""
    axis = x.ndim - 1
    half = static_shape(x)[axis] // 2
    if interleaved:
        one = e.subtensor(x, [(axis, None, None, 2, None)])
        two = e.subtensor(x, [(axis, 1, None, 2, None)])
    else:
        one = e.subtensor(x, [(axis, None, half, None, None)])
        two = e.subtensor(x, [(axis, half, None, None, None)])
    real = e.elem(M.SUB, e.elem(M.MUL, cos, one), e.elem(M.MUL, sin, two))
    imaginary = e.elem(M.ADD, e.elem(M.MUL, sin, one), e.elem(M.MUL, cos, two))
    if not interleaved:
        return e.concat([real, imaginary], axis)
    pairs = e.concat([e.add_axes(real, [axis + 1]), e.add_axes(imaginary, [axis + 1])], axis + 1)
    return e.reshape(pairs, x.shape)


def rotated_part(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool) -> Tensor:
    """Rotate as many features (..., D) as there are angles for, in float32 at least; leave the rest."""
    axis, size, kind = x.ndim - 1, 2 * static_shape(cos)[-1], dtype_of(x)
    whole = size >= static_shape(x)[axis]
    head = e.real(x if whole else e.subtensor(x, [(axis, None, size, None, None)]))
    y = cast(_rotated(head, e.real(cos), e.real(sin), interleaved=interleaved), kind)
    return y if whole else e.concat([y, e.subtensor(x, [(axis, size, None, None, None)])], axis)


@lower("RotaryEmbedding")
def _rotary(c: NodeCall) -> Tensor:
    x, cos, sin = c.t(0), c.t(1), c.t(2)
    flat = x.ndim == 3
    if flat:
        b, s, f = x.shape
        count = c.number("num_heads")
        x = e.reshape(x, (b, s, count, f // count))
    else:
        x = transposed(x, (0, 2, 1, 3))
    size = c.number("rotary_embedding_dim") or static_shape(x)[3]
    if c.has(3):
        at = e.whole(c.t(3))
        cos, sin = (e.gather(t, [(0, at)]) for t in (cos, sin))
    cos, sin = (e.add_axes(e.subtensor(t, [(2, None, size // 2, None, None)]), [2]) for t in (cos, sin))
    y = rotated_part(x, cos, sin, interleaved=c.flag("interleaved"))
    return e.reshape(y, c.t(0).shape) if flat else transposed(y, (0, 2, 1, 3))


# Linear attention


@lower("LinearAttention")
def _linear(c: NodeCall) -> tuple[Tensor, Tensor]:
    """Unroll the recurrent update of (B, H, dk, dv) states over time."""
    kind = dtype_of(c.t(0))
    n_q, n_kv = c.number("q_num_heads"), c.number("kv_num_heads")
    q, k, v = (of_length(e.real(c.t(i)), 1) for i in range(3))
    dk = static_shape(q)[2] // n_q
    dv = static_shape(v)[2] // n_kv
    steps = static_shape(q)[1]
    if steps > 512:
        raise UnsupportedNodeError(f"a sequence of {steps} steps; at most 512 are unrolled")
    b = q.shape[0]
    scale = c.real("scale") or 1.0 / sqrt(dk)
    state = e.real(c.t(3)) if c.has(3) else e.full(const_like(0.0, q), (b, n_kv, dk, dv))
    rule = c.choice("update_rule", "gated_delta", "gated", "delta", "linear")
    outs = []
    for t in range(steps):
        kt, vt = (_at(x, t, (b, n_kv, -1)) for x in (k, v))
        if "gated" in rule:
            gate = e.elem(M.EXP, _at(e.real(c.t(4)), t, (b, n_kv, -1)))
            state = e.elem(M.MUL, state, e.add_axes(gate, [3]))
        if "delta" in rule:
            seen = e.reduce(e.elem(M.MUL, state, e.add_axes(kt, [3])), P.ReduceMode.SUM, [2])
            rate = _at(e.real(c.t(5)), t, (b, -1, 1))
            vt = e.elem(M.MUL, rate, e.elem(M.SUB, vt, seen))
        state = e.elem(M.ADD, state, e.elem(M.MUL, e.add_axes(kt, [3]), e.add_axes(vt, [2])))
        qt = _at(q, t, (b, n_q, -1))
        outs.append(_attended_states(qt, state, n_q // n_kv, scale))
    whole = e.concat([e.add_axes(o, [1]) for o in outs], 1)
    y = e.reshape(whole, (b, steps, n_q * dv))
    return cast(y, kind), cast(state, kind if not c.has(3) else dtype_of(c.t(3)))


def _at(x: Tensor, t: int, shape: Sequence[int]) -> Tensor:
    return e.reshape(e.subtensor(x, [(1, None, None, None, t)]), shape)


def _attended_states(q: Tensor, state: Tensor, group: int, scale: float) -> Tensor:
    """Read states (B, Hkv, dk, dv) with queries (B, Hq, dk): (B, Hq, dv)."""
    seen = shared_heads(state, group)
    result = e.reduce(e.elem(M.MUL, seen, e.add_axes(q, [3])), P.ReduceMode.SUM, [2])
    return e.elem(M.MUL, const_like(scale, result), result)
