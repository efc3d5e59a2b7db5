"""Base of layers with a weight and a bias."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

from ...tensors import Tensor, TensorLike
from .. import functional as F
from . import init
from .module import Module


class Weighted(Module):
    """A layer with a weight and, unless it is None, a bias; perhaps with relu behind."""

    weight: Any
    bias: Any
    _relu = False

    @abstractmethod
    def _get_fanin(self) -> int:
        """Return how many elements of the input an element of the output depends on."""

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """Return the arguments with which another layer of the same kind is made, but for its name."""

    @abstractmethod
    def _calc(self, inp: TensorLike, weight: TensorLike, bias: TensorLike | None) -> Tensor:
        """Return the layer with other parameters, without relu."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take what the class says."""
        return self._ended(self._calc(inp, self.weight, self.bias))

    def _ended(self, y: Tensor) -> Tensor:
        return F.relu(y) if self._relu else y

    def reset_parameters(self) -> None:
        """Draw the weight again, with a variance of one by the inputs of an output; the bias becomes 0."""
        init.normal_(self.weight, 0.0, math.sqrt(1 / self._get_fanin()))
        if self.bias is not None:
            init.zeros_(self.bias)


class Normalized(Module):
    """A layer and the batch normalization ``bn`` after it, which quantization fuses; perhaps with relu behind."""

    bn: Any
    _layer_name: str
    """The attribute that holds the layer."""
    _relu = False

    @property
    def _layer(self) -> Any:
        return getattr(self, self._layer_name)

    def forward(self, inp: TensorLike) -> Tensor:
        """Take what the layer takes."""
        return self._ended(self.bn(self._layer(inp)))

    def _ended(self, y: Tensor) -> Tensor:
        return F.relu(y) if self._relu else y
