"""Transforms of images, under the name of ``megengine.data.transform.vision``."""

from . import functional, transform
from .transform import *  # noqa: F403

__all__ = ["functional", "transform", *transform.__all__]
