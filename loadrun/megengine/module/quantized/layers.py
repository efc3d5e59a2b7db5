"""Layers of quantized tensors, and their base."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ....layers.elemwise import elemwise_multi_type
from ....layers.geometry import Sizes
from ....tensors import Parameter, Tensor, TensorLike, as_tensor
from ....tensors.dtypes import DTypeLike
from ....tensors.quantized_dtypes import get_scale, qint32
from ... import functional as F, module as Float
from ...functional.quantized import batch_conv_bias_activation, conv_bias_activation, conv_transpose2d
from ..module import Module

if TYPE_CHECKING:
    from .. import qat as QAT

__all__ = ["BatchMatMulActivation", "Concat", "Conv2d", "ConvBn2d", "ConvBnRelu2d", "ConvRelu2d"]
__all__ += ["ConvTranspose2d", "ConvTransposeBn2d", "ConvTransposeBnRelu2d", "ConvTransposeRelu2d"]
__all__ += ["DequantStub", "Elemwise", "Linear", "LinearBn1d", "LinearBnRelu1d", "LinearRelu", "QuantStub"]
__all__ += ["QuantizedModule"]


class QuantizedModule(Module):
    """A module of quantized tensors, which cannot be trained.

    Raises:
        ValueError: it is called while training; ``eval()`` comes first.
    """

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the module."""
        if self.training:
            raise ValueError("quantized module only support inference: call eval() first")
        return super().__call__(*inputs, **kwargs)

    def __repr__(self) -> str:
        return f"Quantized.{super().__repr__()}"

    @classmethod
    @abstractmethod
    def from_qat_module(cls, qat_module: Any) -> Any:
        """Convert a module with fake quantization."""


def stored(value: Tensor, dtype: DTypeLike | None = None, name: str = "") -> Parameter:
    """Return a value as a parameter, quantized if a dtype is given."""
    return Parameter(value if dtype is None else value.astype(dtype), name=name)


def filled(module: Any, q: Any, layer: Any) -> Any:
    """Return a new module with the weight and bias to which `layer` and the normalization of `q` are folded.

    Args:
        module: the new module.
        q: a module with fake quantization.
        layer: the layer in `q`, whose parameters give theirs names.
    """
    weight, bias = q.fold_weight_bias(q.bn.running_mean, q.bn.running_var)
    module.weight = stored(weight, q.get_weight_dtype(), layer.weight.name)
    module.bias = stored(bias, name="" if layer.bias is None else layer.bias.name)
    return module


def quantized_bias(bias: Tensor | None, inp: Tensor, weight: Tensor) -> Tensor | None:
    """Return a bias as the integers to which products of input and weight are added."""
    if bias is None:
        return None
    return bias.astype(qint32(get_scale(inp.dtype) * get_scale(weight.dtype)))


class Conv2d(Float.Conv2d, QuantizedModule):
    """`Conv2d` of quantized tensors; it always has a bias.

    The arguments are those of `Conv2d` but for `bias`, and `dtype`, the quantized dtype of the result.

    Attributes:
        weight: quantized.
        bias: float32; rounded to qint32 by the scales of input and weight.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        dtype: DTypeLike | None = None,
        padding_mode: str = "zeros",
        **kwargs: Any,
    ) -> None:
        sizes = (kernel_size, stride, padding, dilation, groups, True)
        modes = (conv_mode, compute_mode, padding_mode)
        super().__init__(in_channels, out_channels, *sizes, *modes, **kwargs)
        self.output_dtype = dtype

    def calc_conv_quantized(self, inp: Tensor, nonlinear_mode: str = "identity") -> Tensor:
        """Return the convolution with an activation."""
        bias = quantized_bias(self.bias, inp, self.weight)
        assert bias is not None
        inp, padding = self._padded(inp)
        return conv_bias_activation(
            inp,
            self.weight,
            bias,
            self.output_dtype,
            self.stride,
            padding,
            self.dilation,
            self.groups,
            nonlinear_mode=nonlinear_mode,
            conv_mode=self.conv_mode,
            compute_mode=self.compute_mode,
        )

    @classmethod
    def _like(cls, conv: Float.Conv2d, dtype: DTypeLike | None, name: str | None) -> Conv2d:
        """Return a module with the settings of a float or qat one."""
        # There always is a bias, and MegEngine does not take the modes along.
        left = ("bias", "conv_mode", "compute_mode")
        settings = {k: v for k, v in conv._settings().items() if k not in left}
        return cls(**settings, dtype=dtype, name=name)

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> Conv2d:
        """Convert a module with fake quantization."""
        q = qat_module
        module = cls._like(q, q.get_activation_dtype(), q.name)
        module.weight = stored(q.weight, q.get_weight_dtype(), q.weight.name)
        if q.bias is None:
            module.bias = Parameter(np.zeros(q._infer_bias_shape(), np.float32))
        else:
            module.bias = stored(q.bias, name=q.bias.name)
        return module

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W), quantized."""
        return self.calc_conv_quantized(as_tensor(inp))


