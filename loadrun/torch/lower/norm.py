"""Normalizations."""

from typing import Any

import numpy as np

from ...layers import emit as e
from ...layers.shared import nn as build
from ...layers.shared.sizes import per_channel
from ...tensors import Tensor, TracedNumber
from ..call import FxCall
from ..registry import UnsupportedCallError, aten
from ..values import as_array, as_tensor


def _tensors(call: FxCall, *values: Any) -> list[Any]:
    return [None if v is None else as_tensor(v, call.dtype) for v in values]


def _normalized(call: FxCall, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, eps: float) -> Tensor:
    """Normalize by known statistics."""
    if mean is None or variance is None:
        raise UnsupportedCallError(
            "batch normalization by the batch's own statistics; call .eval() on a module that keeps them"
        )
    x, mean, variance, weight, bias = _tensors(call, x, mean, variance, weight, bias)
    return build.batch_norm(x, mean, variance, weight, bias, eps)


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
    """Normalize batches by running statistics, or by the batch's own."""
    if training:
        return _by_batch(call, x, weight, bias, eps)
    return _normalized(call, x, weight, bias, mean, variance, eps)


def _by_batch(call: FxCall, x: Any, weight: Any, bias: Any, eps: float) -> Any:
    x, weight, bias = _tensors(call, x, weight, bias)
    y, _, _ = build.standardized(e.as_float(x), [i for i in range(x.ndim) if i != 1], eps)
    scales = [None if v is None else per_channel(v, x.ndim) for v in (weight, bias)]
    return build.affine(e.cast(y, call.dtype), *scales)


@aten("aten._native_batch_norm_legit_no_training.default")
def batch_norm_no_training(
    call: FxCall, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> Any:
    """Normalize batches by running statistics; the two empty results are not used."""
    result = _normalized(call, x, weight, bias, mean, variance, eps)
    nothing = as_array(np.zeros(0), call.dtype)
    return result, nothing, nothing


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
    """Apply MegEngine's LayerNorm."""
    return native_layer_norm(call, x, shape, weight, bias, eps)[0]


@aten("aten.native_layer_norm.default")
def native_layer_norm(call: FxCall, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Normalize over the last axes; return mean and inverse deviation too."""
    x, weight, bias = _tensors(call, x, weight, bias)
    fixed = None if any(isinstance(n, TracedNumber) for n in shape) else shape
    return build.layer_norm(x, x.ndim - len(shape), weight, bias, eps, fixed)


@aten("aten.rms_norm.default")
def rms_norm(call: FxCall, x: Any, shape: Any, weight: Any = None, eps: Any = None) -> Any:
    """Divide by the root of the mean square of the last axes."""
    x, weight = _tensors(call, x, weight)
    eps = float(np.finfo(call.dtype).eps) if eps is None else eps
    return build.rms_norm(x, range(x.ndim - len(shape), x.ndim), weight, eps)


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
    """Apply MegEngine's GroupNorm."""
    x, weight, bias = _tensors(call, x, weight, bias)
    return build.group_norm(x, groups, weight, bias, eps)


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
    """Normalize every channel of every image, or all by running statistics."""
    if not by_input:
        return _normalized(call, x, weight, bias, mean, variance, eps)
    x, weight, bias = _tensors(call, x, weight, bias)
    return build.group_norm(x, 0, weight, bias, eps)
