"""Names that code written for MegEngine takes from ``megengine.core.tensor``."""

from . import amp, dtype

__all__ = ["amp", "dtype"]
