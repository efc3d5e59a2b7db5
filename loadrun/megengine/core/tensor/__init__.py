"""Quantized dtypes, where code written for MegEngine looks for them."""

from ...absent import absent
from . import dtype

__all__ = ["dtype"]

__getattr__ = absent(__name__)
