"""Attention (MegEngine's ``module/multiheadattn.py``)."""

from typing import Any

import numpy as np

from ...tensors import Parameter, Tensor, TensorLike
from .. import functional as F
from .init import xavier_uniform_
from .module import Module

__all__ = ["MultiHeadAttention"]


class MultiHeadAttention(Module):
    """`functional.nn.multi_head_attention` with its projections kept.

    Args:
        embed_dim: size of the last axis of queries and outputs.
        num_heads: number of heads, which divides it.
        attn_dropout: becomes 0, as in MegEngine.
        out_dropout: becomes 0, as in MegEngine.
        bias: whether the projections have one.
        add_bias_kv: must be False, as in MegEngine.
        add_zero_attn: must be False, as in MegEngine.
        kdim: size of the last axis of keys, `embed_dim` by default.
        vdim: size of the last axis of values, `embed_dim` by default.

    Attributes:
        io_weight_bias: (1, n): the weights of the query, key, value and output projections, then their biases.

    Raises:
        AssertionError: the heads do not divide `embed_dim`, or an argument that MegEngine refuses.

    >>> layer = MultiHeadAttention(4, 2)
    >>> x = Tensor(np.ones((1, 3, 4)))
    >>> layer(x, x, x)[0].shape
    (1, 3, 4)
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        attn_dropout: float = 0.0,
        out_dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.add_bias_kv = add_bias_kv
        self.add_zero_attn = add_zero_attn
        self.num_heads = num_heads
        self.attn_dropout = attn_dropout
        self.out_dropout = out_dropout
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError(f"embed_dim {embed_dim} must be divisible by num_heads {num_heads}")
        for name, value in (("add_bias_kv", add_bias_kv), ("add_zero_attn", add_zero_attn)):
            if value:
                raise AssertionError(f"{name} must be False; MegEngine has it with cuDNN only")
        self.bias = bias
        weights = (embed_dim + self.kdim + self.vdim + embed_dim) * embed_dim
        self.weight_bias_len = weights + (4 * embed_dim if bias else 0)
        self.io_weight_bias = Parameter(np.zeros((1, self.weight_bias_len), np.float32))
        self.bias_k = None
        self.bias_v = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights again; the biases become 0."""
        self.attn_dropout = 0.0
        self.out_dropout = 0.0
        xavier_uniform_(self.io_weight_bias)
        if self.bias:
            self.io_weight_bias[0, self.weight_bias_len - 4 * self.embed_dim :] = 0

    def forward(
        self,
        query: TensorLike,
        key: TensorLike,
        value: TensorLike,
        key_padding_mask: TensorLike | None = None,
        attn_mask: TensorLike | None = None,
        need_weights: bool = False,
        average_attn_weights: bool = False,
        is_causal: bool = False,
        maybe_cudnn_style_mask: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Take queries (N, L, embed_dim), keys (N, S, kdim) and values (N, S, vdim); see the function.

        Returns:
            the output (N, L, embed_dim), and the weights of attention if `need_weights`.
        """
        size, bias = self.embed_dim, self.bias
        return F.nn.multi_head_attention(
            query,
            key,
            value,
            size,
            self.num_heads,
            self.attn_dropout,
            self.out_dropout,
            self.io_weight_bias,
            qproj_size=size,
            kproj_size=size,
            vproj_size=size,
            oproj_size=size,
            qbias=bias,
            kbias=bias,
            vbias=bias,
            obias=bias,
            bias_k=self.bias_k,
            bias_v=self.bias_v,
            add_zero_attn=self.add_zero_attn,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
            maybe_cudnn_style_mask=maybe_cudnn_style_mask,
        )

    def _module_info_string(self) -> str:
        sizes = f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, bias={self.bias}"
        return f"{sizes}, kdim={self.kdim}, vdim={self.vdim}"
