"""Multi-head attention: matrix products, Softmax and the projections."""

import numpy as np

from ...graph import Opr, Var
from ...graph.params import MultiHeadAttn, MultiHeadAttnAttnMaskType, MultiHeadAttnTensorCombinationType
from ...ops.attention import projections
from .emitter import Dim, UnsupportedOprError
from .writer import OnnxWriter, translation

Mask = MultiHeadAttnAttnMaskType
Extra = MultiHeadAttnTensorCombinationType


@translation("MultiHeadAttn")
def multi_head_attn(w: OnnxWriter, opr: Opr) -> list[str]:
    """Compute ``softmax(q @ k.T * sm_scaler + mask) @ v`` for every head, with the projections that have weights."""
    p = opr.get(MultiHeadAttn)
    if p.training and (p.attn_prob or p.out_prob):
        raise UnsupportedOprError("dropout in training")
    query, key, value, weight, *extra = opr.inputs
    weights = _weights(w, p, weight)
    kind = p.tensor_combination_type
    mask = extra[0] if kind in (Extra.ONLY_MASK, Extra.ALL) else None
    rows = extra[-2:] if kind in (Extra.ONLY_BIASKV, Extra.ALL) else []
    q, k, v = (
        _projected(w, w.float(x), weights, side) for x, side in ((query, "q"), (key, "k"), (value, "v"))
    )
    batch, heads = w.dim(query, 0), int(p.num_heads)
    lengths = w.dim(query, 1), w.dim(key, 1)
    more = bool(rows) + p.add_zero_attn
    k, v = (
        _longer(w, x, batch, width, row, p.add_zero_attn)
        for x, row, width in zip(
            (k, v), rows or (None, None), (p.kproj_size or p.k_size, p.vproj_size or p.v_size), strict=True
        )
    )
    keys = w.arith("Add", lengths[1], int(more))
    q = _by_head(w, q, p.qproj_size, batch, lengths[0], heads)
    k = _by_head(w, k, p.kproj_size, batch, keys, heads)
    v = _by_head(w, v, p.vproj_size, batch, keys, heads)
    scores = w.op("Mul", w.op("MatMul", q, w.transpose(k, [0, 1, 3, 2])), w.f32(p.sm_scaler))
    scores = _masked(w, p, scores, mask, batch, heads, lengths[0], keys)
    attn = w.softmax(scores, 3, 4)
    mixed = w.transpose(w.op("MatMul", attn, v), [0, 2, 1, 3])
    width = p.vproj_size or p.v_size * heads
    out = _projected(w, w.reshape(mixed, [batch, lengths[0], int(width)]), weights, "o")
    whole = (
        w.expand(attn, w.vector([batch, heads, lengths[0], keys]))
        if not (p.qproj_size or p.kproj_size)
        else attn
    )
    flat = w.reshape(whole, [w.arith("Mul", batch, heads), lengths[0], keys])
    return [w.stored(out, w.dtype(opr.outputs[0])), w.stored(flat, w.dtype(opr.outputs[1]))]


def _weights(w: OnnxWriter, p: MultiHeadAttn, var: Var) -> dict[str, str]:
    """Split the flat weight into matrices and biases."""
    flat = w.value(var)
    weights: dict[str, str] = {}
    at = 0
    for name, shape in projections(p):
        size = int(np.prod(shape))
        if flat is not None:
            part = flat.reshape(-1)[at : at + size].reshape(shape).astype(np.float32)
            weights[name] = w.derived(var, name, part)
        else:
            cut = w.slice(w.reshape(w.float(var), [-1]), [at], [at + size], [0])
            weights[name] = w.reshape(cut, list(shape))
        at += size
    return weights


def _projected(w: OnnxWriter, x: str, weights: dict[str, str], side: str) -> str:
    if f"w{side}" not in weights:
        return x
    out = w.op("MatMul", x, weights[f"w{side}"])
    return w.op("Add", out, weights[f"b{side}"]) if f"b{side}" in weights else out


def _longer(w: OnnxWriter, x: str, batch: Dim, width: int, row: Var | None, zero: bool) -> str:
    """Append a given row and a row of zeros to keys or values."""
    shape = w.vector([batch, 1, int(width)])
    more = [w.expand(w.float(row), shape)] if row is not None else []
    if zero:
        more.append(w.expand(w.f32(0), shape))
    return w.op("Concat", x, *more, axis=1) if more else x


def _by_head(w: OnnxWriter, x: str, projected: int, batch: Dim, length: Dim, heads: int) -> str:
    """Split into [batch, heads, length, size of a head]; an unprojected input serves every head."""
    if not projected:
        return w.unsqueeze(x, [1])
    return w.transpose(w.reshape(x, [batch, length, heads, int(projected) // heads]), [0, 2, 1, 3])


def _masked(
    w: OnnxWriter,
    p: MultiHeadAttn,
    scores: str,
    mask: Var | None,
    batch: Dim,
    heads: int,
    queries: Dim,
    keys: Dim,
) -> str:
    if p.attn_mask_type not in (Mask.DEFAULT_MASK, Mask.USER_DEFINED_MASK):
        return scores
    if mask is not None:
        value = w.float(mask)
        if w.rank(mask) == 3:
            value = w.reshape(value, [batch, heads, queries, keys])
        return w.op("Add", scores, value)
    if p.attn_mask_type != Mask.DEFAULT_MASK:
        raise UnsupportedOprError("a user-defined mask that is not an input")
    later = w.op("Less", w.unsqueeze(w.range(queries), [1]), w.unsqueeze(w.range(keys), [0]))
    return w.op("Add", scores, w.where(later, w.f32(-np.inf), w.f32(0)))
