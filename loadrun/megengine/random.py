"""MegEngine's ``random``: distributions, drawn with numpy's generator."""

from ..build.random import *  # noqa: F403
