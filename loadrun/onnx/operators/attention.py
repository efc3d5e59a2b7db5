"""Attention, masks, caches, rotary positions, linear attention."""

from collections.abc import Callable, Sequence
from math import sqrt

from ...arrays.names import np
from ...graph.composite import Flag, NodeTypes
from ...graph.dtypes import Array
from . import operator
from .activations import softmax
from .common import like_first, one_of, refuse_unless
from .kernels import halved

Shapes = list[tuple[int, ...]]
Modifier = Callable[[Sequence[Array]], Sequence[Array]]


def heads(x: Array, count: int) -> Array:
    """Convert (B, S, H * D) to (B, H, S, D).

    Raises:
        ValueError: the features do not divide into so many heads.
    """
    if x.ndim != 3 or count < 1 or x.shape[2] % count:
        raise ValueError(f"features of shape {list(x.shape)} in {count} heads")
    b, s, f = x.shape
    return x.reshape(b, s, count, f // count).swapaxes(1, 2)


def merged(x: Array) -> Array:
    """Convert (B, H, S, D) to (B, S, H * D)."""
    b, h, s, d = x.shape
    return x.swapaxes(1, 2).reshape(b, s, h * d)


def shared_heads(x: Array, count: int) -> Array:
    """Return (B, H, S, D) with every head as many times as that many query heads share it.

    Raises:
        ValueError: the heads do not divide into those of the queries.
    """
    if x.shape[1] == count:
        return x
    if not x.shape[1] or count % x.shape[1]:
        raise ValueError(f"{count} heads of queries for {x.shape[1]} of keys and values")
    return np.repeat(x, count // x.shape[1], 1)


def scaled_scores(q: Array, k: Array, scale: float) -> Array:
    """Return ``q @ k^T * scale`` of (..., S, D) and (..., L, D)."""
    return np.matmul(q * scale, k.swapaxes(-2, -1))


def capped(scores: Array, cap: float) -> Array:
    """Return scores bent by a hyperbolic tangent to be between minus `cap` and it; unchanged for 0 or less."""
    return np.tanh(scores / cap) * cap if cap > 0 else scores


def masked(bias: Array | None, allowed: Array, like: Array, least: float = -np.inf) -> Array:
    """Return a bias, or zeros, that is the least number for keys that a query may not see, whatever it says there."""
    number = like.dtype.type
    return np.where(allowed, number(0) if bias is None else bias, number(least))


def _mask_of(
    mask: Array | None, valid: Array | None, q: Array, k: Array, offset: int, left: int, right: int
) -> Array | None:
    """Return what is added to the scores (B, H, S, L).

    Args:
        mask: a mask of booleans or numbers, maybe of fewer keys than there are.
        valid: how many keys each sequence has.
        q, k: queries (B, H, S, D) and keys (B, H, L, D).
        offset: how many keys are before the first query, where nothing else says so.
        left, right: how many keys a query sees before and behind itself, -1 for all.
    """
    bias = None
    if mask is not None:
        short = [(0, 0)] * (mask.ndim - 1) + [(0, max(k.shape[2] - mask.shape[-1], 0))]
        if mask.dtype == np.bool_:
            bias = masked(None, np.pad(mask, short), q)
        else:
            bias = np.pad(mask, short, constant_values=-np.inf) if short[-1][1] else mask
    columns = np.arange(k.shape[2])
    if valid is not None:
        valid = valid.reshape(-1, 1, 1, 1)
        bias = masked(bias, columns < valid, q)
    if left >= 0 or right >= 0:
        here = np.arange(q.shape[2])[:, None] + (offset if valid is None or offset else valid - q.shape[2])
        if right >= 0:
            bias = masked(bias, columns <= here + right, q)
        if left >= 0:
            bias = masked(bias, columns >= here - left, q)
    return bias


def _attention_shapes(
    *,
    q: Array,
    k: Array,
    v: Array,
    past_key: Array | None = None,
    q_num_heads: int = 0,
    kv_num_heads: int = 0,
) -> Shapes:
    flat = q.ndim == 3
    if flat:
        q, k, v = heads(q, q_num_heads), heads(k, kv_num_heads), heads(v, kv_num_heads)
    length = k.shape[2] + (0 if past_key is None else past_key.shape[2])
    b, h, s, _ = q.shape
    y = (b, s, h * v.shape[3]) if flat else (b, h, s, v.shape[3])
    return [y, (*k.shape[:2], length, k.shape[3]), (*v.shape[:2], length, v.shape[3]), (b, h, s, length)]


@operator("Attention", since=23, out=(0, 1, 2, 0), shape=_attention_shapes)
def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    valid: Array | None = None,
    *,
    is_causal: Flag = 0,
    kv_num_heads: int = 0,
    left_window_size: int = -1,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    types: NodeTypes,
) -> tuple[Array, ...]:
    """Attend over keys and values, those of a cache first; return these and the scores too."""
    one_of("qk_matmul_output_mode", qk_matmul_output_mode, *range(4))
    refuse_unless((past_key is None) == (past_value is None), "a past of keys or values alone")
    flat, kind, past = q.ndim == 3, types.inputs[0], 0
    if flat:
        q, k, v = heads(q, q_num_heads), heads(k, kv_num_heads), heads(v, kv_num_heads)
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k, v = np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2)
    keys, values = shared_heads(k, q.shape[1]), shared_heads(v, q.shape[1])
    scores = halved(scaled_scores(q, keys, 1 / sqrt(q.shape[3]) if scale is None else scale), kind)
    # ONNX Runtime rounds the weights, too; the data of ONNX's tests are nearer to those of float32.
    shown = [scores]
    scores = halved(capped(scores, softcap), kind)
    shown.append(scores)
    right = min(right_window_size, 0) if is_causal and right_window_size >= 0 else right_window_size
    bias = _mask_of(mask, valid, q, k, past, left_window_size, 0 if is_causal else right)
    if bias is not None:
        scores = halved(scores + bias, kind)
    shown.append(scores)
    weights = softmax(scores, guard=bias is not None)
    shown.append(weights)
    y = np.matmul(weights, values)
    return merged(y) if flat else y, k, v, shown[qk_matmul_output_mode]


