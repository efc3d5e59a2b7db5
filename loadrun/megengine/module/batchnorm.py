"""Batch normalization (MegEngine's ``module/batchnorm.py``)."""

from typing import Any

import numpy as np

from ...tensors import Parameter, Tensor
from .. import functional as F
from . import init
from .module import Module


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
