"""Modules that compute with quantized tensors: what `quantization.quantize` turns those of `qat` into."""

from ...absent import absent
from .layers import *  # noqa: F403

__getattr__ = absent(__name__)
