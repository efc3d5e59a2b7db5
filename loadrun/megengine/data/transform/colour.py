"""Transforms that change pixels where they are, and lists of transforms.

Source of semantics: MegEngine ``data/transform/vision/transform.py``; the same seeds of numpy draw the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ....base.errors import UsageError
from . import functional as F
from .base import VisionTransform

__all__ = [
    "BrightnessTransform",
    "ColorJitter",
    "Compose",
    "ContrastTransform",
    "GaussianNoise",
    "HueTransform",
    "Lighting",
    "Normalize",
    "SaturationTransform",
    "TorchTransformCompose",
]


class _Pixels(VisionTransform):
    """A transform that leaves coordinates and masks as they are."""

    def _apply_coords(self, coords: Any) -> Any:
        return coords

    def _apply_mask(self, mask: Any) -> Any:
        return mask


class Normalize(_Pixels):
    """Subtracts means and divides by standard deviations, one for all channels or one each.

    Args:
        mean: the means.
        std: the standard deviations.
        order: what the parts of a sample are, see `VisionTransform`.
    """

    def __init__(self, mean: Any = 0.0, std: Any = 1.0, *, order: Any = None) -> None:
        super().__init__(order)
        self.mean = np.array(mean, np.float32)
        self.std = np.array(std, np.float32)

    def _apply_image(self, image: Any) -> Any:
        return (image - self.mean) / self.std


class GaussianNoise(_Pixels):
    """Adds normal noise in shares of 255.

    Args:
        mean: its mean.
        std: its standard deviation.
        order: what the parts of a sample are, see `VisionTransform`.
    """

    def __init__(self, mean: float = 0.0, std: float = 1.0, *, order: Any = None) -> None:
        super().__init__(order)
        self.mean = np.array(mean, np.float32)
        self.std = np.array(std, np.float32)

    def _apply_image(self, image: Any) -> Any:
        noise = (np.random.normal(self.mean, self.std, image.shape) * 255).astype(np.float32)
        return np.clip(image + noise, 0, 255).astype(image.dtype)


class _Mixed(_Pixels):
    """An image mixed with a plainer one by a drawn factor around 1."""

    _what: str

    def __init__(self, value: float, *, order: Any = None) -> None:
        super().__init__(order)
        if value < 0:
            raise UsageError(f"{self._what} value should be non-negative, found {value}")
        self.value = value

    def _apply_image(self, image: Any) -> Any:
        if self.value == 0:
            return image
        wide = image.astype(np.float32)
        alpha = np.random.uniform(max(0, 1 - self.value), 1 + self.value)
        return self._mix(wide, alpha).clip(0, 255).astype(image.dtype)

    def _mix(self, image: Any, alpha: float) -> Any:
        """Return the mixture."""
        return image * alpha


class BrightnessTransform(_Mixed):
    """Makes images darker or brighter.

    Args:
        value: how far the factor may be from 1.
        order: what the parts of a sample are, see `VisionTransform`.
    """

    _what = "brightness"


class ContrastTransform(_Mixed):
    """Mixes images with their mean gray.

    Args:
        value: how far the factor may be from 1.
        order: what the parts of a sample are, see `VisionTransform`.
    """

    _what = "contrast"

    def _mix(self, image: Any, alpha: float) -> Any:
        return image * alpha + F.to_gray(image).mean() * (1 - alpha)


class SaturationTransform(_Mixed):
    """Mixes images with themselves in gray.

    Args:
        value: how far the factor may be from 1.
        order: what the parts of a sample are, see `VisionTransform`.
    """

    _what = "saturation"

    def _mix(self, image: Any, alpha: float) -> Any:
        return image * alpha + F.to_gray(image) * (1 - alpha)


class HueTransform(_Pixels):
    """Turns the hue.

    Args:
        value: by which share of the circle at most, up to 0.5.
        order: what the parts of a sample are, see `VisionTransform`.
    """

    def __init__(self, value: float, *, order: Any = None) -> None:
        super().__init__(order)
        if not 0 <= value <= 0.5:
            raise UsageError(f"hue value should be in [0.0, 0.5], found {value}")
        self.value = value

    def _apply_image(self, image: Any) -> Any:
        if self.value == 0:
            return image
        cv = F.cv2()
        hsv = cv.cvtColor(image.astype(np.uint8), cv.COLOR_BGR2HSV_FULL)
        turn = int(np.random.uniform(-self.value, self.value) * 255)
        # The circle closes where unsigned bytes begin again.
        hsv[..., 0] += np.uint8(turn % 256)
        return cv.cvtColor(hsv, cv.COLOR_HSV2BGR_FULL).astype(image.dtype)


class Lighting(_Pixels):
    """Adds drawn amounts of the main colour components of ImageNet, as AlexNet did.

    Args:
        scale: standard deviation of the amounts.
        order: what the parts of a sample are, see `VisionTransform`.
    """

    def __init__(self, scale: float, *, order: Any = None) -> None:
        super().__init__(order)
        if scale < 0:
            raise UsageError(f"lighting scale should be non-negative, found {scale}")
        self.scale = scale
        self.eigvec = np.array(
            [[-0.5836, -0.6948, 0.4203], [-0.5808, -0.0045, -0.8140], [-0.5675, 0.7192, 0.4009]]
        )
        self.eigval = np.array([0.2175, 0.0188, 0.0045])

    def _apply_image(self, image: Any) -> Any:
        if self.scale == 0:
            return image
        alpha = np.random.normal(scale=self.scale * 255, size=3)
        lit = image.astype(np.float32) + self.eigvec.dot(alpha * self.eigval)
        return lit.clip(0, 255).astype(image.dtype)


class Compose(VisionTransform):
    """Several transforms, one after the other.

    Args:
        transforms: the transforms; they get the order of this one.
        batch_compose: apply each to a whole batch before the next.
        shuffle_indices: groups of places, counted from 1, whose transforms change places at random.
        order: what the parts of a sample are, see `VisionTransform`.

    Raises:
        ValueError: shuffling whole batches.

    >>> Compose([Normalize(mean=1.0), Normalize(std=2.0)]).apply(np.full((1, 1, 1), 7.0, "float32")).tolist()
    [[[3.0]]]
    """

    def __init__(
        self,
        transforms: Sequence[Any] = (),
        batch_compose: bool = False,
        shuffle_indices: Sequence[Sequence[int]] | None = None,
        *,
        order: Any = None,
    ) -> None:
        super().__init__(order)
        if batch_compose and shuffle_indices is not None:
            raise UsageError("transforms of whole batches cannot be shuffled; leave out one of the two")
        self.transforms = transforms
        self.batch_compose = batch_compose
        self.shuffle_indices = (
            None if shuffle_indices is None else [tuple(i - 1 for i in group) for group in shuffle_indices]
        )
        self._set_order()

    def _set_order(self) -> None:
        for transform in self.transforms:
            transform.order = self.order
            if isinstance(transform, Compose):
                transform._set_order()

    def apply_batch(self, inputs: Any) -> Any:
        """Return every sample of a batch transformed."""
        if not self.batch_compose:
            return super().apply_batch(inputs)
        for transform in self.transforms:
            inputs = transform.apply_batch(inputs)
        return inputs

    def apply(self, input: Any) -> Any:
        """Return a sample transformed."""
        for transform in self._shuffle():
            input = transform.apply(input)
        return input

    def _shuffle(self) -> Sequence[Any]:
        places = list(range(len(self.transforms)))
        for group in self.shuffle_indices or ():
            for place, taken in zip(group, np.random.permutation(group).tolist(), strict=True):
                places[place] = taken
        return [self.transforms[i] for i in places]


class ColorJitter(VisionTransform):
    """Changes brightness, contrast, saturation and hue, in random order.

    Args:
        brightness, contrast, saturation: how far each factor may be from 1.
        hue: by which share of the circle at most.
        order: what the parts of a sample are, see `VisionTransform`.
    """

    def __init__(
        self,
        brightness: float = 0,
        contrast: float = 0,
        saturation: float = 0,
        hue: float = 0,
        *,
        order: Any = None,
    ) -> None:
        super().__init__(order)
        kinds = (BrightnessTransform, ContrastTransform, SaturationTransform, HueTransform)
        values = (brightness, contrast, saturation, hue)
        chosen = [kind(value) for kind, value in zip(kinds, values, strict=True) if value != 0]
        everything = [tuple(range(1, len(chosen) + 1))]
        self.transforms = Compose(chosen, shuffle_indices=everything, order=order)

    def apply(self, input: Any) -> Any:
        """Return a sample with other colours."""
        return self.transforms.apply(input)


class TorchTransformCompose(VisionTransform):
    """Torchvision's transforms of PIL images, applied to one of OpenCV.

    Args:
        transforms: functions of a PIL image; the last may give an ndarray.
        order: what the parts of a sample are, see `VisionTransform`.
    """

    def __init__(self, transforms: Sequence[Any], *, order: Any = None) -> None:
        super().__init__(order)
        self.transforms = transforms

    def _apply_image(self, image: Any) -> Any:
        try:
            Image = import_module("PIL.Image")  # an optional package
        except ImportError:
            raise UsageError("TorchTransformCompose needs Pillow: pip install pillow") from None
        picture: Any = Image.fromarray(_channels_reversed(image).astype(np.uint8))
        for transform in self.transforms:
            picture = transform(picture)
        if isinstance(picture, Image.Image):
            picture = np.array(picture, np.uint8)
        return _channels_reversed(picture)


def _channels_reversed(image: Any) -> Any:
    """Return an image with its three channels in the opposite order."""
    if image.shape[0] == 3:
        return np.ascontiguousarray(image[::-1])
    return np.ascontiguousarray(image[:, :, ::-1]) if image.shape[2] == 3 else image
