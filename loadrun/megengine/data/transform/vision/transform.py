"""Transforms of images, under the name of ``megengine.data.transform.vision.transform``."""

from .. import colour, geometry
from ..base import VisionTransform
from ..colour import *  # noqa: F403
from ..geometry import *  # noqa: F403

__all__ = ["VisionTransform", *colour.__all__, *geometry.__all__]
