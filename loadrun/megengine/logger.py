"""MegEngine's ``logger``."""

from ..base.logger import *  # noqa: F403
from ..base.logger import _imperative_rt_logger as _imperative_rt_logger
