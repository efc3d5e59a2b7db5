"""Scaled dot-product attention: MegEngine's operator projects its inputs first, so this is products and a softmax."""

import numpy as np

from ...graph import params as P
from ...tensors import Tensor
from .. import emit as e
from ..emit import M
from ..exact_products import product
from .activation import softmax

_LT, _LEQ = P.ElemwiseMultiTypeMode.LT, P.ElemwiseMultiTypeMode.LEQ


def shared_heads(x: Tensor, times: int) -> Tensor:
    """Return (..., H, S, D) with every head as many times as query heads share it."""
    if times == 1:
        return x
    *lead, h, s, d = x.shape
    wide = e.broadcast(e.add_axes(x, [x.ndim - 2]), (*lead, h, times, s, d))
    return e.reshape(wide, (*lead, h * times, s, d))


def mask_bias(allowed: Tensor, like: Tensor, least: float = -np.inf) -> Tensor:
    """Return what a mask of keys that may be seen adds to the scores: 0, or `least` where it is False."""
    return e.folded(lambda mask: e.where(mask, e.number(0.0, like), e.number(least, like)), allowed)


def causal_bias(q: Tensor, k: Tensor, past: int = 0, window: int = -1) -> Tensor:
    """Return -inf for keys behind the query's own position, and for those a window or further before it.

    Args:
        q: queries (..., S, D).
        k: keys (..., K, D).
        past: how many keys stand before the first query.
        window: how many keys a query sees, -1 for all.
    """
    rows = e.add_axes(e.arange(q.shape[-2]), [1])
    here = e.elem(M.ADD, rows, e.like(past, rows))
    keys = e.arange(k.shape[-2])
    allowed = e.compare(_LEQ, keys, here)
    if window >= 0:
        near = e.compare(_LT, e.elem(M.SUB, here, e.number(window, here)), keys)
        allowed = e.elem(M.AND, allowed, near)
    return mask_bias(allowed, q)


def scaled_scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Return ``q @ k^T * scale`` of float32 (..., S, D) and (..., K, D)."""
    last = k.ndim - 1
    turned = e.permute(k, (*range(last - 1), last, last - 1))
    return product(e.elem(M.MUL, q, e.number(scale, q)), turned)


def capped(scores: Tensor, cap: float) -> Tensor:
    """Return scores bent by a hyperbolic tangent to be between minus `cap` and it; unchanged for 0 or less."""
    if cap <= 0:
        return scores
    bent = e.elem(M.TANH, e.elem(M.TRUE_DIV, scores, e.number(cap, scores)))
    return e.elem(M.MUL, e.number(cap, bent), bent)


def attended(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    bias: Tensor | None = None,
    *,
    mask: Tensor | None = None,
    guard: bool = False,
    cap: float = 0.0,
) -> Tensor:
    """Compute ``softmax(q @ k^T * scale + bias + mask) @ v`` of float32 tensors.

    Args:
        q: queries (..., S, D).
        k: keys (..., K, D).
        v: values (..., K, E).
        scale: factor of the scores.
        bias: broadcasts with the scores (..., S, K).
        mask: is added last; large numbers round what they are added to.
        guard: give zeros to queries that see no key, instead of NaN.
        cap: bend the scores before the bias to be between minus it and it.

    >>> x = Tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> attended(x, x, x, 0.0, Tensor([[0.0, -np.inf], [-np.inf, -np.inf]]), guard=True).tolist()
    [[[1.0, 0.0], [0.0, 0.0]]]
    """
    scores = capped(scaled_scores(q, k, scale), cap)
    if bias is not None:
        scores = e.elem(M.ADD, scores, bias)
    if mask is not None:
        scores = e.elem(M.ADD, scores, mask)
    return product(softmax(scores, scores.ndim - 1, guard=guard), v)
