"""com.microsoft's fused operators of transformers."""

from collections.abc import Sequence
from math import sqrt
from typing import Any

from ...arrays.names import np
from ...graph.composite import Flag, Known, NodeTypes
from ...graph.dtypes import Array
from . import operator
from .activations import softmax
from .attention import capped, heads, masked, merged, rotated, scaled_scores, shared_heads
from .common import like_first, refuse_unless, taking
from .linalg import matmul
from .norms import layer_normalized

CONTRIB = "com.microsoft"
Shapes = list[tuple[int, ...]]
ATTENDING = {"mask_filter_value": -10000.0, "scale": 0.0, "unidirectional": 0}
"""How queries attend, where it is left out."""


def refuse_given(**unused: object) -> None:
    """Raise a ValueError for inputs and attributes that are not computed, where they are not left out."""
    for name, value in unused.items():
        left_out = value is None or (isinstance(value, int | str) and value in (0, "NONE"))
        refuse_unless(left_out, f"its {name} is not supported; leave it out")


def _key_mask(mask: Array, like: Array, batch: int, length: int, least: float) -> Array:
    """Return a bias for keys that a mask of ones and zeros, of ends, or of ends and then starts leaves out."""
    if mask.ndim == 1:
        columns, count = np.arange(length), mask.shape[0]
        if count == 3 * batch + 2:
            # Ends of the keys, then sums of lengths, which say the same.
            mask = mask[:batch]
        elif count not in (batch, 2 * batch):
            raise ValueError(f"{count} ends and starts for {batch} sequences")
        bounds = mask.reshape(-1, batch, 1, 1, 1)
        valid = columns < bounds[0]
        if count == 2 * batch:
            valid = valid & (columns >= bounds[1])
    elif mask.ndim in (2, 3):
        valid = mask[:, None, None] > 0 if mask.ndim == 2 else mask[:, None] > 0
    else:
        raise ValueError(f"a mask of {mask.ndim} axes")
    return masked(None, valid, like, least)


