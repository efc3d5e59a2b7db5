"""The engine `numba`: the reference engine with kernels that numba compiles, where they are faster than numpy's.

Depthwise convolutions, sigmoid, GELU, the error function, rounding between quantized layers, rows of softmax and layer
normalization, and steps of LSTMs of float32 are taken (`KERNELS`). They are compiled once and kept in numba's file
cache, and hold no interpreter lock, so that the thread pool runs them side by side. A product and a sum are rounded
once, and rows are summed in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import numba
import numpy as np
from numba import njit
from numba import types as t

from ..base.about import About
from ..graph.dtypes import Array
from ..graph.params import NonlineMode
from ..ops.conv import depthwise as numpy_depthwise
from ..ops.conv.gemm import Real, Run, finisher, run_parts
from ..ops.conv.rules import Geometry
from ..ops.numeric.parallel import replacing, splits
from ..ops.numeric.special import ERF
from ..ops.registry import Finish, Limits
from .reference import ReferenceEngine

BLOCK = 1024
"""Elements that are summed at a time."""
_PIECE = 1 << 17
"""Elements of the channels after which they are finished: the cache still holds them."""
_F, _U = np.float32, np.uint64
"""Places are unsigned, since numba counts negative ones from the end, which keeps loops from becoming vector code."""


def _array(dtype: Any, axes: int, out: bool = False) -> Any:  # noqa: ANN401 - numba has no types
    return t.Array(dtype, axes, "C", readonly=not out)


_IN, _OUT = _array(t.float32, 1), _array(t.float32, 1, out=True)
_ROWS, _OUT_ROWS = _array(t.float32, 2), _array(t.float32, 2, out=True)
_INTS = _array(t.int64, 1)


def compiled(*types: Any, sums: bool = False) -> Callable[[Any], Any]:
    """Return a decorator that compiles a kernel at once, from the file cache where there is one."""
    fastmath = {"contract", "reassoc"} if sums else {"contract"}
    how = partial(njit, t.void(*types), nogil=True, fastmath=fastmath, error_model="numpy")

    def made(function: Any) -> Any:  # noqa: ANN401
        try:
            return how(cache=True)(function)
        except RuntimeError:
            # No folder can be written to.
            return how()(function)

    return made


_part = njit(nogil=True, fastmath={"contract"}, error_model="numpy", inline="always")

_EXP = tuple(map(_F, [1.98756915e-4, 1.39819995e-3, 8.333452e-3, 4.1665796e-2, 0.166666655, 0.5]))
_TANH_7 = (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08)
_TANH_P = tuple(map(_F, [*_TANH_7, 1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03]))
_TANH_Q = tuple(map(_F, [1.198258394e-06, 1.185347057e-04, 2.268434632e-03, 4.893525186e-03]))
_ERF_P, _ERF_Q = (tuple(map(_F, c[::-1])) for c in ERF)


@_part
def _polynomial(t, coefficients):
    y = coefficients[0]
    for c in coefficients[1:]:
        y = y * t + c
    return y


@_part
def _max(a, b):
    """Return NaN where one of them is."""
    return b if b > a or b != b else a


@_part
def _min(a, b):
    return b if b < a or b != b else a


@_part
def _exp(x):
    """Compute a power of e: 2^n times a polynomial of what is left; 0 below 2e-38."""
    x = _min(_max(_F(-87.0), x), _F(88.8))
    # The lowest bits of this sum are the whole number n.
    t = x * _F(1.44269504) + _F(12582912.0)
    n = t - _F(12582912.0)
    r = x - n * _F(0.693359375)
    r = r - n * _F(-2.12194440e-4)
    y = _polynomial(r, _EXP) * r * r + r + _F(1)
    # Half of 2^n is a float32 for every n.
    half = np.int32((np.float32(t).view(np.int32) << np.int32(23)) + np.int32(0x3F000000))
    return y * np.int32(half).view(np.float32) * _F(2)


@_part
def _sigmoid(x):
    return _F(1) / (_F(1) + _exp(-x))


@_part
def _tanh(x):
    """Compute x P(x^2) / Q(x^2), as Eigen does; 1 beyond 9."""
    x = _min(_max(_F(-9), x), _F(9))
    return x * _polynomial(x * x, _TANH_P) / _polynomial(x * x, _TANH_Q)


@_part
def _erf(x):
    """Compute x P(x^2) / Q(x^2) with the coefficients of the reference engine."""
    x = _min(_max(_F(-4.1), x), _F(4.1))
    return _min(_max(_F(-1), x * _polynomial(x * x, _ERF_P) / _polynomial(x * x, _ERF_Q)), _F(1))


@compiled(_OUT)
def _sigmoids(x):
    for i in range(x.shape[0]):
        x[i] = _sigmoid(x[i])


@compiled(_OUT)
def _silus(x):
    for i in range(x.shape[0]):
        x[i] *= _sigmoid(x[i])


@compiled(_OUT)
def _erfs(x):
    for i in range(x.shape[0]):
        x[i] = _erf(x[i])


@compiled(_OUT)
def _gelus(x):
    for i in range(x.shape[0]):
        x[i] *= _erf(x[i] * _F(0.5**0.5)) * _F(0.5) + _F(0.5)


@compiled(_OUT, *[t.float32] * 4)
def _requantize(x, low, high, divide, multiply):
    """Round to the multiples of a scale within bounds."""
    for i in range(x.shape[0]):
        x[i] = _min(_max(low, np.rint(x[i] / divide)), high) * multiply


def _pointwise(kernel: Any) -> Callable[..., Array]:  # noqa: ANN401
    """Return a kernel that changes numbers in place as a function of arrays, which takes memory as numpy's do."""

    def call(x: Array, out: Array | None = None, *numbers: float | None) -> Array:
        out = np.empty(x.shape, np.float32) if out is None else out
        if out is not x:
            np.copyto(out, x)
        whole = out if out.flags.c_contiguous else out.copy()
        kernel(whole.reshape(-1), *[_F(1) if n is None else _F(n) for n in numbers])
        if whole is not out:
            np.copyto(out, whole)
        return out

    return call


