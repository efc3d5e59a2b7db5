"""Resizing, warping and remapping against formulas written out plainly, hand-computed numbers and OpenCV."""

from __future__ import annotations

import itertools
import math

import cv2
import numpy as np
import pytest

from loadrun.base.errors import EngineError
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph.dtypes import Array, DType
from loadrun.graph.params import (
    BorderMode,
    Convolution3DFormat,
    Format,
    InterpolationMode,
    Record,
    Remap,
    Resize,
    Resize3D,
    WarpAffine,
    WarpPerspective,
)
from loadrun.ops.image.sampling import border_index, round_half_away, store, to_integer
from tests.support.vision_cases import F32, I8, Q4, Q8, QU8, U8, Case, floats, image, ints

M = InterpolationMode
B = BorderMode


def compute(type: str, param: Record, *inputs: tuple[DType, Array], out: DType | None = None) -> Array:
    return ReferenceEngine(Case("case", type, param, inputs, out).graph()).run({})[0]


def at(mode: BorderMode, p: int, size: int) -> int | None:
    """Return the pixel at position p, walking the border rule step by step."""
    while not 0 <= p < size:
        if mode == B.CONSTANT:
            return None
        if mode == B.REPLICATE:
            p += 1 if p < 0 else -1
        elif mode == B.WRAP:
            p += size if p < 0 else -size
        elif size == 1:
            p = 0
        elif mode == B.REFLECT:
            p = -1 - p if p < 0 else 2 * size - 1 - p
        else:
            p = -p if p < 0 else 2 * size - 2 - p
    return p


@pytest.mark.parametrize("mode", tuple(B)[:5])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_border_rules(mode: BorderMode, size: int) -> None:
    p = np.arange(-30, 40)
    want = [at(mode, int(v), size) for v in p]
    assert border_index(p, size, mode).tolist() == [-1 if v is None else v for v in want]


@pytest.mark.parametrize("mode", [B.TRANSPARENT, B.ISOLATED])
def test_unknown_borders(mode: BorderMode) -> None:
    with pytest.raises(ValueError, match=mode.name):
        border_index(np.arange(3), 3, mode)


def test_rounding_and_conversion() -> None:
    x = np.float32([-2.5, -0.5, 0.49999997, 0.5, 1.5, 2.4])
    assert round_half_away(x).tolist() == [-3, -1, 0, 1, 2, 2]
    low = -(2**31)
    assert to_integer(np.float32([1.9, -1.9, np.nan, np.inf, 3e9, -3e9])).tolist() == [
        1,
        -1,
        low,
        low,
        low,
        low,
    ]
    assert store(np.float32([-3, 300, np.nan, 7.5]), U8).tolist() == [0, 255, 0, 8]
    assert store(np.float32([130, -130, 3.5]), I8).tolist() == [-126, 126, 4]
    assert store(np.float32([-9, 7.6, 3.4]), Q4).tolist() == [-8, 7, 3]


# --- resize -------------------------------------------------------------------------------------------


def test_nearest_by_hand() -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)
    got = compute("ResizeV2", Resize(imode=M.NEAREST, format=Format.NCHW), (F32, x), ints(1, 6))
    # floor(i / 1.5)
    assert got.ravel().tolist() == [0, 0, 1, 2, 2, 3]


@pytest.mark.parametrize("layout", [Format.NCHW, Format.NHWC])
def test_linear_by_hand(layout: Format) -> None:
    x = np.float32([0, 4, 8]).reshape((1, 1, 1, 3) if layout == Format.NCHW else (1, 1, 3, 1))
    got = compute("ResizeV2", Resize(format=layout), (F32, x), ints(1, 6))
    # Centres at (i + 0.5) / 2 - 0.5 = -0.25, 0.25, 0.75, 1.25, 1.75, 2.25
    assert got.ravel().tolist() == [0, 1, 3, 5, 7, 8]


def test_uint8_linear_cuts_off() -> None:
    x = np.uint8([0, 1, 3, 2]).reshape(1, 2, 2, 1)
    got = compute("ResizeV2", Resize(format=Format.NHWC), (U8, x), ints(4, 4))
    exact = compute("ResizeV2", Resize(format=Format.NHWC), (F32, x.astype(np.float32)), ints(4, 4))
    assert np.array_equal(got, np.floor(exact))


