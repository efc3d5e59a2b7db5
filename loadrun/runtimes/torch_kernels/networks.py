"""Products, convolutions, pooling, norms and images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch  # optional
import torch.nn.functional as F

from ..runtime import NotTaken
from .registry import Node, kernel
from .shapes import numbers

__all__: list[str] = []

Tensor = Any


@kernel("MatMul")
def matmul(node: Node, x: Tensor, y: Tensor) -> Tensor:
    """Matrix products."""
    return torch.matmul(x, y)


@kernel("Gemm")
def gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """Compute a product of two matrices and a sum."""
    result = torch.matmul(a.T if node.get("transA", 0) else a, b.T if node.get("transB", 0) else b)
    if node.get("alpha", 1.0) != 1.0:
        result = result * node.get("alpha")
    return result if c is None else result + node.get("beta", 1.0) * c


@kernel("Einsum")
def einsum(node: Node, *xs: Tensor) -> Tensor:
    """Products and sums by letters."""
    return torch.einsum(node.get("equation"), *xs)


def _centered(x: Tensor, zero: Tensor | None) -> Tensor:
    """Subtract the zero point from stored integers, as float64: sums of their products are exact."""
    wide = x.to(torch.float64)
    return wide if zero is None else wide - zero.to(torch.float64)


@kernel("MatMulInteger")
def matmul_integer(
    node: Node, x: Tensor, y: Tensor, x_zero: Tensor | None = None, y_zero: Tensor | None = None
) -> Tensor:
    """Products of 8-bit integers in int32."""
    return torch.matmul(_centered(x, x_zero), _centered(y, y_zero)).to(torch.int64).to(torch.int32)


def _begin_end(node: Node, n: int) -> tuple[list[int], list[int]]:
    if node.get("auto_pad", "NOTSET") != "NOTSET":
        raise NotTaken(f"auto_pad {node.get('auto_pad')}")
    pads = node.get("pads") or [0] * 2 * n
    return list(pads[:n]), list(pads[n:])


def _padded(x: Tensor, before: Sequence[int], after: Sequence[int], value: float = 0) -> Tensor:
    flat = [v for pair in zip(reversed(before), reversed(after), strict=True) for v in pair]
    return F.pad(x, flat, value=value) if any(flat) else x


@kernel("Conv")
def conv(node: Node, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """Convolutions of one to three axes."""
    n = x.dim() - 2
    before, after = _begin_end(node, n)
    same = before == after
    call = (F.conv1d, F.conv2d, F.conv3d)[n - 1]
    return call(
        x if same else _padded(x, before, after),
        w,
        b,
        tuple(node.get("strides") or [1] * n),
        tuple(before) if same else 0,
        tuple(node.get("dilations") or [1] * n),
        node.get("group", 1),
    )


@kernel("ConvInteger")
def conv_integer(
    node: Node, x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None
) -> Tensor:
    """Convolutions of 8-bit integers in int32."""
    return conv(node, _centered(x, x_zero), _centered(w, w_zero)).to(torch.int64).to(torch.int32)


@kernel("ConvTranspose")
def conv_transpose(node: Node, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """Convolutions the other way round."""
    n = x.dim() - 2
    before, after = _begin_end(node, n)
    call = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[n - 1]
    result = call(
        x,
        w,
        b,
        tuple(node.get("strides") or [1] * n),
        0,
        0,
        node.get("group", 1),
        tuple(node.get("dilations") or [1] * n),
    )
    more = node.get("output_padding") or [0] * n
    # Rows after the last window hold the bias alone.
    result = _padded(result, [0] * n, more) if b is None or not any(more) else _longer(result, more, b)
    for i, (low, high) in enumerate(zip(before, after, strict=True)):
        result = result.narrow(i + 2, low, result.shape[i + 2] - low - high)
    return result


def _longer(x: Tensor, more: Sequence[int], b: Tensor) -> Tensor:
    sizes = [*x.shape[:2], *(s + m for s, m in zip(x.shape[2:], more, strict=True))]
    extended = b.reshape([1, -1, *[1] * len(more)]).expand(sizes).clone()
    extended[tuple(slice(s) for s in x.shape)] = x
    return extended


def _windows(node: Node, x: Tensor) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    kernel_shape = list(node.get("kernel_shape"))
    n = len(kernel_shape)
    before, after = _begin_end(node, n)
    strides, dilations = node.get("strides") or [1] * n, node.get("dilations") or [1] * n
    if node.get("ceil_mode", 0):
        for i in range(n):
            span = dilations[i] * (kernel_shape[i] - 1) + 1
            left = (x.shape[i + 2] + before[i] + after[i] - span) % strides[i]
            # A window that would begin in the padding is not added.
            starts = x.shape[i + 2] + before[i] + after[i] - span - left + strides[i]
            if left and starts < x.shape[i + 2] + before[i]:
                after[i] += strides[i] - left
    return kernel_shape, before, after, list(strides), list(dilations)


@kernel("MaxPool")
def max_pool(node: Node, x: Tensor) -> Tensor:
    """Compute the largest value of every window."""
    size, before, after, strides, dilations = _windows(node, x)
    real = x if x.is_floating_point() else x.to(torch.float32)
    call = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(size) - 1]
    result = call(_padded(real, before, after, float("-inf")), size, strides, 0, dilations)
    return result.to(x.dtype)


@kernel("AveragePool")
def average_pool(node: Node, x: Tensor) -> Tensor:
    """Compute the mean of every window, of all places or of those in the image."""
    size, before, after, strides, dilations = _windows(node, x)
    if any(d != 1 for d in dilations):
        raise NotTaken("AveragePool with dilations")
    n = len(size)
    pads = node.get("pads") or [0] * 2 * n
    whole = node.get("count_include_pad", 0)
    low, high = (list(pads[:n]), list(pads[n:])) if whole else ([0] * n, [0] * n)
    inner = _padded(torch.ones([1, 1, *x.shape[2:]], dtype=x.dtype), low, high, 1)
    left = (
        [b - a for a, b in zip(low, before, strict=True)],
        [b - a for a, b in zip(high, after, strict=True)],
    )
    return _sums(_padded(x, before, after), size, strides) / _sums(_padded(inner, *left), size, strides)


def _sums(x: Tensor, size: Sequence[int], strides: Sequence[int]) -> Tensor:
    """Compute the sum of every window."""
    if len(size) == 1:
        return _sums(x[..., None], [*size, 1], [*strides, 1])[..., 0]
    call = F.avg_pool2d if len(size) == 2 else F.avg_pool3d
    return call(x, size, strides, divisor_override=1)


@kernel("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: Node, x: Tensor) -> Tensor:
    """Compute the mean or the largest of every channel."""
    axes = tuple(range(2, x.dim()))
    return torch.amax(x, axes, True) if node.op == "GlobalMaxPool" else torch.mean(x, axes, True)


@kernel("BatchNormalization")
def batch_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """Channels by given means and variances."""
    if node.get("training_mode", 0):
        raise NotTaken("BatchNormalization in training")
    return F.batch_norm(x, mean, var, scale, bias, False, 0.0, node.get("epsilon", 1e-5))


@kernel("InstanceNormalization")
def instance_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Channels of every sample by their own means and variances."""
    axes = tuple(range(2, x.dim()))
    gap = x - torch.mean(x, axes, True)
    var = torch.mean(gap * gap, axes, True)
    sizes = [1, -1, *[1] * len(axes)]
    return gap / torch.sqrt(var + node.get("epsilon", 1e-5)) * scale.reshape(sizes) + bias.reshape(sizes)


