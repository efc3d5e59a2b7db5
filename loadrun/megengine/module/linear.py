"""Layers with a weight: their base, fully connected layers and embeddings."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np

from ...tensors import Parameter, Tensor, TensorLike
from .. import functional as F
from . import init
from .module import Module

__all__ = ["Embedding", "Linear", "LinearRelu"]


class Weighted(Module):
    """A layer with a weight and, unless it is None, a bias."""

    weight: Any
    bias: Any

    @abstractmethod
    def _get_fanin(self) -> int:
        """Return how many elements of the input an element of the output depends on."""

    def reset_parameters(self) -> None:
        """Draw the weight again, with a variance of one by the inputs of an output; the bias becomes 0."""
        init.normal_(self.weight, 0.0, math.sqrt(1 / self._get_fanin()))
        if self.bias is not None:
            init.zeros_(self.bias)


class Linear(Weighted):
    """``x @ weight.T + bias``.

    Args:
        in_features: size of the input's last axis.
        out_features: size of the output's last axis.
        bias: whether there is one.
        compute_mode: "float32" sums float16 products in float32.

    Attributes:
        weight: (out_features, in_features).
        bias: (out_features,) or None.

    >>> layer = Linear(2, 3)
    >>> layer(Tensor([[1.0, 2.0]])).shape, layer
    ((1, 3), Linear(in_features=2, out_features=3, bias=True))
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        compute_mode: str = "default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.out_features = out_features
        self.in_features = in_features
        self.weight = Parameter(np.zeros((out_features, in_features), np.float32))
        self.bias = Parameter(np.zeros(out_features, np.float32)) if bias else None
        self.compute_mode = compute_mode
        self.reset_parameters()

    def _get_fanin(self) -> int:
        return self.in_features

    def _settings(self) -> dict[str, Any]:
        """Return the arguments with which another such layer is made, but for its name."""
        sizes = {"in_features": self.in_features, "out_features": self.out_features}
        return {**sizes, "bias": self.bias is not None, "compute_mode": self.compute_mode}

    def calc_linear(self, x: TensorLike, weight: TensorLike, bias: TensorLike | None) -> Tensor:
        """Return the layer with other parameters."""
        return F.linear(x, weight, bias, compute_mode=self.compute_mode)

    def forward(self, x: TensorLike) -> Tensor:
        """Take (..., in_features) to (..., out_features)."""
        return self.calc_linear(x, self.weight, self.bias)

    def _module_info_string(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        )


class LinearRelu(Linear):
    """`Linear` and relu."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (..., in_features) to (..., out_features)."""
        return F.relu(self.calc_linear(inp, self.weight, self.bias))


class Embedding(Module):
    """Rows of a table by their numbers.

    Args:
        num_embeddings: rows.
        embedding_dim: columns.
        padding_idx: must be None, as in MegEngine.
        max_norm: must be None, as in MegEngine.
        norm_type: must be None, as in MegEngine.
        initial_weight: the table, (num_embeddings, embedding_dim).
        freeze: counts in training only.

    Raises:
        ValueError: an argument that is not supported, or a table of another shape.

    >>> table = Embedding.from_pretrained(Parameter([[1.0, 2.0], [3.0, 4.0]]))
    >>> table(Tensor([1, 0])).tolist()
    [[3.0, 4.0], [1.0, 2.0]]
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float | None = None,
        initial_weight: Tensor | None = None,
        freeze: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if padding_idx is not None:
            raise ValueError("padding_idx is not supported, as in MegEngine")
        if max_norm is not None or norm_type is not None:
            raise ValueError("max_norm and norm_type are not supported, as in MegEngine")
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.freeze = freeze
        if initial_weight is None:
            self.weight = Parameter(np.zeros((num_embeddings, embedding_dim), np.float32))
            self.reset_parameters()
            return
        table = initial_weight.numpy()
        if table.shape != (num_embeddings, embedding_dim):
            raise ValueError(
                f"the weight must be {[num_embeddings, embedding_dim]}, as num_embeddings and embedding_dim say; "
                f"found {list(table.shape)}"
            )
        self.weight = Parameter(table)

    def reset_parameters(self) -> None:
        """Draw the table again."""
        init.normal_(self.weight)

    def forward(self, inputs: TensorLike) -> Tensor:
        """Take int32 of any shape; give that shape and ``embedding_dim``."""
        return F.embedding(inputs, self.weight)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool | None = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float | None = None,
    ) -> Embedding:
        """Return a module around a given table.

        Raises:
            ValueError: the table does not have two axes.
        """
        if embeddings.ndim != 2:
            raise ValueError(f"the table must be 2-dimensional, found {embeddings.ndim} dimensions")
        rows, columns = (int(n) for n in embeddings.shape)
        return cls(rows, columns, padding_idx, max_norm, norm_type, embeddings, bool(freeze))
