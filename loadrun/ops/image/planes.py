"""Layouts of images as planes, and the sizes that operators ask for."""

import numpy as np

from ...graph.dtypes import Array
from ...graph.params import Format
from ..registry import Shape

_PACK = {Format.NCHW4: 4, Format.NCHW44: 4, Format.NHWCD4: 4, Format.NCHW88: 8, Format.NCHW64: 64}


def planes_shape(shape: Shape, layout: Format) -> Shape:
    """Return (N, groups, H, W, packed channels) of an image tensor in a layout.

    Raises:
        ValueError: the shape is none of the layout's, or images have no such layout.

    >>> planes_shape((2, 8, 5, 3, 4), Format.NHWCD4)
    (2, 5, 8, 3, 4)
    """
    pack = _PACK.get(layout, 0)
    if len(shape) != (5 if pack else 4) or (pack and shape[4] != pack):
        want = f"5 axes, the last of {pack}" if pack else "4 axes"
        raise ValueError(f"a {layout.name} image has {want}, found shape {list(shape)}")
    if layout == Format.NCHW:
        return (*shape, 1)
    if layout == Format.NHWC:
        return (shape[0], 1, *shape[1:])
    if layout == Format.NHWCD4:
        return (shape[0], shape[2], shape[1], shape[3], shape[4])
    if pack:
        return shape
    raise ValueError(f"images in the {layout.name} layout cannot be resampled")


def as_planes(x: Array, layout: Format) -> Array:
    """View the image tensor as (N, groups, H, W, packed channels)."""
    shape = planes_shape(x.shape, layout)
    return x.transpose(0, 2, 1, 3, 4) if layout == Format.NHWCD4 else x.reshape(shape)


def from_planes(x: Array, layout: Format) -> Array:
    """Undo `as_planes`, as a view."""
    if layout == Format.NHWCD4:
        return x.transpose(0, 2, 1, 3, 4)
    if layout == Format.NCHW:
        return x[..., 0]
    return x[:, 0] if layout == Format.NHWC else x


def output_size(values: Array | tuple[int, ...], count: int = 2) -> tuple[int, ...]:
    """Read the target size from its input tensor.

    Raises:
        ValueError: not `count` sizes of at least 1.
    """
    size = tuple(int(v) for v in np.asarray(values).reshape(-1))
    if len(size) != count or any(v < 1 for v in size):
        raise ValueError(f"the output size must be {count} positive integers, found {list(size)}")
    return size
