"""Batched matrix products with an activation (MegEngine's ``module/batch_matmul_activation.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tensors import Parameter, Tensor, TensorLike
from .. import functional as F
from .weighted import Weighted


class BatchMatMulActivation(Weighted):
    """``act(weight @ x + bias)`` with a weight of its own for every member of the batch.

    Args:
        batch: number of matrices.
        in_features: columns of each.
        out_features: rows of each.
        bias: whether there is one.
        nonlinear_mode: "identity" or "relu".

    Attributes:
        weight: (batch, out_features, in_features).
        bias: (out_features,) or None.
    """

    def __init__(
        self,
        batch: int,
        in_features: int,
        out_features: int,
        bias: bool = True,
        nonlinear_mode: str = "identity",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.batch = batch
        self.out_features = out_features
        self.in_features = in_features
        self.weight = Parameter(np.zeros((batch, out_features, in_features), np.float32))
        self.bias = Parameter(np.zeros(out_features, np.float32)) if bias else None
        self.nonlinear_mode = nonlinear_mode.lower()
        self.reset_parameters()

    def _get_fanin(self) -> int:
        return self.in_features

    def _calc_linear(self, x: TensorLike, weight: TensorLike, bias: TensorLike | None) -> Tensor:
        y = F.matmul(weight, x)
        if self.bias is not None:
            y = y + bias
        return F.relu(y) if self.nonlinear_mode == "relu" else y

    def forward(self, x: TensorLike) -> Tensor:
        """Take (batch, in_features, columns) to (batch, out_features, columns)."""
        return self._calc_linear(x, self.weight, self.bias)

    def _module_info_string(self) -> str:
        sizes = f"batch={self.batch}, in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}"