@pytest.mark.parametrize("mode", [M.LINEAR, M.CUBIC])
@pytest.mark.parametrize("size", [(5, 7), (13, 4), (1, 1), (6, 9)])
def test_planar_resize_formula(mode: InterpolationMode, size: tuple[int, int]) -> None:
    x = image("formula", F32, (1, 2, 6, 9))
    got = compute("ResizeV2", Resize(imode=mode, format=Format.NCHW), x, ints(*size))

    def weights(position: float) -> dict[int, float]:
        left = math.floor(position)
        f = position - left
        if mode == M.LINEAR:
            return {left: 1 - f, left + 1: f}
        a = -0.75
        near = [(a + 2) * d**3 - (a + 3) * d**2 + 1 for d in (f, 1 - f)]
        far = [a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a for d in (1 + f, 2 - f)]
        return {left - 1: far[0], left: near[0], left + 1: near[1], left + 2: far[1]}

    want = np.zeros(got.shape)
    for i, j in itertools.product(range(size[0]), range(size[1])):
        rows = weights((i + 0.5) * 6 / size[0] - 0.5)
        cols = weights((j + 0.5) * 9 / size[1] - 0.5)
        for (r, a), (c, b) in itertools.product(rows.items(), cols.items()):
            want[0, :, i, j] += a * b * x[1][0, :, min(max(r, 0), 5), min(max(c, 0), 8)]
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("mode", "flag"), [(M.CUBIC, cv2.INTER_CUBIC), (M.LANCZOS4, cv2.INTER_LANCZOS4), (M.AREA, cv2.INTER_AREA)]
)
@pytest.mark.parametrize("size", [(5, 7), (4, 6), (12, 18), (20, 31), (12, 30), (5, 30)])
def test_nhwc_resize_is_opencv(mode: InterpolationMode, flag: int, size: tuple[int, int]) -> None:
    x = image("opencv", F32, (2, 12, 18, 3))
    got = compute("ResizeV2", Resize(imode=mode), x, ints(*size))
    for a, b in zip(x[1], got, strict=True):
        np.testing.assert_allclose(b, cv2.resize(a, size[::-1], interpolation=flag), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("align", [False, True])
def test_volume_formula(align: bool) -> None:
    x = image("volume", F32, (1, 2, 3, 4, 5))
    size = (5, 4, 2)
    p = Resize3D(format=Convolution3DFormat.NCDHW, align_corners=align)
    got = compute("Resize3D", p, x, ints(*size))
    want = x[1].astype(np.float64)
    for axis, n in zip((2, 3, 4), size, strict=True):
        m = want.shape[axis]
        i = np.arange(n)
        q = i * (m - 1) / max(n - 1, 1) if align else np.maximum((i + 0.5) * m / n - 0.5, 0)
        left = q.astype(int)
        shape = [-1 if a == axis else 1 for a in range(5)]
        f = (q - left).reshape(shape)
        want = want.take(left, axis) * (1 - f) + want.take(np.minimum(left + 1, m - 1), axis) * f
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("param", "shape", "size", "words"),
    [
        (Resize(imode=M.AREA, format=Format.NCHW), (1, 2, 4, 4), (2, 2), "not AREA"),
        (Resize(imode=M.CUBIC, format=Format.NCHW44), (1, 2, 4, 4, 4), (2, 2), "not CUBIC"),
        (Resize(format=Format.CHWN4), (1, 2, 4, 4, 4), (2, 2), "CHWN4"),
        (Resize(format=Format.NCHW), (1, 2, 4, 4, 4), (2, 2), "4 axes"),
        (Resize(format=Format.NCHW4), (1, 2, 4, 4, 3), (2, 2), "the last of 4"),
        (Resize(format=Format.NCHW), (1, 2, 4, 4), (0, 2), "positive integers"),
        (Resize(format=Format.NCHW), (1, 2, 4, 4), (-3, 2), "positive integers"),
        (Resize(format=Format.NCHW), (1, 2, 4, 4), (3,), "2 positive integers"),
        (Resize(format=Format.NCHW), (1, 2, 0, 4), (3, 3), "0x4 pixels"),
    ],
)
def test_bad_resizes(param: Resize, shape: tuple[int, ...], size: tuple[int, ...], words: str) -> None:
    dtype = Q8 if param.format == Format.NCHW4 else F32
    with pytest.raises(EngineError, match=words):
        compute("ResizeV2", param, image("bad", dtype, shape), ints(*size))


def test_empty_batches() -> None:
    got = compute(
        "ResizeV2", Resize(format=Format.NCHW), (F32, np.zeros((0, 3, 4, 4), np.float32)), ints(5, 6)
    )
    assert got.shape == (0, 3, 5, 6)
    p = Resize3D(format=Convolution3DFormat.NCDHW)
    got = compute("Resize3D", p, (F32, np.zeros((0, 3, 4, 4, 4), np.float32)), ints(5, 6, 2))
    assert got.shape == (0, 3, 5, 6, 2)


