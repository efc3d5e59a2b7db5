"""Sets of images; those that MegEngine reads from archives are there and refuse."""

from __future__ import annotations

from typing import Any

from ....absent import absent_class
from ..base import Dataset

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "COCO",
    "MNIST",
    "Cityscapes",
    "ImageFolder",
    "ImageNet",
    "Objects365",
    "PascalVOC",
    "VisionDataset",
]

_WHY = "loadrun downloads and unpacks no datasets; give the samples to ArrayDataset, or write a Dataset"


class VisionDataset(Dataset):
    """Samples of images; subclasses define ``__getitem__`` and ``__len__``.

    Args:
        root: a folder.
        order: what a sample is made of, see `loadrun.megengine.data.transform.VisionTransform`.
        supported_order: of what it may be made.

    Raises:
        NotImplementedError: it cannot be made of that.
    """

    _repr_indent = 4

    def __init__(self, root: Any, *, order: Any = None, supported_order: Any = None) -> None:
        self.root = root
        self.order = ("image",) if order is None else order
        for name in self.order:
            if supported_order is not None and name not in supported_order:
                raise NotImplementedError(
                    f"{name} is not part of a sample; known are {', '.join(supported_order)}"
                )


CIFAR10 = absent_class("CIFAR10", _WHY, VisionDataset)
CIFAR100 = absent_class("CIFAR100", _WHY, VisionDataset)
COCO = absent_class("COCO", _WHY, VisionDataset)
Cityscapes = absent_class("Cityscapes", _WHY, VisionDataset)
ImageFolder = absent_class("ImageFolder", _WHY, VisionDataset)
ImageNet = absent_class("ImageNet", _WHY, VisionDataset)
MNIST = absent_class("MNIST", _WHY, VisionDataset)
Objects365 = absent_class("Objects365", _WHY, VisionDataset)
PascalVOC = absent_class("PascalVOC", _WHY, VisionDataset)
