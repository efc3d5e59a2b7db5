"""Multi-head attention of MegEngine's functional package, as its CPU computes it (`loadrun.ops.attention`)."""

from typing import Any

import numpy as np

from ..base.registry import late
from ..graph import params as P
from ..tensors import Tensor, TensorLike, apply, as_tensor
from ..tensors.access import static_shape
from ..tensors.reducing import mean
from ..tensors.shaping import broadcast_to, concat
from .geometry import require
from .tensor import where

with late(__name__):
    from . import random

__all__ = ["multi_head_attention"]

_Mask = P.MultiHeadAttnAttnMaskType
_Extra = P.MultiHeadAttnTensorCombinationType


def multi_head_attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    embed_dim: int,
    num_heads: int,
    attn_drop: float,
    out_drop: float,
    io_weight_bias: TensorLike,
    qproj_size: int | None = None,
    kproj_size: int | None = None,
    vproj_size: int | None = None,
    oproj_size: int | None = None,
    qbias: bool = False,
    kbias: bool = False,
    vbias: bool = False,
    obias: bool = False,
    bias_k: TensorLike | None = None,
    bias_v: TensorLike | None = None,
    add_zero_attn: bool = False,
    key_padding_mask: TensorLike | None = None,
    attn_mask: TensorLike | None = None,
    need_weights: bool = False,
    average_attn_weights: bool = False,
    is_causal: bool = False,
    maybe_cudnn_style_mask: bool = False,
    reslink: bool = False,
    training: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Attend to keys and values by queries in several heads ("Attention Is All You Need").

    Args:
        query: (N, L, E).
        key: (N, S, EK).
        value: (N, S, EV).
        embed_dim: E.
        num_heads: number of heads.
        attn_drop: probability of a zero in the attention matrix, in training.
        out_drop: probability of a zero in the output, in training.
        io_weight_bias: the weights of the query, key, value and output projections as rows (in, out), then
            their biases, all flat in one tensor.
        qproj_size: columns of the query projection; `embed_dim` by default, 0 for none. The next ones alike.
        kproj_size: columns of the key projection.
        vproj_size: columns of the value projection.
        oproj_size: columns of the output projection.
        qbias: whether the query projection has a bias. The next ones alike.
        kbias: whether the key projection has a bias.
        vbias: whether the value projection has a bias.
        obias: whether the output projection has a bias.
        bias_k: must be None, as in MegEngine.
        bias_v: must be None, as in MegEngine.
        add_zero_attn: must be False, as in MegEngine.
        key_padding_mask: (N, S): bool (True is left out) or float (added to the scores).
        attn_mask: (L, S) or (N * num_heads, L, S): bool (True is left out) or float (added to the scores).
        need_weights: whether to return the attention weights.
        average_attn_weights: return their mean over the heads.
        is_causal: a hint that `attn_mask` is the causal one.
        maybe_cudnn_style_mask: a hint that the masks are cuDNN's, which the CPU ignores.
        reslink: must be False, as in MegEngine.
        training: whether to drop.

    Returns:
        the output (N, L, E) and the weights (N * num_heads, L, S), averaged (N, L, S), or None.

    Raises:
        AssertionError: shapes that do not fit together, or an argument that MegEngine refuses.

    >>> import numpy as np
    >>> x, w = np.ones((1, 2, 4), "f"), np.tile(np.eye(4, dtype="f").ravel(), 4)
    >>> out, _ = multi_head_attention(x, x, x, 4, 2, 0.0, 0.0, w, training=False)
    >>> out.tolist()
    [[[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]]
    """
    sizes, biases = (qproj_size, kproj_size, vproj_size, oproj_size), (qbias, kbias, vbias, obias)
    projections = _projections(embed_dim, sizes, biases)
    refused = (
        (add_zero_attn is not False, "add_zero_attn"),
        (bias_k is not None, "bias_k"),
        (bias_v is not None, "bias_v"),
        (reslink is not False, "reslink"),
    )
    for option, name in refused:
        require(not option, f"{name} is not supported, as in MegEngine outside cuDNN")
    query, key, value, weight = map(as_tensor, (query, key, value, io_weight_bias))
    masks = [None if m is None else as_tensor(m) for m in (attn_mask, key_padding_mask)]
    _check_inputs(query, key, value, masks[0], masks[1], num_heads)
    mask, kind = _merged(masks[0], masks[1], query, key, num_heads, is_causal, maybe_cudnn_style_mask)
    seed = 0
    if training and (attn_drop or out_drop):
        seed = random.seed_of_operator()
    param = P.MultiHeadAttn(
        num_heads=num_heads,
        sm_scaler=(embed_dim // num_heads if projections["qproj_size"] else embed_dim) ** -0.5,
        attn_prob=attn_drop,
        out_prob=out_drop,
        seed=seed,
        training=training,
        attn_mask_type=kind,
        embeding_size=embed_dim,
        k_size=int(key.shape[2]),
        v_size=int(value.shape[2]),
        **projections,
        need_weights=need_weights,
        tensor_combination_type=_Extra.NONE if mask is None else _Extra.ONLY_MASK,
    )
    inputs = [query, key, value, weight, *([] if mask is None else [mask])]
    out, weights, *_ = apply("MultiHeadAttn", param, inputs=inputs, n=4)
    if not need_weights:
        return out, None
    if average_attn_weights:
        weights = mean(weights.reshape((query.shape[0], num_heads, *weights.shape[-2:])), 1)
    return out, weights


def _projections(embed_dim: int, sizes: tuple[int | None, ...], biases: tuple[bool, ...]) -> dict[str, Any]:
    """Return the fields of the operator's record that tell the four projections."""
    fields: dict[str, Any] = {}
    for name, size, bias in zip(("query", "key", "value", "output"), sizes, biases, strict=True):
        width = embed_dim if size is None else size
        require(width > 0 or not bias, f"a bias of the {name} projection needs a projection weight")
        fields |= {f"{name[0]}proj_size": width, f"{name[0]}bias": bias}
    return fields


def _check_inputs(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, padding: Tensor | None, heads: int
) -> None:
    """Raise AssertionError unless the shapes fit together."""
    shapes = [static_shape(x) for x in (query, key, value)]
    require(all(len(s) == 3 for s in shapes), f"query, key and value must have 3 dimensions, found {shapes}")
    (n, rows, _), (kn, keys, _), (vn, length, _) = shapes
    require(n == kn == vn, f"query, key and value must have one batch size, found {n}, {kn} and {vn}")
    require(keys == length, f"key and value must have one length, found {keys} and {length}")
    if padding is not None:
        shape = static_shape(padding)
        require(shape in ((n, keys), (2, n)), f"key_padding_mask must be {(n, keys)}, found {shape}")
    if mask is not None:
        shape = static_shape(mask)
        fits = (rows, keys), (n * heads, rows, keys), (2, rows)
        require(shape in fits, f"attn_mask must be {fits[0]} or {fits[1]}, found {shape}")


def _additive(mask: Tensor | None, query: Tensor, name: str) -> Tensor | None:
    """Return a mask to add to the scores; a bool one becomes 0 and minus infinity."""
    if mask is None or mask.dtype.kind == "f":
        return mask
    require(mask.dtype == np.bool_, f"{name} must be bool or float, found {mask.dtype}")
    zeros = mask.astype(query.dtype) * 0
    return where(mask, zeros + float("-inf"), zeros)


def _merged(
    mask: Tensor | None,
    padding: Tensor | None,
    query: Tensor,
    key: Tensor,
    heads: int,
    causal: bool,
    cudnn: bool,
) -> tuple[Tensor | None, _Mask]:
    """Return one mask of both, and what the operator is told about it."""
    if not cudnn:
        mask = _additive(mask, query, "attn_mask")
        padding = _additive(padding, query, "key_padding_mask")
    n, rows, _ = query.shape
    keys = key.shape[1]
    if cudnn:
        require(mask is not None and padding is not None, "a cuDNN style mask needs both masks")
        assert mask is not None
        assert padding is not None
        flat = concat([mask.reshape((2 * rows,)), padding.reshape((2 * n,))])
        return flat.astype("int32"), _Mask.CUDNN_STYLE_MASK
    if causal and padding is None:
        return mask, _Mask.DEFAULT_MASK
    if padding is None:
        return mask, _Mask.NO_MASK if mask is None else _Mask.USER_DEFINED_MASK
    whole = padding.reshape((n, 1, 1, keys))
    if mask is not None and mask.ndim == 2:
        whole = mask + whole
    elif mask is not None:
        whole = mask.reshape((n, heads, rows, keys)) + whole
    whole = broadcast_to(whole, (n, heads, rows, keys)).reshape((n * heads, rows, keys))
    return whole, _Mask.USER_DEFINED_MASK
