"""The engine `numba`: the reference engine with kernels that numba compiles, where they are faster than numpy's.

Depthwise convolutions, what follows convolutions (bias, bounds, rounding between quantized layers), sigmoid, the error
function, layer normalization and steps of LSTMs of float32 are taken (`KERNELS`). They are compiled once and kept in
numba's file cache, and hold no interpreter lock, so that the thread pool runs them side by side. A product and a sum
are rounded once, and rows are summed in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import numba
import numpy as np
from numba import njit, types as t

from ..base.about import About
from ..graph.dtypes import Array
from ..ops.conv import depthwise as numpy_depthwise
from ..ops.conv.gemm import Real, Run, Start, finisher, run_parts
from ..ops.conv.rules import Geometry
from ..ops.numeric.parallel import replacing
from ..ops.numeric.special import ERF
from ..ops.registry import Finish, Limits
from .reference import ReferenceEngine

BLOCK = 1024
"""Elements that are summed at a time."""
_F, _U = np.float32, np.uint64
"""Places are unsigned, since numba counts negative ones from the end, which keeps loops from becoming vector code."""


_IN, _OUT = (t.Array(t.float32, 1, "C", readonly=fixed) for fixed in (True, False))
_ROWS, _OUT_ROWS = (t.Array(t.float32, 2, "C", readonly=fixed) for fixed in (True, False))
_INTS = t.Array(t.int64, 1, "C", readonly=True)


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
def _tanh(x):
    """Compute x P(x^2) / Q(x^2), as Eigen does; 1 beyond 9."""
    x = _min(_max(_F(-9), x), _F(9))
    return x * _polynomial(x * x, _TANH_P) / _polynomial(x * x, _TANH_Q)


@_part
def _sigmoid(x):
    return _tanh(x * _F(0.5)) * _F(0.5) + _F(0.5)


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
def _erfs(x):
    for i in range(x.shape[0]):
        x[i] = _erf(x[i])


def _pointwise(kernel: Any) -> Callable[..., Array]:  # noqa: ANN401
    """Return a kernel that changes numbers in place as a function of arrays, which takes memory as numpy's do."""

    def call(x: Array, out: Array | None = None) -> Array:
        y = np.empty(x.shape, np.float32) if out is None or not out.flags.c_contiguous else out
        if y is not x:
            np.copyto(y, x)
        kernel(y.reshape(-1))
        if out is not None and out is not y:
            np.copyto(out, y)
        return y if out is None else out

    return call


_LIMITS = t.UniTuple(t.float32, 4), t.int64


@_part
def _limited(x, numbers, rounds):
    """Do what `Limits` says; its numbers are the bounds, the divisor before and the factor behind them.

    `rounds` is 0, 1 or 2: not at all, to whole numbers, after the division.
    """
    low, high, divide, multiply = numbers
    if rounds == 0:
        return _min(_max(low, x), high)
    return _min(_max(low, np.rint(x if rounds == 1 else x / divide)), high) * multiply


@compiled(_OUT_ROWS, _IN, *_LIMITS, _ROWS, *_LIMITS)
def _ends(block, bias, numbers, rounds, z, z_numbers, z_rounds):
    """Add a bias of channels and limit the sums; then add `z`, if it is not empty, and limit these."""
    for c in range(block.shape[0]):
        shift = bias[c]
        for i in range(block.shape[1]):
            block[c, i] = _limited(block[c, i] + shift, numbers, rounds)
        if z.shape[0]:
            for i in range(block.shape[1]):
                block[c, i] = _limited(block[c, i] + z[c, i], z_numbers, z_rounds)


