"""com.microsoft's fused operators of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from ...build import emit as e
from ...build.layers.attention import attended, causal_bias, mask_bias
from ...build.layers.norm import layer_norm
from ...build.layers.pooling import max_pooled
from ...graph import params as P
from ...graph.dtypes import DType
from ...tensors import Tensor
from ...tensors.access import dtype_of, static_shape
from ..call import CONTRIB, NodeCall, lower
from ..values import INT32, UnsupportedNodeError, Value
from . import M, cast, const_like
from .attention import heads, merged, rotated_part
from .convolution import from_last, to_last
from .linalg import matmul
from .pooling import pooling_window

__all__ = ["embedded", "self_attended"]

_LT, _LEQ = P.ElemwiseMultiTypeMode.LT, P.ElemwiseMultiTypeMode.LEQ


def _added(a: Tensor | None, b: Tensor) -> Tensor:
    return b if a is None else e.elem(M.ADD, a, b)


def _key_mask(mask: Tensor, like: Tensor, k: Tensor, least: float) -> Tensor:
    """Return a bias for keys that a mask of ones and zeros, of ends, or of ends and then starts leaves out."""
    mask = e.whole(mask)
    if mask.ndim == 1:
        batch, columns = k.shape[0], e.arange(k.shape[2])
        count, sequences = static_shape(mask)[0], static_shape(k)[0]
        if count == 3 * sequences + 2:
            # Ends of the keys, then sums of lengths, which say the same.
            mask = e.subtensor(mask, [(0, None, batch, None, None)])
        elif count not in (sequences, 2 * sequences):
            raise UnsupportedNodeError(f"{count} ends and starts for {sequences} sequences")
        bounds = e.reshape(mask, (-1, batch, 1, 1, 1))
        valid = e.compare(_LT, columns, e.subtensor(bounds, [(0, None, None, None, 0)]))
        if count == 2 * sequences:
            starts = e.subtensor(bounds, [(0, None, None, None, 1)])
            valid = e.elem(M.AND, valid, e.compare(_LEQ, starts, columns))
    elif mask.ndim == 2:
        valid = e.compare(_LT, const_like(0, mask), e.add_axes(mask, [1, 2]))
    elif mask.ndim == 3:
        valid = e.compare(_LT, const_like(0, mask), e.add_axes(mask, [1]))
    else:
        raise UnsupportedNodeError(f"a mask of {mask.ndim} axes")
    return mask_bias(valid, like, least)


def _attended(
    c: NodeCall, qkv: Sequence[Tensor], mask: Tensor | None, bias: Tensor | None, past: int
) -> Tensor:
    """Attend over float32 (B, H, S, D) as the attributes say; a mask is added after the bias, as ONNX Runtime does."""
    q, k, v = qkv
    keys = None if mask is None else _key_mask(mask, q, k, c.real("mask_filter_value", -10000.0))
    if c.flag("unidirectional"):
        keys = _added(keys, causal_bias(q, k, past))
    scale = c.real("scale") or 1.0 / sqrt(static_shape(q)[3])
    return attended(q, k, v, scale, None if bias is None else cast(bias, "float32"), mask=keys)


def _appended_to_past(past: Tensor | None, new: Tensor) -> Tensor:
    return new if past is None else e.concat([cast(past, dtype_of(new)), new], 2)


@lower("Attention", domain=CONTRIB)
def _attention(c: NodeCall) -> tuple[Tensor | None, ...]:
    """Project the input to queries, keys and values, then attend."""
    projected = matmul(c.t(0), c.t(1))
    if c.has(2):
        projected = e.elem(M.ADD, projected, c.t(2))
    return self_attended(c, projected, dtype_of(c.t(0)), mask=3, past=4, bias=5)


def self_attended(
    c: NodeCall, projected: Tensor, kind: DType, *, mask: int, past: int, bias: int = 99
) -> tuple[Tensor | None, ...]:
    """Attend over queries, keys and values that one product made of the input.

    Args:
        projected: queries, keys and values side by side, (B, S, 3 * H * D) or by ``qkv_hidden_sizes``.
        kind: the type of the result.
        mask, past, bias: which inputs these are.

    Returns:
        the result, and the keys and values seen so far, (2, B, H, S, D).
    """
    if c.flag("do_rotary"):
        raise UnsupportedNodeError("rotary positions inside it")
    count = c.number("num_heads")
    total = static_shape(projected)[2]
    sizes = c.ints("qkv_hidden_sizes") or [total // 3] * 3
    parts, at = [], 0
    for n in sizes:
        parts.append(heads(e.subtensor(projected, [(2, at, at + n, None, None)]), count))
        at += n
    q, k, v = (cast(p, "float32") for p in parts)
    before = 0
    if c.has(past):
        before = c.t(past).shape[3]
        old = [cast(e.subtensor(c.t(past), [(0, None, None, None, i)]), "float32") for i in (0, 1)]
        k, v = (e.concat([o, new], 2) for o, new in zip(old, (k, v), strict=True))
    y = cast(merged(_attended(c, (q, k, v), c.maybe(mask), c.maybe(bias), before)), kind)
    if len(c.wanted) < 2 or not c.wanted[1]:
        return (y,)
    return y, cast(e.concat([e.add_axes(t, [0]) for t in (k, v)], 0), kind)


def _unpacked(c: NodeCall) -> list[Tensor]:
    """Unpack queries, keys, values; keys and values may share a tensor (B, S, H, 2 or 3, D), also with queries."""
    q = c.t(0)
    if q.ndim == 5:
        return [_packed_part(q, i) for i in range(3)]
    if c.has(1) and c.t(1).ndim == 5:
        return [q, *(_packed_part(c.t(1), i) for i in range(2))]
    if q.ndim != 3 or not c.has(1) or not c.has(2):
        raise UnsupportedNodeError("missing keys and values")
    return [q, c.t(1), c.t(2)]


def _packed_part(x: Tensor, i: int) -> Tensor:
    b, s, n, _, d = x.shape
    return e.reshape(e.subtensor(x, [(3, None, None, None, i)]), (b, s, n * d))


@lower("MultiHeadAttention", domain=CONTRIB)
def _multi_head(c: NodeCall) -> tuple[Tensor, ...]:
    kind = dtype_of(c.t(0))
    count = c.number("num_heads")
    qkv = _unpacked(c)
    if c.has(3):
        at = 0
        for i, x in enumerate(qkv):
            if x.ndim != 3:
                # Keys and values that have heads come from a cache, to which the bias was added before.
                continue
            n = static_shape(x)[-1]
            qkv[i] = e.elem(M.ADD, x, e.subtensor(c.t(3), [(0, at, at + n, None, None)]))
            at += n
    split = [heads(x, count) if x.ndim == 3 else x for x in qkv]
    past = c.t(6).shape[2] if c.has(6) else 0
    if c.has(6) and not (len(c.wanted) > 2 and all(c.wanted[1:3])):
        raise UnsupportedNodeError(
            "a past, which ONNX Runtime ignores unless present keys and values are outputs"
        )
    if c.flag("unidirectional") and not c.has(6) and static_shape(qkv[0])[1] < static_shape(qkv[1])[-2]:
        raise UnsupportedNodeError(
            "fewer queries than keys, of which ONNX Runtime shows all to the last query only"
        )
    split[1], split[2] = _appended_to_past(c.maybe(6), split[1]), _appended_to_past(c.maybe(7), split[2])
    present = split[1], split[2]
    q, k, v = (cast(x, "float32") for x in split)
    return (cast(merged(_attended(c, (q, k, v), c.maybe(4), c.maybe(5), past)), kind), *present)


@lower("RotaryEmbedding", domain=CONTRIB)
def _rotary(c: NodeCall) -> Tensor:
    x, at, cos, sin = c.t(0), e.whole(c.t(1)), c.t(2), c.t(3)
    flat = x.ndim == 3
    size = 2 * static_shape(cos)[1]
    y = heads(x, c.number("num_heads") or static_shape(x)[2] // size) if flat else x
    if at.ndim == 1:
        at = e.add_axes(e.elem(M.ADD, at, e.arange(y.shape[2])), [0])
    cos, sin = (e.add_axes(e.gather(t, [(0, at)]), [1]) for t in (cos, sin))
    y = rotated_part(y, cos, sin, interleaved=c.flag("interleaved"))
    return merged(y) if flat else y


@lower("EmbedLayerNormalization", domain=CONTRIB, like=2)
def _embed(c: NodeCall) -> tuple[Tensor | Value | None, ...]:
    return embedded(c, (c.t(2), c.t(3), c.maybe(4)), (c.t(5), c.t(6)), positions=8)


def embedded(
    c: NodeCall,
    tables: tuple[Tensor, Tensor, Tensor | None],
    scales: tuple[Tensor, Tensor],
    *,
    positions: int,
) -> tuple[Tensor | Value | None, ...]:
    """Look up, add and normalize words, positions and segments; return lengths by the mask and the sum too.

    Args:
        tables: of words, places and segments.
        scales: the factor of the normalized sum, and the term added to it.
        positions: which input names the places.
    """
    words, places, segments = tables
    gamma, beta = scales
    ids = e.whole(c.t(0))
    total = e.gather(words, [(0, ids)])
    if c.has(positions):
        at = e.gather(places, [(0, e.whole(c.t(positions)))])
    else:
        at = e.subtensor(places, [(0, None, ids.shape[1], None, None)])
    total = e.elem(M.ADD, total, at)
    if c.has(1) and segments is None:
        raise UnsupportedNodeError("it has segments, but no table of them")
    if segments is not None:
        # Without segments, all words are of the first one, as in ONNX Runtime.
        first = e.subtensor(segments, [(0, None, 1, None, None)])
        total = e.elem(M.ADD, total, e.gather(segments, [(0, e.whole(c.t(1)))]) if c.has(1) else first)
    y, _, _ = layer_norm(total, 2, gamma, beta, c.real("epsilon", 1e-12))
    lengths: Value | None = None
    if c.has(7):
        mask = e.whole(c.t(7))
        ones = e.whole(e.compare(P.ElemwiseMultiTypeMode.EQ, mask, const_like(1, mask)))
        lengths = Value(INT32, e.reduce(ones, P.ReduceMode.SUM, [1]))
    elif len(c.wanted) > 1 and c.wanted[1]:
        zero = e.reduce(e.elem(M.MUL, ids, const_like(0, ids)), P.ReduceMode.SUM, [1])
        lengths = Value(INT32, zero)
    return y, lengths, total


@lower("NhwcMaxPool", domain=CONTRIB)
def _nhwc_pool(c: NodeCall) -> Tensor:
    x = from_last(c.t(0))
    return to_last(max_pooled(x, pooling_window(c, x)))
