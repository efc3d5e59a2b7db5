"""Attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...build import emit as e
from ...build import nn as F
from ..call import FxCall
from ..registry import UnsupportedCallError, aten
from ..values import arr, ten

__all__: list[str] = []


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
    """``softmax(query @ key.T * scale + mask) @ value``."""
    if dropout:
        raise UnsupportedCallError("attention with dropout; call .eval() first")
    q, k, v = (arr(x, call.dtype) for x in (query, key, value))
    if enable_gqa:
        heads, fewer = call.given(0)[-3], call.given(1)[-3]
        times = call.static([heads], "heads")[0] // call.static([fewer], "heads")[0]
        k, v = np.repeat(k, times, axis=-3), np.repeat(v, times, axis=-3)
    if scale is None:
        scale = float(call.static(call.given(0)[-1:], "the size of a head")[0]) ** -0.5
    scores = np.matmul(q * np.float32(scale), np.swapaxes(k, -1, -2))
    dead = None
    if causal:
        rows, columns = (arr(e.arange(x.shape[-2])) for x in (q, k))
        scores = np.where(rows[:, None] >= columns[None, :], scores, np.float32(-np.inf))
    if mask is not None:
        if call.fakes[3].dtype.is_floating_point:
            scores = scores + arr(mask, call.dtype)
        else:
            keep = arr(mask, "bool")
            scores = np.where(keep, scores, np.float32(-np.inf))
            dead = ~np.any(keep, axis=-1, keepdims=True)
    weights = arr(F.softmax(ten(scores), len(scores.shape) - 1))
    if dead is not None:
        # A query that may look at nothing gives zeros in torch, where softmax alone gives NaN.
        weights = np.where(dead, np.float32(0), weights)
    return np.matmul(weights, v)
