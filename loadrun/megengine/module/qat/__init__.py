"""Modules with fake quantization: what `quantization.quantize_qat` turns float modules into."""

from ...absent import absent
from .fused import *  # noqa: F403
from .layers import *  # noqa: F403
from .module import *  # noqa: F403

__getattr__ = absent(__name__)
