"""Names that code written for MegEngine takes from ``megengine.core``."""

from . import ops, tensor
from .options import get_option, set_option

__all__ = ["get_option", "ops", "set_option", "tensor"]
