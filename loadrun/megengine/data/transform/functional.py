"""Transforms of one image of shape (H, W, C); channels are blue, green, red.

Source of semantics: MegEngine ``data/transform/vision/functional.py``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....base.errors import UsageError

__all__ = ["flip", "pad", "resize", "to_bgr", "to_gray"]

LINEAR = 1
"""OpenCV's INTER_LINEAR."""
NEAREST = 0
"""OpenCV's INTER_NEAREST."""


def cv2() -> Any:
    """Return OpenCV.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import cv2 as module  # an optional package
    except ImportError:
        raise UsageError("transforms of images need OpenCV: pip install opencv-python-headless") from None
    return module


def _checked(image: Any) -> Any:
    if image.ndim != 3:
        raise UsageError(f"an image has 3 dims (H, W, C), found {image.ndim}: {list(image.shape)}")
    return image


def _channel_axis_kept(image: Any) -> Any:
    """Return an image with its channel axis, which OpenCV leaves out for one channel."""
    return image[:, :, np.newaxis] if image.ndim == 2 else image


def to_gray(image: Any) -> Any:
    """Return an image of one channel."""
    cv = cv2()
    return _channel_axis_kept(cv.cvtColor(_checked(image), cv.COLOR_BGR2GRAY))


def to_bgr(image: Any) -> Any:
    """Return an image of three equal channels."""
    cv = cv2()
    return _channel_axis_kept(cv.cvtColor(_checked(image), cv.COLOR_GRAY2BGR))


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
    cv = cv2()
    return _channel_axis_kept(cv.copyMakeBorder(image, *sides(size), cv.BORDER_CONSTANT, value=value))


def flip(image: Any, flipCode: int) -> Any:
    """Return an image mirrored: 1 left and right, 0 top and bottom, -1 both."""
    return _channel_axis_kept(cv2().flip(_checked(image), flipCode=flipCode))


def resize(input: Any, size: Sequence[int], interpolation: Any = LINEAR) -> Any:
    """Return an image at another size.

    Args:
        input: the image.
        size: height and width.
        interpolation: OpenCV's number of it, or several of which one is drawn.
    """
    if len(size) != 2:
        raise UsageError(f"resize needs (h, w), found {size}")
    if isinstance(interpolation, Sequence):
        interpolation = random.choice(interpolation)
    return _channel_axis_kept(cv2().resize(_checked(input), tuple(size)[::-1], interpolation=interpolation))