class ConvRelu2d(Conv2d):
    """`ConvRelu2d` of quantized tensors."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W), quantized."""
        return self.calc_conv_quantized(as_tensor(inp), nonlinear_mode="relu")


class ConvTranspose2d(Float.ConvTranspose2d, QuantizedModule):
    """`ConvTranspose2d` of quantized tensors.

    The arguments are those of `ConvTranspose2d`, and `dtype`, the quantized dtype of the result.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        dtype: DTypeLike | None = None,
        **kwargs: Any,
    ) -> None:
        sizes = (kernel_size, stride, padding, output_padding, dilation, groups)
        super().__init__(in_channels, out_channels, *sizes, bias, conv_mode, compute_mode, **kwargs)
        self.output_dtype = dtype

    def calc_conv_transpose2d_quantized(self, inp: Tensor, nonlinear_mode: str) -> Tensor:
        """Return the convolution; there is no activation but "identity", as in MegEngine."""
        if nonlinear_mode != "identity":
            raise AssertionError(f"nonlinear_mode must be identity, found {nonlinear_mode!r}")
        return conv_transpose2d(
            inp,
            self.weight,
            quantized_bias(self.bias, inp, self.weight),
            dtype=self.output_dtype,
            stride=self.stride,
            padding=self.padding,
            output_padding=self.output_padding,
            dilation=self.dilation,
            groups=self.groups,
            conv_mode=self.conv_mode,
            compute_mode=self.compute_mode,
        )

    @classmethod
    def _like(cls, conv: Float.ConvTranspose2d, dtype: DTypeLike | None, name: str | None) -> ConvTranspose2d:
        """Return a module with the settings of a float or qat one."""
        return cls(**conv._settings(), dtype=dtype, name=name)

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> ConvTranspose2d:
        """Convert a module with fake quantization."""
        q = qat_module
        module = cls._like(q, q.get_activation_dtype(), q.name)
        module.weight = stored(q.weight, q.get_weight_dtype(), q.weight.name)
        module.bias = None if q.bias is None else stored(q.bias, name=q.bias.name)
        return module

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W), quantized."""
        return self.calc_conv_transpose2d_quantized(as_tensor(inp), nonlinear_mode="identity")


class ConvTransposeRelu2d(ConvTranspose2d):
    """`ConvTransposeRelu2d` of quantized tensors; its call is refused, as in MegEngine."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W), quantized."""
        return self.calc_conv_transpose2d_quantized(as_tensor(inp), nonlinear_mode="relu")


class _ConvBnActivation2d(Conv2d):
    @classmethod
    def from_qat_module(cls, qat_module: Any) -> _ConvBnActivation2d:
        """Convert a module with fake quantization."""
        q = qat_module
        return filled(cls._like(q.conv, q.get_activation_dtype(), q.name), q, q.conv)


