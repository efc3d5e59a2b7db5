"""com.microsoft's fused operators of transformers."""

from __future__ import annotations

from math import sqrt

import numpy as np

from ... import params as P
from ...imperative import Tensor
from ...imperative import emit as e
from ..call import CONTRIB, Call, lower
from ..values import INT32, Refused, Value
from .attention import _repeated, attended, heads, merged, rotated
from .linalg import matmul
from .norms import standardized
from .parts import M, cast, const_like, transposed
from .pooling import max_pooled, pooling_window

__all__: list[str] = []

_LT, _LEQ = P.ElemwiseMultiTypeMode.LT, P.ElemwiseMultiTypeMode.LEQ


def _later(q: Tensor, k: Tensor, past: int) -> Tensor:
    """-inf for keys behind the query's own position."""
    rows = e.add_axes(e.arange(q.shape[2]), [1])
    here = e.elem(M.ADD, rows, e.like(past, rows))
    seen = e.compare(_LEQ, e.arange(k.shape[2]), here)
    return e.where(seen, const_like(0.0, q), const_like(-np.inf, q))


def _added(a: Tensor | None, b: Tensor) -> Tensor:
    return b if a is None else e.elem(M.ADD, a, b)


def _key_mask(mask: Tensor, like: Tensor, k: Tensor, least: float) -> Tensor:
    """A bias for keys that a mask of ones and zeros, or of lengths, leaves out."""
    mask = cast(mask, "int32")
    if mask.ndim == 1:
        valid = e.compare(_LT, e.arange(k.shape[2]), e.reshape(mask, (-1, 1, 1, 1)))
    elif mask.ndim == 2:
        valid = e.compare(_LT, const_like(0, mask), e.add_axes(mask, [1, 2]))
    elif mask.ndim == 3:
        valid = e.compare(_LT, const_like(0, mask), e.add_axes(mask, [1]))
    else:
        raise Refused(f"a mask of {mask.ndim} axes")
    return e.where(valid, const_like(0.0, like), const_like(least, like))


def _joined(past: Tensor | None, new: Tensor) -> Tensor:
    return new if past is None else e.concat([cast(past, new._dtype), new], 2)


