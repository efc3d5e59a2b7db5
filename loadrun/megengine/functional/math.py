"""MegEngine's ``functional.math``."""

from ...build.math import *  # noqa: F403
from ...build.math import _check_non_finite  # noqa: F401
