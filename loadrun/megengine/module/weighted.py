"""Base of layers with a weight and a bias."""

import math
from abc import abstractmethod
from typing import Any

from . import init
from .module import Module


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
