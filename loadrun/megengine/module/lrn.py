"""Local response normalization (MegEngine's ``module/lrn.py``)."""

from typing import Any

from ...tensors import Tensor, TensorLike
from .. import functional as F
from .module import Module


class LocalResponseNorm(Module):
    """``x / (k + alpha * sum(x ** 2)) ** beta``, summed over neighbouring channels.

    Args:
        kernel_size: channels of a sum, odd.
        k: added to the sum.
        alpha: multiplies the sum.
        beta: the exponent.
    """

    def __init__(
        self, kernel_size: int = 5, k: float = 2.0, alpha: float = 1e-4, beta: float = 0.75, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_size = kernel_size
        self.k = k
        self.alpha = alpha
        self.beta = beta

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, C, H, W)."""
        return F.local_response_norm(inp, self.kernel_size, self.k, self.alpha, self.beta)