@_part
def _nine(sums, n, x, start, at, w, value, fresh):
    """Add nine taps to the sums, or begin with them and a value; `at` says where each reads, from a start."""
    a, b, c = _U(start + at[0]), _U(start + at[1]), _U(start + at[2])
    d, e, f = _U(start + at[3]), _U(start + at[4]), _U(start + at[5])
    g, h, j = _U(start + at[6]), _U(start + at[7]), _U(start + at[8])
    w0, w1, w2, w3, w4, w5, w6, w7, w8 = w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8]
    for i in range(n):
        first = x[a + i] * w0 + x[b + i] * w1 + x[c + i] * w2
        second = x[d + i] * w3 + x[e + i] * w4 + x[f + i] * w5
        third = x[g + i] * w6 + x[h + i] * w7 + x[j + i] * w8
        sums[i] = (value if fresh else sums[i]) + first + second + third


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
        else:
            for i in range(_U(width // 2)):
                plane[a + i] = x[source + i + i]
                plane[b + i] = x[source + i + i + _U(1)]
            if width % 2:
                plane[a + _U(width // 2)] = x[source + _U(width - 1)]
        phase += 1
        if phase == step_y:
            phase, row = 0, row + 1


@compiled(_IN, _IN, _OUT, _INTS, _INTS, t.int64, t.int64, _IN, *_LIMITS)
def depthwise(x, w, out, sizes, taps, first, last, bias, numbers, rounds):
    """Convolve images ``first:last``, each with filters of its own, with bias and bounds as in `_ends`.

    Args:
        x: (images, H, W).
        w: (groups, filters, taps).
        out: (images, filters, OH, OW), written.
        sizes: H, W, OH, OW, padding, stride (1 or 2 along rows), rows and columns of a phase's plane, groups, filters.
        taps: where each reads in the planes; more than there are, so that they are nines.
        first, last: the images, by their numbers.
        bias: (groups, filters).
        numbers, rounds: see `_limited`.
    """
    height, width, oh, ow, wide = sizes[0], sizes[1], sizes[2], sizes[3], sizes[9]
    groups, filters = sizes[10], sizes[11]
    # Sums are taken in whole vectors, beyond the end, too.
    plane = np.zeros(sizes[6] * sizes[7] * sizes[8] * wide + 64, np.float32)
    lines = max(1, min(oh, BLOCK // wide))
    sums = np.empty(lines * wide + 64, np.float32)
    nine, count = np.empty(9, np.float32), w.shape[0] // (groups * filters)
    for image in range(first, last):
        _spread(plane, x, image * height * width, sizes)
        for f in range(filters):
            channel = image % groups * filters + f
            at, value = channel * count, bias[channel]
            for y in range(0, oh, lines):
                m = min(lines, oh - y)
                n = _U((m * wide + 31) // 32 * 32)
                for k in range(0, count, 9):
                    for i in range(9):
                        nine[i] = w[at + k + i] if k + i < count else _F(0)
                    _nine(sums, n, plane, y * wide, taps[k:], nine, value, k == 0)
                for i in range(n):
                    sums[i] = _limited(sums[i], numbers, rounds)
                to = ((image * filters + f) * oh + y) * ow
                for r in range(m):
                    a, b = _U(to + r * ow), _U(r * wide)
                    for i in range(_U(ow)):
                        out[a + i] = sums[b + i]


@compiled(_ROWS, _OUT_ROWS, _OUT, _OUT, t.float32, _IN, _IN, sums=True)
def layer_norm(x, out, means, inverses, epsilon, scale, bias):
    """Normalize rows, then scale and shift them; write their means and 1 / deviations too."""
    width = x.shape[1]
    for r in range(x.shape[0]):
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


@compiled(_ROWS, _ROWS, _OUT_ROWS, _OUT_ROWS)
def lstm_step(gates, carried, cell, out):
    """Take the step of an LSTM from the sums of its gates (input, output, forget, new), and change its cell."""
    n = cell.shape[1]
    for b in range(cell.shape[0]):
        for i in range(n):
            enter = _sigmoid(gates[b, i] + carried[b, i])
            keep = _sigmoid(gates[b, 2 * n + i] + carried[b, 2 * n + i])
            new = _tanh(gates[b, 3 * n + i] + carried[b, 3 * n + i])
            now = keep * cell[b, i] + enter * new
            cell[b, i] = now
            out[b, i] = _sigmoid(gates[b, n + i] + carried[b, n + i]) * _tanh(now)


# What calls them


def _depthwise(batch: int, geo: Geometry, parts: int) -> Run:
    """Return a function that convolves every channel with its own filters, see `numpy_depthwise.depthwise`."""
    if geo.stride[1] > 2:
        return _in_numpy(batch, geo, parts)
    sizes, taps = _taps(geo)
    per = -(-batch * geo.groups // parts)
    ends = finisher((batch, geo.channels, *geo.out))
    nothing = np.zeros(geo.channels, np.float32)

    def run(x: Array, w: Array, out: Array, finish: Finish | None) -> None:
        if x.dtype != np.float32:
            _in_numpy(batch, geo, parts)(x, w, out, finish)
            return
        start = finish.start if isinstance(finish, Real) else None
        if start is None or start.z is not None:
            start = Start(nothing, Limits(), rest=finish)
        source, filters, target = flat(x), flat(w), out.reshape(-1)

        def block(i: int) -> None:
            last = min(batch * geo.groups, (i + 1) * per)
            depthwise(
                source, filters, target, sizes, taps, i * per, last, start.bias, *_numbers(start.before)
            )

        run_parts(block, -(-batch * geo.groups // per), parts)
        if start.rest is not None:
            ends(out, start.rest)

    return run


def _in_numpy(batch: int, geo: Geometry, parts: int) -> Run:
    run = numpy_depthwise.depthwise(batch, geo, parts)
    return lambda x, w, out, finish: run(x, numpy_depthwise.turned(geo, w), out, finish)


def _taps(geo: Geometry) -> tuple[Array, Array]:
    """Return the sizes that the kernel takes, and where taps read."""
    (height, width), (oh, ow), (sy, sx) = geo.size, geo.out, geo.stride
    (ky, kx), (dy, dx), (pad_y, pad_x) = geo.kernel, geo.dilate, geo.pad
    rows = -(-max(height + 2 * pad_y, (ky - 1) * dy + 1 + (oh - 1) * sy) // sy) + 1
    wide = -(-max(width + 2 * pad_x, (kx - 1) * dx + 1 + (ow - 1) * sx) // sx)
    sizes = (*geo.size, *geo.out, *geo.pad, *geo.stride, rows, wide, geo.groups, geo.ocg)
    taps = [
        ((y * dy % sy * sx + x * dx % sx) * rows + y * dy // sy) * wide + x * dx // sx
        for y in range(ky)
        for x in range(kx)
    ]
    taps += taps[-1:] * (-len(taps) % 9)
    return np.array(sizes, np.int64), np.array(taps, np.int64)


def flat(x: Array) -> Array:
    """Return the elements as kernels take them, copied where they do not lie in order."""
    return (x if x.flags.c_contiguous and x.flags.aligned else x.copy()).reshape(-1)


def _normalize_rows(
    x: Array, y: Array, mean: Array, rstd: Array, eps: float, affine: Sequence[Array]
) -> None:
    plain = [np.ones(x.shape[1], np.float32), np.zeros(x.shape[1], np.float32)][len(affine) :]
    layer_norm(flat(x).reshape(x.shape), y, mean, rstd, eps, *[flat(a) for a in affine], *plain)


def _lstm(turned: Array, gates: Array, state: list[Array], backward: bool) -> tuple[Array, list[Array]]:
    """Take all steps of an LSTM; return their outputs (T, N, H), and the last output and cell.

    Args:
        turned: what the last output is multiplied by, (H, 4 * H).
        gates: what the inputs add to the gates, (T, N, 4 * H).
        state: the first output and cell.
        backward: whether the last step comes first.
    """
    h, cell = state[0], np.array(state[1], order="C")
    out, carried = np.empty((len(gates), *h.shape), np.float32), np.empty(gates.shape[1:], np.float32)
    for i in range(len(gates) - 1, -1, -1) if backward else range(len(gates)):
        np.matmul(h, turned, out=carried)
        h = out[i]
        lstm_step(gates[i], carried, cell, h)
    return out, [h, cell]


def _ended(block: Array, bias: Array, z: Array | None, start: Start) -> bool:
    """Do what `start` says on a block, but for the rest; return whether the memory allows it."""
    z = _NOTHING if z is None else z
    if not (block.flags.c_contiguous and z.flags.c_contiguous):
        return False
    _ends(block, bias, *_numbers(start.before), z, *_numbers(start.after))
    return True


_NOTHING = np.empty((0, 0), np.float32)


def _numbers(limits: Limits) -> tuple[tuple[float, ...], int]:
    return (limits.low, limits.high, limits.divide, limits.multiply), limits.rounds + (limits.divide != 1)


KERNELS: Mapping[str, Callable[..., Any]] = {
    "depthwise": _depthwise,
    "ends": _ended,
    "erf": _pointwise(_erfs),
    "lstm": _lstm,
    "normalize_rows": _normalize_rows,
    "sigmoid": _pointwise(_sigmoids),
}
"""What replaces functions of `ops` and of other front ends, see `replaced`."""


class NumbaEngine(ReferenceEngine):
    """The reference engine with compiled kernels.

    Finite results differ from the reference engine's by rounding, of sigmoids by that of numbers near 1; NaN stays NaN.
    """

    name = "numba"
    _compiles_at_once = True

    @property
    def about(self) -> About:
        """The kernels, and what they run on."""
        return replace(super().about, version=numba.__version__)

    def _kernels(self) -> AbstractContextManager[None]:
        return replacing(KERNELS)
