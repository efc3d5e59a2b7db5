"""Multi-head attention: ``softmax(q @ k.T * scale + mask) @ v`` for every head."""

from collections.abc import Callable

import numpy as np

from ...graph import params as P
from ...graph.dtypes import Array
from ...graph.params import MultiHeadAttnAttnMaskType as Mask
from ...graph.params import MultiHeadAttnTensorCombinationType as Extra
from ..registry import Call
from .norm import softmax_of


def projections(p: P.MultiHeadAttn, flat: Array) -> dict[str, tuple[Array | None, Array | float]]:
    """Cut the flat weight into matrix and bias of query, key, value and output: all matrices, then all biases."""
    flat, at = flat.reshape(-1), 0
    back = p.vproj_size or p.v_size * p.num_heads
    sides = (
        ("q", p.embeding_size, p.qproj_size, p.qbias),
        ("k", p.k_size, p.kproj_size, p.kbias),
        ("v", p.v_size, p.vproj_size, p.vbias),
        ("o", back, p.oproj_size, p.obias),
    )
    matrices: dict[str, Array | None] = {}
    weights: dict[str, tuple[Array | None, Array | float]] = {}
    for side, rows, size, _ in sides:
        matrices[side] = flat[at : at + rows * size].reshape(rows, size) if size else None
        at += rows * size
    for side, _, size, biased in sides:
        count = size * biased
        weights[side] = matrices[side], flat[at : at + count] if count else 0.0
        at += count
    return weights


def _projected(x: Array, by: tuple[Array | None, Array | float]) -> Array:
    return x if by[0] is None else x @ by[0] + by[1]


def _heads_of(x: Array, projected: bool, heads: int) -> Array:
    """Give [N, heads, length, size]; what was not projected serves every head."""
    n, length, size = x.shape
    if not projected:
        return np.broadcast_to(x[:, None], (n, heads, length, size))
    return x.reshape(n, length, heads, size // heads).swapaxes(1, 2)


def _longer(x: Array, row: Array | None, zero: bool) -> Array:
    """Append a given row and one of zeros to the keys or values of every sample."""
    n, _, size = x.shape
    more = [] if row is None else [np.broadcast_to(row, (n, 1, size))]
    return np.concatenate([x, *more, *[np.zeros_like(x[:, :1])] * zero], 1)


def _added_mask(p: P.MultiHeadAttn, mask: Array | None, scores: Array) -> Array | float:
    """Give what is added to the scores; without an input the default mask hides later keys."""
    if p.attn_mask_type not in (Mask.DEFAULT_MASK, Mask.USER_DEFINED_MASK):
        return 0.0
    if mask is None:
        return np.triu(np.full_like(scores[0, 0], -np.inf), 1)
    return mask if mask.ndim == 2 else mask.reshape(scores.shape)


def attention(
    c: Call, query: Array, key: Array, value: Array, weight: Array, *extra: Array
) -> tuple[Array, ...] | None:
    """Attend to keys and values; dropout in training has no formula."""
    made = attended(c, query, key, value, weight, *extra)
    if made is None or not query.size or not key.size:
        return None
    p = c.get(P.MultiHeadAttn)
    size = p.vproj_size // p.num_heads or p.v_size
    return *made, np.zeros(0, np.uint8), np.zeros(_reserve(p, query, key, size))


def attended(
    c: Call,
    query: Array,
    key: Array,
    value: Array,
    weight: Array,
    *extra: Array,
    softmax: Callable[[Array, int], Array] = softmax_of,
) -> tuple[Array, Array] | None:
    """Give the output and the weights of the keys; None for dropout in training, or a mask that is missing."""
    p = c.get(P.MultiHeadAttn)
    kind = p.tensor_combination_type
    mask = extra[0] if kind in (Extra.ONLY_MASK, Extra.ALL) else None
    if (p.training and (p.attn_prob or p.out_prob)) or (
        p.attn_mask_type == Mask.USER_DEFINED_MASK and mask is None
    ):
        return None
    rows = extra[-2:] if kind in (Extra.ONLY_BIASKV, Extra.ALL) else (None, None)
    by = projections(p, weight)
    k, v = (
        _longer(_projected(x, by[s]), r, p.add_zero_attn)
        for x, s, r in zip((key, value), "kv", rows, strict=True)
    )
    q, k, v = (
        _heads_of(x, size > 0, p.num_heads)
        for x, size in ((_projected(query, by["q"]), p.qproj_size), (k, p.kproj_size), (v, p.vproj_size))
    )
    scores = q @ k.swapaxes(2, 3) * float(np.float32(p.sm_scaler))
    attn = softmax(scores + _added_mask(p, mask, scores), 3)
    out = (attn @ v).swapaxes(1, 2)
    n, length, heads, size = out.shape
    out = _projected(out.reshape(n, length, heads * size), by["o"])
    return out, attn.reshape(n * heads, length, -1)


def _reserve(p: P.MultiHeadAttn, query: Array, key: Array, value: int) -> int:
    """Count the elements that MegEngine keeps for the gradient, and one to align them."""
    many, rows = p.num_heads > 1, len(query) * p.num_heads
    pieces = (
        rows * query.shape[1] * (p.qproj_size // p.num_heads or p.embeding_size) * (many or p.qproj_size > 0),
        rows * key.shape[1] * (p.kproj_size // p.num_heads or p.k_size) * (many or p.kproj_size > 0),
        rows * key.shape[1] * value * (many or p.vproj_size > 0),
        rows * query.shape[1] * value * (p.oproj_size > 0),
    )
    return sum(pieces) + 1 if any(pieces) else 0
