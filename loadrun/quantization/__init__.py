"""What inference needs of MegEngine's quantization package: parameters of quantized values, fake quantization."""

from .utils import (
    LSQParams,
    QParams,
    QParamsModuleMixin,
    QuantMode,
    create_qparams,
    fake_quant_bias,
    fake_quant_tensor,
    lsq_forward,
    tqt_forward,
)

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
