"""Normalizations of MegEngine's functional package (`loadrun.ops.norm`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..base.registry import late
from ..graph import params as P
from ..tensors import Tensor, TensorLike, apply, apply1, as_tensor, const, elemwise, shape_tensor
from ..tensors.reducing import mean
from ..tensors.shaping import transpose
from .geometry import require

with late(__name__):
    import logging

__all__ = ["batch_norm", "general_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm"]
__all__ += ["sync_batch_norm"]

_M = P.ElemwiseMode


def _affine(
    inp: TensorLike, affine: bool, weight: TensorLike | None, bias: TensorLike | None
) -> list[Tensor]:
    """Return the inputs of a normalization, weight and bias only where they count."""
    if not affine:
        return [as_tensor(inp)]
    require(weight is not None, "weight must be provided if affine is True")
    require(bias is not None, "bias must be provided if affine is True")
    return [as_tensor(inp), as_tensor(weight), as_tensor(bias)]


def instance_norm(
    inp: TensorLike,
    affine: bool,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize every channel of every image: ``(x - mean) / sqrt(var + eps) * weight + bias``.

    Args:
        inp: (N, C, H, W), float.
        affine: whether to scale by `weight` and add `bias`.
        weight: (C,).
        bias: (C,).
        eps: added to the (biased) variance.

    Raises:
        AssertionError: `affine` without weight or bias.
        RuntimeError: the shapes do not fit together.

    >>> import numpy as np
    >>> instance_norm(np.float32([1, -1]).reshape(1, 1, 1, 2), False).numpy().round(3).tolist()
    [[[[1.0, -1.0]]]]
    """
    param = P.GroupNorm(affine=affine, eps=eps)
    return apply("InstanceNorm", param, inputs=_affine(inp, affine, weight, bias), n=3)[0]


