"""Normalizations."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...build import emit as e
from ...build import nn as F
from ..call import FxCall
from ..registry import UnsupportedCallError, aten
from ..values import arr, ten

__all__: list[str] = []


def _per_channel(value: Any, call: FxCall, fill: float) -> Any:
    """A parameter as (1, C, 1, ...)."""
    ndim = len(call.given(0))
    if value is None:
        return arr(np.full((1,) * ndim, fill), call.dtype)
    return arr(value, call.dtype).reshape((1, -1, *[1] * (ndim - 2)))


def _normalized(call: FxCall, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, eps: float) -> Any:
    """Batch normalization by known statistics: MegEngine's operator for images, else its formula."""
    if mean is None or variance is None:
        raise UnsupportedCallError(
            "batch normalization by the batch's own statistics; call .eval() on a module that keeps them"
        )
    if len(call.given(0)) == 4 and call.dtype == np.float32:
        given = [
            None if v is None else e.reshape(ten(v, "float32"), (1, -1, 1, 1))
            for v in (mean, variance, weight, bias)
        ]
        return F.batch_norm(ten(x), *given, training=False, eps=eps)
    scale = _per_channel(weight, call, 1) / np.sqrt(_per_channel(variance, call, 1) + np.float32(eps))
    return arr(x, call.dtype) * scale + (_per_channel(bias, call, 0) - _per_channel(mean, call, 0) * scale)


@aten("aten.batch_norm.default", "aten.cudnn_batch_norm.default")
def batch_norm(
    call: FxCall,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    cudnn: bool = False,
) -> Any:
    """Batch normalization by running statistics, or by the batch's own."""
    if training:
        return _by_batch(call, x, weight, bias, eps)
    return _normalized(call, x, weight, bias, mean, variance, eps)


def _by_batch(call: FxCall, x: Any, weight: Any, bias: Any, eps: float) -> Any:
    x = arr(x, call.dtype)
    axes = (0, *range(2, len(call.given(0))))
    middle = np.mean(x, axis=axes, keepdims=True)
    spread = np.mean(np.square(x - middle), axis=axes, keepdims=True)
    result = (x - middle) / np.sqrt(spread + np.float32(eps))
    return result * _per_channel(weight, call, 1) + _per_channel(bias, call, 0)


@aten("aten._native_batch_norm_legit_no_training.default")
def batch_norm_no_training(
    call: FxCall, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> Any:
    """Batch normalization by running statistics; the two empty results are not used."""
    result = _normalized(call, x, weight, bias, mean, variance, eps)
    nothing = arr(np.zeros(0), call.dtype)
    return result, nothing, nothing


def _group_moments(call: FxCall, x: Any, axes: tuple[int, ...], eps: float) -> Any:
    middle = np.mean(x, axis=axes, keepdims=True)
    centred = x - middle
    spread = np.mean(np.square(centred), axis=axes, keepdims=True)
    return centred / np.sqrt(spread + np.float32(eps))


@aten("aten.layer_norm.default")
def layer_norm(
    call: FxCall,
    x: Any,
    shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Any:
    """MegEngine's LayerNorm."""
    if weight is not None and bias is not None and call.dtype.kind == "f" and len(shape) < len(call.given(0)):
        return F.layer_norm(ten(x), call.static(shape, "layer_norm"), True, ten(weight), ten(bias), eps)
    n = len(shape)
    ndim = len(call.given(0))
    result = _group_moments(call, arr(x, call.dtype), tuple(range(ndim - n, ndim)), eps)
    result = result if weight is None else result * arr(weight, call.dtype)
    return result if bias is None else result + arr(bias, call.dtype)


@aten("aten.native_layer_norm.default")
def native_layer_norm(call: FxCall, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """The same with mean and inverse deviation."""
    ndim = len(call.given(0))
    axes = tuple(range(ndim - len(shape), ndim))
    values = arr(x, call.dtype)
    middle = np.mean(values, axis=axes, keepdims=True)
    spread = np.mean(np.square(values - middle), axis=axes, keepdims=True)
    return layer_norm(call, x, shape, weight, bias, eps), middle, 1 / np.sqrt(spread + np.float32(eps))


@aten("aten.rms_norm.default")
def rms_norm(call: FxCall, x: Any, shape: Any, weight: Any = None, eps: Any = None) -> Any:
    """Divided by the root of the mean square of the last axes."""
    values = arr(x, call.dtype)
    ndim = len(call.given(0))
    axes = tuple(range(ndim - len(shape), ndim))
    eps = float(np.finfo(call.dtype).eps) if eps is None else eps
    result = values / np.sqrt(np.mean(np.square(values), axis=axes, keepdims=True) + np.float32(eps))
    return result if weight is None else result * arr(weight, call.dtype)


def _grouped(call: FxCall, x: Any, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    values = ten(x, call.dtype)
    shape = values.shape
    if len(shape) == 4 and weight is not None and bias is not None:
        return F.group_norm(values, groups, True, ten(weight), ten(bias), eps)
    flat = arr(e.reshape(values, (shape[0], groups, -1)))
    result = arr(e.reshape(ten(_group_moments(call, flat, (2,), eps)), shape))
    result = result if weight is None else result * _per_channel(weight, call, 1)
    return result if bias is None else result + _per_channel(bias, call, 0)


@aten("aten.group_norm.default")
def group_norm(
    call: FxCall,
    x: Any,
    groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Any:
    """MegEngine's GroupNorm for images, else its formula."""
    return _grouped(call, x, groups, weight, bias, eps)


@aten("aten.instance_norm.default")
def instance_norm(
    call: FxCall,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    by_input: bool,
    momentum: float,
    eps: float,
    cudnn: bool = False,
) -> Any:
    """Every channel of every image normalized, or all by running statistics."""
    if not by_input:
        return _normalized(call, x, weight, bias, mean, variance, eps)
    values = ten(x, call.dtype)
    if len(call.given(0)) == 4 and weight is not None and bias is not None:
        return F.instance_norm(values, True, ten(weight), ten(bias), eps)
    axes = tuple(range(2, len(call.given(0))))
    result = _group_moments(call, arr(values), axes, eps)
    result = result if weight is None else result * _per_channel(weight, call, 1)
    return result if bias is None else result + _per_channel(bias, call, 0)
