"""MegEngine's ``logger``."""

from ..base.logger import *  # noqa: F403
from .absent import absent

__getattr__ = absent(__name__)
