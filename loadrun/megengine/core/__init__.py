"""`core.tensor.dtype`: quantized dtypes, where code written for MegEngine looks for them."""

from ..absent import absent
from . import tensor

__all__ = ["tensor"]

__getattr__ = absent(__name__)
