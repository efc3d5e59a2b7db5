"""Pooling against slow window-by-window sums, and numbers recorded from MegEngine 1.13."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from loadrun.graph import Opr
from loadrun.graph.dtypes import Array, DType
from loadrun.graph.params import AdaptivePooling, Format, Pooling, PoolingMode, Record
from loadrun.ops.numeric.special import round_half
from loadrun.ops.pooling import Window, pool
from loadrun.ops.registry import Call, ShapeCall, implementation
from tests.support.cases import fewer

MAX, AVG, EXC = PoolingMode.MAX, PoolingMode.AVERAGE, PoolingMode.AVERAGE_COUNT_EXCLUDE_PADDING
F32 = DType("Float32")
RECORDED_HALF = [
    *(0.464111328125, 0.275146484375, 0.2037353515625, 0.07977294921875, 0.07373046875, 0.06854248046875),
    *(0.0460205078125, 0.043975830078125, 0.0421142578125),
]
LAYOUTS = {
    Format.NCHW: ("nchw", 1),
    Format.NHWC: ("nhwc", 1),
    Format.NHWCD4: ("nhcwk", 4),
    Format.NCHW4: ("nchwk", 4),
    Format.NCHW32: ("nchwk", 32),
    Format.NCHW44: ("nchwk", 4),
    Format.NCHW88: ("nchwk", 8),
    Format.NCHW64: ("nchwk", 64),
    Format.CHWN4: ("chwnk", 4),
}


def run(name: str, param: Record, x: Array, *more: Array, dtype: DType = F32) -> Array:
    """Return the kernel's result, after a check that the dtype and shape rules predict it."""
    impl = implementation(name)
    ins = (dtype, *(DType("Int32") for _ in more))
    opr = Opr(name, (param,))
    (out_dtype,) = impl.dtype(opr, ins)
    (shape,) = impl.shape(ShapeCall(opr, ins, (x.shape, *(m.shape for m in more)), (None, *more)))
    before = x.copy()
    out = impl.kernel(Call(opr, ins, (out_dtype,)), x, *more)
    assert isinstance(out, np.ndarray)
    assert (out.shape, out.dtype) == (shape, out_dtype.np)
    np.testing.assert_array_equal(x, before)
    return out


def windows(x: Array, p: Pooling) -> Any:
    """Yield for every output position of [N, C, H, W] the real elements of its window."""
    n, c, h, w = x.shape
    oh = (h + 2 * p.pad_h - p.window_h) // p.stride_h + 1
    ow = (w + 2 * p.pad_w - p.window_w) // p.stride_w + 1
    for i, j, y, z in itertools.product(range(n), range(c), range(oh), range(ow)):
        top, left = y * p.stride_h - p.pad_h, z * p.stride_w - p.pad_w
        rows = [r for r in range(top, top + p.window_h) if 0 <= r < h]
        cols = [r for r in range(left, left + p.window_w) if 0 <= r < w]
        yield (n, c, oh, ow), (i, j, y, z), [x[i, j, r, s].item() for r in rows for s in cols]


def slow(x: Array, p: Pooling) -> Array:
    out = np.empty(0)
    for shape, at, values in windows(x, p):
        if not out.size:
            out = np.empty(shape)
        if p.mode == MAX:
            out[at] = max(values)
        else:
            out[at] = math.fsum(values) / (p.window_h * p.window_w if p.mode == AVG else len(values))
    return out


def away(v: float) -> int:
    return int(math.copysign(math.floor(abs(v) + 0.5), v))


axis = st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(0, 5), st.integers(1, 20))


