"""MegEngine's quantization package for inference: observers, fake quantization, conversion of networks."""

from ..absent import absent
from .fake_quant import *  # noqa: F403
from .observer import *  # noqa: F403
from .quantize import *  # noqa: F403

__getattr__ = absent(__name__)
