"""MegEngine's ``functional.tensor``."""

from ...build.tensor import *  # noqa: F403
