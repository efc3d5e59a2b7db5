"""MegEngine's ``functional.math``."""

from ...layers.math import *  # noqa: F403
from ...layers.math import _check_non_finite  # noqa: F401
