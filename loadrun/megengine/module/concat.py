"""Concatenation as a module (MegEngine's ``module/concat.py``)."""

from collections.abc import Iterable

from ...tensors import Tensor, TensorLike
from .. import functional as F
from .module import Module


class Concat(Module):
    """`functional.concat`, so that quantization finds it.

    >>> Concat()([Tensor([1.0]), Tensor([2.0])]).tolist()
    [1.0, 2.0]
    """

    def forward(self, inps: Iterable[TensorLike], axis: int = 0) -> Tensor:
        """Take tensors of one shape but along `axis`."""
        return F.concat(list(inps), axis)
