"""Multi-head attention as MegEngine's CPU proxy of the operator computes it.

What MegEngine does only with cuDNN has no effect here, as on its CPU: `reslink`, `input_order`,
`need_weights` (the weights always come) and masks of the CUDNN_STYLE kind. Extra key and value rows (`bias_k`,
`bias_v`, `add_zero_attn`) are what its documentation says; its own kernels refuse them.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from ..graph import Opr
from ..graph.dtypes import Array, DType, plain
from ..graph.params import MultiHeadAttn, MultiHeadAttnAttnMaskType, MultiHeadAttnTensorCombinationType
from .norm import softmax_rows
from .numeric.special import rounded, stored
from .registry import Call, Shape, ShapeCall, kernel

Mask = MultiHeadAttnAttnMaskType
Extra = MultiHeadAttnTensorCombinationType


class _Sizes(NamedTuple):
    """Everything that follows from the parameters and the shapes of queries, keys and values."""

    batch: int
    heads: int
    queries: int
    keys: int
    """Key rows, the appended ones included."""
    qk: int
    """Elements of one head's query."""
    value: int
    out: int


def _dtypes(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    first = inputs[0]
    ignored = 4 if opr.get(MultiHeadAttn).attn_mask_type == Mask.CUDNN_STYLE_MASK else -1
    if first.name not in ("Float32", "Float16") or any(
        d != first for i, d in enumerate(inputs) if i != ignored
    ):
        raise ValueError(
            f"the inputs must all be Float32 or all Float16, found {', '.join(map(str, inputs))}"
        )
    return first, first, plain("Byte"), first


def _require(fits: bool, text: str) -> None:
    if not fits:
        raise ValueError(text)


def _extras(p: MultiHeadAttn, count: int) -> tuple[int | None, int | None]:
    """Return the numbers of the mask input and of the first of the two bias inputs."""
    kind = p.tensor_combination_type
    mask = 4 if kind in (Extra.ONLY_MASK, Extra.ALL) else None
    bias = None if kind in (Extra.NONE, Extra.ONLY_MASK) else 4 + (mask is not None)
    want = 4 + (mask is not None) + 2 * (bias is not None)
    _require(count == want, f"{kind.name} takes {want} inputs, found {count}")
    return mask, bias


def projections(p: MultiHeadAttn) -> list[tuple[str, Shape]]:
    """Return names and shapes of the matrices and biases in the flat weight, in their order."""
    back = p.vproj_size or p.v_size * p.num_heads
    rows = (
        ("q", p.embeding_size, p.qproj_size),
        ("k", p.k_size, p.kproj_size),
        ("v", p.v_size, p.vproj_size),
    )
    sides = [*rows, ("o", back, p.oproj_size)]
    biases = (p.qbias, p.kbias, p.vbias, p.obias)
    parts: list[tuple[str, Shape]] = [(f"w{n}", (i, o)) for n, i, o in sides if o]
    return parts + [(f"b{n}", (o,)) for (n, _, o), has in zip(sides, biases, strict=True) if o and has]


def _sizes(p: MultiHeadAttn, shapes: Sequence[Shape]) -> _Sizes:
    """Check the parameters against the shapes of all inputs."""
    q, k, v, weight = shapes[:4]
    mask, bias = _extras(p, len(shapes))
    _require(
        len(q) == len(k) == len(v) == 3, f"queries, keys and values must have 3 dimensions: {_text(shapes)}"
    )
    _require(q[0] == k[0] == v[0], f"queries, keys and values must have one batch size: {_text(shapes)}")
    _require(k[1] == v[1], f"keys and values must have one length: {_text(shapes)}")
    _require(
        (q[2], k[2], v[2]) == (p.embeding_size, p.k_size, p.v_size),
        f"the parameters say {p.embeding_size}, {p.k_size} and {p.v_size} elements: {_text(shapes)}",
    )
    heads = p.num_heads
    _require(heads > 0, "there must be at least one head")
    for name, n in (("query", p.qproj_size), ("key", p.kproj_size), ("value", p.vproj_size)):
        _require(
            n % heads == 0, f"the {name} projection of {n} elements cannot be divided into {heads} heads"
        )
    qk = p.qproj_size // heads or p.embeding_size
    key = p.kproj_size // heads or p.k_size
    _require(qk == key, f"a head has {qk} elements of the query, but {key} of the key")
    count = prod(weight)
    want = sum(prod(s) for _, s in projections(p))
    _require(count == want, f"the weight must have {want} elements, found {count} {list(weight)}")
    value = p.vproj_size // heads or p.v_size
    keys = k[1] + (bias is not None) + p.add_zero_attn
    if bias is not None:
        wide = (1, 1, p.kproj_size or p.k_size), (1, 1, p.vproj_size or p.v_size)
        _require(
            tuple(shapes[bias : bias + 2]) == wide,
            f"bias_k and bias_v must be {list(wide[0])} and {list(wide[1])}: {_text(shapes)}",
        )
    if mask is not None and p.attn_mask_type in (Mask.DEFAULT_MASK, Mask.USER_DEFINED_MASK):
        fits = (q[1], keys), (q[0] * heads, q[1], keys)
        _require(
            shapes[mask] in fits,
            f"the mask must be {list(fits[0])} or {list(fits[1])}, found {list(shapes[mask])}",
        )
    return _Sizes(q[0], heads, q[1], keys, qk, value, p.oproj_size or value * heads)


def _text(shapes: Sequence[Shape]) -> str:
    return ", ".join(str(list(s)) for s in shapes[:3])


def _bundle(sizes: Sequence[int], align: int) -> int:
    """Count the bytes of pieces that are aligned one by one, with space to align the first."""
    total = sum(-(-n // align) * align for n in sizes)
    return total + align if total else 0


def _reserves(p: MultiHeadAttn, z: _Sizes, keys: int, item: int) -> tuple[int, int]:
    """Return the lengths of the two reserves, which hold what MegEngine's gradient needs."""
    rows = z.batch * z.heads
    weights = rows * z.queries * z.keys
    many = z.heads > 1
    masks = _bundle([weights, z.batch * z.queries * z.out] if p.training else [], 4)
    pieces = [
        rows * z.queries * z.qk * (many or p.qproj_size > 0),
        rows * keys * z.qk * (many or p.kproj_size > 0),
        rows * keys * z.value * (many or p.vproj_size > 0),
        weights * p.training,
        z.batch * z.queries * z.value * z.heads * (p.training or p.oproj_size > 0),
    ]
    return masks, _bundle([n * item for n in pieces], item) // item


def _shape(s: ShapeCall) -> Sequence[Shape | None]:
    p = s.get(MultiHeadAttn)
    shapes = [s.shape(i) for i in range(len(s.shapes))]
    z = _sizes(p, shapes)
    masks, others = _reserves(p, z, shapes[1][1], s.inputs[0].bits // 8)
    return (z.batch, z.queries, z.out), (z.batch * z.heads, z.queries, z.keys), (masks,), (others,)


def _flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    p = opr.get(MultiHeadAttn)
    z = _sizes(p, inputs)
    lengths = {"wq": z.queries, "wk": inputs[1][1], "wv": inputs[1][1], "wo": z.queries}
    projected = sum(n[0] * n[1] * lengths[name] for name, n in projections(p) if name in lengths)
    return 2 * z.batch * (projected + z.heads * z.queries * z.keys * (z.qk + z.value))


def _weights(c: Call, p: MultiHeadAttn, flat: Array) -> dict[str, Array]:
    weights: dict[str, Array] | None = c.memo.get("weights")
    if weights is None:
        flat = flat.reshape(-1).astype(np.float32, copy=False)
        weights, at = {}, 0
        for name, shape in projections(p):
            size = prod(shape)
            weights[name] = flat[at : at + size].reshape(shape)
            at += size
        if c.const and c.const[3]:
            c.memo["weights"] = weights
    return weights


def _projected(x: Array, weights: dict[str, Array], side: str, dtype: DType) -> Array:
    """Compute ``x @ w + b``, leaving out what is missing."""
    if f"w{side}" not in weights:
        return x
    w = weights[f"w{side}"]
    n, length, size = x.shape
    y = rounded((x.reshape(n * length, size) @ w).reshape(n, length, w.shape[1]), dtype)
    if f"b{side}" in weights:
        y += weights[f"b{side}"]
    return rounded(y, dtype)


def _by_head(x: Array, projected: bool, heads: int) -> Array:
    """Split [batch, length, size] into [batch, heads, length, head size]; an unprojected input serves every head."""
    n, length, size = x.shape
    if not projected:
        return np.broadcast_to(x[:, None], (n, heads, length, size))
    return x.reshape(n, length, heads, size // heads).transpose(0, 2, 1, 3)


def _longer(x: Array, row: Array | None, zero: bool) -> Array:
    """Append a given row and a row of zeros to the keys or values of every batch element."""
    n, _, size = x.shape
    more = [np.broadcast_to(row.astype(np.float32), (n, 1, size))] if row is not None else []
    if zero:
        more.append(np.zeros((n, 1, size), np.float32))
    return np.concatenate([x, *more], 1) if more else x


def _dropped(c: Call, x: Array, prob: float, dtype: DType) -> tuple[Array, Array]:
    """Apply dropout; also return one byte per element, 1 for those kept."""
    kept = c.stream().uniform("MultiHeadAttn", x.shape) >= np.float32(prob)
    y = np.where(kept, x * (np.float32(1) / (np.float32(1) - np.float32(prob))), np.float32(0))
    return rounded(y, dtype), kept


def _attention_scores(p: MultiHeadAttn, q: Array, k: Array, mask: Array | None, dtype: DType) -> Array:
    """Compute ``q @ k.T * sm_scaler + mask`` of shape [batch, heads, queries, keys]."""
    scores = rounded(np.matmul(q, k.transpose(0, 1, 3, 2)), dtype)
    scores *= rounded(np.array([p.sm_scaler], np.float32), dtype)
    if p.attn_mask_type not in (Mask.DEFAULT_MASK, Mask.USER_DEFINED_MASK):
        return rounded(scores, dtype)
    if mask is None:
        _require(p.attn_mask_type == Mask.DEFAULT_MASK, "a user-defined mask must come as an input")
        mask = np.triu(np.full(scores.shape[2:], -np.inf, np.float32), 1)
    scores = rounded(scores, dtype)
    scores += mask.reshape(scores.shape) if mask.ndim == 3 else mask
    return rounded(scores, dtype)


@kernel("MultiHeadAttn", dtype=_dtypes, shape=_shape, flops=_flops)
def multi_head_attn(
    c: Call, query: Array, key: Array, value: Array, weight: Array, *extra: Array
) -> tuple[Array, Array, Array, Array]:
    """Compute the attention of queries [batch, L, size] over keys and values [batch, S, ...].

    ``softmax(q @ k.T * sm_scaler + mask) @ v``, for every head; q, k, v and the result pass through a matrix and
    bias where a projection size is given. The flat weight holds the matrices of query, key, value and output
    ([in, out] each), then their biases. A DEFAULT_MASK without a mask input is the causal one. In training both
    dropouts are applied.

    Returns:
        the result [batch, L, out], the attention weights [batch * heads, L, S], and two reserves: the first
        holds the dropout masks, the second (inputs of a gradient in MegEngine) is left zero.
    """
    p = c.get(MultiHeadAttn)
    z = _sizes(p, [a.shape for a in (query, key, value, weight, *extra)])
    dtype = c.inputs[0]
    at, bias = (None if i is None else i - 4 for i in _extras(p, 4 + len(extra)))
    weights = _weights(c, p, weight)
    q, k, v = (
        _projected(x.astype(np.float32, copy=False), weights, side, dtype)
        for x, side in ((query, "q"), (key, "k"), (value, "v"))
    )
    rows = (None, None) if bias is None else (extra[bias], extra[bias + 1])
    k, v = (_longer(x, row, p.add_zero_attn) for x, row in zip((k, v), rows, strict=True))
    mask = None if at is None else extra[at].astype(np.float32, copy=False)
    attn = _attention_scores(
        p, _by_head(q, p.qproj_size > 0, z.heads), _by_head(k, p.kproj_size > 0, z.heads), mask, dtype
    )
    if attn.size:
        flat = attn.reshape(-1, z.keys)
        softmax_rows(flat, flat)
    attn = rounded(attn, dtype)
    masks, others = _reserves(p, z, key.shape[1], dtype.bits // 8)
    kept = np.zeros(masks, np.uint8)
    if p.training:
        attn, keep = _dropped(c, attn, p.attn_prob, dtype)
        kept[: keep.size] = keep.reshape(-1)
    mixed = rounded(np.matmul(attn, _by_head(v, p.vproj_size > 0, z.heads)), dtype)
    out = mixed.transpose(0, 2, 1, 3).reshape(z.batch, z.queries, z.heads * z.value)
    out = _projected(out, weights, "o", dtype)
    if p.training:
        out, keep = _dropped(c, out, p.out_prob, dtype)
        start = -(-attn.size // 4) * 4
        kept[start : start + keep.size] = keep.reshape(-1)
    attn = attn.reshape(z.batch * z.heads, z.queries, z.keys)
    return stored(out, dtype), stored(attn, dtype), kept, np.zeros(others, dtype.np)