@operator(
    "FlexAttention",
    domain="ai.onnx.preview",
    shape=lambda q, k, v, **_: (*q.shape[:-1], v.shape[-1]),
)
def flex_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    prob_mod: Modifier | None = None,
    scale: float | None = None,
    score_mod: Modifier | None = None,
    softmax_precision: int = 1,
) -> Array:
    """Attend with scores and weights that other graphs modify."""
    if q.ndim != 4:
        raise ValueError(f"its queries have {q.ndim} axes, expected 4")
    keys, values = shared_heads(k, q.shape[1]), shared_heads(v, q.shape[1])
    scores = scaled_scores(q, keys, 1 / sqrt(q.shape[3]) if scale is None else scale)
    weights = softmax(_modified(score_mod, scores, softmax_precision))
    return np.matmul(_modified(prob_mod, weights, softmax_precision), values)


def _modified(modifier: Modifier | None, x: Array, precision: int) -> Array:
    if modifier is None:
        return x
    kind = {10: np.float16, 11: np.float64}.get(precision)
    (result,) = modifier([x if kind is None else x.astype(kind)])
    return result.astype(x.dtype)


# Positions


def rotated(x: Array, cos: Array, sin: Array, *, interleaved: bool) -> Array:
    """Rotate pairs of as many features (..., D) as there are angles for; leave the rest."""
    size = 2 * cos.shape[-1]
    head = x[..., :size]
    if interleaved:
        one, two = head[..., ::2], head[..., 1::2]
    else:
        one, two = head[..., : size // 2], head[..., size // 2 :]
    real, imaginary = cos * one - sin * two, sin * one + cos * two
    if interleaved:
        y = np.stack([real, imaginary], -1).reshape(head.shape)
    else:
        y = np.concatenate([real, imaginary], -1)
    return y if size >= x.shape[-1] else np.concatenate([y, x[..., size:]], -1)


@operator("RotaryEmbedding", since=23, shape=like_first)
def rotary(
    x: Array,
    cos: Array,
    sin: Array,
    places: Array | None = None,
    *,
    interleaved: Flag = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Array:
    """Rotate features by the angles of their positions."""
    flat = x.ndim == 3
    y = heads(x, num_heads) if flat else x
    half = (rotary_embedding_dim or y.shape[3]) // 2
    if places is not None:
        cos, sin = np.take(cos, places, 0), np.take(sin, places, 0)
    y = rotated(y, cos[:, None, :, :half], sin[:, None, :, :half], interleaved=bool(interleaved))
    return merged(y) if flat else y


# Linear attention

_RULES = ("gated_delta", "gated", "delta", "linear")


def _linear_shapes(
    q: Array, k: Array, v: Array, *rest: Array | None, q_num_heads: int, kv_num_heads: int, **others: object
) -> Shapes:
    if q.ndim != 3 or q_num_heads < 1 or kv_num_heads < 1 or q_num_heads % kv_num_heads:
        raise ValueError(f"queries of shape {list(q.shape)} in {q_num_heads} heads, {kv_num_heads} of keys")
    dk, dv = q.shape[2] // q_num_heads, v.shape[2] // kv_num_heads
    return [(*q.shape[:2], q_num_heads * dv), (q.shape[0], kv_num_heads, dk, dv)]


@operator(
    "LinearAttention",
    since=27,
    out=(0, lambda types, a: next(t for t in (*types.inputs[3:4], types.inputs[0]) if t is not None)),
    shape=_linear_shapes,
)
def linear_attention(
    q: Array,
    k: Array,
    v: Array,
    past_state: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Array, Array]:
    """Update states (B, H, dk, dv) step by step, and read them with queries."""
    one_of("update_rule", update_rule, *_RULES)
    if ("gated" in update_rule and decay is None) or ("delta" in update_rule and beta is None):
        raise ValueError(f"its update_rule is {update_rule!r}, but decay or beta is missing")
    shape, start = _linear_shapes(q, k, v, q_num_heads=q_num_heads, kv_num_heads=kv_num_heads)
    b, steps, n = q.shape[0], q.shape[1], kv_num_heads
    state = np.zeros(start, q.dtype) if past_state is None else past_state
    queries = q.reshape(b, steps, n, q_num_heads // n, -1) * (scale or 1 / sqrt(start[2]))
    keys, values = k.reshape(b, steps, n, -1, 1), v.reshape(b, steps, n, 1, -1)
    gates = None if decay is None else np.exp(decay).reshape(b, steps, n, -1, 1)
    rates = None if beta is None else beta.reshape(b, steps, -1, 1, 1)
    outs = []
    for t in range(steps):
        key, value = keys[:, t], values[:, t]
        if gates is not None and "gated" in update_rule:
            state = state * gates[:, t]
        if rates is not None and "delta" in update_rule:
            value = rates[:, t] * (value - np.matmul(key.swapaxes(-2, -1), state))
        state = state + key * value
        outs.append(np.matmul(queries[:, t], state))
    return (np.stack(outs, 1) if outs else np.zeros(shape, q.dtype)).reshape(shape), state
