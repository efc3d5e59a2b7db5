"""Transforms that move pixels: crops, sizes, flips, borders; coordinates and masks follow.

Source of semantics: MegEngine ``data/transform/vision/transform.py``; the same seeds of numpy draw the same.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....base.errors import NotDefinedError, UsageAssertionError, UsageError
from . import functional as F
from .base import VisionTransform

__all__ = [
    "CenterCrop",
    "Pad",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResize",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "ShortestEdgeResize",
    "ToMode",
]


def _pair(size: Any) -> Any:
    return (size, size) if isinstance(size, int) else size


class ToMode(VisionTransform):
    """Moves the channels to the front.

    Args:
        mode: "CHW".
        order: what the parts of a sample are, see `VisionTransform`.
    """

    def __init__(self, mode: str = "CHW", *, order: Any = None) -> None:
        super().__init__(order)
        if mode != "CHW":
            raise UsageAssertionError(f"unsupported mode: {mode}; known is CHW")
        self.mode = mode

    def _apply_image(self, image: Any) -> Any:
        return np.ascontiguousarray(np.moveaxis(image, 2, 0))

    def _apply_mask(self, mask: Any) -> Any:
        return self._apply_image(mask)

    def _apply_coords(self, coords: Any) -> Any:
        return coords


class Pad(VisionTransform):
    """Adds a border.

    Args:
        size: one number for all sides, two for bottom and right, or four for top, bottom, left and right.
        value: the border's value in images, or one for each channel.
        mask_value: the border's value in masks.
        order: what the parts of a sample are, see `VisionTransform`.
    """

    def __init__(self, size: Any = 0, value: Any = 0, mask_value: int = 0, *, order: Any = None) -> None:
        super().__init__(order)
        self.size = F.sides(size)
        if not isinstance(self.size, (list, tuple)) or len(self.size) != 4:
            raise UsageError(f"size is one number, two, or four (top, bottom, left, right), found {size!r}")
        if not isinstance(mask_value, int):
            raise UsageError(f"mask_value should be an integer, found {mask_value!r}")
        self.value = value
        self.mask_value = mask_value

    def _apply_image(self, image: Any) -> Any:
        return F.pad(image, self.size, self.value)

    def _apply_coords(self, coords: Any) -> Any:
        coords[:, 0] += self.size[2]
        coords[:, 1] += self.size[0]
        return coords

    def _apply_mask(self, mask: Any) -> Any:
        return F.pad(mask, self.size, self.mask_value)


class _Scaled(VisionTransform):
    """A transform to another size, which ``_get_shape`` finds from the image."""

    interpolation: Any

    def _get_shape(self, image: Any) -> tuple[int, int, int, int]:
        """Return height and width of the image, and the height and width that it gets."""
        raise NotDefinedError(f"{type(self).__name__} does not say to which size")

    def apply(self, input: Any) -> Any:
        """Return a sample at the size that is found for its image."""
        self._shape_info = self._get_shape(self._get_image(input))
        return super().apply(input)

    def _sized(self, image: Any, interpolation: Any) -> Any:
        h, w, th, tw = self._shape_info
        return image if (h, w) == (th, tw) else F.resize(image, (th, tw), interpolation)

    def _apply_image(self, image: Any) -> Any:
        return self._sized(image, self.interpolation)

    def _apply_mask(self, mask: Any) -> Any:
        return self._sized(mask, F.NEAREST)

    def _apply_coords(self, coords: Any) -> Any:
        h, w, th, tw = self._shape_info
        if (h, w) != (th, tw):
            coords[:, 0] = coords[:, 0] * (tw / w)
            coords[:, 1] = coords[:, 1] * (th / h)
        return coords


class Resize(_Scaled):
    """Changes the size.

    Args:
        output_size: height and width, or the length of the shorter edge, at the same aspect.
        interpolation: OpenCV's number of it.
        order: what the parts of a sample are, see `VisionTransform`.
    """

    def __init__(self, output_size: Any, interpolation: Any = F.LINEAR, *, order: Any = None) -> None:
        super().__init__(order)
        self.output_size = output_size
        self.interpolation = interpolation

    def _get_shape(self, image: Any) -> tuple[int, int, int, int]:
        h, w = image.shape[:2]
        size = self.output_size
        if not isinstance(size, int):
            return h, w, size[0], size[1]
        if min(h, w) == size:
            return h, w, h, w
        return (h, w, size, int(size * w / h)) if h < w else (h, w, int(size * h / w), size)


class ShortestEdgeResize(_Scaled):
    """Gives the shorter edge a drawn length, unless the longer one gets too long.

    Args:
        min_size: the length; smallest and largest of it, or lengths to choose from.
        max_size: how long the longer edge may get.
        sample_style: "range" draws between the two, "choice" one of several.
        interpolation: OpenCV's number of it.
        order: what the parts of a sample are, see `VisionTransform`.
    """

    def __init__(
        self,
        min_size: Any,
        max_size: int,
        sample_style: str = "range",
        interpolation: Any = F.LINEAR,
        *,
        order: Any = None,
    ) -> None:
        super().__init__(order)
        if sample_style not in ("range", "choice"):
            raise NotDefinedError(f"{sample_style} is unsupported sample style; expected range or choice")
        self.min_size = _pair(min_size)
        self.max_size = max_size
        self.sample_style = sample_style
        self.interpolation = interpolation

    def _get_shape(self, image: Any) -> tuple[int, int, int, int]:
        h, w = image.shape[:2]
        if self.sample_style == "range":
            size: Any = np.random.randint(self.min_size[0], self.min_size[1] + 1)
        else:
            size = np.random.choice(self.min_size)
        scale = size / min(h, w)
        th, tw = (size, scale * w) if h < w else (scale * h, size)
        longest = max(th, tw)
        if longest > self.max_size:
            th, tw = (side * (self.max_size / longest) for side in (th, tw))
        return h, w, round(th), round(tw)


class RandomResize(_Scaled):
    """Changes the size by a drawn factor.

    Args:
        scale_range: smallest and largest factor.
        interpolation: OpenCV's number of it.
        order: what the parts of a sample are, see `VisionTransform`.
    """

    def __init__(self, scale_range: Any, interpolation: Any = F.LINEAR, *, order: Any = None) -> None:
        super().__init__(order)
        self.scale_range = scale_range
        self.interpolation = interpolation

    def _get_shape(self, image: Any) -> tuple[int, int, int, int]:
        h, w = image.shape[:2]
        scale = np.random.uniform(*self.scale_range)
        return h, w, round(h * scale), round(w * scale)


class RandomCrop(VisionTransform):
    """Cuts out a part at a drawn place, of an image that may get a border before.

    Args:
        output_size: height and width, or one number for both.
        padding_size: the border, see `Pad`.
        padding_value: the border's value in images.
        padding_maskvalue: the border's value in masks.
        order: what the parts of a sample are, see `VisionTransform`.
    """

    def __init__(
        self,
        output_size: Any,
        padding_size: Any = 0,
        padding_value: Any = (0, 0, 0),
        padding_maskvalue: int = 0,
        *,
        order: Any = None,
    ) -> None:
        super().__init__(order)
        self.output_size = _pair(output_size)
        self.pad = Pad(padding_size, padding_value, order=self.order)
        self.padding_value = padding_value
        self.padding_maskvalue = padding_maskvalue

    def apply(self, input: Any) -> Any:
        """Return the drawn part of a sample."""
        padded = self.pad.apply(input)
        self._h, self._w = self._get_image(padded).shape[:2]
        self._th, self._tw = self.output_size
        self._x = np.random.randint(0, max(0, self._w - self._tw) + 1)
        self._y = np.random.randint(0, max(0, self._h - self._th) + 1)
        return super().apply(padded)

    def _cut(self, image: Any, value: Any) -> Any:
        if self._th > self._h:
            image = F.pad(image, (self._th - self._h, 0), value)
        if self._tw > self._w:
            image = F.pad(image, (0, self._tw - self._w), value)
        return image[self._y : self._y + self._th, self._x : self._x + self._tw]

    def _apply_image(self, image: Any) -> Any:
        return self._cut(image, self.padding_value)

    def _apply_mask(self, mask: Any) -> Any:
        return self._cut(mask, self.padding_maskvalue)

    def _apply_coords(self, coords: Any) -> Any:
        coords[:, 0] -= self._x
        coords[:, 1] -= self._y
        return coords


class RandomResizedCrop(VisionTransform):
    """Cuts out a part of drawn area, aspect and place, and gives it a size.

    Args:
        output_size: height and width, or one number for both.
        scale_range: smallest and largest share of the area.
        ratio_range: smallest and largest aspect, width by height.
        interpolation: OpenCV's number of it.
        order: what the parts of a sample are, see `VisionTransform`.
    """

    def __init__(
        self,
        output_size: Any,
        scale_range: Any = (0.08, 1.0),
        ratio_range: Any = (3.0 / 4, 4.0 / 3),
        interpolation: Any = F.LINEAR,
        *,
        order: Any = None,
    ) -> None:
        super().__init__(order)
        for name, (low, high) in (("scale_range", scale_range), ("ratio_range", ratio_range)):
            if low > high:
                raise UsageAssertionError(f"{name} should be of kind (min, max), found {(low, high)}")
        self.output_size = _pair(output_size)
        self.scale_range = scale_range
        self.ratio_range = ratio_range
        self.interpolation = interpolation

    def apply(self, input: Any) -> Any:
        """Return the drawn part of a sample."""
        self._coord_info = self._get_coord(self._get_image(input))
        return super().apply(input)

    def _cut(self, image: Any, interpolation: Any) -> Any:
        x, y, w, h = self._coord_info
        return F.resize(image[y : y + h, x : x + w], self.output_size, interpolation)

    def _apply_image(self, image: Any) -> Any:
        return self._cut(image, self.interpolation)

    def _apply_mask(self, mask: Any) -> Any:
        return self._cut(mask, F.NEAREST)

    def _apply_coords(self, coords: Any) -> Any:
        x, y, w, h = self._coord_info
        coords[:, 0] = (coords[:, 0] - x) * self.output_size[1] / w
        coords[:, 1] = (coords[:, 1] - y) * self.output_size[0] / h
        return coords

    def _get_coord(self, image: Any, attempts: int = 10) -> tuple[int, int, int, int]:
        """Return left, top, width and height; after `attempts` in vain, the largest part of a fitting aspect."""
        height, width = image.shape[:2]
        narrow, broad = self.ratio_range
        logs = (math.log(narrow), math.log(broad))
        for _ in range(attempts):
            area = np.random.uniform(*self.scale_range) * (height * width)
            aspect = math.exp(np.random.uniform(*logs))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                left = np.random.randint(0, width - w + 1)
                return left, np.random.randint(0, height - h + 1), w, h
        w, h = width, height
        if width / height < narrow:
            h = round(w / narrow)
        elif width / height > broad:
            w = round(h * broad)
        return (width - w) // 2, (height - h) // 2, w, h


class CenterCrop(VisionTransform):
    """Cuts out the middle.

    Args:
        output_size: height and width, or one number for both; no more than the image has.
        order: what the parts of a sample are, see `VisionTransform`.
    """

    def __init__(self, output_size: Any, *, order: Any = None) -> None:
        super().__init__(order)
        self.output_size = _pair(output_size)

    def apply(self, input: Any) -> Any:
        """Return the middle of a sample."""
        self._coord_info = self._get_coord(self._get_image(input))
        return super().apply(input)

    def _apply_image(self, image: Any) -> Any:
        x, y = self._coord_info
        th, tw = self.output_size
        return image[y : y + th, x : x + tw]

    def _apply_mask(self, mask: Any) -> Any:
        return self._apply_image(mask)

    def _apply_coords(self, coords: Any) -> Any:
        x, y = self._coord_info
        coords[:, 0] -= x
        coords[:, 1] -= y
        return coords

    def _get_coord(self, image: Any) -> tuple[int, int]:
        (th, tw), (h, w) = self.output_size, image.shape[:2]
        if th > h or tw > w:
            raise UsageAssertionError(f"output size is bigger than image size: {th}x{tw} of {h}x{w}")
        return round((w - tw) / 2.0), round((h - th) / 2.0)


class _Flip(VisionTransform):
    """A mirror image, with some probability."""

    _axis: int
    _code: int

    def __init__(self, prob: float = 0.5, *, order: Any = None) -> None:
        super().__init__(order)
        self.prob = prob

    def apply(self, input: Any) -> Any:
        """Return a sample, mirrored or not."""
        self._flipped = np.random.random() < self.prob
        self._length = self._get_image(input).shape[1 - self._axis]
        return super().apply(input)

    def _apply_image(self, image: Any) -> Any:
        return F.flip(image, flipCode=self._code) if self._flipped else image

    def _apply_mask(self, mask: Any) -> Any:
        return self._apply_image(mask)

    def _apply_coords(self, coords: Any) -> Any:
        if self._flipped:
            coords[:, self._axis] = self._length - coords[:, self._axis]
        return coords


class RandomHorizontalFlip(_Flip):
    """Mirrors left and right.

    Args:
        prob: how often.
        order: what the parts of a sample are, see `VisionTransform`.
    """

    _axis, _code = 0, 1


class RandomVerticalFlip(_Flip):
    """Mirrors top and bottom.

    Args:
        prob: how often.
        order: what the parts of a sample are, see `VisionTransform`.
    """

    _axis, _code = 1, 0
