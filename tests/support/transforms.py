"""Transforms of images on seeded samples: run by MegEngine to record what they give, and by the tests.

Record with real MegEngine: ``python tests/support/transforms.py megengine tests/data/transforms.npz``.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Iterator
from importlib import import_module
from typing import Any

import numpy as np

ORDER = ("image", "coords", "boxes", "mask", "keypoints", "polygons", "image_category", "info")
SEEDS = (0, 1)


def sample(seed: int) -> tuple[Any, ...]:
    """An image of 9 x 13 with everything that may belong to it."""
    r = np.random.RandomState(seed)
    image = r.randint(0, 256, (9, 13, 3)).astype("uint8")
    mask = r.randint(0, 5, (9, 13, 1)).astype("uint8")
    points = r.uniform(0, 9, (2, 3, 3))
    polygons = [[r.uniform(0, 9, (5, 2))], [r.uniform(0, 9, (3, 2))]]
    return (
        image,
        r.uniform(0, 9, (4, 2)),
        r.uniform(0, 9, (3, 4)),
        mask,
        points,
        polygons,
        "cat",
        {"path": "x"},
    )


def cases(T: Any) -> dict[str, Any]:
    """Every transform with several parameters, by name."""
    order: dict[str, Any] = {"order": ORDER}
    return {
        "mode": T.ToMode(**order),
        "pad": T.Pad(3, **order),
        "pad two": T.Pad((2, 3), value=[1, 2, 3], mask_value=7, **order),
        "pad four": T.Pad((1, 2, 3, 4), value=1.5, **order),
        "resize": T.Resize((6, 7), **order),
        "resize edge": T.Resize(5, **order),
        "resize cubic": T.Resize(16, 2, **order),
        "resize same": T.Resize(9, **order),
        "shortest": T.ShortestEdgeResize((4, 20), 25, **order),
        "shortest choice": T.ShortestEdgeResize((5, 10, 15), 14, "choice", **order),
        "shortest one": T.ShortestEdgeResize(5, 100, **order),
        "random resize": T.RandomResize((0.5, 2), **order),
        "crop": T.RandomCrop((5, 6), **order),
        "crop padded": T.RandomCrop(12, 4, [9, 8, 7], 3, **order),
        "crop larger": T.RandomCrop(16, **order),
        "resized crop": T.RandomResizedCrop((8, 6), **order),
        "resized crop narrow": T.RandomResizedCrop(6, (3.0, 4.0), (2, 3), 0, **order),
        "resized crop broad": T.RandomResizedCrop(6, (2.0, 2.5), (0.1, 0.2), **order),
        "center": T.CenterCrop((4, 6), **order),
        "horizontal": T.RandomHorizontalFlip(**order),
        "vertical": T.RandomVerticalFlip(0.7, **order),
        "normalize": T.Normalize([1, 2, 3], [4, 5, 6], **order),
        "noise": T.GaussianNoise(0.1, 0.2, **order),
        "brightness": T.BrightnessTransform(0.4, **order),
        "saturation": T.SaturationTransform(0.6, **order),
        "contrast": T.ContrastTransform(0.6, **order),
        "hue": T.HueTransform(0.4, **order),
        "jitter": T.ColorJitter(0.4, 0.4, 0.4, 0.2, **order),
        "lighting": T.Lighting(0.1, **order),
        "shuffled": T.Compose(
            [T.RandomHorizontalFlip(), T.RandomVerticalFlip(), T.Resize((7, 7)), T.Normalize(3, 4)],
            shuffle_indices=[(1, 2, 3)],
            **order,
        ),
        "nested": T.Compose([T.Compose([T.CenterCrop(5)]), T.ToMode()], **order),
    }


def parts(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The arrays of a sample with their places."""
    if isinstance(value, np.ndarray):
        yield path, value
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            yield from parts(part, f"{path}.{i}")


def applied(package: str, without: Collection[str] = ()) -> dict[str, Any]:
    """What a package gives for all cases but some, by case, seed and place."""
    transform = import_module(f"{package}.data.transform")
    found = {}
    for name, case in cases(transform).items():
        for seed in () if name in without else SEEDS:
            np.random.seed(seed)
            random.seed(seed)
            for path, array in parts(case.apply(sample(seed))):
                found[f"{name}/{seed}{path}"] = array
    return found


if __name__ == "__main__":
    np.savez_compressed(sys.argv[2], **applied(sys.argv[1]))
