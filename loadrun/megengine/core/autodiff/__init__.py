"""Names that tests of MegEngine take from ``megengine.core.autodiff``."""

from . import grad

__all__ = ["grad"]
