"""Convolutions of MegEngine's functional package: plain, transposed, local, deformable, by regions.

The operators are those that MegEngine records; their semantics are MegEngine's dnn kernels (`loadrun.ops.conv`).
"""

from typing import Any

from ..graph import params as P
from ..graph.dtypes import DType
from ..tensors import Tensor, TensorLike, apply1, as_tensor, shape_tensor
from ..tensors.access import dtype_of
from ..tensors.promotion import convert
from .geometry import Mode, Sizes, member, pair, require, sizes, triple

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose2d", "conv_transpose3d", "deformable_conv2d"]
__all__ += ["local_conv2d", "region_restricted_conv"]


def window(stride: Sizes, padding: Sizes, dilation: Sizes) -> dict[str, Any]:
    """Return the geometry fields that all records of planar convolutions share."""
    (sh, sw), (ph, pw), (dh, dw) = (
        pair(stride, "stride"),
        pair(padding, "padding"),
        pair(dilation, "dilation"),
    )
    return {"stride_h": sh, "stride_w": sw, "pad_h": ph, "pad_w": pw, "dilate_h": dh, "dilate_w": dw}


def sparse(groups: int) -> P.Sparse:
    """Return whether the weight has a leading axis of groups."""
    return P.Sparse.DENSE if groups == 1 else P.Sparse.GROUP


def cross(conv_mode: Mode) -> None:
    """Refuse every mode but the one that the functions have."""
    name = str(getattr(conv_mode, "name", conv_mode)).lower()
    require(name == "cross_correlation", f"conv_mode must be 'cross_correlation', found {conv_mode!r}")


def plus(y: Tensor, bias: TensorLike | None) -> Tensor:
    """Return the output with the bias added, if there is one."""
    return y if bias is None else y + bias


def planar(stride: Sizes, padding: Sizes, dilation: Sizes, groups: int, compute_mode: Mode) -> P.Convolution:
    """Return the parameter record of a planar convolution."""
    return P.Convolution(
        **window(stride, padding, dilation),
        sparse=sparse(groups),
        compute_mode=member(P.ComputeMode, compute_mode, "compute_mode"),
    )


def conv1d(
    inp: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    conv_mode: Mode = "cross_correlation",
    compute_mode: Mode = "default",
) -> Tensor:
    """Return the convolution over one axis.

    Args:
        inp: (N, IC, L), float.
        weight: (OC, IC, K), or (G, OC/G, IC/G, K) with `groups`.
        bias: (1, OC, 1), added to the output.
        stride: distance between windows.
        padding: zeros on both sides.
        dilation: distance between the taps of a window.
        groups: into how many parts the channels are divided.
        conv_mode: only "cross_correlation".
        compute_mode: "float32" sums float16 products in float32.

    Returns:
        (N, OC, floor((L + 2 * padding - dilation * (K - 1) - 1) / stride) + 1).

    Raises:
        AssertionError: a tensor has another number of axes.

    >>> conv1d(Tensor([[[1.0, 2, 3, 4]]]), Tensor([[[1.0, 1]]]), stride=2).tolist()
    [[[3.0, 7.0]]]
    """
    cross(conv_mode)
    inp, weight = convert(inp, weight)
    want = 3 if groups == 1 else 4
    require(inp.ndim == 3, f"the input of conv1d must have 3 dimensions, found {inp.ndim}")
    require(weight.ndim == want, f"the weight of conv1d must have {want} dimensions, found {weight.ndim}")
    if bias is not None:
        bias = as_tensor(bias)
        require(bias.ndim == 3, f"the bias of conv1d must have 3 dimensions, found {bias.ndim}")
    (s,), (p,), (d,) = (
        sizes(stride, 1, "stride"),
        sizes(padding, 1, "padding"),
        sizes(dilation, 1, "dilation"),
    )
    param = planar((s, 1), (p, 0), (d, 1), groups, compute_mode)
    inputs = [_axis(x, P.AxisDescMethod.ADD_1) for x in (inp, weight)]
    y = apply1("ConvolutionV2", param, P.ExecutionPolicy(), inputs=inputs)
    return plus(_axis(y, P.AxisDescMethod.REMOVE), bias)


