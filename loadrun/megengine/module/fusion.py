"""Batch normalization fused into the layer before it (MegEngine's ``utils/bn_fusion.py``)."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ...tensors import Parameter
from .conv import Conv2d, ConvRelu2d, ConvTranspose2d, ConvTransposeRelu2d
from .conv_bn import ConvBn2d, ConvBnRelu2d
from .conv_transpose_bn import ConvTransposeBn2d, ConvTransposeBnRelu2d
from .linear import Linear, LinearRelu
from .linear_bn import LinearBn1d, LinearBnRelu1d
from .module import Module
from .qat.folding import Folding

__all__ = ["fold_weight_bias", "fuse_conv_bn_relu_module", "fuse_linear_bn_relu_module"]

# (layer, whether relu follows) -> in inference, while training
_FUSED: dict[tuple[type[Module], bool], tuple[Any, Any]] = {
    (Conv2d, False): (Conv2d, ConvBn2d),
    (Conv2d, True): (ConvRelu2d, ConvBnRelu2d),
    (ConvTranspose2d, False): (ConvTranspose2d, ConvTransposeBn2d),
    (ConvTranspose2d, True): (ConvTransposeRelu2d, ConvTransposeBnRelu2d),
    (Linear, False): (Linear, LinearBn1d),
    (Linear, True): (LinearRelu, LinearBnRelu1d),
}


def fold_weight_bias(
    weight: Any,
    bias: Any,
    gamma: Any,
    beta: Any,
    bn_mean: Any,
    bn_var: Any,
    eps: float = 1e-5,
    transpose: bool = False,
) -> tuple[Any, Any]:
    """Return the weight and bias of the layer that does what a layer and a batch normalization do.

    Args:
        weight: of the layer: of two axes, or of a convolution of four, or five with groups.
        bias: of the layer, or None.
        gamma: weight of the normalization, or None.
        beta: bias of the normalization, or None.
        bn_mean: its mean.
        bn_var: its variance.
        eps: added to the variance.
        transpose: whether the convolution is a transposed one.

    Returns:
        the new weight, and the new bias: (1, channels, 1, 1), or (features,) for a weight of two axes.
    """
    shape = [int(n) for n in weight.shape]
    groups = shape[0] if len(shape) == 5 else 1
    axis = (len(shape) == 5) + transpose
    fold = Folding(groups * shape[axis], gamma, beta, bn_mean, bn_var, eps)
    per_output = [1] * len(shape)
    per_output[0] = groups
    per_output[axis] = shape[axis]
    folded = fold.bias(bias)
    return weight * fold.scale.reshape(per_output), folded.reshape((-1,)) if len(shape) == 2 else folded


def _fused(layer: Any, bn: Any, relu: Any, channels: int) -> Any:
    """Return the fused module; the parameters of the layer are its own or folded ones."""
    kinds = _FUSED.get((type(layer), relu is not None))
    if kinds is None or (bn is None and relu is None):
        raise KeyError(f"nothing fuses {type(layer).__name__}, {type(bn).__name__} and {type(relu).__name__}")
    keeps = bn is not None and layer.training
    if bn is not None and layer.training != bn.training:
        raise AssertionError("the layer and its batch normalization must be in the same mode (train or eval)")
    if bn is not None and bn.num_features != channels:
        raise AssertionError(f"the layer has {channels} outputs, the batch normalization {bn.num_features}")
    fused: Any = kinds[keeps](**layer._settings(), name=layer.name)
    inner = fused
    weight, bias = layer.weight, layer.bias
    if keeps:
        inner = next(m for m in fused.children() if not isinstance(m, type(bn)))
        fused.bn = deepcopy(bn)
    elif bn is not None:
        statistics = (bn.weight, bn.bias, bn.running_mean, bn.running_var)
        transpose = isinstance(layer, ConvTranspose2d)
        weight, bias = fold_weight_bias(weight, bias, *statistics, bn.eps, transpose)
    inner.weight = Parameter(weight)
    if bias is not None:
        inner.bias = Parameter(bias)
    inner.training = layer.training
    return fused


def fuse_conv_bn_relu_module(conv: Any, bn: Any, relu: Any) -> Any:
    """Join a `Conv2d` or `ConvTranspose2d`, a `BatchNorm2d` and a `ReLU` to one module; one of the latter may be None.

    In inference the normalization becomes part of the weight, while training it stays beside it.

    Raises:
        AssertionError: they are not in the same mode, or of different channels.
        KeyError: nothing fuses modules of these classes.

    >>> from loadrun.megengine.module import ReLU
    >>> fuse_conv_bn_relu_module(Conv2d(1, 2, 3), None, ReLU())
    ConvRelu2d(1, 2, kernel_size=(3, 3))
    """
    return _fused(conv, bn, relu, conv.out_channels)


def fuse_linear_bn_relu_module(linear: Any, bn: Any, relu: Any) -> Any:
    """Return one module for a `Linear`, a `BatchNorm1d` and a `ReLU`; one of the latter may be None.

    Raises:
        AssertionError: they are not in the same mode, or of different sizes.
        KeyError: nothing fuses modules of these classes.

    >>> from loadrun.megengine.module import ReLU
    >>> fuse_linear_bn_relu_module(Linear(1, 2), None, ReLU())
    LinearRelu(in_features=1, out_features=2, bias=True)
    """
    return _fused(linear, bn, relu, linear.out_features)
