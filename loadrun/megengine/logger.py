"""MegEngine's ``logger``."""

from ..base.logger import *  # noqa: F403
