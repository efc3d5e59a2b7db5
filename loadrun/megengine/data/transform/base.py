"""Transforms: functions of samples, and of images with what belongs to them.

Source of semantics: MegEngine ``data/transform``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....base.errors import NotDefinedError, UsageError

__all__ = ["PseudoTransform", "Transform", "VisionTransform"]


class Transform(ABC):
    """A function of samples; subclasses define ``apply``."""

    def apply_batch(self, inputs: Any) -> Any:
        """Return every sample of a batch transformed."""
        return tuple(self.apply(sample) for sample in inputs)

    @abstractmethod
    def apply(self, input: Any) -> Any:
        """Return a sample transformed."""

    def __repr__(self) -> str:
        return type(self).__name__


class PseudoTransform(Transform):
    """Gives samples as they are."""

    def apply(self, input: Any) -> Any:
        """Return the sample."""
        return input


class VisionTransform(Transform):
    """A function of images, and of what belongs to them.

    A sample is a tuple; `order` says what its parts are: ``image`` of shape (H, W, C), ``coords`` (N, 2) of x and y,
    ``boxes`` (N, 4) of left, top, right, bottom, ``mask`` (H, W, C), ``keypoints`` (N, K, 3) of x, y and a label,
    ``polygons``, a list of lists of ``coords``; names that end with ``category`` or ``info`` stay as they are.
    Subclasses define ``_apply_image``, ``_apply_coords`` and ``_apply_mask``, and ``_apply_NAME`` for other parts.
    As in MegEngine, coordinates are changed where they are.

    Args:
        order: what the parts of a sample are, default the image alone.

    Raises:
        ValueError: it is not a sequence, or names what no part can be.
        NotImplementedError: there is no method for a part.
    """

    order: Sequence[str]

    def __init__(self, order: Any = None) -> None:
        super().__init__()
        if order is None:
            order = ("image",)
        if not isinstance(order, Sequence):
            raise UsageError(f"order should be a sequence, found {order!r}")
        for name in order:
            if name == "batch":
                raise UsageError("batch is not part of a sample")
            if not name.endswith(("category", "info")) and self._get_apply(name) is None:
                raise NotDefinedError(
                    f"{name} is not a part that {type(self).__name__} knows how to transform"
                )
        self.order = order

    def apply(self, input: Any) -> Any:
        """Return a sample transformed; parts behind those of `order` stay as they are."""
        parts = input if isinstance(input, tuple) else (input,)
        done = []
        for i, part in enumerate(parts):
            how = self._get_apply(self.order[i]) if i < len(self.order) else None
            done.append(part if how is None else how(part))
        return done[0] if len(done) == 1 else tuple(done)

    def _get_apply(self, key: str) -> Any:
        return getattr(self, f"_apply_{key}", None)

    def _get_image(self, input: Any) -> Any:
        parts = input if isinstance(input, tuple) else (input,)
        return parts[self.order.index("image")]

    def _apply_image(self, image: Any) -> Any:
        raise NotDefinedError(f"{type(self).__name__} does not say what becomes of images")

    def _apply_coords(self, coords: Any) -> Any:
        raise NotDefinedError(f"{type(self).__name__} does not say what becomes of coordinates")

    def _apply_mask(self, mask: Any) -> Any:
        raise NotDefinedError(f"{type(self).__name__} does not say what becomes of masks")

    def _apply_boxes(self, boxes: Any) -> Any:
        """Return the boxes around what becomes of the four corners."""
        corners = np.asarray(boxes).reshape(-1, 4)[:, [0, 1, 2, 1, 0, 3, 2, 3]].reshape(-1, 2)
        moved = self._apply_coords(corners).reshape(-1, 4, 2)
        return np.concatenate((moved.min(axis=1), moved.max(axis=1)), axis=1)

    def _apply_keypoints(self, keypoints: Any) -> Any:
        places = [self._apply_coords(p) for p in keypoints[..., :2]]
        return np.concatenate((places, keypoints[..., 2:]), axis=-1)

    def _apply_polygons(self, polygons: Any) -> Any:
        return [[self._apply_coords(p) for p in instance] for instance in polygons]
