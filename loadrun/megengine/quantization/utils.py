"""MegEngine's ``quantization/utils.py``: parameters of quantized values and fake quantization."""

import abc
from typing import Any

import numpy as np

from ...layers.fake_quant import fake_quant_bias, fake_quant_tensor, lsq_forward, tqt_forward
from ...tensors.quantized_dtypes import LSQParams, QParams, QuantMode, create_qparams, create_quantized_dtype

__all__ = [
    "LSQParams",
    "QParams",
    "QParamsModuleMixin",
    "QuantMode",
    "create_qparams",
    "fake_quant_bias",
    "fake_quant_tensor",
    "lsq_forward",
    "tqt_forward",
]


class QParamsModuleMixin(abc.ABC):
    """A module that knows how its output is quantized."""

    @abc.abstractmethod
    def get_qparams(self) -> QParams:
        """Return the parameters of the output."""

    def get_quantized_dtype(self) -> np.dtype[Any]:
        """Return the dtype of the output."""
        q = self.get_qparams()
        assert q.dtype_meta is not None
        zero = None if q.zero_point is None else int(q.zero_point)
        return create_quantized_dtype(q.dtype_meta, float(q.scale), zero)
