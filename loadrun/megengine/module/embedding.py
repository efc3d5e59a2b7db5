"""Lookup tables (MegEngine's ``module/embedding.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tensors import Parameter, Tensor, TensorLike
from .. import functional as F
from . import init
from .module import Module


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
