"""MegEngine's ``random``: for a seed the numbers that MegEngine gives on a CPU."""

from ..layers.random import *  # noqa: F403
