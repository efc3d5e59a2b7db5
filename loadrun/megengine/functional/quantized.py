"""MegEngine's ``functional.quantized``: convolutions of quantized tensors, for inference.

Products are summed up as integers, the bias is added, the sum is taken to real numbers, the activation applied, and
the result quantized to the output dtype (MegEngine's dnn conv_bias kernels).
"""

from ...graph import params as P
from ...layers.conv import cross, planar, sparse, transposed, window
from ...layers.geometry import Mode, Sizes, member
from ...tensors import Tensor, TensorLike, apply1, as_tensor
from ...tensors.access import dtype_of
from ...tensors.dtypes import DTypeLike, graph_dtype


def _convolved(
    type: str,
    record: type[P.ConvBias | P.BatchConvBias],
    inputs: tuple[TensorLike, ...],
    dtype: DTypeLike | None,
    geometry: tuple[Sizes, Sizes, Sizes],
    groups: int,
    modes: tuple[Mode, Mode, Mode],
) -> Tensor:
    """Return a convolution with an activation.

    Args:
        geometry: stride, padding, dilation.
        modes: of the activation, the convolution and the sums.
    """
    nonlinear_mode, conv_mode, compute_mode = modes
    param = record(
        **window(*geometry),
        nonlineMode=member(P.NonlineMode, nonlinear_mode, "nonlinear_mode"),
        mode=member(P.ConvMode, conv_mode, "conv_mode"),
        compute_mode=member(P.ComputeMode, compute_mode, "compute_mode"),
        sparse=sparse(groups),
    )
    output = None if dtype is None else graph_dtype(dtype)
    tensors = [as_tensor(x) for x in inputs]
    return apply1(type, param, P.ExecutionPolicy(), inputs=tensors, output_dtype=output)


def conv_bias_activation(
    inp: TensorLike,
    weight: TensorLike,
    bias: TensorLike,
    dtype: DTypeLike | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    nonlinear_mode: Mode = "identity",
    conv_mode: Mode = "cross_correlation",
    compute_mode: Mode = "default",
) -> Tensor:
    """Compute ``act(conv2d(inp, weight) + bias)`` of quantized tensors.

    Args:
        inp: (N, IC, H, W), quantized.
        weight: (OC, IC, KH, KW), quantized, or (G, OC/G, IC/G, KH, KW) with `groups`.
        bias: (1, OC, 1, 1), qint32 of the product of both scales.
        dtype: the output's dtype, for instance ``qint8(scale)``.
        stride: distance between windows, one number or (height, width).
        padding: zeros on both sides of each axis.
        dilation: distance between the taps of a window.
        groups: into how many parts the channels are divided.
        nonlinear_mode: "identity", "relu", "sigmoid" or "h_swish".
        conv_mode: "cross_correlation" or "convolution".
        compute_mode: "float32" sums float16 products in float32.

    Raises:
        RuntimeError: the shapes or dtypes do not fit together.

    >>> import numpy as np
    >>> from loadrun.megengine.core.tensor.dtype import qint8, qint32
    >>> x, w = Tensor(np.full((1, 1, 1, 1), 4), qint8(0.5)), Tensor(np.full((1, 1, 1, 1), 3), qint8(0.5))
    >>> conv_bias_activation(x, w, Tensor(np.zeros((1, 1, 1, 1)), qint32(0.25)), qint8(1.0)).item()
    3
    """
    inputs, geometry = (inp, weight, bias), (stride, padding, dilation)
    modes = (nonlinear_mode, conv_mode, compute_mode)
    return _convolved("ConvBiasForwardV4", P.ConvBias, inputs, dtype, geometry, groups, modes)


def batch_conv_bias_activation(
    inp: TensorLike,
    weight: TensorLike,
    bias: TensorLike,
    dtype: DTypeLike | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    nonlinear_mode: Mode = "identity",
    conv_mode: Mode = "cross_correlation",
    compute_mode: Mode = "default",
) -> Tensor:
    """`conv_bias_activation` with a weight of its own for every image.

    Args:
        inp: (N, IC, H, W), quantized.
        weight: (N, OC, IC, KH, KW), quantized.
        bias: (1, OC, 1, 1), qint32 of the product of both scales.
        dtype: the output's dtype.
        stride: distance between windows, one number or (height, width).
        padding: zeros on both sides of each axis.
        dilation: distance between the taps of a window.
        groups: into how many parts the channels are divided.
        nonlinear_mode: "identity", "relu", "sigmoid" or "h_swish".
        conv_mode: "cross_correlation" or "convolution".
        compute_mode: "float32" sums float16 products in float32.

    >>> import numpy as np
    >>> from loadrun.megengine.core.tensor.dtype import qint8, qint32
    >>> x, w = Tensor(np.full((1, 1, 1, 1), 4), qint8(0.5)), Tensor(np.full((1, 1, 1, 1, 1), 3), qint8(0.5))
    >>> batch_conv_bias_activation(x, w, Tensor(np.zeros((1, 1, 1, 1)), qint32(0.25)), qint8(1.0)).item()
    3
    """
    inputs, geometry = (inp, weight, bias), (stride, padding, dilation)
    modes = (nonlinear_mode, conv_mode, compute_mode)
    return _convolved("BatchConvBiasForwardV1", P.BatchConvBias, inputs, dtype, geometry, groups, modes)


def conv_transpose2d(
    inp: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    dtype: DTypeLike | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    conv_mode: Mode = "cross_correlation",
    compute_mode: Mode = "default",
) -> Tensor:
    """Convolve quantized tensors transposed; see `loadrun.megengine.functional.conv_transpose2d`.

    Args:
        inp: (N, IC, H, W), quantized.
        weight: (IC, OC, KH, KW), quantized, or (G, IC/G, OC/G, KH, KW) with `groups`.
        bias: (1, OC, 1, 1), qint32 of the product of both scales; MegEngine has none here.
        dtype: the output's dtype.
        stride: distance between the windows of the output, one number or (height, width).
        padding: what is cut off on both sides of each axis.
        output_padding: what is added at the end of each axis; less than the stride.
        dilation: distance between the taps of a window.
        groups: into how many parts the channels are divided; MegEngine has only 1 here.
        conv_mode: only "cross_correlation".
        compute_mode: "default".

    Raises:
        RuntimeError: the shapes or dtypes do not fit together.

    >>> import numpy as np
    >>> from loadrun.megengine.core.tensor.dtype import qint8
    >>> x, w = Tensor(np.full((1, 1, 1, 1), 4), qint8(0.5)), Tensor(np.full((1, 1, 1, 1), 3), qint8(0.5))
    >>> conv_transpose2d(x, w, dtype=qint8(1.0)).item()
    3
    """
    cross(conv_mode)
    param = planar(stride, padding, dilation, groups, compute_mode)
    inputs = as_tensor(inp), as_tensor(weight)
    output = None if dtype is None else graph_dtype(dtype)
    if bias is None:
        return transposed(*inputs, param, output_padding, groups, output)
    y = transposed(*inputs, param, output_padding, groups)
    add = P.ElemwiseMultiType(mode=P.ElemwiseMultiTypeMode.QADD)
    return apply1("ElemwiseMultiType", add, inputs=[y, as_tensor(bias)], output_dtype=output or dtype_of(y))