def _axis(x: Tensor, method: P.AxisDescMethod) -> Tensor:
    """Return the tensor with its last axis added or removed."""
    last = x.ndim if method == P.AxisDescMethod.ADD_1 else x.ndim - 1
    return apply1(
        "AxisAddRemove", P.AxisAddRemove(desc=(P.AxisDesc(method, last),)), inputs=[x], scalar=False
    )


def conv2d(
    inp: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    conv_mode: Mode = "cross_correlation",
    compute_mode: Mode = "default",
) -> Tensor:
    """Return the convolution over height and width.

    Args:
        inp: (N, IC, H, W), float or int8.
        weight: (OC, IC, KH, KW), or (G, OC/G, IC/G, KH, KW) with `groups`.
        bias: (1, OC, 1, 1), added to the output.
        stride: distance between windows, one number or (height, width).
        padding: zeros on both sides of each axis.
        dilation: distance between the taps of a window.
        groups: into how many parts the channels are divided.
        conv_mode: only "cross_correlation".
        compute_mode: "float32" sums float16 products in float32.

    Returns:
        (N, OC, OH, OW), OH = floor((H + 2 * padding - dilation * (KH - 1) - 1) / stride) + 1.

    Raises:
        RuntimeError: the shapes do not fit together.

    >>> x = Tensor([[[[1.0, 2, 3], [4, 5, 6], [7, 8, 9]]]])
    >>> conv2d(x, Tensor([[[[1.0, 0], [0, 1]]]])).tolist()
    [[[[6.0, 8.0], [12.0, 14.0]]]]
    """
    cross(conv_mode)
    param = planar(stride, padding, dilation, groups, compute_mode)
    y = apply1("ConvolutionV2", param, P.ExecutionPolicy(), inputs=convert(inp, weight))
    return plus(y, bias)


