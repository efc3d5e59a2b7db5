"""Scaled dot-product attention: MegEngine's operator projects its inputs first, so this is products and a softmax."""

import numpy as np

from ...graph import params as P
from ...tensors import Tensor
from .. import emit as e
from ..emit import M
from ..exact_products import product
from .activation import softmax


def shared_heads(x: Tensor, times: int) -> Tensor:
    """Return (..., H, S, D) with every head as many times as query heads share it."""
    if times == 1:
        return x
    *lead, h, s, d = x.shape
    wide = e.broadcast(e.add_axes(x, [x.ndim - 2]), (*lead, h, times, s, d))
    return e.reshape(wide, (*lead, h * times, s, d))


def mask_bias(allowed: Tensor, like: Tensor) -> Tensor:
    """Return what a mask of keys that may be seen adds to the scores: 0, or -inf where it is False."""
    return e.folded(lambda mask: e.where(mask, e.number(0.0, like), e.number(-np.inf, like)), allowed)


def causal_bias(q: Tensor, k: Tensor) -> Tensor:
    """Return -inf for keys behind the query's own position, of queries (..., S, D) and keys (..., K, D)."""
    rows = e.add_axes(e.arange(q.shape[-2]), [1])
    return mask_bias(e.compare(P.ElemwiseMultiTypeMode.LEQ, e.arange(k.shape[-2]), rows), q)


def attended(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    bias: Tensor | None = None,
    *,
    guard: bool = False,
) -> Tensor:
    """Compute ``softmax(q @ k^T * scale + bias) @ v`` of float32 tensors.

    Args:
        q: queries (..., S, D).
        k: keys (..., K, D).
        v: values (..., K, E).
        scale: factor of the scores.
        bias: broadcasts with the scores (..., S, K).
        guard: give zeros to queries that see no key, instead of NaN.

    >>> x = Tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> attended(x, x, x, 0.0, Tensor([[0.0, -np.inf], [-np.inf, -np.inf]]), guard=True).tolist()
    [[[1.0, 0.0], [0.0, 0.0]]]
    """
    last = k.ndim - 1
    turned = e.permute(k, (*range(last - 1), last, last - 1))
    scores = product(e.elem(M.MUL, q, e.number(scale, q)), turned)
    if bias is not None:
        scores = e.elem(M.ADD, scores, bias)
    return product(softmax(scores, scores.ndim - 1, guard=guard), v)
