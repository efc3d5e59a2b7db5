"""Names that code written for MegEngine takes from ``megengine.core``."""

from . import tensor

__all__ = ["tensor"]
