"""Mixed precision as MegEngine has it, under the name of ``megengine.amp``.

While it is enabled, convolutions, transposed ones and matrix products compute in `low_prec_dtype` and sum in float32;
batch normalization takes its input in it and its statistics in `high_prec_dtype`; other normalizations and the
functions of the exponential kind compute in `high_prec_dtype`.

Attributes:
    enabled: whether anything is cast.
    low_prec_dtype: "float16" or "bfloat16".
    high_prec_dtype: "float32".
"""

from __future__ import annotations

from ...tensors.switches import autocast, forward
from ..absent import listed, refusing
from .convert_format import convert_module_format, convert_tensor_format

__all__ = [
    "autocast",
    "convert_module_format",
    "convert_tensor_format",
    "enabled",
    "high_prec_dtype",
    "low_prec_dtype",
    *listed(__name__),
]

enabled: bool
high_prec_dtype: str
low_prec_dtype: str

forward(
    __name__,
    {"enabled": "autocast", "low_prec_dtype": "low_prec_dtype", "high_prec_dtype": "high_prec_dtype"},
)

__getattr__ = refusing(__name__)