@kernel("LayerNormalization")
def layer_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> tuple[Tensor, ...]:
    """Normalize the last axes by their own means and variances; with mean and inverse deviation."""
    axes = tuple(range(node.get("axis", -1) % x.dim(), x.dim()))
    eps = node.get("epsilon", 1e-5)
    if node.outputs == 1:
        return (F.layer_norm(x, x.shape[axes[0] :], scale.expand(x.shape[axes[0] :]), bias, eps),)
    mean = torch.mean(x, axes, True)
    gap = x - mean
    inverse = 1 / torch.sqrt(torch.mean(gap * gap, axes, True) + eps)
    result = gap * inverse * scale
    return (result if bias is None else result + bias), mean, inverse


@kernel("LRN")
def lrn(node: Node, x: Tensor) -> Tensor:
    """Local response normalization across channels."""
    size = node.get("size")
    near = F.pad(x * x, (0, 0, 0, 0, (size - 1) // 2, size - 1 - (size - 1) // 2))
    total = near.unfold(1, size, 1).sum(-1)
    alpha, beta, bias = node.get("alpha", 1e-4), node.get("beta", 0.75), node.get("bias", 1.0)
    return x / torch.pow(bias + alpha / size * total, beta)


@kernel("Resize")
def resize(node: Node, x: Tensor, roi: Tensor | None, scales: Tensor | None, sizes: Tensor) -> Tensor:
    """Images and volumes of another size, in the forms that loadrun writes."""
    to = numbers(sizes)
    mode, where = node.get("mode", "nearest"), node.get("coordinate_transformation_mode", "half_pixel")
    n = x.dim() - 2
    if to[:2] != list(x.shape[:2]) or n not in (1, 2, 3):
        raise NotTaken("Resize of samples or channels")
    if (mode, where) == ("nearest", "asymmetric"):
        return F.interpolate(x, to[2:], mode="nearest")
    if mode == "cubic" and n == 2 and where == "half_pixel":
        return F.interpolate(x, to[2:], mode="bicubic", align_corners=False)
    if mode == "linear" and where in ("half_pixel", "align_corners"):
        name = ("linear", "bilinear", "trilinear")[n - 1]
        return F.interpolate(x, to[2:], mode=name, align_corners=where == "align_corners")
    raise NotTaken(f"Resize {mode} {where}")


@kernel("GridSample")
def grid_sample(node: Node, x: Tensor, grid: Tensor) -> Tensor:
    """Images read at given places."""
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(
        node.get("mode", "linear"), node.get("mode", "linear")
    )
    return F.grid_sample(
        x, grid, mode, node.get("padding_mode", "zeros"), align_corners=bool(node.get("align_corners", 0))
    )


@kernel("Col2Im")
def col2im(node: Node, x: Tensor, image: Tensor, block: Tensor) -> Tensor:
    """Columns added up to images."""
    n = len(numbers(block))
    before, after = _begin_end(node, n)
    if before != after or n != 2:
        raise NotTaken("Col2Im with pads that differ")
    return F.fold(
        x,
        numbers(image),
        numbers(block),
        node.get("dilations") or 1,
        tuple(before),
        node.get("strides") or 1,
    )