def group_norm(
    inp: TensorLike,
    num_groups: int,
    affine: bool,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize every group of channels of every image.

    Args:
        inp: (N, C, H, W), float.
        num_groups: into how many groups the channels are divided.
        affine: whether to scale by `weight` and add `bias`.
        weight: (C,).
        bias: (C,).
        eps: added to the (biased) variance.

    Raises:
        AssertionError: `affine` without weight or bias.
        RuntimeError: the shapes do not fit together.

    >>> import numpy as np
    >>> group_norm(np.float32([1, -1]).reshape(1, 2, 1, 1), 1, False).numpy().round(3).tolist()
    [[[[1.0]], [[-1.0]]]]
    """
    param = P.GroupNorm(affine=affine, eps=eps, group=int(num_groups))
    return apply("GroupNorm", param, inputs=_affine(inp, affine, weight, bias), n=3)[0]


def layer_norm(
    inp: TensorLike,
    normalized_shape: int | Iterable[int],
    affine: bool,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize over the last axes.

    Args:
        inp: a float tensor.
        normalized_shape: the sizes of the axes to normalize over; one number for the last.
        affine: whether to scale by `weight` and add `bias`.
        weight: of shape `normalized_shape`.
        bias: of shape `normalized_shape`.
        eps: added to the (biased) variance.

    Raises:
        AssertionError: `affine` without weight or bias, or nothing to normalize over.
        RuntimeError: the shapes do not fit together.

    >>> layer_norm([[1.0, -1.0], [3.0, 1.0]], 2, False).numpy().round(3).tolist()
    [[1.0, -1.0], [1.0, -1.0]]
    """
    if isinstance(normalized_shape, (int, np.integer)):
        normalized_shape = [normalized_shape]
    sizes = [int(n) for n in normalized_shape]
    require(sizes, "normalized_shape must name at least one axis")
    return layer_moments(_affine(inp, affine, weight, bias), sizes, eps)[0]


def layer_moments(inputs: Sequence[Tensor], sizes: Sequence[int], eps: float) -> list[Tensor]:
    """Return what MegEngine's LayerNorm gives: the result, and mean and ``1 / sqrt(var + eps)`` of every row."""
    param = P.LayerNorm(
        affine=len(inputs) > 1,
        eps=eps,
        normalized_dim=len(sizes),
        normalized_size=int(np.prod(sizes, dtype=object)),
    )
    return apply("LayerNorm", param, inputs=inputs, n=3)


def general_norm(
    inp: TensorLike,
    normalized_axis: int | Sequence[int],
    affine: bool = True,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize over any axes.

    Args:
        inp: a float tensor.
        normalized_axis: one axis, or several in rising order. Where they are not adjacent, the tensor is
            transposed and back, with a warning.
        affine: whether to scale by `weight` and add `bias`.
        weight: of the shape of those axes.
        bias: of the shape of those axes.
        eps: added to the (biased) variance.

    Raises:
        AssertionError: `affine` without weight or bias; axes out of range, of order, or given twice.

    >>> general_norm([[1.0, 5.0], [-1.0, 3.0]], 0, False).numpy().round(3).tolist()
    [[1.0, 1.0], [-1.0, -1.0]]
    """
    inp = as_tensor(inp)
    requested = list(normalized_axis) if isinstance(normalized_axis, Sequence) else [normalized_axis]
    require(requested, "normalized_axis must name at least one axis")
    axes = [int(a) + inp.ndim if a < 0 else int(a) for a in requested]
    require(axes == sorted(axes), f"normalized_axis must be in rising order {sorted(axes)}, found {axes}")
    require(axes[-1] < inp.ndim, f"normalized_axis {axes[-1]} is outside an input of {inp.ndim} dimensions")
    require(len({*axes}) == len(axes), f"normalized_axis names an axis twice: {axes}")
    apart = axes[-1] - axes[0] != len(axes) - 1
    order: list[int] = []
    if apart:
        logging.getLogger(__name__).warning(
            "normalized_axis %s is not contiguous: the input is transposed and back", axes
        )
        others = [a for a in range(inp.ndim) if a not in axes]
        order = others + axes
        inp = transpose(inp, order)
        axes = list(range(len(others), inp.ndim))
    param = P.GeneralNorm(affine=affine, eps=eps, axis_start=axes[0], axis_end=axes[-1] + 1)
    y = apply("GeneralNorm", param, inputs=_affine(inp, affine, weight, bias), n=3)[0]
    return transpose(y, [int(i) for i in np.argsort(order)]) if apart else y


def _per_channel(inp: Tensor, value: TensorLike | None, fill: float) -> Tensor:
    """Return a parameter of batch norm as (1, C, 1, 1)."""
    if value is not None:
        value = as_tensor(value)
        if value.ndim != 1:
            return value
    shape = (1, inp.shape[1], 1, 1)
    if value is not None:
        return value.reshape(shape)
    return apply1(
        "Broadcast",
        inputs=[const(np.array([fill], np.float32), inp.dtype), shape_tensor(shape)],
        scalar=False,
    )


def _axes(inp: Tensor, method: P.AxisDescMethod, missing: range) -> Tensor:
    """Return the input with trailing axes of size 1 up to four added, or removed again."""
    if not missing:
        return inp
    order = missing if method == P.AxisDescMethod.ADD_1 else reversed(missing)
    desc = tuple(P.AxisDesc(method, a) for a in order)
    return apply1("AxisAddRemove", P.AxisAddRemove(desc=desc), inputs=[inp], scalar=False)


def batch_norm(
    inp: TensorLike,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    *,
    training: bool = False,
    momentum: float = 0.9,
    eps: float = 1e-5,
    inplace: bool = True,
) -> Any:  # noqa: ANN401 - a triple where it gives the new statistics, too
    """Normalize every channel by statistics that were gathered, or by those of the batch.

    Args:
        inp: (N, C, H, W), float; (N, C) and (N, C, L) are taken as if the missing axes had size 1.
        running_mean: (1, C, 1, 1).
        running_var: (1, C, 1, 1).
        weight: (1, C, 1, 1) or (C,), by default 1.
        bias: (1, C, 1, 1) or (C,), by default 0.
        training: take the statistics of the batch, and move the running ones towards them.
        momentum: how much of the running statistics stays then.
        eps: added to the variance.
        inplace: in training, change the running statistics; else return new ones.

    Returns:
        the normalized input; with `training` and not `inplace` and any running statistics a triple of it, the new
        mean and the new variance (None for one that was not given).

    Raises:
        AssertionError: no running statistics where they are needed.
        RuntimeError: the shapes do not fit together.

    >>> import numpy as np
    >>> x, one = np.float32([[5.0], [7.0]]), np.ones((1, 1, 1, 1), "f")
    >>> batch_norm(x, one * 5, one * 4, eps=0.0).tolist()
    [[0.0], [1.0]]
    """
    if not training:
        require(running_mean is not None, "running_mean must be provided in inference mode")
        require(running_var is not None, "running_var must be provided in inference mode")
    inp = as_tensor(inp)
    w, b = _per_channel(inp, weight, 1), _per_channel(inp, bias, 0)
    missing = range(inp.ndim, 4) if inp.ndim in (2, 3) else range(0)
    x = _axes(inp, P.AxisDescMethod.ADD_1, missing)

    def run(mode: P.BNFwdMode, *stats: Tensor) -> list[Tensor]:
        param = P.BN(param_dim=P.BNParamDim.DIM_1C11, fwd_mode=mode, epsilon=eps, avg_factor=1 - momentum)
        n = 6 if stats and mode == P.BNFwdMode.TRAINING else 4
        result = apply("BatchNormV1", param, inputs=[x, w, b, *stats], n=n)
        return [*result[:-1], _axes(result[-1], P.AxisDescMethod.REMOVE, missing)]

    if not training:
        return run(P.BNFwdMode.INFERENCE, as_tensor(running_mean), as_tensor(running_var))[-1]
    if running_mean is None and running_var is None:
        return run(P.BNFwdMode.TRAINING)[-1]
    mean, var, *_, y = run(
        P.BNFwdMode.TRAINING, _per_channel(inp, running_mean, 0), _per_channel(inp, running_var, 1)
    )
    moved = [None if old is None else new for old, new in ((running_mean, mean), (running_var, var))]
    if not inplace:
        return y, moved[0], moved[1]
    for old, new in zip((running_mean, running_var), moved, strict=True):
        if old is not None and new is not None:
            old[...] = new
    return y


def sync_batch_norm(
    inp: TensorLike,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    training: bool = False,
    momentum: float = 0.9,
    eps: float = 1e-5,
    eps_mode: str = "additive",
    group: object = None,
) -> Tensor:
    """Do `batch_norm` on one device, with a choice of how `eps` counts.

    Args:
        inp: (N, C, H, W), float.
        running_mean: (1, C, 1, 1).
        running_var: (1, C, 1, 1).
        weight: (1, C, 1, 1) or (C,), by default 1.
        bias: (1, C, 1, 1) or (C,), by default 0.
        training: take the statistics of the batch, and move the running ones towards them.
        momentum: how much of the running statistics stays then.
        eps: "additive": added to the variance; "max": the smallest that the variance counts as.
        eps_mode: "additive" or "max".
        group: accepted for MegEngine's sake; there is one device.

    Raises:
        AssertionError: no such `eps_mode`, or no running statistics in inference.

    >>> import numpy as np
    >>> x, one = np.float32([5, 7]).reshape(2, 1, 1, 1), np.ones((1, 1, 1, 1), "f")
    >>> sync_batch_norm(x, one * 5, one, eps=4.0, eps_mode="max").numpy().ravel().tolist()
    [0.0, 1.0]
    """
    mode = eps_mode.lower()
    require(mode in ("max", "additive"), f"eps_mode must be 'max' or 'additive', found {eps_mode!r}")
    if mode == "additive":
        result: Tensor = batch_norm(
            inp, running_mean, running_var, weight, bias, training=training, momentum=momentum, eps=eps
        )
        return result
    inp = as_tensor(inp)
    require(inp.ndim == 4, f"sync_batch_norm takes 4 dimensions, found {inp.ndim}")
    w, b = _per_channel(inp, weight, 1), _per_channel(inp, bias, 0)
    if training:
        mean, var, count = _statistics(inp)
    else:
        require(running_mean is not None and running_var is not None, "running statistics must be provided")
        mean, var = as_tensor(running_mean), as_tensor(running_var)
    scale = elemwise(_M.POW, elemwise(_M.MAX, var, eps), -0.5) * w
    y = inp * scale + (b - mean * scale)
    if training and running_mean is not None and running_var is not None:
        unbiased = var * count / (count - 1)
        for old, new in ((running_mean, mean), (running_var, unbiased)):
            old[...] = old * momentum + new * (1 - momentum)
    return y


def _statistics(inp: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean and biased variance of every channel as (1, C, 1, 1), and of how many values."""
    axes = [0, 2, 3]
    average = mean(inp, axes, keepdims=True)
    n, _, h, w = inp.shape
    return average, mean((inp - average) ** 2, axes, keepdims=True), as_tensor(n * h * w).astype(inp.dtype)


def local_response_norm(
    inp: TensorLike, kernel_size: int = 5, k: float = 2.0, alpha: float = 1e-4, beta: float = 0.75
) -> Tensor:
    """Compute ``inp / (k + alpha * s) ** beta``, s the sum of squares over neighbouring channels.

    Args:
        inp: (N, C, H, W), float32.
        kernel_size: how many channels, the own in the middle; odd.
        k: summand.
        alpha: factor.
        beta: exponent.

    Raises:
        RuntimeError: `kernel_size` is even, or the input does not have 4 dimensions.

    >>> import numpy as np
    >>> local_response_norm(np.full((1, 1, 1, 1), 2, "f"), k=1.0, alpha=0.75, beta=0.5).tolist()
    [[[[1.0]]]]
    """
    param = P.LRN(n=int(kernel_size), k=float(k), alpha=float(alpha), beta=float(beta))
    return apply1("LRN", param, inputs=[as_tensor(inp)])
