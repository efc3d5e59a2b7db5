"""MegEngine's ``functional.vision``."""

from ...layers.vision import *  # noqa: F403
