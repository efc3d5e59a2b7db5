"""Dropout (MegEngine's ``module/dropout.py``)."""

from typing import Any

from ...tensors import TensorLike
from .. import functional as F
from .module import Module


class Dropout(Module):
    """Zeros at random while training; afterwards the input.

    Args:
        drop_prob: how likely an element becomes zero; the others are divided by ``1 - drop_prob``.

    >>> layer = Dropout(0.5)
    >>> layer.eval()
    >>> layer(3.0)
    3.0
    """

    def __init__(self, drop_prob: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.drop_prob = drop_prob

    def forward(self, inputs: TensorLike) -> TensorLike:
        """Take any float tensor."""
        return F.dropout(inputs, self.drop_prob, training=True) if self.training else inputs

    def _module_info_string(self) -> str:
        return f"drop_prob={self.drop_prob}"
