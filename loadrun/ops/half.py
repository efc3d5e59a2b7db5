"""Rounding to float16 the way MegEngine's CPU code does it."""

from __future__ import annotations

import numpy as np

from ..dtypes import Array

__all__ = ["round_half"]


def round_half(x: Array) -> Array:
    """Float32 values as float16, halves rounded away from zero.

    MegEngine's half type rounds every sum and product so (numpy and hardware round halves to even); values
    from 65520 on become infinite, NaN is kept.

    >>> round_half(np.array([2049.0, -2051.0, 65519.0, 65520.0], "f4")).tolist()
    [2050.0, -2052.0, 65504.0, inf]
    """
    x = np.asarray(x, np.float32)
    with np.errstate(all="ignore"):
        near = x.astype(np.float16)
        back = near.astype(np.float32)
        # Only ties can differ from numpy's rounding: they show as an error of exactly half a step towards zero.
        off = x - back
        step = np.spacing(np.abs(near)).astype(np.float32)
        tie = (np.abs(off) * 2 == step) & (np.abs(back) < np.abs(x))
        if tie.any():
            near[tie] = np.nextafter(near[tie], np.copysign(np.float16(np.inf), near[tie]))
        return near