@compiled(_OUT_ROWS, _IN, t.float32, t.float32, t.boolean)
def _ends(block, bias, low, high, rounds):
    """Add a bias of channels, round if asked for and keep within bounds."""
    for c in range(block.shape[0]):
        value = bias[c]
        for i in range(block.shape[1]):
            z = block[c, i] + value
            block[c, i] = _min(_max(low, np.rint(z) if rounds else z), high)


@_part
def _nine(sums, n, x, a, b, c, w, k, fresh):
    """Add three rows of three taps to the sums, or begin with them."""
    w0, w1, w2, w3, w4, w5 = w[k], w[k + 1], w[k + 2], w[k + 3], w[k + 4], w[k + 5]
    w6, w7, w8 = w[k + 6], w[k + 7], w[k + 8]
    for i in range(n):
        d, e, f = a + i, b + i, c + i
        first = x[d] * w0 + x[d + _U(1)] * w1 + x[d + _U(2)] * w2
        second = x[e] * w3 + x[e + _U(1)] * w4 + x[e + _U(2)] * w5
        third = x[f] * w6 + x[f + _U(1)] * w7 + x[f + _U(2)] * w8
        sums[i] = (_F(0) if fresh else sums[i]) + first + second + third


@_part
def _three(sums, n, x, a, b, c, w, k, fresh):
    """Add three taps, or begin with them."""
    w0, w1, w2 = w[k], w[k + 1], w[k + 2]
    for i in range(n):
        sums[i] = (_F(0) if fresh else sums[i]) + x[a + i] * w0 + x[b + i] * w1 + x[c + i] * w2


