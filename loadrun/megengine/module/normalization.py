"""Normalizations, those of batches included."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...tensors import Parameter, Tensor, TensorLike
from .. import functional as F
from . import init
from .init import ones_, zeros_
from .module import Module

__all__ = ["BatchNorm1d", "BatchNorm2d", "GeneralNorm", "GroupNorm", "InstanceNorm", "LayerNorm"]
__all__ += ["LocalResponseNorm", "SyncBatchNorm"]


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


class _BatchNorm(Module):
    """``(x - mean) / sqrt(var + eps) * weight + bias`` per channel.

    After ``eval()`` mean and variance are the running ones; while training they are the batch's, and the running
    ones move towards them.

    Args:
        num_features: number of channels.
        eps: added to the variance.
        momentum: how much of the running statistics is kept by a training step.
        affine: whether there are ``weight`` and ``bias``.
        track_running_stats: whether there are ``running_mean`` and ``running_var``.
        freeze: use the running statistics while training too.

    Attributes:
        weight: (1, num_features, 1, 1), as are ``bias``, ``running_mean`` and ``running_var``.
    """

    _flat_state = True

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        freeze: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self._track_running_stats_saved = track_running_stats
        self.freeze = freeze
        if freeze and not track_running_stats:
            raise AssertionError("track_running_stats must be True if freeze is True")
        shape = (1, num_features, 1, 1)
        self.weight: Any = Parameter(np.ones(shape, np.float32)) if affine else None
        self.bias: Any = Parameter(np.zeros(shape, np.float32)) if affine else None
        self.running_mean: Any = Tensor(np.zeros(shape, np.float32)) if track_running_stats else None
        self.running_var: Any = Tensor(np.ones(shape, np.float32)) if track_running_stats else None

    def reset_running_stats(self) -> None:
        """Set the running mean to 0 and the running variance to 1."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)

    def reset_parameters(self) -> None:
        """Set all as in a new module."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            init.zeros_(self.bias)

    _dims: tuple[int, ...] = ()

    def _check_input_ndim(self, inp: Tensor) -> None:
        if inp.ndim not in self._dims:
            expected = " or ".join(f"{n}D" for n in self._dims)
            raise ValueError(f"expected {expected} input (got {inp.ndim}D input)")

    def _frozen(self, inp: Tensor) -> Tensor:
        scale = (self.running_var + self.eps) ** -0.5
        if self.weight is not None:
            scale = scale * self.weight
        offset = -self.running_mean * scale
        return inp * scale + (offset if self.bias is None else offset + self.bias)

    def _momentum(self) -> float:
        return self.momentum if self.training and self.track_running_stats else 0.0

    def _uses_batch(self) -> bool:
        return self.training or (self.running_mean is None and self.running_var is None)

    def forward(self, inp: Tensor) -> Tensor:
        """Take (N, num_features) with none, one or two more axes, as the class says."""
        self._check_input_ndim(inp)
        if self.track_running_stats and not self._track_running_stats_saved:
            raise AssertionError("track_running_stats was False at first and cannot become True")
        if self.freeze:
            return self._frozen(inp)
        tracked = self.track_running_stats
        return F.batch_norm(
            inp,
            self.running_mean if tracked else None,
            self.running_var if tracked else None,
            self.weight,
            self.bias,
            training=self._uses_batch(),
            momentum=self._momentum(),
            eps=self.eps,
        )

    def _module_info_string(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(_BatchNorm):
    """Batch normalization of (N, C) or (N, C, L)."""

    __doc__ = f"{__doc__}\n\n{_BatchNorm.__doc__}"
    _dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalization of (N, C, H, W)."""

    __doc__ = f"{__doc__}\n\n{_BatchNorm.__doc__}"
    _dims = (4,)


class SyncBatchNorm(_BatchNorm):
    """Batch normalization over all devices of a group; here there is one, so it is plain batch normalization.

    Args:
        num_features: number of channels.
        eps: added to the variance.
        momentum: how much of the running statistics is kept by a training step.
        affine: whether there are ``weight`` and ``bias``.
        track_running_stats: whether there are ``running_mean`` and ``running_var``.
        freeze: use the running statistics while training too.
        group: accepted for MegEngine's sake.
    """

    _dims = (2, 3, 4)

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        freeze: bool = False,
        group: object = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, freeze, **kwargs)
        self.group = group

    def forward(self, inp: Tensor) -> Tensor:
        """Take (N, C), (N, C, L) or (N, C, H, W)."""
        self._check_input_ndim(inp)
        shape = inp.shape
        if inp.ndim != 4:
            inp = inp.reshape((*shape, *(1,) * (4 - inp.ndim)))
        y = F.nn.sync_batch_norm(
            inp,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=self._uses_batch() and not self.freeze,
            momentum=self._momentum(),
            eps=self.eps,
            group=self.group,
        )
        return y if len(shape) == 4 else y.reshape(shape)


class LocalResponseNorm(Module):
    """``x / (k + alpha * sum(x ** 2)) ** beta``, summed over neighbouring channels.

    Args:
        kernel_size: channels of a sum, odd.
        k: added to the sum.
        alpha: multiplies the sum.
        beta: the exponent.
    """

    def __init__(
        self, kernel_size: int = 5, k: float = 2.0, alpha: float = 1e-4, beta: float = 0.75, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_size = kernel_size
        self.k = k
        self.alpha = alpha
        self.beta = beta

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, C, H, W)."""
        return F.local_response_norm(inp, self.kernel_size, self.k, self.alpha, self.beta)
