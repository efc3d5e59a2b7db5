"""Sets of samples, as ``megengine.data.dataset`` has them; those that MegEngine downloads are there and refuse.

Source of semantics: MegEngine ``data/dataset/meta_dataset.py``.
"""

from .base import ArrayDataset, ConcatDataset, Dataset, StreamDataset
from .vision import (
    CIFAR10,
    CIFAR100,
    COCO,
    MNIST,
    Cityscapes,
    ImageFolder,
    ImageNet,
    Objects365,
    PascalVOC,
    VisionDataset,
)

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "COCO",
    "MNIST",
    "ArrayDataset",
    "Cityscapes",
    "ConcatDataset",
    "Dataset",
    "ImageFolder",
    "ImageNet",
    "Objects365",
    "PascalVOC",
    "StreamDataset",
    "VisionDataset",
]
