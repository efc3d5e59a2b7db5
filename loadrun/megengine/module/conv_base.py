"""Bases of the convolutions of MegEngine's ``module/conv.py``."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...layers.geometry import Sizes
from ...tensors import Parameter, Tensor, TensorLike, as_tensor
from .. import functional as F
from .sizes import pair, pair_nonzero, triple, triple_nonzero
from .weighted import Weighted

_PADDING_MODES = ("zeros", "reflect", "replicate")


@dataclass(frozen=True)
class ConvSettings:
    """Channels and windows of a convolution; sizes are one number for all axes, or one for each."""

    in_channels: int
    out_channels: int
    kernel_size: Any
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1
    output_padding: Sizes = 0

    def over(self, axes: int) -> ConvSettings:
        """Return the same with a number for each of two or three axes.

        Raises:
            AssertionError: a size is negative, or 0 if it must not be, or the numbers are too few or too many.

        >>> ConvSettings(1, 2, 3).over(2).kernel_size
        (3, 3)
        """
        any_size, positive = (pair, pair_nonzero) if axes == 2 else (triple, triple_nonzero)
        return replace(
            self,
            kernel_size=positive(self.kernel_size),
            stride=positive(self.stride),
            padding=any_size(self.padding),
            dilation=positive(self.dilation),
        )


class _ConvNd(Weighted):
    """Base of the convolutions.

    Args:
        geometry: channels and windows.
        bias: whether there is one.
        kwargs: those of `Module`.

    Attributes:
        weight: (out_channels, in_channels, *kernel_size), with groups (groups, out_channels / groups,
            in_channels / groups, *kernel_size); in transposed convolutions input and output channels change places.
        bias: (1, out_channels) and a 1 for each further axis, or None.

    Raises:
        ValueError: the channels cannot be divided into that many groups.
    """

    _transposed = False

    def __init__(self, geometry: ConvSettings, bias: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        g = geometry
        for name, count in (("in_channels", g.in_channels), ("out_channels", g.out_channels)):
            if count % g.groups:
                raise ValueError(f"{name} must be divisible by groups, found {count} and {g.groups}")
        self.in_channels = g.in_channels
        self.out_channels = g.out_channels
        self.kernel_size = g.kernel_size
        self.stride = g.stride
        self.padding = g.padding
        self.output_padding = g.output_padding
        self.dilation = g.dilation
        self.groups = g.groups
        self.weight = Parameter(np.zeros(self._infer_weight_shape(), np.float32))
        self.bias = Parameter(np.zeros(self._infer_bias_shape(), np.float32)) if bias else None
        self.reset_parameters()

    def _kernel(self) -> tuple[int, ...]:
        return self.kernel_size if isinstance(self.kernel_size, tuple) else (self.kernel_size,)

    def _get_fanin(self) -> int:
        return math.prod(self._kernel()) * self.in_channels

    def _infer_weight_shape(self) -> tuple[int, ...]:
        channels = (self.out_channels // self.groups, self.in_channels // self.groups)
        groups = () if self.groups == 1 else (self.groups,)
        return (*groups, *(channels[::-1] if self._transposed else channels), *self._kernel())

    def _infer_bias_shape(self) -> tuple[int, ...]:
        return (1, self.out_channels, *(1,) * len(self._kernel()))

    def get_pad_witdth(self) -> tuple[tuple[int, int], ...]:
        """Return the padding as `functional.nn.pad` takes it (the spelling is MegEngine's)."""
        padding = self.padding if isinstance(self.padding, tuple) else (self.padding,)
        return ((0, 0), (0, 0), *((n, n) for n in padding))

    def _padded(self, inp: TensorLike, mode: str) -> tuple[Tensor, Any]:
        """Return the input with what a padding mode puts around it, and the zeros that are still to be added."""
        _check_padding_mode(mode)
        inp = as_tensor(inp)
        if mode == "zeros":
            return inp, self.padding
        return F.nn.pad(inp, self.get_pad_witdth(), mode), 0

    def _module_info_string(self) -> str:
        axes = len(self._kernel())
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        for name, usual in (("stride", 1), ("padding", 0), ("dilation", 1)):
            value = getattr(self, name)
            if value not in (usual, (usual,) * axes):
                text += f", {name}={value}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        return text if self.bias is not None else f"{text}, bias=False"


def _check_padding_mode(mode: str) -> None:
    if mode not in _PADDING_MODES:
        raise AssertionError(f"padding_mode must be one of {', '.join(_PADDING_MODES)}; found {mode!r}")


class _Conv2d(_ConvNd):
    """Base of the convolutions over height and width: settings, each one number or two."""

    _arguments: tuple[str, ...] = (
        "in_channels",
        "out_channels",
        "kernel_size",
        "stride",
        "padding",
        "dilation",
        "groups",
        "conv_mode",
        "compute_mode",
    )

    def __init__(
        self, geometry: ConvSettings, bias: bool, conv_mode: str, compute_mode: str, **kwargs: Any
    ) -> None:
        self.conv_mode = conv_mode
        self.compute_mode = compute_mode
        super().__init__(geometry.over(2), bias, **kwargs)

    def _settings(self) -> dict[str, Any]:
        """Return the arguments with which another layer of the same kind is made, but for its name."""
        return {**{n: getattr(self, n) for n in self._arguments}, "bias": self.bias is not None}