def _volume(stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> P.Convolution3D:
    (sd, sh, sw), (pd, ph, pw) = triple(stride, "stride"), triple(padding, "padding")
    dd, dh, dw = triple(dilation, "dilation")
    return P.Convolution3D(
        stride_d=sd,
        stride_h=sh,
        stride_w=sw,
        pad_d=pd,
        pad_h=ph,
        pad_w=pw,
        dilate_d=dd,
        dilate_h=dh,
        dilate_w=dw,
        sparse=P.Convolution3DSparse.DENSE if groups == 1 else P.Convolution3DSparse.GROUP,
    )


def conv3d(
    inp: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    conv_mode: Mode = "cross_correlation",
) -> Tensor:
    """Return the convolution over depth, height and width.

    Args:
        inp: (N, IC, D, H, W), float.
        weight: (OC, IC, KD, KH, KW), or (G, OC/G, IC/G, KD, KH, KW) with `groups`.
        bias: (1, OC, 1, 1, 1), added to the output.
        stride: distance between windows, one number or three.
        padding: zeros on both sides of each axis.
        dilation: distance between the taps of a window.
        groups: into how many parts the channels are divided.
        conv_mode: only "cross_correlation".

    Raises:
        RuntimeError: the shapes do not fit together.

    >>> import numpy as np
    >>> conv3d(np.ones((1, 2, 4, 4, 4), "f"), np.ones((3, 2, 2, 2, 2), "f"), stride=2).shape
    (1, 3, 2, 2, 2)
    """
    cross(conv_mode)
    param = _volume(stride, padding, dilation, groups)
    y = apply1("Convolution3D", param, P.ExecutionPolicy(), inputs=convert(inp, weight))
    return plus(y, bias)


def _blown_up(
    inp: Tensor,
    weight: Tensor,
    groups: int,
    steps: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    extra: tuple[int, ...],
) -> list[Tensor]:
    """Return the third input of a transposed convolution with output padding: something of the output's shape."""
    if not any(extra):
        return []
    stride, padding, dilation = steps
    for i, (e, s) in enumerate(zip(extra, stride, strict=True)):
        require(e < s, f"output_padding[{i}] must be less than stride[{i}], found {e} and {s}")
    shape: list[int] = [inp.shape[0], weight.shape[1] if groups == 1 else weight.shape[2] * groups]
    first = weight.ndim - len(stride)
    for i, e in enumerate(extra):
        size = (inp.shape[2 + i] - 1) * stride[i] + dilation[i] * (weight.shape[first + i] - 1)
        shape.append(size - 2 * padding[i] + e + 1)
    kind = P.DTypeParam(dtype=P.DTypeEnum[dtype_of(weight).name])
    return [apply1("Alloc", kind, inputs=[shape_tensor(shape)], scalar=False)]


def conv_transpose2d(
    inp: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    conv_mode: Mode = "cross_correlation",
    compute_mode: Mode = "default",
) -> Tensor:
    """Convolve transposed over height and width: the adjoint of `conv2d`.

    Args:
        inp: (N, IC, H, W), float.
        weight: (IC, OC, KH, KW), or (G, IC/G, OC/G, KH, KW) with `groups`.
        bias: (1, OC, 1, 1), added to the output.
        stride: distance between the windows of the output, one number or (height, width).
        padding: what is cut off on both sides of each axis.
        output_padding: what is added at the end of each axis; less than the stride.
        dilation: distance between the taps of a window.
        groups: into how many parts the channels are divided.
        conv_mode: only "cross_correlation".
        compute_mode: "float32" sums float16 products in float32.

    Returns:
        (N, OC, OH, OW), OH = (H - 1) * stride + dilation * (KH - 1) + 1 - 2 * padding + output_padding.

    Raises:
        AssertionError: `output_padding` is not less than the stride.
        RuntimeError: the shapes do not fit together.

    >>> conv_transpose2d(Tensor([[[[1.0, 2]]]]), Tensor([[[[1.0, 1, 1]]]]), stride=(1, 2)).tolist()
    [[[[1.0, 1.0, 3.0, 2.0, 2.0]]]]
    """
    cross(conv_mode)
    inp, weight = convert(inp, weight)
    param = planar(stride, padding, dilation, groups, compute_mode)
    return plus(transposed(inp, weight, param, output_padding, groups), bias)


def transposed(
    inp: Tensor,
    weight: Tensor,
    param: P.Convolution,
    output_padding: Sizes,
    groups: int,
    dtype: DType | None = None,
) -> Tensor:
    """Return a planar transposed convolution without a bias, of floats or quantized tensors."""
    steps = (param.stride_h, param.stride_w), (param.pad_h, param.pad_w), (param.dilate_h, param.dilate_w)
    extra = _blown_up(inp, weight, groups, steps, pair(output_padding, "output_padding"))
    inputs = [weight, inp, *extra]
    return apply1("ConvolutionBackwardDataV2", param, P.ExecutionPolicy(), inputs=inputs, output_dtype=dtype)


def conv_transpose3d(
    inp: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve transposed over depth, height and width: the adjoint of `conv3d`.

    Args:
        inp: (N, IC, D, H, W), float.
        weight: (IC, OC, KD, KH, KW), or (G, IC/G, OC/G, KD, KH, KW) with `groups`.
        bias: (1, OC, 1, 1, 1), added to the output.
        stride: distance between the windows of the output, one number or three.
        padding: what is cut off on both sides of each axis.
        output_padding: what is added at the end of each axis; less than the stride.
        dilation: distance between the taps of a window.
        groups: into how many parts the channels are divided.

    Raises:
        AssertionError: `output_padding` is not less than the stride.
        RuntimeError: the shapes do not fit together.

    >>> import numpy as np
    >>> x, w = np.ones((1, 2, 3, 3, 3), "f"), np.ones((2, 4, 2, 2, 2), "f")
    >>> conv_transpose3d(x, w, stride=2, output_padding=1).shape
    (1, 4, 7, 7, 7)
    """
    inp, weight = convert(inp, weight)
    param = _volume(stride, padding, dilation, groups)
    steps = triple(stride, "stride"), triple(padding, "padding"), triple(dilation, "dilation")
    extra = _blown_up(inp, weight, groups, steps, triple(output_padding, "output_padding"))
    y = apply1("Convolution3DBackwardData", param, P.ExecutionPolicy(), inputs=[weight, inp, *extra])
    return plus(y, bias)


def deformable_conv2d(
    inp: TensorLike,
    weight: TensorLike,
    offset: TensorLike,
    mask: TensorLike,
    bias: TensorLike | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    conv_mode: Mode = "cross_correlation",
    compute_mode: Mode = "default",
) -> Tensor:
    """Return the convolution whose taps are moved by `offset` and weighted by `mask` at every position of the output.

    Args:
        inp: (N, IC, H, W), float32.
        weight: (OC, IC, KH, KW), or (G, OC/G, IC/G, KH, KW) with `groups`.
        offset: (N, 2 * F * KH * KW, OH, OW): rows (even channels) and columns (odd ones) to move each tap by, for
            each of F fields, which share the input's channels.
        mask: (N, F * KH * KW, OH, OW).
        bias: (1, OC, 1, 1), added to the output.
        stride: distance between windows, one number or (height, width).
        padding: zeros on both sides of each axis.
        dilation: distance between the taps of a window.
        groups: into how many parts the channels are divided.
        conv_mode: only "cross_correlation".
        compute_mode: accepted; sums are float32.

    Raises:
        RuntimeError: the shapes do not fit together.

    >>> import numpy as np
    >>> x, w = np.arange(9, dtype="f").reshape(1, 1, 3, 3), np.ones((1, 1, 1, 1), "f")
    >>> down = np.zeros((1, 2, 3, 3), "f") + np.float32([1, 0]).reshape(1, 2, 1, 1)
    >>> deformable_conv2d(x, w, down, np.ones((1, 1, 3, 3), "f")).tolist()
    [[[[3.0, 4.0, 5.0], [6.0, 7.0, 8.0], [0.0, 0.0, 0.0]]]]
    """
    cross(conv_mode)
    param = planar(stride, padding, dilation, groups, compute_mode)
    inputs = [as_tensor(inp), as_tensor(weight), as_tensor(offset, "float32"), as_tensor(mask, "float32")]
    return plus(apply1("DeformableConvForwardV1", param, P.ExecutionPolicy(), inputs=inputs), bias)


def local_conv2d(
    inp: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    conv_mode: Mode = "cross_correlation",
) -> Tensor:
    """Return the convolution with a weight of its own at every position of the output.

    Args:
        inp: (N, IC, H, W), float.
        weight: (G, OH, OW, IC/G, KH, KW, OC/G).
        bias: of a shape that the output's (N, OC, OH, OW) takes, added to it.
        stride: distance between windows, one number or (height, width).
        padding: zeros on both sides of each axis.
        dilation: only 1 is what MegEngine's kernels compute.
        conv_mode: only "cross_correlation".

    Raises:
        RuntimeError: the shapes do not fit together.

    >>> import numpy as np
    >>> x, w = np.ones((1, 1, 2, 2), "f"), np.arange(4, dtype="f").reshape(1, 2, 2, 1, 1, 1, 1)
    >>> local_conv2d(x, w).tolist()
    [[[[0.0, 1.0], [2.0, 3.0]]]]
    """
    cross(conv_mode)
    param = P.Convolution(**window(stride, padding, dilation))
    return plus(apply1("GroupLocalV2", param, inputs=convert(inp, weight)), bias)


def region_restricted_conv(
    inp: TensorLike,
    weight: TensorLike,
    rin: TensorLike,
    rout: TensorLike,
    bias: TensorLike | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    conv_mode: Mode = "cross_correlation",
    compute_mode: Mode = "default",
) -> Tensor:
    """Convolve depthwise, where an output sees only the inputs of its own region.

    Args:
        inp: (N, IC, H, W), float32.
        weight: (G, OC/G, IC/G, KH, KW).
        rin: (N, H, W), int32 or uint8: the region of every input position.
        rout: (N, OH, OW), of the same dtype: the region of every output position.
        bias: (1, OC, 1, 1), added to the output.
        stride: distance between windows, one number or (height, width).
        padding: zeros on both sides of each axis.
        dilation: distance between the taps of a window.
        groups: into how many parts the channels are divided; at least 1.
        conv_mode: only "cross_correlation".
        compute_mode: accepted; sums are float32.

    Raises:
        AssertionError: `groups` is not positive.
        RuntimeError: the shapes do not fit together.

    >>> import numpy as np
    >>> x, w = np.ones((1, 1, 2, 2), "f"), np.ones((1, 1, 1, 2, 2), "f")
    >>> region_restricted_conv(x, w, np.int32([[[1, 1], [0, 1]]]), np.int32([[[1]]])).tolist()
    [[[[3.0]]]]
    """
    cross(conv_mode)
    require(groups > 0, f"region_restricted_conv needs at least one group, found groups={groups}")
    param = planar(stride, padding, dilation, groups, compute_mode).replace(sparse=P.Sparse.GROUP)
    inputs = [*convert(inp, weight), as_tensor(rin), as_tensor(rout)]
    return plus(apply1("RegionRestrictedConvolution", param, inputs=inputs), bias)
