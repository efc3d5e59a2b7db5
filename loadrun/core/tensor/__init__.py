"""Names that code written for MegEngine takes from ``megengine.core.tensor``."""

from . import dtype

__all__ = ["dtype"]
