"""MegEngine's ``functional.tensor``."""

from ...layers.tensor import *  # noqa: F403
