"""Padding (MegEngine's ``module/padding.py``)."""

from ...tensors import Tensor, TensorLike
from .. import functional as F
from .module import Module


class Pad(Module):
    """More elements at the ends of axes.

    Args:
        pad_width: for each axis how many before and after.
        mode: "constant", "reflect" or "replicate".
        constant_val: the value in mode "constant".

    >>> Pad(((1, 2),), constant_val=7.0)(Tensor([1.0])).tolist()
    [7.0, 1.0, 7.0, 7.0]
    """

    def __init__(
        self, pad_width: tuple[tuple[int, int], ...], mode: str = "constant", constant_val: float = 0.0
    ) -> None:
        super().__init__()
        self.pad_width = pad_width
        self.mode = mode
        self.pad_val = constant_val

    def forward(self, src: TensorLike) -> Tensor:
        """Take a tensor of as many axes as `pad_width` has entries."""
        return F.nn.pad(src, pad_width=self.pad_width, mode=self.mode, constant_value=self.pad_val)