@settings(max_examples=fewer(150, 2), deadline=None)
@given(axis, axis, st.sampled_from([MAX, AVG, EXC]), st.integers(0, 99))
def test_float(a: Any, b: Any, mode: PoolingMode, seed: int) -> None:
    (fh, sh, ph, h), (fw, sw, pw, w) = a, b
    ph, pw, h, w = min(ph, fh - 1), min(pw, fw - 1), max(h, fh), max(w, fw)
    x = np.random.default_rng(seed).normal(size=(2, 2, h, w)).astype("f4")
    p = Pooling(mode=mode, window_h=fh, window_w=fw, stride_h=sh, stride_w=sw, pad_h=ph, pad_w=pw)
    np.testing.assert_allclose(run("PoolingV1", p, x), slow(x, p), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", [MAX, AVG, EXC])
@pytest.mark.parametrize("fmt", LAYOUTS)
def test_layouts(fmt: Format, mode: PoolingMode) -> None:
    order, k = LAYOUTS[fmt]
    plain = np.random.default_rng(3).normal(size=(2, 2 * k, 7, 6)).astype("f4")
    sizes = {"window_h": 3, "window_w": 2, "stride_h": 2, "stride_w": 1, "pad_h": 1, "pad_w": 1}
    want = slow(plain, Pooling(mode=mode, **sizes))

    def pack(v: Array) -> Array:
        if k == 1:
            return v.transpose(["nchw".index(a) for a in order])
        n, c, h, w = v.shape
        return v.reshape(n, c // k, k, h, w).transpose(["nckhw".index(a) for a in order])

    got = run("PoolingV1", Pooling(mode=mode, format=fmt, **sizes), pack(plain))
    np.testing.assert_allclose(got, pack(want), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", [MAX, AVG, EXC])
@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (DType("QuantizedS8", 0.1), -128, 127),
        (DType("Quantized8Asymm", 0.1, 100), 0, 255),
        (DType("QuantizedS32", 0.1), -100000, 100000),
        (DType("QuantizedS4", 0.1), -8, 7),
        (DType("Quantized4Asymm", 0.1, 5), 0, 15),
        (DType("Int8"), -128, 127),
    ],
    ids=lambda v: v.name if isinstance(v, DType) else None,
)
def test_integers(dtype: DType, low: int, high: int, mode: PoolingMode) -> None:
    x = np.random.default_rng(5).integers(low, high + 1, (2, 3, 9, 8)).astype(dtype.np)
    x[0, 0] = low
    p = Pooling(mode=mode, window_h=4, window_w=2, stride_h=2, stride_w=1, pad_h=3, pad_w=1)
    got = run("PoolingV1", p, x, dtype=dtype)
    for _, at, values in windows(x, p):
        if mode == MAX:
            want = max(values)
        elif mode == EXC:
            want = away(sum(values) / len(values))
        elif dtype.name == "Int8":
            want = int(sum(values) / 8)
        else:
            want = away((sum(values) + (8 - len(values)) * dtype.zero_point) / 8)
        assert got[at] == want, (at, values)


def test_half_sums_are_rounded_each_time() -> None:
    """2048 + 1 is a tie that goes away from zero: 2050, twice over, then divided by 4."""
    x = np.array([2048, 1, 1, 0], "f2").reshape(1, 1, 2, 2)
    p = Pooling(mode=AVG)
    assert run("PoolingV1", p, x, dtype=DType("Float16")).item() == (2048 + 2 + 2) / 4


def test_recorded_half_average() -> None:
    """Window 3x1 of float16 NHWC, as MegEngine 1.13 averages it on the CPU."""
    values = np.arange(1, 31, dtype="f4")
    x = round_half(np.float32(1) / values).reshape(1, 10, 1, 3)
    p = Pooling(mode=AVG, window_h=3, window_w=1, stride_h=3, stride_w=1, format=Format.NHWC)
    got = run("PoolingV1", p, x, dtype=DType("Float16"))
    assert got.reshape(-1).tolist() == RECORDED_HALF


def test_bfloat16_sums_are_rounded_each_time() -> None:
    """256 + 1 is a tie to even in bfloat16 and stays 256."""
    x = np.array([256, 1, 1, 2], "f4").reshape(1, 1, 2, 2)
    assert run("PoolingV1", Pooling(mode=AVG), x, dtype=DType("BFloat16")).item() == 258 / 4


def test_lowest_number() -> None:
    """MegEngine starts a maximum from the lowest finite number."""
    x = np.full((1, 1, 2, 2), -np.inf, "f4")
    assert run("PoolingV1", Pooling(), x).item() == np.finfo("f4").min
    p = Pooling(pad_h=2, pad_w=2)
    got = run("PoolingV1", p, np.arange(36, dtype="f4").reshape(1, 1, 6, 6) - 40)
    assert got[0, 0, 0].tolist() == [np.finfo("f4").min] * 5
    assert got[0, 0, 1, 1:3].tolist() == [-33, -31]


def test_nan_shows() -> None:
    x = np.zeros((1, 1, 4, 4), "f4")
    x[0, 0, 0, 0] = np.nan
    got = run("PoolingV1", Pooling(), x)
    assert np.isnan(got[0, 0]).tolist() == [[True, False], [False, False]]


def test_average_of_padding_only() -> None:
    """Recorded: a 2x2 average with padding 2 begins with zeros."""
    p = Pooling(mode=AVG, pad_h=2, pad_w=2)
    got = run("PoolingV1", p, np.arange(36, dtype="f4").reshape(1, 1, 6, 6) - 40)
    assert got[0, 0, :2, :3].tolist() == [[0, 0, 0], [0, -36.5, -34.5]]


@pytest.mark.parametrize("mode", [MAX, EXC])
def test_window_in_padding_is_an_error(mode: PoolingMode) -> None:
    p = Pooling(mode=mode, window_h=3, window_w=3, stride_h=1, stride_w=1, pad_h=3, pad_w=3)
    with pytest.raises(ValueError, match="3x3 lies wholly in the padding of 3x3 around 4x4"):
        run("PoolingV1", p, np.zeros((1, 1, 4, 4), "f4"))


@pytest.mark.parametrize(
    ("param", "shape", "text"),
    [
        (Pooling(stride_h=0), (1, 1, 4, 4), "stride 0 must be at least 1"),
        (Pooling(window_w=0), (1, 1, 4, 4), "window 0 and"),
        (Pooling(window_w=2**31), (1, 1, 4, 4), "a window of 2147483648 does not fit into 4"),
        (Pooling(), (4, 4, 4), "takes 4 dimensions, found"),
        (Pooling(format=Format.NCHW4), (1, 1, 4, 4), "NCHW4 takes 5 dimensions"),
        (Pooling(format=Format.NCHW8), (1, 1, 4, 4), "no format NCHW8"),
    ],
)
def test_bad_parameters(param: Pooling, shape: tuple[int, ...], text: str) -> None:
    impl = implementation("PoolingV1")
    opr = Opr("PoolingV1", (param,))
    with pytest.raises(ValueError, match=text):
        impl.shape(ShapeCall(opr, (F32,), (shape,), (None,)))
    with pytest.raises(ValueError, match=text):
        impl.kernel(Call(opr, (F32,), (F32,)), np.zeros(shape, "f4"))


def test_bad_dtype() -> None:
    with pytest.raises(ValueError, match="found Uint8"):
        implementation("PoolingV1").dtype(Opr("PoolingV1", (Pooling(),)), (DType("Uint8"),))


@pytest.mark.parametrize(("axis", "mode"), [(2, AVG), (3, MAX), (3, AVG)])
def test_few_long_windows(axis: int, mode: PoolingMode) -> None:
    shape = [1, 2, 1, 1]
    shape[axis] = 4000
    x = np.arange(8000, dtype="f4").reshape(shape)[..., ::-1] % 4001
    windows = [Window(1, 1, 1, 0), Window(1, 1, 1, 0)]
    windows[axis - 2] = Window(4000, 3000, 700, 1000)
    got = pool(x, F32, mode, (2, 3), (windows[0], windows[1]))
    padded = np.pad(x.reshape(2, 4000).astype("f8"), ((0, 0), (1000, 1000)))
    parts = [padded[:, at : at + 3000] for at in range(0, 3001, 700)]
    want = [p.max(1) if mode == MAX else p.mean(1) for p in parts]
    np.testing.assert_allclose(got.reshape(2, -1), np.stack(want, 1), rtol=1e-5)


def test_huge_window_and_padding_are_quick() -> None:
    big = 2**31
    w = Window(5, 2 * big, 1, big)
    x = np.arange(25, dtype="f4").reshape(1, 1, 5, 5)
    assert w.out == 6
    got = pool(x, F32, MAX, (2, 3), (w, w))
    assert (got == 24).sum() == 36
    wide = Window(5, big, big, big)
    assert wide.out == 2
    assert pool(x, F32, AVG, (2, 3), (Window(5, big + 1, big, big), wide)).shape == (1, 1, 2, 2)
    assert run("PoolingV1", Pooling(), np.zeros((0, 3, 4, 4), "f4")).shape == (0, 3, 2, 2)


@pytest.mark.parametrize("mode", [MAX, AVG, EXC])
@pytest.mark.parametrize(
    ("size", "out"), [((7, 5), (3, 2)), ((8, 8), (1, 1)), ((6, 4), (6, 4)), ((9, 4), (4, 3))]
)
def test_adaptive(size: tuple[int, int], out: tuple[int, int], mode: PoolingMode) -> None:
    """Equal windows with stride floor(in / out), the last window ends with the input."""
    x = np.random.default_rng(1).normal(size=(2, 3, *size)).astype("f4")
    (sh, sw) = (size[0] // out[0], size[1] // out[1])
    p = Pooling(
        mode=mode,
        stride_h=sh,
        stride_w=sw,
        window_h=size[0] - (out[0] - 1) * sh,
        window_w=size[1] - (out[1] - 1) * sw,
    )
    got = run("AdaptivePoolingV1", AdaptivePooling(mode=mode), x, np.array(out, "i4"))
    np.testing.assert_allclose(got, slow(x, p), rtol=1e-5, atol=1e-6)


def test_adaptive_one_number() -> None:
    x = np.arange(16, dtype="f4").reshape(1, 4, 4, 1)
    p = AdaptivePooling(format=Format.NHWC)
    assert run("AdaptivePoolingV1", p, x, np.array([2], "i4")).reshape(-1).tolist() == [5, 7, 13, 15]


@pytest.mark.parametrize(
    ("want", "text"),
    [([0, 1], "cannot make 0 of 4"), ([1, 9], "cannot make 9 of 4"), ([1, 1, 1], "1 or 2 numbers")],
)
def test_adaptive_errors(want: list[int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        run("AdaptivePoolingV1", AdaptivePooling(), np.zeros((1, 1, 4, 4), "f4"), np.array(want, "i4"))


def test_round_half_at_every_tie() -> None:
    h = np.arange(0, 0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    middle = ((h[1:] + h[:-1]) / 2).astype(np.float32)
    np.testing.assert_array_equal(round_half(middle), h[1:])
    np.testing.assert_array_equal(round_half(-middle), -h[1:])
    np.testing.assert_array_equal(round_half(np.nextafter(middle, np.float32(0))), h[:-1])