@_part
def _spread(plane, x, at, sizes):
    """Copy an image into planes of its stride phases, between zeros that are there already."""
    height, width, pad_y, pad_x, step_y, step_x = sizes[0], sizes[1], sizes[4], sizes[5], sizes[6], sizes[7]
    rows, wide = sizes[8], sizes[9]
    row, phase = pad_y // step_y, pad_y % step_y
    # Where the first two columns lie.
    even = (pad_x % step_x * rows) * wide + pad_x // step_x
    odd = ((pad_x + 1) % step_x * rows) * wide + (pad_x + 1) // step_x
    for y in range(height):
        to = (phase * step_x * rows + row) * wide
        a, b, source = _U(to + even), _U(to + odd), _U(at + y * width)
        if step_x == 1:
            for i in range(_U(width)):
                plane[a + i] = x[source + i]
        elif step_x == 2:
            for i in range(_U(width // 2)):
                plane[a + i] = x[source + i + i]
                plane[b + i] = x[source + i + i + _U(1)]
            if width % 2:
                plane[a + _U(width // 2)] = x[source + _U(width - 1)]
        else:
            for i in range(width):
                j = i + pad_x
                plane[to + (j % step_x * rows) * wide + j // step_x] = x[at + y * width + i]
        phase += 1
        if phase == step_y:
            phase, row = 0, row + 1


@compiled(_IN, _IN, _OUT, _INTS, _INTS, t.int64, t.int64)
def depthwise(x, w, out, sizes, taps, first, last):
    """Convolve images ``first:last``, each with filters of its own.

    Args:
        x: (images, H, W).
        w: (groups, filters, taps), the taps in the order of `taps`.
        out: (images, filters, OH, OW), written.
        sizes: H, W, OH, OW, padding, stride, rows and columns of a phase's plane, groups, filters, and how many of
            the taps are threes of rows of three.
        taps: where each reads in the planes.
        first, last: the images, by their numbers.
    """
    height, width, oh, ow, wide = sizes[0], sizes[1], sizes[2], sizes[3], sizes[9]
    groups, filters, nines = sizes[10], sizes[11], sizes[12]
    # Sums are taken in whole vectors, beyond the end, too.
    plane = np.zeros(sizes[6] * sizes[7] * sizes[8] * wide + 64, np.float32)
    lines = max(1, min(oh, BLOCK // wide))
    sums = np.empty(lines * wide + 64, np.float32)
    count = taps.shape[0]
    for image in range(first, last):
        _spread(plane, x, image * height * width, sizes)
        for f in range(filters):
            at = (image % groups * filters + f) * count
            for y in range(0, oh, lines):
                m = min(lines, oh - y)
                n = _U((m * wide + 31) // 32 * 32)
                start = y * wide
                k = 0
                while k < nines:
                    a, b, c = _U(start + taps[k]), _U(start + taps[k + 3]), _U(start + taps[k + 6])
                    _nine(sums, n, plane, a, b, c, w, at + k, k == 0)
                    k += 9
                while k + 3 <= count:
                    a, b, c = _U(start + taps[k]), _U(start + taps[k + 1]), _U(start + taps[k + 2])
                    _three(sums, n, plane, a, b, c, w, at + k, k == 0)
                    k += 3
                while k < count:
                    a, b = _U(start + taps[k]), w[at + k]
                    for i in range(n):
                        sums[i] = (_F(0) if k == 0 else sums[i]) + plane[a + i] * b
                    k += 1
                to = ((image * filters + f) * oh + y) * ow
                for r in range(m):
                    a, b = _U(to + r * ow), _U(r * wide)
                    for i in range(_U(ow)):
                        out[a + i] = sums[b + i]


@compiled(_ROWS, _OUT_ROWS, _OUT, _OUT, t.float32, _IN, _IN, t.int64, t.int64, sums=True)
def layer_norm(x, out, means, inverses, epsilon, scale, bias, first, last):
    """Normalize rows ``first:last``, then scale and shift them; write their means and 1 / deviations too."""
    width = x.shape[1]
    for r in range(first, last):
        total = _F(0)
        for i in range(width):
            total += x[r, i]
        mean = _F(total / _F(width))
        total = _F(0)
        for i in range(width):
            total += (x[r, i] - mean) * (x[r, i] - mean)
        inverse = _F(_F(1) / np.sqrt(total / _F(width) + epsilon))
        for i in range(width):
            out[r, i] = (x[r, i] - mean) * inverse * scale[i] + bias[i]
        means[r], inverses[r] = mean, inverse


@compiled(_ROWS, _OUT_ROWS, t.int64, t.int64, sums=True)
def softmax(x, out, first, last):
    """Compute the softmax of rows ``first:last``."""
    width = x.shape[1]
    for r in range(first, last):
        most, total = x[r, 0], _F(0)
        for i in range(width):
            most = _max(most, x[r, i])
        for i in range(width):
            e = _exp(x[r, i] - most)
            out[r, i] = e
            total += e
        share = _F(1) / total
        for i in range(width):
            out[r, i] *= share


@compiled(_ROWS, _ROWS, _ROWS, _OUT_ROWS, _OUT_ROWS)
def lstm_step(gates, carried, before, cell, out):
    """Take the step of an LSTM from the sums of its gates (input, output, forget, new)."""
    n = cell.shape[1]
    for b in range(cell.shape[0]):
        for i in range(n):
            enter = _sigmoid(gates[b, i] + carried[b, i])
            keep = _sigmoid(gates[b, 2 * n + i] + carried[b, 2 * n + i])
            new = _tanh(gates[b, 3 * n + i] + carried[b, 3 * n + i])
            now = keep * before[b, i] + enter * new
            cell[b, i] = now
            out[b, i] = _sigmoid(gates[b, n + i] + carried[b, n + i]) * _tanh(now)


# What calls them


def _depthwise(batch: int, geo: Geometry, parts: int) -> Run:
    """Return a function that convolves every channel with its own filters, see `numpy_depthwise.depthwise`."""
    sizes, taps, order = _taps(geo)
    per = max(1, min(-(-geo.groups // parts), _PIECE // (geo.ocg * geo.points)))
    blocks = []
    for first in range(0, geo.groups, per):
        last = min(geo.groups, first + per)
        channels = slice(first * geo.ocg, last * geo.ocg)
        blocks.append(
            (first, last, channels, finisher((1, channels.stop - channels.start, *geo.out), channels.start))
        )

    def run(x: Array, w: Array, out: Array, finish: Finish | None) -> None:
        if x.dtype != np.float32:
            numpy_depthwise.depthwise(batch, geo, parts)(x, w, out, finish)
            return
        source, target = flat(x), out.reshape(-1)
        filters = flat(w.reshape(-1, geo.taps)[:, order] if order != sorted(order) else w)

        def block(i: int) -> None:
            n, i = divmod(i, len(blocks))
            first, last, channels, end = blocks[i]
            depthwise(source, filters, target, sizes, taps, n * geo.groups + first, n * geo.groups + last)
            if finish is not None:
                end(out[n, channels], finish, n)

        run_parts(block, batch * len(blocks), parts)

    return run


def _taps(geo: Geometry) -> tuple[Array, Array, list[int]]:
    """Return the sizes that the kernel takes, where taps read, and their order: first threes of rows of three."""
    (height, width), (oh, ow), (sy, sx) = geo.size, geo.out, geo.stride
    (ky, kx), (dy, dx), (pad_y, pad_x) = geo.kernel, geo.dilate, geo.pad
    rows = -(-max(height + 2 * pad_y, (ky - 1) * dy + 1 + (oh - 1) * sy) // sy) + 1
    wide = -(-max(width + 2 * pad_x, (kx - 1) * dx + 1 + (ow - 1) * sx) // sx)
    threes: list[tuple[int, int]] = []
    singles: list[tuple[int, int]] = []
    for y in range(ky):
        for phase in range(sx):
            row = []
            for x in range(kx):
                if x * dx % sx == phase:
                    plane = y * dy % sy * sx + phase
                    row.append(((plane * rows + y * dy // sy) * wide + x * dx // sx, y * kx + x))
            while len(row) >= 3 and row[2][0] == row[0][0] + 2:
                threes += row[:3]
                del row[:3]
            singles += row
    sizes = (
        height,
        width,
        oh,
        ow,
        pad_y,
        pad_x,
        sy,
        sx,
        rows,
        wide,
        geo.groups,
        geo.ocg,
        len(threes) // 9 * 9,
    )
    taps = [*threes, *singles]
    return np.array(sizes, np.int64), np.array([t for t, _ in taps], np.int64), [n for _, n in taps]


def flat(x: Array) -> Array:
    """Return the elements as kernels take them, copied where they do not lie in order."""
    return (x if x.flags.c_contiguous and x.flags.aligned else x.copy()).reshape(-1)


def _by_rows(kernel: Callable[..., None], x: Array, *others: Any) -> None:
    """Call a kernel for parts of the rows that the pool shares."""
    rows, width = x.shape
    parts = splits(10 * rows * width)
    step = max(1, -(-rows // parts))
    source = flat(x).reshape(x.shape)
    run_parts(lambda i: kernel(source, *others, i * step, min(rows, (i + 1) * step)), -(-rows // step), parts)


def _softmax_rows(x: Array, y: Array) -> None:
    _by_rows(softmax, x, y)


def _normalize_rows(
    x: Array, y: Array, mean: Array, rstd: Array, eps: float, affine: Sequence[Array]
) -> None:
    width = x.shape[1]
    plain = [np.ones(width, np.float32), np.zeros(width, np.float32)][len(affine) :]
    _by_rows(layer_norm, x, y, mean, rstd, eps, *[flat(a) for a in affine], *plain)


def _lstm_step(product: Callable[[Array], Array], gates: Array, state: list[Array]) -> list[Array]:
    """Return the next output and cell; `product` is what the last output adds to the gates."""
    h, before = state
    out, cell = np.empty(h.shape, h.dtype), np.empty(h.shape, h.dtype)
    lstm_step(gates, product(h), before if before.flags.c_contiguous else before.copy(), cell, out)
    return [out, cell]


def _bias(ends: Real, block: Array, channel: int) -> bool:
    """Apply what follows a convolution where it is a bias of channels and bounds; return whether it was."""
    bias, then = ends.bias, ends.then
    if bias is None or ends.z is not None or ends.scale or not block.flags.c_contiguous:
        return False
    relu = ends.mode is NonlineMode.RELU
    if bias.shape[0] != 1 or bias[0, 0].size != 1 or not (relu or ends.mode is NonlineMode.IDENTITY):
        return False
    if then is None:
        limits = Limits(0.0 if relu else -inf, inf)
    elif isinstance(then, Limits) and not relu:
        limits = then
    else:
        return False
    _ends(block, bias.reshape(-1)[channel : channel + len(block)], limits.low, limits.high, limits.rounds)
    return True


KERNELS: Mapping[str, Callable[..., Any]] = {
    "bias": _bias,
    "depthwise": _depthwise,
    "erf": _pointwise(_erfs),
    "gelu": _pointwise(_gelus),
    "lstm_step": _lstm_step,
    "normalize_rows": _normalize_rows,
    "requantize": _pointwise(_requantize),
    "sigmoid": _pointwise(_sigmoids),
    "silu": _pointwise(_silus),
    "softmax_rows": _softmax_rows,
}
"""What replaces functions of `ops` and of other front ends, see `replaced`."""


class NumbaEngine(ReferenceEngine):
    """The reference engine with compiled kernels.

    Finite results differ from the reference engine's by rounding, powers of e below 2e-38 are 0, and NaN stays NaN.
    """

    name = "numba"
    _compiles_at_once = True

    @property
    def about(self) -> About:
        """The kernels, and what they run on."""
        return replace(super().about, version=numba.__version__)

    def _kernels(self) -> AbstractContextManager[None]:
        return replacing(KERNELS)