def test_bad_volumes() -> None:
    x = image("volume", F32, (1, 2, 3, 4, 5))
    with pytest.raises(EngineError, match="NDHWC"):
        compute("Resize3D", Resize3D(), x, ints(1, 1, 1))
    with pytest.raises(EngineError, match="3 positive"):
        compute("Resize3D", Resize3D(format=Convolution3DFormat.NCDHW), x, ints(1, 1))


# --- warps --------------------------------------------------------------------------------------------

MATS = [
    [[0.9, -0.4, 2.3], [0.35, 0.8, -1.6], [0.01, -0.02, 1.0]],
    [[0.7, 0, -1.5], [0, 1.3, 0.25], [0, 0, 2.0]],
]


def bilinear(x: Array, row: float, col: float, mode: BorderMode, border: float) -> Array:
    """Compute one output pixel of (C, H, W), in double precision."""
    r, c = math.floor(row), math.floor(col)
    total = np.zeros(len(x))
    for i, j in itertools.product((0, 1), (0, 1)):
        w = (row - r if i else 1 - row + r) * (col - c if j else 1 - col + c)
        a, b = at(mode, r + i, x.shape[1]), at(mode, c + j, x.shape[2])
        total += w * (border if a is None or b is None else x[:, a, b].astype(np.float64))
    return total


@pytest.mark.parametrize("mode", tuple(B)[:5])
@pytest.mark.parametrize("dtype", [F32, U8, I8, Q8, QU8])
def test_perspective_formula(mode: BorderMode, dtype: DType) -> None:
    x = image("perspective", dtype, (2, 3, 6, 8))
    p = WarpPerspective(bmode=mode, border_val=3.0, format=Format.NCHW)
    got = compute("WarpPerspectiveV2", p, x, floats(MATS), ints(1, 0), ints(7, 9))
    for n, m in enumerate(np.array(MATS)):
        for i, j in itertools.product(range(7), range(9)):
            col, row, below = m @ (j, i, 1)
            want = bilinear(x[1][1 - n], row / below, col / below, mode, 3.0)
            slack = 1e-5 if dtype is F32 else 0.5 + 1e-3
            assert np.abs(got[n, :, i, j] - want).max() <= slack


