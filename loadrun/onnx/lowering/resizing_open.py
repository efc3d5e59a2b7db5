"""Resizing along axes whose sizes the file leaves open: positions and weights are computed in the graph."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ...build import emit as e
from ...build.emit import _same_size
from ...graph import params as P
from ...tensors import Tensor
from ...tensors.sizes import TracedInt
from .parts import M, cast, const_like

__all__ = ["OPEN_MODES", "is_open", "resized", "scaled", "stays"]

OPEN_MODES = frozenset(
    ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
)
_SMALL = 64


def is_open(size: int, out: int) -> bool:
    """Whether the size of an axis, or what it becomes, is not the same in every run."""
    return isinstance(size, TracedInt) or isinstance(out, TracedInt)


def stays(size: int, out: int) -> bool:
    """Whether an axis keeps its size, whatever that is."""
    if isinstance(size, TracedInt) and isinstance(out, TracedInt):
        return size is out or _same_size(size, out)
    return not is_open(size, out) and int(size) == int(out)


def scaled(size: int, scale: float) -> int | None:
    """floor(size * scale) of an open size; None for a scale that is not a ratio of small numbers."""
    if scale == 1.0:
        return size
    ratio = Fraction(scale).limit_denominator(_SMALL)
    if ratio.numerator > 1 << 12 or np.float32(float(ratio)) != np.float32(scale):
        return None
    return size * ratio.numerator // ratio.denominator


def _positions(mode: str, i: Tensor, size: int, out: int, scale: float | None) -> Tensor:
    """Where in the input the elements `i` of the output are; by a scale, or else by out / size."""

    def divided(x: Tensor) -> Tensor:
        if scale is not None:
            return e.elem(M.TRUE_DIV, x, const_like(scale, x))
        return e.elem(M.TRUE_DIV, e.elem(M.MUL, x, e.like(size, x)), e.like(out, x))

    if mode == "asymmetric":
        return divided(i)
    one, half = const_like(1.0, i), const_like(0.5, i)
    if mode == "align_corners":
        # By the size before it is rounded down, where a scale is given.
        whole = e.like(out, i) if scale is None else e.elem(M.MUL, e.like(size, i), const_like(scale, i))
        steps = e.elem(M.SUB, whole, one)
        flat = e.compare(P.ElemwiseMultiTypeMode.EQ, steps, const_like(0.0, steps))
        steps = e.where(flat, const_like(np.inf, steps), steps)
        return e.elem(M.TRUE_DIV, e.elem(M.MUL, i, e.elem(M.SUB, e.like(size, i), one)), steps)
    middles = divided(e.elem(M.ADD, i, half))
    if mode == "half_pixel_symmetric" and scale is not None:
        n, m = e.like(size, i), e.like(out, i)
        share = e.elem(M.TRUE_DIV, m, e.elem(M.MUL, n, const_like(scale, n)))
        offset = e.elem(M.MUL, e.elem(M.MUL, half, n), e.elem(M.SUB, one, share))
        middles = e.elem(M.ADD, offset, middles)
    at = e.elem(M.SUB, middles, half)
    if mode == "pytorch_half_pixel":
        several = e.compare(P.ElemwiseMultiTypeMode.LT, one, e.like(out, i))
        return e.where(several, at, const_like(0.0, at))
    return at


def _rounded(at: Tensor, rule: str) -> Tensor:
    if rule == "floor":
        return e.elem(M.FLOOR, at)
    if rule == "ceil":
        return e.elem(M.CEIL, at)
    half = const_like(0.5, at)
    if rule == "round_prefer_ceil":
        return e.elem(M.FLOOR, e.elem(M.ADD, at, half))
    return e.elem(M.CEIL, e.elem(M.SUB, at, half))


def resized(
    x: Tensor,
    axis: int,
    out: int,
    scale: float | None,
    *,
    coordinates: str,
    mode: str,
    rule: str = "",
    a: float = -0.75,
) -> Tensor:
    """One axis resized.

    Args:
        x: the tensor; of floats, where its elements are mixed.
        axis: the axis.
        out: its new size.
        scale: by which positions are computed; None for out / size.
        coordinates: one of `OPEN_MODES`.
        mode: "nearest", "linear" or "cubic".
        rule: how positions are rounded for "nearest".
        a: the coefficient of "cubic".
    """
    size = x.shape[axis]
    at = _positions(coordinates, cast(e.arange(out), "float32"), size, out, scale)
    last = e.like(size - 1, at)

    def taken(places: Tensor) -> Tensor:
        bounded = e.elem(M.MIN, last, e.elem(M.MAX, const_like(0.0, places), places))
        return e.gather(x, [(axis, cast(bounded, "int32"))])

    if mode == "nearest":
        return taken(_rounded(at, rule))
    low = e.elem(M.FLOOR, at)
    t = e.elem(M.SUB, at, low)
    one = const_like(1.0, t)
    if mode == "linear":
        shares = [(0, e.elem(M.SUB, one, t)), (1, t)]
    else:
        shares = _cubic(t, a)
    shape = [-1 if i == axis else 1 for i in range(x.ndim)]
    total: Tensor | None = None
    for step, share in shares:
        part = taken(e.elem(M.ADD, low, const_like(float(step), low)))
        part = e.elem(M.MUL, part, e.reshape(share, shape) if x.ndim > 1 else share)
        total = part if total is None else e.elem(M.ADD, total, part)
    assert total is not None
    return total


def _cubic(t: Tensor, a: float) -> list[tuple[int, Tensor]]:
    """The four neighbours and their shares."""
    one = const_like(1.0, t)

    def near(d: Tensor) -> Tensor:
        inner = e.elem(M.SUB, e.elem(M.MUL, const_like(a + 2, d), d), const_like(a + 3, d))
        return e.elem(M.ADD, e.elem(M.MUL, e.elem(M.MUL, inner, d), d), one)

    def far(d: Tensor) -> Tensor:
        inner = e.elem(M.SUB, d, const_like(5.0, d))
        inner = e.elem(M.ADD, e.elem(M.MUL, inner, d), const_like(8.0, d))
        inner = e.elem(M.SUB, e.elem(M.MUL, inner, d), const_like(4.0, d))
        return e.elem(M.MUL, const_like(a, inner), inner)

    rest = e.elem(M.SUB, one, t)
    return [
        (-1, far(e.elem(M.ADD, t, one))),
        (0, near(t)),
        (1, near(rest)),
        (2, far(e.elem(M.ADD, rest, one))),
    ]
