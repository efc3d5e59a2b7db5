"""Transforms of one image of shape (H, W, C); channels are blue, green, red.

Source of semantics: MegEngine ``data/transform/vision/functional.py``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....base.errors import UsageError
from ....graph.params import InterpolationMode
from ....ops.image.resize_cv import resize_cv, resize_picture

__all__ = ["flip", "pad", "resize", "to_bgr", "to_gray"]

LINEAR = 1
"""OpenCV's INTER_LINEAR."""
NEAREST = 0
"""OpenCV's INTER_NEAREST."""


_MODES = (
    InterpolationMode.NEAREST,
    InterpolationMode.LINEAR,
    InterpolationMode.CUBIC,
    InterpolationMode.AREA,
    InterpolationMode.LANCZOS4,
)
"""What OpenCV's numbers of interpolations mean."""


def cv2() -> Any:
    """Return OpenCV.

    Raises:
        UsageError: it is not installed.
    """
    module = _opencv()
    if module is None:
        raise UsageError("this transform of images needs OpenCV: pip install opencv-python-headless")
    return module


def _opencv() -> Any:
    """Return OpenCV, or None where it is not installed."""
    try:
        import cv2 as module  # an optional package
    except ImportError:
        return None
    return module


def _checked(image: Any) -> Any:
    if image.ndim != 3:
        raise UsageError(f"an image has 3 dims (H, W, C), found {image.ndim}: {list(image.shape)}")
    return image


def to_gray(image: Any) -> Any:
    """Return an image of one channel."""
    blue, green, red = np.split(_checked(image), 3, axis=2)
    if image.dtype == np.uint8:
        # The weights and the rounding of OpenCV, in units of 2 ** -15.
        total = blue.astype(np.int32) * 3735 + green.astype(np.int32) * 19235 + red.astype(np.int32) * 9798
        return ((total + (1 << 14)) >> 15).astype(np.uint8)
    return (blue * 0.114 + green * 0.587 + red * 0.299).astype(image.dtype)


def to_bgr(image: Any) -> Any:
    """Return an image of three equal channels."""
    return np.repeat(_checked(image), 3, axis=2)


def sides(size: Any) -> Any:
    """Return what is added at the top, bottom, left and right: one number for all, two for bottom and right."""
    if isinstance(size, int):
        return (size,) * 4
    return (0, size[0], 0, size[1]) if isinstance(size, Sequence) and len(size) == 2 else size


def pad(input: Any, size: Any, value: Any) -> Any:
    """Return an image with a border.

    Args:
        input: the image.
        size: one number for all sides, two for bottom and right, or four for top, bottom, left and right.
        value: the border's value, or one for each channel; floats make the image float32.
    """
    image = _checked(input)
    if np.array(value).dtype == np.float64:
        image = image.astype(np.float32)
    top, bottom, left, right = sides(size)
    height, width, channels = image.shape
    # As in OpenCV, one number is the first channel's, and the others' is 0.
    border = np.zeros(max(4, channels))
    border[: np.size(value)] = value
    if image.dtype.kind in "iu":
        border = np.clip(border, np.iinfo(image.dtype).min, np.iinfo(image.dtype).max)
    padded = np.empty((top + height + bottom, left + width + right, channels), image.dtype)
    padded[:] = border[:channels]
    padded[top : top + height, left : left + width] = image
    return padded


def flip(image: Any, flipCode: int) -> Any:
    """Return an image mirrored: 1 left and right, 0 top and bottom, -1 both."""
    axes = (0, 1) if flipCode < 0 else (1,) if flipCode else (0,)
    return np.ascontiguousarray(np.flip(_checked(image), axes))


def resize(input: Any, size: Sequence[int], interpolation: Any = LINEAR) -> Any:
    """Return an image at another size.

    Args:
        input: the image.
        size: height and width.
        interpolation: OpenCV's number of it, or several of which one is drawn.

    Without OpenCV, numpy resizes uint8 and float32.
    """
    if len(size) != 2:
        raise UsageError(f"resize needs (h, w), found {size}")
    if isinstance(interpolation, Sequence):
        interpolation = random.choice(interpolation)
    image, (height, width) = _checked(input), size
    if _opencv() is None and image.dtype in (np.uint8, np.float32) and interpolation in range(len(_MODES)):
        if image.dtype == np.uint8 and interpolation == LINEAR:
            return resize_picture(image, height, width)
        return resize_cv(image[np.newaxis], height, width, _MODES[interpolation])[0]
    resized = cv2().resize(image, (width, height), interpolation=interpolation)
    # OpenCV leaves the axis of a single channel out.
    return resized[:, :, np.newaxis] if resized.ndim == 2 else resized
