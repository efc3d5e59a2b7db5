"""A module that does nothing (MegEngine's ``module/identity.py``)."""

from ...tensors import Tensor, TensorLike
from .. import functional as F
from .module import Module


class Identity(Module):
    """A copy of its input.

    >>> Identity()(Tensor([1.0])).tolist()
    [1.0]
    """

    def forward(self, x: TensorLike) -> Tensor:
        """Take any tensor."""
        return F.copy(x)
