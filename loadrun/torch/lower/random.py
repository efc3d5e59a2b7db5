"""Random numbers: drawn anew in every run of a dump, not the ones that torch draws."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import random as R
from ..call import FxCall
from ..registry import aten
from ..values import arr, ten

__all__: list[str] = []


@aten("aten.rand.default", "aten.rand_like.default")
def rand(call: FxCall, shape: Any, *_: Any, **__: Any) -> Any:
    """Evenly between 0 and 1."""
    return ten(R.uniform(0, 1, _shape(shape)), call.dtype)


@aten("aten.randn.default", "aten.randn_like.default")
def randn(call: FxCall, shape: Any, *_: Any, **__: Any) -> Any:
    """From the normal distribution."""
    return ten(R.normal(0, 1, _shape(shape)), call.dtype)


@aten("aten.randint.low", "aten.randint.default", "aten.randint_like.default", "aten.randint_like.low_dtype")
def randint(call: FxCall, *args: Any, **__: Any) -> Any:
    """Whole numbers of a range."""
    like = "_like" in str(call.node.target)
    shape = args[0] if like else args[-1]
    limits = args[1:] if like else args[:-1]
    low, high = (0, limits[0]) if len(limits) == 1 else limits[:2]
    return ten(
        np.floor(arr(R.uniform(0, 1, _shape(shape))) * np.float32(high - low)) + np.float32(low), call.dtype
    )


@aten("aten.bernoulli.default", "aten.bernoulli.p")
def bernoulli(call: FxCall, x: Any, p: Any = None, **_: Any) -> Any:
    """1 with a probability."""
    drawn = arr(R.uniform(0, 1, ten(x).shape))
    return arr(drawn < (arr(x) if p is None else np.float32(p)), call.dtype)


def _shape(value: Any) -> Any:
    return tuple(value) if isinstance(value, (list, tuple)) else ten(value).shape
