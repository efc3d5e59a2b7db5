"""Pooling over windows, and global pooling."""

from __future__ import annotations

from collections.abc import Sequence

from ...build import emit as e
from ...build.layers import pooling as build
from ...build.layers.windows import WindowGeometry
from ...graph import params as P
from ...tensors import Tensor, apply1
from ...tensors.access import dtype_of, static_shape
from ...tensors.symbolic import largest
from ..call import NodeCall, lower
from ..values import INT64, UnsupportedNodeError, Value
from . import M, cast, const_like, is_open
from .convolution import automatic, padding_of, window_of
from .shapes import product

__all__ = ["pooling_window"]


def pooling_window(c: NodeCall, x: Tensor) -> WindowGeometry:
    """Read the window with its pads and the extra padding that ``ceil_mode`` needs."""
    kernel = c.ints("kernel_shape")
    if not kernel or len(kernel) != x.ndim - 2:
        raise UnsupportedNodeError(f"kernel_shape must name {x.ndim - 2} axes, found {kernel}")
    window = window_of(c, kernel)
    window.pads = padding_of(c, window, x)
    if automatic(c).startswith("SAME"):
        window.cuts = _cuts(window, x.shape[2:], upper=automatic(c) == "SAME_UPPER")
    for size, (a, b), reach in zip(static_shape(x)[2:], window.pads, window.reach, strict=True):
        extent = size + int(a) + int(b)
        if extent < reach:
            raise UnsupportedNodeError(f"a window of {reach} is larger than its input ({extent})")
    if not c.open_space(x):
        window.sizes = static_shape(x)[2:]
    if c.flag("ceil_mode"):
        window.complete(window.sizes or x.shape[2:])
    return window


def _cuts(window: WindowGeometry, sizes: Sequence[int], *, upper: bool) -> list[int]:
    """Compute what ONNX Runtime leaves out in front where a kernel is shorter than its stride: half of the rest."""
    cuts = []
    for size, s, reach in zip(sizes, window.strides, window.reach, strict=True):
        rest = (size - 1) % s + 1 - reach - (not upper) if s > reach + 1 else 0
        cuts.append((largest(rest, 0) if is_open(rest) else max(rest, 0)) // 2)
    return cuts


@lower("MaxPool")
def _max_pool(c: NodeCall) -> Tensor | tuple[Tensor, Value]:
    x = c.t(0)
    window = pooling_window(c, x)
    if len(c.wanted) < 2 or not c.wanted[1]:
        return build.max_pooled(x, window)
    largest, inside = build.max_with_places(x, window, columns=c.flag("storage_order"))
    # ONNX's indices count in the whole tensor.
    ones = [1] * (x.ndim - 2)
    channels = e.reshape(e.arange(x.shape[1]), (1, -1, *ones))
    batch = e.reshape(e.arange(x.shape[0]), (-1, 1, *ones))
    row = e.elem(M.ADD, e.elem(M.MUL, batch, e.like(x.shape[1], batch)), channels)
    area = e.like(product(x.shape[2:]), row)
    return largest, Value(INT64, e.elem(M.ADD, e.elem(M.MUL, row, area), inside))


@lower("AveragePool")
def _average_pool(c: NodeCall) -> Tensor:
    x = c.t(0)
    return build.averaged(x, pooling_window(c, x), include=c.flag("count_include_pad"))


@lower("LpPool")
def _lp_pool(c: NodeCall) -> Tensor:
    x = c.t(0)
    window = pooling_window(c, x)
    p = c.number("p", 2) if c.opset >= 2 else c.real("p", 2.0)
    return cast(_root(build.summed(_power(e.real(x), p), window), p), dtype_of(x))


def _power(x: Tensor, p: float) -> Tensor:
    if p == 2:
        return e.elem(M.SQUARE, x)
    y = e.elem(M.ABS, x)
    return y if p == 1 else apply1("PowC", P.PowC(exp=float(p)), inputs=[y])


def _root(x: Tensor, p: float) -> Tensor:
    if p == 2:
        return e.elem(M.SQRT, x)
    return x if p == 1 else apply1("PowC", P.PowC(exp=1.0 / p), inputs=[x])


# Global pooling


def _space(x: Tensor) -> list[int]:
    return list(range(2, x.ndim))


@lower("GlobalAveragePool")
def _global_average(c: NodeCall) -> Tensor:
    x = c.t(0)
    return e.mean(x, _space(x))


@lower("GlobalMaxPool")
def _global_max(c: NodeCall) -> Tensor:
    x = c.t(0)
    from .reductions import extreme  # for start-up

    return e.add_axes(extreme(x, True, _space(x)), _space(x))


@lower("GlobalLpPool")
def _global_lp(c: NodeCall) -> Tensor:
    x = c.t(0)
    p = c.number("p", 2) if c.opset >= 2 else c.real("p", 2.0)
    total = e.reduce(_power(e.real(x), p), P.ReduceMode.SUM, _space(x))
    return cast(e.add_axes(_root(total, p), _space(x)), dtype_of(x))


@lower("MaxUnpool")
def _max_unpool(c: NodeCall) -> Tensor:
    """Put values back at the places that they came from."""
    x, at = c.t(0), e.whole(c.t(1))
    kernel = c.ints("kernel_shape") or []
    n = len(kernel)
    window = window_of(c, kernel)
    pads = padding_of(c, window, x)
    inferred = [
        (i - 1) * s - a - b + k
        for i, s, (a, b), k in zip(x.shape[2:], window.strides, pads, kernel, strict=True)
    ]
    if c.has(2) and (target := c.integers(2, "output_shape")[-n:]) != list(map(int, inferred)):
        raise UnsupportedNodeError(
            f"its output_shape asks for {target} where {list(map(int, inferred))} follow from the window; ONNX "
            "and ONNX Runtime put values in different places there"
        )
    shape = (*x.shape[:2], *inferred)
    empty = e.full(const_like(0, x), (product(shape),))
    return e.reshape(e.scatter(empty, e.flat(x), [(0, e.flat(at))]), shape)
