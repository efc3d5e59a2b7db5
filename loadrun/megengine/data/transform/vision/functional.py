"""Transforms of one image, under the name of ``megengine.data.transform.vision.functional``."""

from ..functional import flip, pad, resize, to_bgr, to_gray

__all__ = ["flip", "pad", "resize", "to_bgr", "to_gray"]
