"""Convolutions of one, two and three dimensions, and their transposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...build import emit as e
from ...build import nn as F
from ...tensors import Tensor
from ..call import FxCall
from ..registry import UnsupportedCallError, aten
from ..values import arr, ten

__all__: list[str] = []


def _many(value: Any, n: int) -> list[int]:
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    return [int(v) for v in (given * n if len(given) == 1 else given)]


def _biased(y: Tensor, bias: Any, call: FxCall, n: int) -> Any:
    if bias is None:
        return y
    return arr(y) + arr(bias, call.dtype).reshape((1, -1, *[1] * n))


def convolved(
    call: FxCall,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Sequence[int],
    dilation: Any,
    groups: int,
) -> Any:
    """A convolution of (N, C, ...) or (C, ...)."""
    if call.dtype.kind != "f":
        raise UnsupportedCallError("a convolution of integers; convert to float32 first")
    n = len(call.given(1)) - 2
    x, weight = ten(x, call.dtype), ten(weight, call.dtype)
    single = len(call.given(0)) == n + 1
    if single:
        x = e.add_axes(x, [0])
    steps, pads, spread = _many(stride, n), _many(padding, n), _many(dilation, n)
    if n == 1:
        x, weight = e.add_axes(x, [3]), e.add_axes(weight, [3])
        steps, pads, spread = [*steps, 1], [*pads, 0], [*spread, 1]
    weight = _grouped(weight, groups)
    flat = None if bias is None else e.reshape(ten(bias, call.dtype), (1, -1, *[1] * max(n, 2)))
    function: Any = F.conv3d if n == 3 else F.conv2d
    y = function(x, weight, flat, steps, pads, spread, groups)
    y = e.drop_axes(y, [3]) if n == 1 else y
    return e.drop_axes(y, [0]) if single else y


@aten("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default")
def conv(
    call: FxCall,
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """MegEngine's convolutions."""
    return convolved(call, x, weight, bias, stride, padding, dilation, groups)


@aten("aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding")
def conv_padding(
    call: FxCall,
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: str = "valid",
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """The same with padding by name; "same" pads one more behind where the total is odd."""
    n = len(call.given(1)) - 2
    if padding == "valid":
        return convolved(call, x, weight, bias, stride, [0] * n, dilation, groups)
    kernel = call.static(call.given(1)[2:], "the size of a filter")
    total = [d * (k - 1) for d, k in zip(_many(dilation, n), kernel, strict=True)]
    if any(t % 2 for t in total):
        outer = [(0, 0)] * (len(call.given(0)) - n)
        x = np.pad(arr(x, call.dtype), [*outer, *((0, t % 2) for t in total)])
    return convolved(call, x, weight, bias, stride, [t // 2 for t in total], dilation, groups)


@aten("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
def conv_transpose(
    call: FxCall,
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """The adjoints of convolutions."""
    if call.dtype.kind != "f":
        raise UnsupportedCallError("a convolution of integers; convert to float32 first")
    n = len(call.given(1)) - 2
    x, weight = ten(x, call.dtype), ten(weight, call.dtype)
    single = len(call.given(0)) == n + 1
    if single:
        x = e.add_axes(x, [0])
    geometry = [_many(v, n) for v in (stride, padding, output_padding, dilation)]
    if n == 1:
        x, weight = e.add_axes(x, [3]), e.add_axes(weight, [3])
        geometry = [[*v, fill] for v, fill in zip(geometry, (1, 0, 0, 1), strict=True)]
    steps, pads, extra, spread = geometry
    if any(more >= step for more, step in zip(extra, steps, strict=True)):
        raise UnsupportedCallError("output_padding must be less than the stride")
    function: Any = F.conv_transpose3d if n == 3 else F.conv_transpose2d
    y = function(x, _grouped(weight, groups), None, steps, pads, extra, spread, groups)
    y = ten(_biased(y, bias, call, max(n, 2)))
    y = e.drop_axes(y, [3]) if n == 1 else y
    return e.drop_axes(y, [0]) if single else y


def _grouped(weight: Tensor, groups: int) -> Tensor:
    """Filters with an axis of groups, as MegEngine has them."""
    if groups == 1:
        return weight
    c, *rest = weight.shape
    return e.reshape(weight, (groups, c // groups, *rest))


@aten("aten.convolution.default")
def convolution(
    call: FxCall,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    """Any convolution."""
    if transposed:
        return conv_transpose(call, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return convolved(call, x, weight, bias, stride, padding, dilation, groups)
