"""MegEngine's ``random``: for a seed the numbers that MegEngine gives, but for gamma, beta and Poisson."""

from ..build.random import *  # noqa: F403