class ConvBn2d(_ConvBnActivation2d):
    """`ConvBn2d` of quantized tensors."""


class ConvBnRelu2d(_ConvBnActivation2d):
    """`ConvBnRelu2d` of quantized tensors."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W), quantized."""
        return self.calc_conv_quantized(as_tensor(inp), nonlinear_mode="relu")


class _ConvTransposeBnActivation2d(ConvTranspose2d):
    @classmethod
    def from_qat_module(cls, qat_module: Any) -> _ConvTransposeBnActivation2d:
        """Convert a module with fake quantization."""
        q, conv = qat_module, qat_module.conv_transpose2d
        return filled(cls._like(conv, q.get_activation_dtype(), q.name), q, conv)


class ConvTransposeBn2d(_ConvTransposeBnActivation2d):
    """`ConvTransposeBn2d` of quantized tensors."""


class ConvTransposeBnRelu2d(_ConvTransposeBnActivation2d):
    """`ConvTransposeBnRelu2d` of quantized tensors; its call is refused, as in MegEngine."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W), quantized."""
        return self.calc_conv_transpose2d_quantized(as_tensor(inp), nonlinear_mode="relu")


class Linear(QuantizedModule):
    """`Linear` of quantized tensors.

    Args:
        dtype: the quantized dtype of the result; without one it is qint32.

    Attributes:
        weight: (out_features, in_features), quantized; None in a new module.
        bias: (out_features,), float32, or None.
    """

    def __init__(self, dtype: DTypeLike | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.weight: Any = None
        self.bias: Any = None
        self.output_dtype = dtype

    def calc_linear_quantized(self, inp: Tensor, nonlinear_mode: str = "identity") -> Tensor:
        """Return the product, rounded, then relu if `nonlinear_mode` is "relu"."""
        if nonlinear_mode not in ("identity", "relu"):
            raise AssertionError(f"nonlinear_mode must be identity or relu, found {nonlinear_mode!r}")
        y = F.linear(inp, self.weight, quantized_bias(self.bias, inp, self.weight))
        y = y if self.output_dtype is None else y.astype(self.output_dtype)
        return F.relu(y) if nonlinear_mode == "relu" else y

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (..., in_features), quantized."""
        return self.calc_linear_quantized(as_tensor(inp))

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> Linear:
        """Convert a module with fake quantization."""
        q = qat_module
        module = cls(dtype=q.get_activation_dtype(), name=q.name)
        module.weight = stored(q.weight, q.get_weight_dtype(), q.weight.name)
        if q.bias is not None:
            module.bias = stored(q.bias, name=q.bias.name)
        return module


class LinearRelu(Linear):
    """`LinearRelu` of quantized tensors."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (..., in_features), quantized."""
        return self.calc_linear_quantized(as_tensor(inp), nonlinear_mode="relu")


class _LinearBnActivation1d(Linear):
    @classmethod
    def from_qat_module(cls, qat_module: Any) -> _LinearBnActivation1d:
        """Convert a module with fake quantization."""
        q = qat_module
        return filled(cls(dtype=q.get_activation_dtype(), name=q.name), q, q.linear)


class LinearBn1d(_LinearBnActivation1d):
    """`LinearBn1d` of quantized tensors."""


class LinearBnRelu1d(_LinearBnActivation1d):
    """`LinearBnRelu1d` of quantized tensors."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_features), quantized."""
        return self.calc_linear_quantized(as_tensor(inp), nonlinear_mode="relu")


class BatchMatMulActivation(Float.BatchMatMulActivation, QuantizedModule):
    """`BatchMatMulActivation` of quantized tensors, computed as a convolution of windows of one element.

    Attributes:
        weight: (batch, out_features, in_features, 1, 1), quantized.
        bias: (1, out_features, 1, 1), float32.
    """

    def __init__(
        self,
        batch: int,
        in_features: int,
        out_features: int,
        bias: bool = True,
        nonlinear_mode: str = "identity",
        dtype: DTypeLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(batch, in_features, out_features, bias, nonlinear_mode, **kwargs)
        self.output_dtype = dtype

    def calc_bmm_quantized(self, inp: Any) -> Tensor:
        """Return the products."""
        bias = quantized_bias(self.bias, inp, self.weight)
        assert bias is not None, "the convolution of quantized tensors takes a bias, found bias=False"
        result = batch_conv_bias_activation(
            F.expand_dims(inp, -1),
            self.weight,
            bias,
            dtype=self.output_dtype,
            nonlinear_mode=self.nonlinear_mode,
        )
        return F.squeeze(result, -1)

    @classmethod
    def from_qat_module(cls, qat_module: QAT.BatchMatMulActivation) -> BatchMatMulActivation:
        """Convert a module with fake quantization."""
        q = qat_module
        module = cls(
            q.batch,
            q.in_features,
            q.out_features,
            q.bias is not None,
            q.nonlinear_mode,
            dtype=q.get_activation_dtype(),
            name=q.name,
        )
        weight = q.weight.astype(q.get_weight_dtype()).reshape((*q.weight.shape, 1, 1))
        module.weight = stored(weight, name=q.weight.name)
        shape = (1, q.out_features, 1, 1)
        if q.bias is None:
            module.bias = Parameter(np.zeros(shape, np.float32))
        else:
            module.bias = stored(q.bias.reshape(shape), name=q.bias.name)
        return module

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (batch, in_features, columns), quantized."""
        return self.calc_bmm_quantized(as_tensor(inp))


class Concat(QuantizedModule):
    """`Concat` of tensors that are first converted to one quantized dtype."""

    def __init__(self, dtype: DTypeLike, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.output_dtype = dtype

    def forward(self, inps: Iterable[TensorLike], axis: int = 0) -> Tensor:
        """Take quantized tensors of one shape but along `axis`."""
        return F.concat([as_tensor(x).astype(self.output_dtype) for x in inps], axis)

    @classmethod
    def from_qat_module(cls, qat_module: QAT.Concat) -> Concat:
        """Convert a module with fake quantization."""
        return cls(qat_module.get_activation_dtype(), name=qat_module.name)


class Elemwise(QuantizedModule):
    """An elementwise mode that takes quantized tensors and rounds the real result.

    Args:
        method: the name of the mode: "add", "fuse_add_relu", ...
        dtype: the quantized dtype of the result.
    """

    def __init__(self, method: str, dtype: DTypeLike | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.method = f"q{method}"
        self.output_dtype = dtype

    def forward(self, *inps: TensorLike) -> Tensor:
        """Take as many quantized tensors as the mode has operands."""
        return elemwise_multi_type(*inps, mode=self.method, dtype=self.output_dtype)

    @classmethod
    def from_qat_module(cls, qat_module: QAT.Elemwise) -> Elemwise:
        """Convert a module with fake quantization."""
        return cls(qat_module.method, qat_module.get_activation_dtype(), name=qat_module.name)


class QuantStub(QuantizedModule):
    """Real numbers to a quantized dtype."""

    def __init__(self, dtype: DTypeLike | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.output_dtype = dtype

    def forward(self, inp: TensorLike) -> Tensor:
        """Take any float32 tensor."""
        return as_tensor(inp).astype(self.output_dtype)

    @classmethod
    def from_qat_module(cls, qat_module: QAT.QuantStub) -> QuantStub:
        """Convert a module with fake quantization."""
        return cls(qat_module.get_activation_dtype(), name=qat_module.name)


class DequantStub(QuantizedModule):
    """Quantized numbers to float32."""

    def forward(self, inp: Any) -> Tensor:
        """Take any quantized tensor."""
        return inp.astype("float32")

    @classmethod
    def from_qat_module(cls, qat_module: QAT.DequantStub) -> DequantStub:
        """Convert a module with fake quantization."""
        return cls(name=qat_module.name)
