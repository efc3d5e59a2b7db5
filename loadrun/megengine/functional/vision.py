"""MegEngine's ``functional.vision``."""

from ...build.vision import *  # noqa: F403
