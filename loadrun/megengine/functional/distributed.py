"""Names that training scripts import from ``megengine.functional.distributed``; calling one is refused."""

from ..distributed import functional as _functional
from ..distributed.functional import *  # noqa: F403

__all__ = list(_functional.__all__)
