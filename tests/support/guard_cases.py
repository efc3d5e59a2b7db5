"""Programs that MegEngine's compiler or kernels would take for others, and what keeps them apart in a dump."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import loadrun.megengine.functional as F

X, Y = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
Case = tuple[Callable[..., Any], str]


def _whole_quotients(x: Any, y: Any) -> Any:
    """By zeros, too, which numpy makes zeros, and at which MegEngine's process ends."""
    n, d = np.floor(x * 9).astype(np.int32), np.floor(y).astype(np.int32)
    with np.errstate(all="ignore"):
        return n // d + n % d * 10 + np.fmod(n, d) * 100 + n // np.array([0, 3, 2, 5], np.int32)


POWERS: dict[str, Callable[..., Any]] = {
    "root of a product": lambda x, y: np.sqrt(x * x),
    "inverse root of a square": lambda x, y: 1 / np.sqrt(x**2),
    "power of a square": lambda x, y: (x**2) ** 1.5,
    "fourth root": lambda x, y: (x**4) ** 0.25,
    "cube roots": lambda x, y: np.cbrt(np.cbrt(x)),
    "sixth root": lambda x, y: (x**6) ** (1 / 6),
    "root of products": lambda x, y: np.sqrt((x * y) * (x * y)),
    "root of constants": lambda x, y: ((x * -2) * (x * -3)) ** 0.5,
    "root of a quotient": lambda x, y: np.hypot(x, y) * np.sqrt((x / y) ** 2),
    "power of roots": lambda x, y: np.sqrt(x * x) ** 3,
    "variable exponent": lambda x, y: (x ** np.full_like(y, 2)) ** 0.5,
    "roots in a quotient": lambda x, y: np.sqrt((x - y) ** 2) / np.sqrt(y * y),
    "negative powers": lambda x, y: (x**-2) ** 0.5,
    "nothing and one": lambda x, y: x**0 + y**1,
    "lengths of zeros": lambda x, y: np.hypot(x - x[:, :1], y * 0) + (x * 1e-25 / (y * 1e-25)) ** 3,
}
INTEGERS: dict[str, Callable[..., Any]] = {"quotients by zeros": _whole_quotients}
STEPS: dict[str, Callable[..., Any]] = {
    "tenths by tenths": lambda x, y: np.round(x, 1)[:, ::-1] // 0.3,
    "many tenths": lambda x, y: np.add.outer(np.round(x, 1), np.arange(-30, 30, dtype=np.float32)) // 0.3,
    "floor of tenths": lambda x, y: np.floor(
        np.round(np.add.outer(x, np.arange(9, dtype=np.float32)), 1) / 0.1
    ),
    "quotients in a row": lambda x, y: np.floor(np.round(x * 50) / 10 / 0.3),
}


def _seen(y: Any) -> Any:
    """A mask: 1 or 0."""
    return (y > 0).astype(np.float32)


def _endless(x: Any, y: Any) -> Any:
    """Infinite before the last factor."""
    with np.errstate(over="ignore"):
        return y + 1e11 / (np.abs(x) * 1e30 / 1e-10 * 1e-30)


_LARGE, _MEAN = np.full(4, 1e6, np.float32), np.round(X * 4096)
SUMS: dict[str, Callable[..., Any]] = {
    "mask of attention": lambda x, y: x + (1 - _seen(y)) * -1e4,
    "mask taken off": lambda x, y: x - 1e6 * (1 - _seen(y)),
    "least number": lambda x, y: x * 0.5 + (1 - _seen(y)) * np.finfo(np.float32).min,
    "two masks and a mean": lambda x, y: x + (_seen(y) - 1) * 3e4 + (_seen(x) * 1e5 - 1e5) + x.mean(),
    "rounded by a large number": lambda x, y: (x + 12582912.0) - 12582912.0,
    "there and back": lambda x, y: (x + 1e5 * _seen(y)) - 1e5 * _seen(y),
    "mask of stored numbers": lambda x, y: x + (_seen(y) * _LARGE - _LARGE),
    "stored mean": lambda x, y: (x * 512 - _LARGE) + _LARGE,
    "stored mean and a product": lambda x, y: (x[:1] * 4096 - _MEAN[:1]) @ Y.T,
    "difference of variables": lambda x, y: y + (x * 512 - np.abs(x * 512)),
    "factors beyond each other": lambda x, y: 1e38 * (x * 1e-35) * 10 + y,
    "an infinite product": _endless,
    "negated difference": lambda x, y: y[:1] - (x * 512 - np.abs(x * 512)) * 0.5,
}
ROWS: dict[str, Callable[..., Any]] = {
    "broadcast and row": lambda x, y: np.broadcast_to(x[:1], (3, 4)) + x[1],
    "meshgrid": lambda x, y: np.meshgrid(x[0], y[:, 0])[0] * y[0],
    "filled and row": lambda x, y: np.ones_like(x) * x[0, 0] + y[0],
    "slice and row": lambda x, y: x[:, 1:] * y[0, 1:],
    "split and row": lambda x, y: np.split(x, 2, axis=1)[0] + y[0, :2],
    "backwards and row": lambda x, y: x[:, ::-1] * y[:1],
    "chain": lambda x, y: x[:, 1:] + y[:, 1:] * y[0, 1:] + x[0, :3],
    "behind arithmetic": lambda x, y: (np.broadcast_to(x[0], (3, 4)) * 2 + 1) / y[1],
    "tiled": lambda x, y: np.tile(x[0], (3, 1)) * y[0],
}
TENSORS: dict[str, Callable[..., Any]] = {
    "powers": lambda x, y: F.pow(F.pow(x, 2), 0.5) * F.pow(F.pow(y, 2.0), 1.5),
    "to the power of nothing": lambda x, y: F.pow(x, 0),
    "slice and row": lambda x, y: x[:, 1:] * y[0, 1:],
    "split and row": lambda x, y: F.split(x, 2, axis=1)[0] + y[0, :2],
    "column turned": lambda x, y: F.matmul(
        y.reshape(2, 6, 1), F.transpose(x.reshape(2, 3, 2)[..., :1], (0, 2, 1))
    ),
    "broadcast and row": lambda x, y: F.broadcast_to(x[:1], (3, 4)) + x[1],
    "split times one": lambda x, y: F.split(x, 2, axis=1)[0] * 1,
    "top plus nothing": lambda x, y: F.topk(x, 2)[0] + 0,
    "order over one": lambda x, y: F.argsort(x)[1] // 1,
    "layer norm to the power of one": lambda x, y: F.layer_norm(x, (4,), False) ** 1,
    "taken times one": lambda x, y: F.cond_take(y > 0, x)[0] * 1.0,
    "singular values times one": lambda x, y: F.svd(x)[1] * 1,
}
MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "as it is": {"optimize_for_inference": False},
    "unchanged": {"no_change_graph": True},
}
