"""Elementwise functions as a module (MegEngine's ``module/elemwise.py``)."""

from typing import Any

from ...layers.modes import elwise
from ...tensors import Tensor, TensorLike
from .module import Module


class Elemwise(Module):
    """An elementwise mode by its name, so that quantization finds it.

    Args:
        method: the name of a mode: "add", "mul", "relu", "fuse_add_relu", ...

    >>> Elemwise("fuse_add_relu")(Tensor([1.0]), Tensor([-3.0])).tolist()
    [0.0]
    """

    def __init__(self, method: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.method = method

    def forward(self, *inps: TensorLike) -> Tensor:
        """Take as many operands as the mode has."""
        return elwise(*inps, mode=self.method)
