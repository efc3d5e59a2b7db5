"""MegEngine's ``functional.elemwise``."""

from ...build.elemwise import *  # noqa: F403
from ...build.elemwise import __all__ as __all__
from ...build.modes import elemwise_multi_type as _elemwise_multi_type  # noqa: F401
from ...build.modes import elwise as _elwise  # noqa: F401
from ..absent import absent

__getattr__ = absent(__name__)
