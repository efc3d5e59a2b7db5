"""Normalizations over the values of one sample (MegEngine's ``module/normalization.py``)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...tensors import Parameter, Tensor, TensorLike
from .. import functional as F
from .init import ones_, zeros_
from .module import Module


class _Norm(Module):
    """Base of the normalizations: an optional scale and offset."""

    def __init__(self, eps: float, affine: bool, shape: int | Sequence[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.eps = eps
        self.affine = affine
        self.weight: Any = Parameter(np.ones(shape, np.float32)) if affine else None
        self.bias: Any = Parameter(np.zeros(shape, np.float32)) if affine else None

    def reset_parameters(self) -> None:
        """Set the scale to 1 and the offset to 0."""
        if self.affine:
            ones_(self.weight)
            zeros_(self.bias)


class GroupNorm(_Norm):
    """Normalize groups of channels.

    Args:
        num_groups: number of groups.
        num_channels: number of channels, a multiple of it.
        eps: added to the variance.
        affine: whether to scale and add (``weight`` and ``bias``, both (num_channels,)).
    """

    _flat_state = True

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, **kwargs: Any
    ) -> None:
        if num_channels % num_groups:
            raise AssertionError(f"{num_channels} channels cannot be divided into {num_groups} groups")
        super().__init__(eps, affine, num_channels, **kwargs)
        self.num_groups = num_groups
        self.num_channels = num_channels

    def forward(self, x: TensorLike) -> Tensor:
        """Take (N, num_channels, H, W)."""
        return F.nn.group_norm(x, self.num_groups, self.affine, self.weight, self.bias, self.eps)

    def _module_info_string(self) -> str:
        sizes = f"groups={self.num_groups}, channels={self.num_channels}"
        return f"{sizes}, eps={self.eps}, affine={self.affine}"


class InstanceNorm(_Norm):
    """Normalize every channel of every sample.

    Args:
        num_channels: number of channels.
        eps: added to the variance.
        affine: whether to scale and add (``weight`` and ``bias``, both (num_channels,)).
    """

    _flat_state = True

    def __init__(self, num_channels: int, eps: float = 1e-5, affine: bool = True, **kwargs: Any) -> None:
        super().__init__(eps, affine, num_channels, **kwargs)
        self.num_channels = num_channels

    def forward(self, x: TensorLike) -> Tensor:
        """Take (N, num_channels, H, W)."""
        return F.nn.instance_norm(x, self.affine, self.weight, self.bias, self.eps)

    def _module_info_string(self) -> str:
        return f"channels={self.num_channels}, eps={self.eps}, affine={self.affine}"


class LayerNorm(_Norm):
    """Normalize over the last axes.

    Args:
        normalized_shape: the sizes of those axes, or of the last one.
        eps: added to the variance.
        affine: whether to scale and add (``weight`` and ``bias``, both of that shape).

    >>> LayerNorm(2)(Tensor([[1.0, 3.0]])).numpy().round(3).tolist()
    [[-1.0, 1.0]]
    """

    _flat_state = True

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, affine: bool = True, **kwargs: Any
    ) -> None:
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        super().__init__(eps, affine, shape, **kwargs)
        self.normalized_shape = shape

    def forward(self, x: TensorLike) -> Tensor:
        """Take a tensor whose last axes are those."""
        return F.nn.layer_norm(x, self.normalized_shape, self.affine, self.weight, self.bias, self.eps)

    def _module_info_string(self) -> str:
        return f"normalized_shape={self.normalized_shape}, eps={self.eps}, affine={self.affine}"


class GeneralNorm(_Norm):
    """Normalize over chosen axes.

    Args:
        normalized_shape: their sizes; may be None without `affine`.
        normalized_axis: their numbers, in rising order.
        eps: added to the variance.
        affine: whether to scale and add (``weight`` and ``bias``, both of `normalized_shape`).

    Raises:
        AssertionError: `affine`, and sizes and numbers do not fit together.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int] | None = None,
        normalized_axis: int | Sequence[int] = 0,
        eps: float = 1e-5,
        affine: bool = True,
        **kwargs: Any,
    ) -> None:
        shape: int | Sequence[int] = ()
        if affine:
            for name, value in (("shape", normalized_shape), ("axis", normalized_axis)):
                if value is None:
                    raise AssertionError(f"normalized_{name} must be specified when affine is true")
            assert normalized_shape is not None
            normalized_axis, shape = _listed(normalized_axis), _listed(normalized_shape)
            normalized_shape = shape
            if len(normalized_axis) != len(shape) or len({*normalized_axis}) != len(normalized_axis):
                raise AssertionError(
                    f"normalized_axis {normalized_axis} must name one axis for each of normalized_shape "
                    f"{shape}, none of them twice"
                )
        super().__init__(eps, affine, shape, **kwargs)
        self.normalized_shape = normalized_shape
        self.normalized_axis = normalized_axis

    def forward(self, x: Tensor) -> Tensor:
        """Take a tensor that has those axes."""
        axes = [n + x.ndim if n < 0 else n for n in _listed(self.normalized_axis)]
        if axes != sorted(axes):
            raise AssertionError(f"normalized_axis {axes} must be in rising order, {sorted(axes)}")
        if self.normalized_shape is not None:
            sizes, wanted = [int(x.shape[n]) for n in axes], list(_listed(self.normalized_shape))
            if sizes != wanted:
                raise AssertionError(f"the axes {axes} of the input {[*map(int, x.shape)]} must be {wanted}")
        return F.nn.general_norm(x, axes, self.affine, self.weight, self.bias, self.eps)

    def _module_info_string(self) -> str:
        over = f"normalized_shape={self.normalized_shape}, normalized_axis={self.normalized_axis}"
        return f"{over}, eps={self.eps}, affine={self.affine}"


def _listed(value: int | Sequence[int]) -> Sequence[int]:
    return value if isinstance(value, Sequence) else [value]
