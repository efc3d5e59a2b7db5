"""MegEngine's ``functional.elemwise``."""

from ...layers.elemwise import *  # noqa: F403
from ...layers.elemwise import (
    elemwise_multi_type as _elemwise_multi_type,  # noqa: F401
    elwise as _elwise,  # noqa: F401
)
from ..absent import absent

__getattr__ = absent(__name__)
