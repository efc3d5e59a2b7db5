"""Bases of the convolutions of MegEngine's ``module/conv.py``."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...layers.geometry import Sizes
from ...tensors import Parameter, Tensor, TensorLike, as_tensor
from .. import functional as F
from .sizes import pair, pair_nonzero, triple, triple_nonzero
from .weighted import Weighted

_PADDING_MODES = ("zeros", "reflect", "replicate")
_SIZES: dict[int, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    1: (lambda size: size, lambda size: size),
    2: (pair, pair_nonzero),
    3: (triple, triple_nonzero),
}
"""What makes any size, and one above 0, one number for each axis."""


class _ConvNd(Weighted):
    """Base of the convolutions.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the window; this and the next ones are one number, or one for each axis.
        stride: distance between windows.
        padding: elements added on both sides of each axis.
        dilation: distance between the elements of a window.
        groups: into how many parts the channels are divided.
        bias: whether there is one.
        conv_mode: "cross_correlation".
        compute_mode: "float32" sums float16 products in float32.
        padding_mode: "zeros", "reflect" or "replicate".
        output_padding: of transposed ones, what is added at the end of each axis.
        kwargs: those of `Module`.

    Attributes:
        weight: (out_channels, in_channels, *kernel_size), with groups (groups, out_channels / groups,
            in_channels / groups, *kernel_size); in transposed convolutions input and output channels change places.
        bias: (1, out_channels) and a 1 for each further axis, or None.

    Raises:
        ValueError: the channels cannot be divided into that many groups.
        AssertionError: a size is negative, or 0 if it must not be, or the numbers are too few or too many.
    """

    _axes = 2
    _transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        padding_mode: str = "zeros",
        output_padding: Sizes = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, count in (("in_channels", in_channels), ("out_channels", out_channels)):
            if count % groups:
                raise ValueError(f"{name} must be divisible by groups, found {count} and {groups}")
        self.in_channels = in_channels
        self.out_channels = out_channels
        any_size, positive = _SIZES[self._axes]
        self.kernel_size = positive(kernel_size)
        self.stride = positive(stride)
        self.padding = any_size(padding)
        self.output_padding = output_padding
        self.dilation = positive(dilation)
        self.groups = groups
        self.conv_mode = conv_mode
        self.compute_mode = compute_mode
        self.padding_mode = padding_mode
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

    def _padded(self, inp: TensorLike) -> tuple[Tensor, Any]:
        """Return the input with what the padding mode puts around it, and the zeros that are still to be added."""
        _check_padding_mode(self.padding_mode)
        inp = as_tensor(inp)
        if self.padding_mode == "zeros":
            return inp, self.padding
        return F.nn.pad(inp, self.get_pad_witdth(), self.padding_mode), 0

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
    """Base of the convolutions over height and width."""

    _arguments: tuple[str, ...] = (
        *("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups"),
        *("conv_mode", "compute_mode"),
    )

    def _settings(self) -> dict[str, Any]:
        """Return the arguments with which another layer of the same kind is made, but for its name."""
        return {**{n: getattr(self, n) for n in self._arguments}, "bias": self.bias is not None}
