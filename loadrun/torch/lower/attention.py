"""Attention."""

from functools import partial, reduce
from typing import Any

import numpy as np

from ...graph import params as P
from ...layers import emit as e
from ...layers.emit import M
from ...layers.products import product
from ...layers.shared.nn import softmax
from ...tensors import Tensor
from ...tensors.access import dtype_of
from ..call import FxCall
from ..registry import UnsupportedCallError, aten
from ..values import as_array, as_tensor


def _shared_heads(x: Tensor, times: int) -> Tensor:
    """Return (..., H, S, D) with every head as many times as query heads share it."""
    if times == 1:
        return x
    *lead, h, s, d = x.shape
    wide = e.broadcast(e.add_axes(x, [x.ndim - 2]), (*lead, h, times, s, d))
    return e.reshape(wide, (*lead, h * times, s, d))


def _mask_bias(allowed: Tensor, like: Tensor) -> Tensor:
    """Return what a mask of keys that may be seen adds to the scores: 0, or -inf where it is False."""
    return e.folded(lambda mask: e.where(mask, e.number(0.0, like), e.number(-np.inf, like)), allowed)


@aten("aten.scaled_dot_product_attention.default")
def attention(
    call: FxCall,
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Any:
    """Compute ``softmax(query @ key.T * scale + mask) @ value``."""
    if dropout:
        raise UnsupportedCallError("attention with dropout; call .eval() first")
    q, k, v = (e.as_float(as_tensor(x)) for x in (query, key, value))
    if enable_gqa:
        heads, fewer = call.static([call.shape_of(0)[-3], call.shape_of(1)[-3]], "the number of heads")
        k, v = (_shared_heads(x, heads // fewer) for x in (k, v))
    if scale is None and not isinstance(call.shape_of(0)[-1], int):
        q, scale = as_tensor(as_array(q) / np.sqrt(as_array(as_array(q).shape[-1], dtype_of(q).np))), 1.0
    elif scale is None:
        scale = float(call.shape_of(0)[-1]) ** -0.5
    last = k.ndim - 1
    turned = e.permute(k, (*range(last - 1), last, last - 1))
    scores = product(e.elem(M.MUL, q, e.number(float(scale), q)), turned)
    biases = []
    if causal:
        rows = e.add_axes(e.arange(q.shape[-2]), [1])
        seen = e.compare(P.ElemwiseMultiTypeMode.LEQ, e.arange(k.shape[-2]), rows)
        biases.append(_mask_bias(seen, q))
    if mask is not None:
        boolean = not call.fakes[3].dtype.is_floating_point
        added = _mask_bias(as_tensor(mask, "bool"), q) if boolean else e.cast(as_tensor(mask), dtype_of(q))
        biases.append(added)
    if biases:
        scores = e.elem(M.ADD, scores, reduce(partial(e.elem, M.ADD), biases))
    # A query that a mask lets see nothing gives zeros in torch.
    return e.cast(product(softmax(scores, scores.ndim - 1, guard=mask is not None), v), call.dtype)
