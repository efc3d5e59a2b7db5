"""What the convolutions of MegEngine's ``module/conv.py`` share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import functional as F
from ..imperative import Parameter
from . import init
from .module import Module
from .sizes import pair, pair_nonzero

__all__ = ["PADDING_MODES", "_Conv2d", "_ConvNd"]

PADDING_MODES = ("zeros", "reflect", "replicate")


class _ConvNd(Module):
    """What the convolutions share.

    Attributes:
        weight: (out_channels, in_channels, *kernel_size), with groups (groups, out_channels / groups,
            in_channels / groups, *kernel_size); in transposed convolutions input and output channels change places.
        bias: (1, out_channels) and a 1 for each further axis, or None.

    Raises:
        ValueError: the channels cannot be divided into that many groups.
    """

    _transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        output_padding: Any,
        dilation: Any,
        groups: int,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, count in (("in_channels", in_channels), ("out_channels", out_channels)):
            if count % groups:
                raise ValueError(f"{name} must be divisible by groups, found {count} and {groups}")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.output_padding = output_padding
        self.dilation = dilation
        self.groups = groups
        self.weight: Any = Parameter(np.zeros(self._infer_weight_shape(), np.float32))
        self.bias: Any = Parameter(np.zeros(self._infer_bias_shape(), np.float32)) if bias else None
        self.reset_parameters()

    def _kernel(self) -> tuple[int, ...]:
        return self.kernel_size if isinstance(self.kernel_size, tuple) else (self.kernel_size,)

    def _get_fanin(self) -> int:
        return math.prod(self._kernel()) * self.in_channels

    def reset_parameters(self) -> None:
        """Draw the weight anew, with a variance of one by the inputs of an output; the bias becomes 0."""
        init.normal_(self.weight, 0.0, math.sqrt(1 / self._get_fanin()))
        if self.bias is not None:
            init.zeros_(self.bias)

    def _infer_weight_shape(self) -> tuple[int, ...]:
        channels = (self.out_channels // self.groups, self.in_channels // self.groups)
        groups = () if self.groups == 1 else (self.groups,)
        return (*groups, *(channels[::-1] if self._transposed else channels), *self._kernel())

    def _infer_bias_shape(self) -> tuple[int, ...]:
        return (1, self.out_channels, *(1,) * len(self._kernel()))

    def get_pad_witdth(self) -> tuple[tuple[int, int], ...]:
        """The padding as `functional.nn.pad` takes it (the spelling is MegEngine's)."""
        padding = self.padding if isinstance(self.padding, tuple) else (self.padding,)
        return ((0, 0), (0, 0), *((n, n) for n in padding))

    def _padded(self, inp: Any, mode: str) -> tuple[Any, Any]:
        """The input with what a padding mode puts around it, and the zeros that are still to be added."""
        if mode not in PADDING_MODES:
            raise AssertionError(f"padding_mode must be one of {', '.join(PADDING_MODES)}; found {mode!r}")
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


class _Conv2d(_ConvNd):
    """What the convolutions over height and width share: settings, each one number or two."""

    def __init__(
        self,
        channels: tuple[int, int],
        kernel_size: Any,
        stride: Any,
        padding: Any,
        output_padding: Any,
        dilation: Any,
        groups: int,
        bias: bool,
        conv_mode: str,
        compute_mode: str,
        **kwargs: Any,
    ) -> None:
        self.conv_mode = conv_mode
        self.compute_mode = compute_mode
        super().__init__(
            *channels,
            pair_nonzero(kernel_size),
            pair_nonzero(stride),
            pair(padding),
            output_padding,
            pair_nonzero(dilation),
            groups,
            bias,
            **kwargs,
        )