@lower("Attention", domain=CONTRIB)
def _attention(c: Call) -> tuple[Tensor | None, ...]:
    """Projection of the input to queries, keys and values, then attention."""
    x, w = c.t(0), c.t(1)
    if c.has(4) or c.int("do_rotary"):
        raise Refused("a past in one tensor, or rotary positions inside it")
    count = c.int("num_heads")
    projected = matmul(x, w)
    if c.has(2):
        projected = e.elem(M.ADD, projected, c.t(2))
    total = projected._tuple_shape[2]
    sizes = c.ints("qkv_hidden_sizes") or [total // 3] * 3
    parts, at = [], 0
    for n in sizes:
        parts.append(heads(e.subtensor(projected, [(2, at, at + n, None, None)]), count))
        at += n
    q, k, v = (cast(p, "float32") for p in parts)
    bias: Tensor | None = None
    if c.has(3):
        bias = _key_mask(c.t(3), q, k, c.float("mask_filter_value", -10000.0))
    if c.has(5):
        bias = _added(bias, cast(c.t(5), "float32"))
    if c.int("unidirectional"):
        bias = _added(bias, _later(q, k, 0))
    scale = c.float("scale") or 1.0 / sqrt(q._tuple_shape[3])
    return (cast(merged(attended(q, k, v, scale, bias)), x._dtype),)


@lower("MultiHeadAttention", domain=CONTRIB)
def _multi_head(c: Call) -> tuple[Tensor, ...]:
    q = c.t(0)
    kind = q._dtype
    if q.ndim != 3 or not c.has(1) or not c.has(2):
        raise Refused("packed queries, keys and values")
    count = c.int("num_heads")
    given = [q, c.t(1), c.t(2)]
    if c.has(3):
        at = 0
        for i, x in enumerate(given):
            n = x._tuple_shape[-1] if x.ndim == 3 else x._tuple_shape[1] * x._tuple_shape[3]
            if x.ndim != 3:
                raise Refused("a bias beside keys that have heads")
            given[i] = e.elem(M.ADD, x, e.subtensor(c.t(3), [(0, at, at + n, None, None)]))
            at += n
    split = [heads(x, count) if x.ndim == 3 else x for x in given]
    split[1], split[2] = _joined(c.maybe(6), split[1]), _joined(c.maybe(7), split[2])
    present = split[1], split[2]
    q, k, v = (cast(x, "float32") for x in split)
    bias: Tensor | None = None
    if c.has(4):
        bias = _key_mask(c.t(4), q, k, c.float("mask_filter_value", -10000.0))
    if c.has(5):
        bias = _added(bias, cast(c.t(5), "float32"))
    if c.int("unidirectional"):
        bias = _added(bias, _later(q, k, k.shape[2] - q.shape[2]))
    scale = c.float("scale") or 1.0 / sqrt(q._tuple_shape[3])
    return (cast(merged(attended(q, k, v, scale, bias)), kind), *present)


@lower("GroupQueryAttention", domain=CONTRIB)
def _group_query(c: Call) -> tuple[Tensor, ...]:
    """Causal attention with a cache; the lengths of all sequences of a batch must be equal."""
    q = c.t(0)
    kind = q._dtype
    count, shared = c.int("num_heads"), c.int("kv_num_heads")
    if not c.has(1) or c.float("softcap") or c.int("local_window_size", -1) >= 0:
        raise Refused("packed queries, a soft cap, or a local window")
    q, k, v = heads(q, count), heads(c.t(1), shared), heads(c.t(2), shared)
    past = c.t(3).shape[2] if c.has(3) else 0
    if c.int("do_rotary"):
        at = e.elem(M.ADD, e.arange(q.shape[2]), e.like(past, e.arange(q.shape[2])))
        cos, sin = (e.gather(c.t(i), [(0, at)]) for i in (7, 8))
        turned = bool(c.int("rotary_interleaved"))
        q, k = (rotated(x, cos, sin, interleaved=turned) for x in (q, k))
    k, v = _joined(c.maybe(3), k), _joined(c.maybe(4), v)
    present = k, v
    wide = [cast(x, "float32") for x in (q, _repeated(k, count // shared), _repeated(v, count // shared))]
    scale = c.float("scale") or 1.0 / sqrt(q._tuple_shape[3])
    c.importer.note("GroupQueryAttention was read for sequences that fill their cache")
    y = attended(*wide, scale, _later(wide[0], wide[1], past))
    return (cast(merged(y), kind), *present)


@lower("RotaryEmbedding", domain=CONTRIB)
def _rotary(c: Call) -> Tensor:
    x, at, cos, sin = c.t(0), cast(c.t(1), "int32"), c.t(2), c.t(3)
    flat = x.ndim == 3
    size = 2 * cos._tuple_shape[1]
    y = heads(x, c.int("num_heads") or x._tuple_shape[2] // size) if flat else x
    if y._tuple_shape[3] != size:
        raise Refused("only a part of each head is turned")
    if at.ndim == 1:
        at = e.add_axes(e.elem(M.ADD, at, e.arange(y.shape[2])), [0])
    cos, sin = (e.add_axes(e.gather(t, [(0, at)]), [1]) for t in (cos, sin))
    y = rotated(y, cos, sin, interleaved=bool(c.int("interleaved")))
    return merged(y) if flat else y


@lower("EmbedLayerNormalization", domain=CONTRIB, like=2)
def _embed(c: Call) -> tuple[Tensor | Value | None, ...]:
    ids = cast(c.t(0), "int32")
    total = e.gather(c.t(2), [(0, ids)])
    if c.has(8):
        at = e.gather(c.t(3), [(0, cast(c.t(8), "int32"))])
    else:
        at = e.subtensor(c.t(3), [(0, None, ids.shape[1], None, None)])
    total = e.elem(M.ADD, total, at)
    if c.has(1) and c.has(4):
        total = e.elem(M.ADD, total, e.gather(c.t(4), [(0, cast(c.t(1), "int32"))]))
    y, _, _ = standardized(cast(total, "float32"), [2], c.float("epsilon", 1e-12))
    y = e.elem(M.ADD, e.elem(M.MUL, cast(y, total._dtype), c.t(5)), c.t(6))
    lengths: Value | None = None
    if c.has(7):
        lengths = Value(INT32, e.reduce(cast(c.t(7), "int32"), P.ReduceMode.SUM, [1]))
    elif len(c.wanted) > 1 and c.wanted[1]:
        zero = e.reduce(e.elem(M.MUL, ids, const_like(0, ids)), P.ReduceMode.SUM, [1])
        lengths = Value(INT32, zero)
    return y, lengths, total


@lower("NhwcMaxPool", domain=CONTRIB)
def _nhwc_pool(c: Call) -> Tensor:
    x = c.t(0)
    last = x.ndim - 1
    x = transposed(x, [0, last, *range(1, last)])
    window, beyond = pooling_window(c, x)
    return transposed(max_pooled(x, window, beyond), [0, *range(2, x.ndim), 1])