@pytest.mark.parametrize("out", [F32, DType("QuantizedS8", 0.5)])
@pytest.mark.parametrize(("layout", "source"), [(Format.NHWC_NCHW, "NHWC"), (Format.NCHW, "NCHW")])
def test_warps_that_convert(out: DType, layout: Format, source: str) -> None:
    """The real fallback kernel writes garbage for NCHW; here both layouts mean the same."""
    x = image("convert", QU8, (1, 3, 6, 8))
    given = (QU8, x[1].transpose(0, 2, 3, 1)) if source == "NHWC" else x
    p = WarpPerspective(bmode=B.CONSTANT, border_val=9.0, format=layout)
    got = compute("WarpPerspectiveV2", p, given, floats(MATS[:1]), ints(7, 9), out=out)
    plain = WarpPerspective(bmode=B.CONSTANT, border_val=9.0, format=Format.NCHW)
    real = (
        compute("WarpPerspectiveV2", plain, (F32, x[1].astype(np.float32)), floats(MATS[:1]), ints(7, 9))
        - 120
    )
    if out is F32:
        np.testing.assert_allclose(got, real * 0.5, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_allclose(got, np.clip(real, -128, 127), atol=0.501)


def test_float16_matrix() -> None:
    x = image("half", F32, (1, 2, 6, 8))
    half = np.array([[[0.75, 0.25, 1], [0, 1.5, -2], [0, 0, 1]]], np.float16)
    p = WarpPerspective(format=Format.NCHW)
    a = compute("WarpPerspectiveV2", p, x, (DType("Float16"), half), ints(5, 5))
    b = compute("WarpPerspectiveV2", p, x, floats(half), ints(5, 5))
    assert np.array_equal(a, b)


def test_infinite_positions_give_the_border() -> None:
    x = image("infinite", F32, (1, 2, 4, 4))
    p = WarpPerspective(bmode=B.CONSTANT, border_val=7.0, format=Format.NCHW)
    got = compute("WarpPerspectiveV2", p, x, floats([[[1, 0, 0], [0, 1, 0], [0, 0, 0]]]), ints(3, 3))
    assert (got == 7).all()


def test_several_images() -> None:
    xs = [image(f"several{i}", F32, (1, 2, 4, 5)) for i in range(3)]
    p = WarpPerspective(format=Format.NCHW)
    mats = floats([MATS[0]] * 3)
    one = compute("WarpPerspectiveV2", p, (F32, np.concatenate([x[1] for x in xs])), mats, ints(4, 4))
    assert np.array_equal(compute("WarpPerspectiveV2", p, *xs, mats, ints(4, 4)), one)
    turned = compute("WarpPerspectiveV2", p, *xs, mats, ints(2, 2, 0), ints(4, 4))
    assert np.array_equal(turned, one[[2, 2, 0]])


@pytest.mark.parametrize("mode", [M.NEAREST, M.LINEAR, M.CUBIC, M.LANCZOS4])
@pytest.mark.parametrize("border", [B.REPLICATE, B.REFLECT, B.REFLECT_101, B.WRAP, B.CONSTANT])
@pytest.mark.parametrize("dtype", [F32, U8])
def test_nhwc_warps_are_opencv(mode: InterpolationMode, border: BorderMode, dtype: DType) -> None:
    """Positions are rounded to 1/32 pixel; integer shifts leave no room for differing rounding."""
    flags = {M.NEAREST: 0, M.LINEAR: 1, M.CUBIC: 2, M.LANCZOS4: 4}
    borders = {B.REPLICATE: 1, B.REFLECT: 2, B.WRAP: 3, B.REFLECT_101: 4, B.CONSTANT: 0}
    x = image("opencv", dtype, (1, 9, 12, 1))
    m = np.float32([[1, 0, 3], [0, 1, -2]])
    kept = cv2.warpAffine(
        x[1][0],
        m,
        (11, 10),
        flags=flags[mode] | cv2.WARP_INVERSE_MAP,
        borderMode=borders[border],
        borderValue=5,
    )
    p = WarpAffine(imode=mode, border_mode=border, border_val=5.0, format=Format.NHWC)
    got = compute("WarpAffineV2", p, x, floats([m]), ints(10, 11))
    np.testing.assert_allclose(got[0, ..., 0], kept, atol=1e-5)
    q = WarpPerspective(imode=mode, bmode=border, border_val=5.0, format=Format.NHWC)
    full = np.vstack((m, [[0, 0, 1]]))
    got = compute("WarpPerspectiveV2", q, x, floats([full]), ints(10, 11))
    np.testing.assert_allclose(got[0, ..., 0], kept, atol=1e-5)


@pytest.mark.parametrize("mode", tuple(B)[:5])
def test_remap_formula(mode: BorderMode) -> None:
    x = image("remap", F32, (1, 3, 6, 8))
    where = image("where", F32, (1, 5, 4, 2))[1] * 5 + 3
    got = compute("RemapV1", Remap(border_type=mode, scalar=2.0, format=Format.NCHW), x, (F32, where))
    near = Remap(imode=M.NEAREST, border_type=mode, scalar=2.0, format=Format.NCHW)
    picked = compute("RemapV1", near, x, (F32, where))
    for i, j in itertools.product(range(5), range(4)):
        col, row = (float(v) for v in where[0, i, j])
        np.testing.assert_allclose(
            got[0, :, i, j], bilinear(x[1][0], row, col, mode, 2.0), rtol=1e-4, atol=1e-5
        )
        r, c = at(mode, round(row), 6), at(mode, round(col), 8)
        want = [2.0] * 3 if r is None or c is None else x[1][0, :, r, c].tolist()
        assert picked[0, :, i, j].tolist() == want


@pytest.mark.parametrize(
    ("param", "shape", "inputs", "words"),
    [
        (WarpPerspective(bmode=B.TRANSPARENT), (2, 1, 3, 3), [floats(MATS), ints(2, 2)], "TRANSPARENT"),
        (WarpPerspective(), (2, 1, 3, 3), [floats(MATS), ints(0, 2), ints(2, 2)], "mat_idx must lie in 0..1"),
        (WarpPerspective(), (2, 1, 3, 3), [floats(MATS), ints(0, -1), ints(2, 2)], "found -1"),
        (WarpPerspective(), (2, 1, 3, 3), [floats(MATS), ints(0), ints(2, 2)], "one entry for each of 2"),
        (WarpPerspective(), (3, 1, 3, 3), [floats(MATS), ints(2, 2)], "2 matrices for 3 images"),
        (WarpPerspective(), (2, 1, 3, 3), [floats(np.zeros((2, 2, 3))), ints(2, 2)], r"\[n, 3, 3\]"),
        (WarpPerspective(imode=M.CUBIC), (2, 1, 3, 3), [floats(MATS), ints(2, 2)], "not CUBIC"),
        (
            WarpPerspective(imode=M.AREA, format=Format.NHWC),
            (2, 3, 3, 1),
            [floats(MATS), ints(2, 2)],
            "not AREA",
        ),
        (
            WarpPerspective(imode=M.CUBIC, format=Format.NHWC),
            (2, 3, 3, 4),
            [floats(MATS), ints(2, 2)],
            "1 to 3",
        ),
        (WarpPerspective(format=Format.NCHW88), (2, 1, 3, 3), [floats(MATS), ints(2, 2)], "NCHW88"),
        (WarpPerspective(), (2, 1, 3, 0), [floats(MATS), ints(2, 2)], "3x0 pixels"),
        (WarpPerspective(), (2, 1, 3, 3), [ints(2, 2)], "at least 3 inputs"),
    ],
)
def test_bad_perspective(
    param: WarpPerspective, shape: tuple[int, ...], inputs: list[tuple[DType, Array]], words: str
) -> None:
    with pytest.raises(EngineError, match=words):
        compute("WarpPerspectiveV2", param, image("bad", F32, shape), *inputs)


def test_remap_of_positions_beyond_int32() -> None:
    """Their distance from the pixel is that of the number which x86 makes of them; MegEngine's own values."""
    x = np.arange(1, 13, dtype="f4").reshape(1, 1, 3, 4)
    far = np.array([(3e9, 1), (1.25, 5e9), (1.25, 1e19), (-(2**31), 1), (1e19, 1e19), (1.25, 3e9)], "f4")
    recorded = {
        BorderMode.CONSTANT: [0, 1024, -2199023255552, 7.5, np.nan, 0],
        BorderMode.REPLICATE: [0, 512, 0, 5, 0, 512],
    }
    for mode, values in recorded.items():
        record = Remap(border_type=mode, scalar=7.5, format=Format.NCHW)
        got = compute("RemapV1", record, (F32, x), (F32, far.reshape(1, 1, -1, 2)))
        np.testing.assert_array_equal(got.reshape(-1), np.array(values, "f4"))


def test_no_channels_and_an_absurd_size() -> None:
    size = 2**31 - 1
    x = F32, np.zeros((1, 0, 3, 3), np.float32)
    got = compute("WarpPerspectiveV2", WarpPerspective(), x, floats(MATS[:1]), ints(size, 4))
    assert got.shape == (1, 0, size, 4)
    got = compute(
        "WarpAffineV2", WarpAffine(format=Format.NCHW), x, floats(np.ones((1, 2, 3))), ints(size, 4)
    )
    assert got.shape == (1, 0, size, 4)


def test_integer_matrices() -> None:
    whole = DType("Int32"), np.ones((1, 3, 3), np.int32)
    with pytest.raises(EngineError, match="not Int32"):
        compute("WarpPerspectiveV2", WarpPerspective(), image("x", F32, (1, 1, 3, 3)), whole, ints(2, 2))
    with pytest.raises(EngineError, match="not Int32"):
        compute(
            "WarpAffineV2",
            WarpAffine(),
            image("x", F32, (1, 3, 3, 1)),
            (whole[0], whole[1][:, :2]),
            ints(2, 2),
        )


def test_bad_affine_and_remap() -> None:
    x = image("bad", F32, (2, 1, 3, 3))
    nchw = WarpAffine(format=Format.NCHW)
    with pytest.raises(EngineError, match=r"\[2, 2, 3\]"):
        compute("WarpAffineV2", nchw, x, floats(MATS), ints(2, 2))
    with pytest.raises(EngineError, match="not NEAREST"):
        compute(
            "WarpAffineV2",
            WarpAffine(format=Format.NCHW, imode=M.NEAREST),
            x,
            floats(np.zeros((2, 2, 3))),
            ints(2, 2),
        )
    with pytest.raises(EngineError, match=r"\[2, height, width, 2\]"):
        compute("RemapV1", Remap(format=Format.NCHW), x, floats(np.zeros((2, 4, 4, 3))))
    with pytest.raises(EngineError, match="NEAREST or LINEAR"):
        compute("RemapV1", Remap(format=Format.NCHW, imode=M.CUBIC), x, floats(np.zeros((2, 4, 4, 2))))
    with pytest.raises(EngineError, match="Float32"):
        compute(
            "RemapV1", Remap(format=Format.NCHW), x, (DType("Float16"), np.zeros((2, 4, 4, 2), np.float16))
        )
