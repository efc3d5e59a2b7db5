"""Quantized dtypes under the name of ``megengine.core.tensor.dtype``."""

from ....tensors import quantized_dtypes as _quantized_dtypes
from ....tensors.quantized_dtypes import *  # noqa: F403
from ....tensors.quantized_dtypes import KINDS as _builtin_quant_dtypes  # noqa: F401
from ...absent import absent

__all__ = [name for name in _quantized_dtypes.__all__ if name != "KINDS"]
__getattr__ = absent(__name__)
