"""Fake quantization as modules: rounding to what a quantized dtype has (MegEngine's ``quantization/fake_quant.py``)."""

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ...layers.fake_quant import fake_quant_bias, fake_quant_tensor, lsq_forward, tqt_forward
from ...tensors import Parameter, Tensor, as_tensor
from ...tensors.quantized_dtypes import (
    KINDS,
    LSQParams,
    QParams,
    QuantDtypeMeta,
    QuantMode,
    create_qparams,
    create_quantized_dtype,
)
from .. import functional as F
from ..module import Module

__all__ = ["LSQ", "TQT", "FakeQuantize", "LSQParams", "QParams", "QParamsModuleMixin", "QuantMode"]
__all__ += ["create_qparams", "fake_quant_bias", "fake_quant_tensor", "lsq_forward", "tqt_forward"]


class QParamsModuleMixin(ABC):
    """A module that knows how its output is quantized."""

    @abstractmethod
    def get_qparams(self) -> QParams:
        """Return the parameters of the output."""

    def get_quantized_dtype(self) -> np.dtype[Any]:
        """Return the dtype of the output."""
        q = self.get_qparams()
        assert q.dtype_meta is not None
        zero = None if q.zero_point is None else int(q.zero_point)
        return create_quantized_dtype(q.dtype_meta, float(q.scale), zero)


def meta_of(dtype: str | QuantDtypeMeta) -> QuantDtypeMeta:
    """Return the kind of a quantized dtype by its name.

    Raises:
        ValueError: there is none of that name.

    >>> meta_of("qint8_narrow").qmin
    -127
    """
    if not isinstance(dtype, str):
        return dtype
    if dtype not in KINDS:
        raise ValueError(f"unknown dtype: {dtype}, only support {', '.join(KINDS)}")
    return KINDS[dtype]


class SwitchableModule(Module):
    """Base of fake quantizations and observers: they are for one kind of dtype, and can be switched off.

    Args:
        dtype: the kind of dtype, or its name.
        enable: whether it works at first.
        kwargs: ``narrow_range`` of old releases is ignored.
    """

    def __init__(self, dtype: str | QuantDtypeMeta, enable: bool = True, **kwargs: Any) -> None:
        super().__init__()
        self.dtype = meta_of(dtype)
        self.qmin = self.dtype.qmin
        self.qmax = self.dtype.qmax
        self.enabled = enable

    def enable(self) -> None:
        """Round, or watch, from now on."""
        self.enabled = True

    def disable(self) -> None:
        """Let values through as they are from now on."""
        self.enabled = False


class _FakeQuantize(SwitchableModule):
    """Base of the kinds of fake quantization."""

    @abstractmethod
    def fake_quant_forward(self, inp: Any, qparams: Any = None) -> Tensor:
        """Return the rounding."""

    def normal_forward(self, inp: Any, qparams: Any = None) -> Any:
        """Compute what is computed while it is disabled."""
        return inp

    def forward(self, inp: Any, qparams: Any = None) -> Any:
        """Take any float32 tensor, and its quantization parameters where the kind has none of its own."""
        chosen = self.fake_quant_forward if self.enabled else self.normal_forward
        return chosen(inp, qparams=qparams)


class TQT(_FakeQuantize, QParamsModuleMixin):
    """Rounding to steps of ``2 ** scale`` with a trained scale.

    Args:
        dtype: the kind of dtype, or its name.
        enable: whether to round at first.

    >>> q = TQT("qint8")
    >>> q.set_qparams(create_qparams(QuantMode.SYMMERTIC, "qint8", Tensor(0.5)))
    >>> q(Tensor([0.7])).tolist()
    [0.5]
    """

    def __init__(self, dtype: str | QuantDtypeMeta, enable: bool = True, **kwargs: Any) -> None:
        super().__init__(dtype, enable, **kwargs)
        self.scale = Parameter(0.0, dtype="float32")

    def fake_quant_forward(self, inp: Any, qparams: Any = None) -> Tensor:
        """Return the rounding."""
        return tqt_forward(self.qmin, self.qmax, inp, self.scale)

    def set_qparams(self, qparams: QParams) -> None:
        """Take the scale of these parameters.

        Raises:
            AssertionError: they are not symmetric, or have no scale.
        """
        if qparams.mode != QuantMode.SYMMERTIC:
            raise AssertionError("only symmetric quantization is supported by TQT")
        if qparams.scale is None:
            raise AssertionError("can not get an initialized scale")
        scale = F.log(as_tensor(qparams.scale, "float32")) / math.log(2)
        self.scale.set_value(scale.reshape(self.scale.shape))

    def get_qparams(self) -> QParams:
        """Return the parameters that it rounds by."""
        return create_qparams(QuantMode.SYMMERTIC, self.dtype, scale=2**self.scale)


class FakeQuantize(_FakeQuantize):
    """Rounding by the parameters that come with each value."""

    def fake_quant_forward(self, inp: Any, qparams: Any = None) -> Tensor:
        """Return the rounding.

        Raises:
            AssertionError: the parameters are of another kind of dtype.
        """
        if qparams.dtype_meta is not self.dtype:
            raise AssertionError(
                f"the input's dtype {qparams.dtype_meta} is not equal to self.dtype {self.dtype}"
            )
        return fake_quant_tensor(inp, qparams)


class LSQ(_FakeQuantize, QParamsModuleMixin):
    """Rounding to a learned step size.

    Args:
        dtype: the kind of dtype, or its name.
        enable: whether to round at first.
        eps: the smallest step.
    """

    def __init__(
        self, dtype: str | QuantDtypeMeta, enable: bool = True, eps: float = 1e-5, **kwargs: Any
    ) -> None:
        super().__init__(dtype=dtype, enable=enable, **kwargs)
        self.eps = Tensor(eps, dtype="float32")
        self.step_size = Parameter(1.0, dtype="float32")
        self.mode: QuantMode | None = None
        self.zero_point = Tensor(0.0, dtype="float32")
        self.grad_scale = Tensor(1.0, dtype="float32")

    def set_qparams(self, qparams: Any) -> None:
        """Take the scale, and the zero point of asymmetric ones.

        Raises:
            AssertionError: there is no scale.
        """
        self.mode = qparams.mode
        asymmetric = qparams.mode == QuantMode.ASYMMERTIC
        self.zero_point = as_tensor(qparams.zero_point, "float32") if asymmetric else Tensor(0.0)
        if qparams.scale is None:
            raise AssertionError("can not get an initialized scale")
        step = max(as_tensor(qparams.scale).item() - self.eps.item(), 0.0)
        self.step_size = Parameter(step, dtype="float32")
        if isinstance(qparams, LSQParams):
            self.grad_scale = qparams.grad_scale

    def _scale(self) -> Tensor:
        return F.abs(self.step_size) + self.eps

    def fake_quant_forward(self, inp: Any, qparams: Any = None) -> Tensor:
        """Return the rounding."""
        return lsq_forward(self.qmin, self.qmax, inp, self._scale(), self.zero_point, self.grad_scale)

    def get_qparams(self) -> LSQParams:
        """Return the parameters that it rounds by."""
        return LSQParams(
            mode=self.mode,
            dtype_meta=self.dtype,
            scale=self._scale(),
            zero_point=self.zero_point,
            grad_scale=self.grad_scale,
        )
