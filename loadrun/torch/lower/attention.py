"""Attention."""

from typing import Any

import numpy as np

from ...layers import emit as e
from ...layers.shared.attention import attended, causal_bias, mask_bias, shared_heads
from ...tensors.access import dtype_of
from ..call import FxCall
from ..registry import UnsupportedCallError, aten
from ..values import as_array, as_tensor


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
        k, v = shared_heads(k, heads // fewer), shared_heads(v, heads // fewer)
    if scale is None and not isinstance(call.shape_of(0)[-1], int):
        q, scale = as_tensor(as_array(q) / np.sqrt(as_array(as_array(q).shape[-1], dtype_of(q).np))), 1.0
    elif scale is None:
        scale = float(call.shape_of(0)[-1]) ** -0.5
    bias = causal_bias(q, k) if causal else None
    if mask is not None:
        boolean = not call.fakes[3].dtype.is_floating_point
        added = mask_bias(as_tensor(mask, "bool"), q) if boolean else e.cast(as_tensor(mask), dtype_of(q))
        bias = added if bias is None else e.elem(e.M.ADD, bias, added)
    # A query that a mask lets see nothing gives zeros in torch.
    return e.cast(attended(q, k, v, float(scale), bias, guard=mask is not None), call.dtype)
