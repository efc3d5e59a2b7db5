"""Sets of images; those that MegEngine reads from archives are there and refuse."""

from __future__ import annotations

from typing import Any

from ....absent import listed, refusing
from ..base import Dataset

__all__ = ["VisionDataset", *listed(__name__)]


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
                    f"{name} is not part of a sample; expected one of {', '.join(supported_order)}"
                )


__getattr__ = refusing(__name__)