def _attended(
    qkv: Sequence[Array],
    mask: Array | None,
    bias: Array | None,
    past: int,
    *,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> Array:
    """Attend over (B, H, S, D); a mask is added after the bias, as ONNX Runtime does."""
    q, k, v = qkv
    length = k.shape[2]
    keys = None if mask is None else _key_mask(mask, q, k.shape[0], length, mask_filter_value)
    if unidirectional:
        seen = np.arange(length) <= np.arange(q.shape[2])[:, None] + past
        keys = masked(None, seen, q) if keys is None else keys + masked(None, seen, q)
    scores = scaled_scores(q, k, scale or 1 / sqrt(q.shape[3]))
    scores = scores if bias is None else scores + bias
    return merged(np.matmul(softmax(scores if keys is None else scores + keys), v))


def self_attended(
    projected: Array,
    mask: Array | None = None,
    past: Array | None = None,
    bias: Array | None = None,
    *,
    num_heads: int,
    qkv_hidden_sizes: list[int] | None = None,
    **how: Any,
) -> tuple[Array, Array]:
    """Attend over queries, keys and values that one product made of the input, side by side in (B, S, 3 * H * D).

    Returns:
        the result, and the keys and values seen so far, (2, B, H, S, D).
    """
    sizes = qkv_hidden_sizes or [projected.shape[2] // 3] * 3
    parts = np.split(projected, np.cumsum(sizes)[:2], 2)
    q, k, v = (heads(part, num_heads) for part in parts)
    before = 0
    if past is not None:
        before = past.shape[3]
        k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    y = _attended((q, k, v), mask, bias, before, **how)
    # Keys and values of different sizes do not fit into one tensor, and nothing asks for it then.
    return y, np.stack([k, v]) if k.shape == v.shape else k


def attention_shapes(
    *,
    x: Array,
    weights: Array,
    past: Array | None = None,
    num_heads: int,
    qkv_hidden_sizes: list[int] | None = None,
) -> Shapes:
    """Return the shapes of the result, and of keys and values."""
    sizes = qkv_hidden_sizes or [weights.shape[1] // 3] * 3
    length = x.shape[1] + (0 if past is None else past.shape[3])
    present = (2, x.shape[0], num_heads, length, sizes[2] // num_heads)
    return [(*x.shape[:2], sizes[2]), present]


@operator("Attention", domain=CONTRIB, shape=attention_shapes)
@taking(**ATTENDING)
def attention(
    x: Array,
    weights: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    past: Array | None = None,
    attention_bias: Array | None = None,
    past_sequence_length: Array | None = None,
    *,
    do_rotary: Flag = 0,
    num_heads: int,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: list[int] | None = None,
    rotary_embedding_dim: int = 0,
    types: NodeTypes,
    **how: Any,
) -> tuple[Array, ...]:
    """Project the input to queries, keys and values, then attend."""
    refuse_given(
        past_sequence_length=past_sequence_length,
        do_rotary=do_rotary,
        past_present_share_buffer=past_present_share_buffer,
    )
    if types.wanted[1:] == (True,) and qkv_hidden_sizes and qkv_hidden_sizes[1] != qkv_hidden_sizes[2]:
        raise ValueError("keys and values of different sizes do not fit into one tensor of both")
    projected = matmul(x, weights)
    projected = projected if bias is None else projected + bias
    how |= {"num_heads": num_heads, "qkv_hidden_sizes": qkv_hidden_sizes}
    return self_attended(projected, mask, past, attention_bias, **how)


def _unpacked(q: Array, k: Array | None, v: Array | None) -> list[Array]:
    """Unpack queries, keys, values; keys and values may share a tensor (B, S, H, 2 or 3, D), also with queries."""
    shared = q.ndim == 5 or (k is not None and k.ndim == 5)
    refuse_unless(
        not shared or (v is None and (q.ndim < 5 or k is None)), "values beside those packed together"
    )
    if q.ndim == 5:
        return [q[:, :, :, i].reshape(*q.shape[:2], -1) for i in range(3)]
    if k is not None and k.ndim == 5:
        return [q, *(k[:, :, :, i].reshape(*k.shape[:2], -1) for i in range(2))]
    if q.ndim != 3 or k is None or v is None:
        raise ValueError("missing keys and values")
    return [q, k, v]


def _multi_head_shapes(
    *,
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    past_key: Array | None = None,
    num_heads: int,
) -> Shapes:
    q, k, v = _unpacked(query, key, value)
    kv = [heads(t, num_heads) if t.ndim == 3 else t for t in (k, v)]
    length = kv[0].shape[2] + (0 if past_key is None else past_key.shape[2])
    present = [(*t.shape[:2], length, t.shape[3]) for t in kv]
    return [(*q.shape[:2], num_heads * kv[1].shape[3]), *present, (q.shape[0], num_heads, q.shape[1], length)]


@operator("MultiHeadAttention", domain=CONTRIB, shape=_multi_head_shapes)
@taking(**ATTENDING)
def multi_head(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    bias: Array | None = None,
    mask: Array | None = None,
    attention_bias: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    past_sequence_length: Array | None = None,
    cache_indirection: Array | None = None,
    *,
    num_heads: int,
    types: NodeTypes,
    **how: Any,
) -> tuple[Array, ...]:
    """Attend over queries, keys and values, to which a bias is added first."""
    refuse_given(past_sequence_length=past_sequence_length, cache_indirection=cache_indirection)
    if any(types.wanted[3:]):
        raise ValueError("its scores as an output are not supported; leave them out")
    qkv = _unpacked(query, key, value)
    if bias is not None:
        at = 0
        for i, x in enumerate(qkv):
            # Keys and values that have heads come from a cache, to which the bias was added before.
            if x.ndim == 3:
                qkv[i] = x + bias[at : at + x.shape[-1]]
                at += x.shape[-1]
    q, k, v = (heads(x, num_heads) if x.ndim == 3 else x for x in qkv)
    past = 0
    refuse_unless((past_key is None) == (past_value is None), "a past of keys or values alone")
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        if types.wanted[1:3] != (True, True):
            raise ValueError("a past, which ONNX Runtime ignores unless present keys and values are outputs")
        k, v = np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2)
    elif how.get("unidirectional") and q.shape[2] < k.shape[2]:
        raise ValueError("fewer queries than keys, of which ONNX Runtime shows all to the last query only")
    return _attended((q, k, v), mask, attention_bias, past, **how), k, v


# Positions and words


@operator("RotaryEmbedding", domain=CONTRIB, shape=like_first)
def rotary(
    x: Array,
    places: Array,
    cos: Array,
    sin: Array,
    *,
    interleaved: Flag = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Array:
    """Rotate features by the angles of their positions: one for each, or the first alone."""
    refuse_given(is_packed_batching=is_packed_batching, scale=None if scale == 1.0 else scale)
    size = 2 * cos.shape[1]
    if rotary_embedding_dim not in (0, size):
        raise ValueError(f"its rotary_embedding_dim is {rotary_embedding_dim}, its angles are for {size}")
    flat = x.ndim == 3
    y = heads(x, num_heads or x.shape[2] // size) if flat else x
    at = (places + np.arange(y.shape[2]))[None] if places.ndim == 1 else places
    cos, sin = np.take(cos, at, 0)[:, None], np.take(sin, at, 0)[:, None]
    y = rotated(y, cos, sin, interleaved=bool(interleaved))
    return merged(y) if flat else y


def embedded(
    ids: Array,
    segment_ids: Array | None,
    words: Array,
    places: Array,
    segments: Array | None,
    gamma: Array,
    beta: Array,
    mask: Array | None = None,
    position_ids: Array | None = None,
    *,
    epsilon: float,
) -> tuple[Array, Array, Array]:
    """Look up, add and normalize words, positions and segments; return lengths by the mask and the sum too."""
    at = places[: ids.shape[1]] if position_ids is None else np.take(places, position_ids, 0)
    total = np.take(words, ids, 0) + at
    if segment_ids is not None and segments is None:
        raise ValueError("it has segments, but no table of them")
    if segments is not None:
        # Without segments, all words are of the first one, as in ONNX Runtime.
        total = total + (segments[:1] if segment_ids is None else np.take(segments, segment_ids, 0))
    lengths = np.zeros(ids.shape[:1], np.int32) if mask is None else (mask == 1).sum(1, dtype=np.int32)
    return layer_normalized(total, gamma, beta, (2,), epsilon)[0], lengths, total


def _embed_shapes(ids: Array, segment_ids: Array | None, words: Array, *rest: Any, **others: Any) -> Shapes:
    whole = (*ids.shape, words.shape[1])
    return [whole, ids.shape[:1], whole]


@operator("EmbedLayerNormalization", domain=CONTRIB, out=(2, "Int32", 2), shape=_embed_shapes)
def embed(*inputs: Any, epsilon: float = 1e-12, mask_index_type: int = 0) -> tuple[Array, Array, Array]:
    """Look up, add and normalize words, positions and segments."""
    return embedded(*inputs, epsilon=epsilon)


# A cache whose sequences have lengths of their own


def _grouped_parts(q: Array, k: Array | None, v: Array | None, count: int, shared: int) -> list[Array]:
    """Split queries, keys and values, which may share one tensor, into heads."""
    if k is not None:
        if v is None:
            raise ValueError("keys without values")
        return [heads(q, count), heads(k, shared), heads(v, shared)]
    size = q.shape[2] // (count + 2 * shared)
    ends = [0, count * size, (count + shared) * size, (count + 2 * shared) * size]
    return [heads(q[..., ends[i] : ends[i + 1]], n) for i, n in enumerate((count, shared, shared))]


def _group_query_shapes(
    *,
    query: Array,
    key: Array | None,
    value: Array | None,
    past_key: Array | None,
    total_sequence_length: Known,
    num_heads: int,
    kv_num_heads: int,
) -> Shapes:
    q, k, v = _grouped_parts(query, key, value, num_heads, kv_num_heads)
    length = k.shape[2]
    if past_key is not None:
        length = max(past_key.shape[2], int(total_sequence_length.reshape(-1)[0]))
    b, h, s, d = q.shape
    return [(b, s, h * v.shape[3]), (b, kv_num_heads, length, d), (b, kv_num_heads, length, v.shape[3])]


def _cached(past: Array, new: Array, length: int, start: Array, end: Array) -> Array:
    """Join what every sequence has in the cache (B, H, P, D) and its new entries at these places, zeros behind."""
    before, steps = past.shape[2], new.shape[2]
    rows = np.arange(length)
    whole = np.concatenate([past, new, np.zeros((*past.shape[:2], 1, past.shape[3]), past.dtype)], 2)
    moved = np.where(rows < end, rows - start + before, before + steps)
    source = np.where(rows < start, rows, moved)
    return np.take_along_axis(whole, source[:, None, :, None], 2)


@operator(
    "GroupQueryAttention",
    domain=CONTRIB,
    out=(0, *(lambda types, a, i=i: types.inputs[i] or types.inputs[0] for i in (3, 4))),
    shape=_group_query_shapes,
)
def group_query(
    query: Array,
    key: Array | None,
    value: Array | None,
    past_key: Array | None,
    past_value: Array | None,
    seqlens_k: Array,
    total_sequence_length: Known,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    position_ids: Array | None = None,
    attention_bias: Array | None = None,
    head_sink: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    query_seqlens: Array | None = None,
    *,
    causal: Flag = 1,
    do_rotary: Flag = 0,
    k_norm_epsilon: float = 1e-6,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    q_norm_epsilon: float = 1e-6,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: Flag = 0,
    scale: float = 0.0,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[Array, ...]:
    """Attend causally with a cache; what queries behind the end of their sequence give is as in ONNX Runtime."""
    refuse_given(
        k_scale=k_scale,
        v_scale=v_scale,
        q_norm_weight=q_norm_weight,
        k_norm_weight=k_norm_weight,
        k_quant_type=k_quant_type,
        v_quant_type=v_quant_type,
        kv_cache_bit_width=kv_cache_bit_width,
        qk_output=qk_output,
        sliding_window_cache=sliding_window_cache,
    )
    refuse_unless((past_key is None) == (past_value is None), "a past of keys or values alone")
    q, k, v = _grouped_parts(query, key, value, num_heads, kv_num_heads)
    steps, longest = q.shape[2], int(total_sequence_length.reshape(-1)[0])
    # After this step; before it; where the new entries of the cache end: all are stored, those behind unread.
    total = seqlens_k.reshape(-1, 1).astype(np.int64) + 1
    start = np.maximum(total - steps, 0) if query_seqlens is None else total - query_seqlens.reshape(-1, 1)
    end = start + steps if query_seqlens is None else total
    places = start + np.arange(steps)
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise ValueError("its do_rotary is set, but cos_cache or sin_cache is missing")
        at = places
        if position_ids is not None:
            # Of those given, a first prompt has the first alone.
            first = position_ids.reshape(-1)[:1]
            at = first + np.arange(steps)[None] if longest == steps else position_ids
        cos, sin = np.take(cos_cache, at, 0)[:, None], np.take(sin_cache, at, 0)[:, None]
        q, k = (rotated(x, cos, sin, interleaved=bool(rotary_interleaved)) for x in (q, k))
    if past_key is not None and past_value is not None:
        length = max(past_key.shape[2], longest)
        k, v = _cached(past_key, k, length, start, end), _cached(past_value, v, length, start, end)
    scores = scaled_scores(q, shared_heads(k, num_heads), scale or 1 / sqrt(q.shape[3]))
    columns = np.arange(k.shape[2])
    seen = columns < total[:, :, None, None]
    if causal:
        here = places[:, None, :, None]
        seen = seen & (columns <= here)
        if local_window_size > 0:
            seen = seen & (columns > here - local_window_size)
    bias = masked(None, seen, q)
    if attention_bias is not None:
        # Its columns end with the longest sequence, the cache may be longer.
        bias = bias + np.take(attention_bias, np.minimum(columns, attention_bias.shape[3] - 1), 3)
    # Queries behind their sequence may see no key of their window.
    weights = _weights(capped(scores, softcap) + bias, head_sink, smooth_softmax == 1, local_window_size > 0)
    return merged(np.matmul(weights, shared_heads(v, num_heads))), k, v


def _weights(scores: Array, sink: Array | None, smooth: bool, guard: bool) -> Array:
    """Compute softmax, to whose sum each head, or the exponential of 0, may add its own part."""
    if sink is None and not smooth:
        return softmax(scores, guard=guard)
    shape = (*scores.shape[:3], 1)
    part = np.zeros(shape, scores.dtype)
    if sink is not None:
        part = np.broadcast_to(sink.reshape(1, -1, 1, 1).astype(scores.dtype), shape)
    return softmax(np.concatenate([part, scores], 3))[..., 1:]
