"""The gradient of multi-head attention, from projections and scores that are computed again."""

from __future__ import annotations

from math import prod

import numpy as np

from ...graph import Opr
from ...graph import params as P
from ...graph.dtypes import Array, plain
from ...graph.params import MultiHeadAttnTensorCombinationType as Extra
from ..attention import attention_scores, by_head, projections
from ..registry import Call
from .common import gradient

__all__: list[str] = []

_F32 = plain("Float32")


def _inputs(opr: Opr) -> tuple[int, ...]:
    """Return the inputs that were the forward operator's: queries, keys, values, weight, mask."""
    return (1, 2, 3, 4, 5) if len(opr.inputs) > 8 else (1, 2, 3, 4)


def _kept(
    p: P.MultiHeadAttn, mask: Array, start: int, shape: tuple[int, ...], prob: float
) -> Array | np.float32:
    """Return the factors by which dropout multiplied, from its bytes in the reserve."""
    if not p.training:
        return np.float32(1)
    size = prod(shape)
    taken = mask.reshape(-1)[start : start + size].reshape(shape) != 0
    return taken / (np.float32(1) - np.float32(prob))


def _merged(x: Array, projected: bool) -> Array:
    """Join the heads [N, heads, length, size] of what was projected, add them up otherwise."""
    n, heads, length, size = x.shape
    return x.transpose(0, 2, 1, 3).reshape(n, length, heads * size) if projected else x.sum(1)


@gradient(
    "MultiHeadAttnBackward",
    (1, 2, 3, 4, None, None),
    of="MultiHeadAttn",
    by=_inputs,
    results={0: 0, -3: 1, -2: 2, -1: 3},
)
def attention_backward(
    c: Call, diff: Array, query: Array, key: Array, value: Array, weight: Array, *rest: Array
) -> tuple[Array, ...]:
    """Give the gradients by queries, keys, values and weight; those by added key and value rows are empty.

    Raises:
        ValueError: rows were added to keys and values, which MegEngine's CPU kernels do not take.
    """
    p = c.get(P.MultiHeadAttn)
    if p.add_zero_attn or p.tensor_combination_type not in (Extra.NONE, Extra.ONLY_MASK):
        raise ValueError("attention with rows added to keys and values has no gradient")
    *mask, _, kept, _ = rest
    sides: dict[str, Array] = {"q": query, "k": key, "v": value}
    w: dict[str, Array] = {}
    at = 0
    for name, shape in projections(p):
        w[name] = weight.reshape(-1)[at : at + prod(shape)].reshape(shape)
        at += prod(shape)
    q, k, v = (
        by_head(
            x @ w[f"w{s}"] + w.get(f"b{s}", np.float32(0)) if f"w{s}" in w else x, f"w{s}" in w, p.num_heads
        )
        for s, x in sides.items()
    )
    scores = attention_scores(p, q, k, mask[0] if mask else None, _F32)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    y = e / e.sum(-1, keepdims=True)
    first = _kept(p, kept, 0, y.shape, p.attn_prob)
    dropped = y * first
    mixed = _merged(np.matmul(dropped, v), True)
    diff = diff * _kept(p, kept, -(-y.size // 4) * 4, diff.shape, p.out_prob)
    by: dict[str, Array] = {}
    grad = _projected(by, w, "o", mixed, diff)
    grad = by_head(grad, True, p.num_heads)
    by_y = np.matmul(grad, v.swapaxes(2, 3)) * first
    by_scores = y * (by_y - (by_y * y).sum(-1, keepdims=True)) * np.float32(p.sm_scaler)
    heads = {
        "q": np.matmul(by_scores, k),
        "k": np.matmul(by_scores.swapaxes(2, 3), q),
        "v": np.matmul(dropped.swapaxes(2, 3), grad),
    }
    inputs = [_projected(by, w, s, sides[s], _merged(a, f"w{s}" in w)) for s, a in heads.items()]
    flat = [by[name].reshape(-1) for name, _ in projections(p)]
    joined = np.concatenate(flat) if flat else np.zeros(0, np.float32)
    return *inputs, joined.reshape(weight.shape), *(np.zeros(0, np.float32) for _ in range(2))


def _projected(by: dict[str, Array], w: dict[str, Array], side: str, x: Array, diff: Array) -> Array:
    """Note the gradients by the matrix and bias of a projection of `x`; give that by `x`."""
    if f"w{side}" not in w:
        return diff
    rows = diff.reshape(-1, diff.shape[2])
    by[f"w{side}"], by[f"b{side}"] = x.reshape(len(rows), -1).T @ rows, rows.sum(0)
    return diff @ w[f"w{side}"].T
