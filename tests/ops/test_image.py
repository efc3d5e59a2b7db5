"""Colours, blur, rotation and cosine transform: hand-computed numbers, plain formulas, OpenCV, bad parameters."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from loadrun.base.errors import EngineError
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph.dtypes import Array, DType
from loadrun.graph.params import (
    BorderMode,
    CvtColor,
    CvtColorMode,
    DctChannelSelect,
    DctFastImpl,
    Flip,
    Format,
    GaussianBlur,
    Record,
    Rotate,
)
from tests.support.vision_cases import F32, U8, Case, image, ints


def compute(type: str, param: Record, *inputs: tuple[DType, Array], out: DType | None = None) -> Array:
    return ReferenceEngine(Case("case", type, param, inputs, out).graph()).run({})[0]


def test_rotate_and_flip_by_hand() -> None:
    x = (F32, np.arange(6, dtype=np.float32).reshape(1, 2, 3, 1))
    assert compute("Rotate", Rotate(clockwise=True), x)[0, ..., 0].tolist() == [[3, 0], [4, 1], [5, 2]]
    assert compute("Rotate", Rotate(clockwise=False), x)[0, ..., 0].tolist() == [[2, 5], [1, 4], [0, 3]]
    assert compute("Flip", Flip(vertical=True), x)[0, ..., 0].tolist() == [[3, 4, 5], [0, 1, 2]]
    assert compute("Flip", Flip(horizontal=True), x)[0, ..., 0].tolist() == [[2, 1, 0], [5, 4, 3]]
    both = compute("Flip", Flip(vertical=True, horizontal=True), x)
    assert both.ravel().tolist() == [5, 4, 3, 2, 1, 0]
    assert compute("Flip", Flip(), x).ravel().tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["Rotate", "Flip"])
def test_only_images_are_turned(kind: str) -> None:
    with pytest.raises(EngineError, match="1 or 3"):
        compute(kind, Rotate() if kind == "Rotate" else Flip(), image("x", F32, (1, 3, 4, 4)))


@pytest.mark.parametrize(
    ("mode", "code"),
    [
        (CvtColorMode.RGB2GRAY, cv2.COLOR_RGB2GRAY),
        (CvtColorMode.BGR2GRAY, cv2.COLOR_BGR2GRAY),
        (CvtColorMode.RGBA2GRAY, cv2.COLOR_RGBA2GRAY),
        (CvtColorMode.RGBA2BGR, cv2.COLOR_RGBA2BGR),
        (CvtColorMode.RGB2BGR, cv2.COLOR_RGB2BGR),
        (CvtColorMode.GRAY2RGB, cv2.COLOR_GRAY2RGB),
        (CvtColorMode.RGB2YUV, cv2.COLOR_BGR2YUV),
        (CvtColorMode.YUV2RGB, cv2.COLOR_YUV2BGR),
        (CvtColorMode.BT601_YUV2RGB_NV12, cv2.COLOR_YUV2RGB_NV12),
        (CvtColorMode.BT601_YUV2BGR_NV21, cv2.COLOR_YUV2BGR_NV21),
        (CvtColorMode.BT601_YUV2RGB_YU12, cv2.COLOR_YUV2RGB_I420),
        (CvtColorMode.BT601_YUV2BGR_YV12, cv2.COLOR_YUV2BGR_YV12),
        (CvtColorMode.YUV2GRAY_NV12, cv2.COLOR_YUV2GRAY_NV12),
    ],
)
def test_colours_are_opencv(mode: CvtColorMode, code: int) -> None:
    """Up to rounding: OpenCV has more bits. In BT.601 MegEngine limits 2.018 to 2 and keeps luma below 16."""
    channels = (
        4 if "RGBA" in mode.name else 1 if "GRAY2" in mode.name or mode.name[-2:] in ("12", "21") else 3
    )
    x = image(mode.name, U8, (1, 12, 10, channels))
    if "BT601" in mode.name:
        x = U8, np.clip(x[1], 16, 240)
    want = cv2.cvtColor(x[1][0], code).reshape(-1)
    got = compute("CvtColor", CvtColor(mode=mode), x).reshape(-1)
    limit = 4 if "BT601" in mode.name else 1
    assert np.abs(got.astype(int) - want.astype(int)).max() <= limit


def test_jpeg_planes_by_formula() -> None:
    x = image("jpeg", U8, (1, 6, 4, 1))
    y = x[1][0, :4, :, 0].astype(float)
    pairs = x[1][0, 4:, :, 0].reshape(2, 2, 2).astype(float).repeat(2, 0).repeat(2, 1) - 128
    for mode, (u, v) in (
        (CvtColorMode.YUV2RGB_NV12, (0, 1)),
        (CvtColorMode.YUV2RGB_NV21, (1, 0)),
        (CvtColorMode.YCrCb2RGB, (1, 0)),
    ):
        got = compute("CvtColor", CvtColor(mode=mode), x)[0].astype(float)
        red = y + 1.402 * pairs[..., v]
        green = y - 0.344 * pairs[..., u] - 0.714 * pairs[..., v]
        blue = y + 1.772 * pairs[..., u]
        assert np.abs(got - np.clip(np.stack((red, green, blue), -1), 0, 255)).max() < 1.6


@pytest.mark.parametrize(
    ("mode", "dtype", "shape", "words"),
    [
        (CvtColorMode.RGB2GRAY, U8, (1, 2, 2, 4), "width, 3"),
        (CvtColorMode.BT601_YUV2RGB_NV12, U8, (1, 4, 2, 1), "multiple of 3"),
        (CvtColorMode.YUV2RGB_YV12, U8, (1, 9, 2, 1), "multiple of 6"),
        (CvtColorMode.YUV2RGB_NV12, U8, (1, 6, 3, 1), "even"),
        (CvtColorMode.YUV2RGB_NV12, F32, (1, 6, 2, 1), "uint8"),
        (CvtColorMode.RGB2GRAY, DType("Int8"), (1, 2, 2, 3), "Float32 or Uint8"),
    ],
)
def test_bad_colours(mode: CvtColorMode, dtype: DType, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(EngineError, match=words):
        compute("CvtColor", CvtColor(mode=mode), image("bad", dtype, shape))


@pytest.mark.parametrize(
    "param",
    [
        GaussianBlur(kernel_height=5, kernel_width=3),
        GaussianBlur(kernel_height=9, kernel_width=1, sigma_x=0.7, sigma_y=2.0),
        GaussianBlur(sigma_x=0.8, sigma_y=1.4),
        GaussianBlur(kernel_height=7, kernel_width=31, sigma_x=3.0),
    ],
)
@pytest.mark.parametrize("border", [BorderMode.REPLICATE, BorderMode.REFLECT_101, BorderMode.CONSTANT])
def test_blur_is_opencv(param: GaussianBlur, border: BorderMode) -> None:
    kinds = {BorderMode.REPLICATE: 1, BorderMode.REFLECT_101: 4, BorderMode.CONSTANT: 0}
    x = image("blur", F32, (1, 20, 23, 3))
    param = GaussianBlur(**{**vars(param), "border_mode": border})
    want = cv2.GaussianBlur(
        x[1][0],
        (param.kernel_width, param.kernel_height),
        sigmaX=param.sigma_x,
        sigmaY=param.sigma_y,
        borderType=kinds[border],
    )
    np.testing.assert_allclose(compute("GaussianBlur", param, x)[0], want, rtol=1e-5, atol=2e-6)


def test_uint8_blur_by_hand() -> None:
    x = (U8, np.uint8([0, 100, 7, 0, 0]).reshape(1, 1, 5, 1))
    got = compute("GaussianBlur", GaussianBlur(kernel_height=1, kernel_width=3), x)
    # 25, 51.75, 28.5 (half to even), 1.75; the last value, 0.0, is rounded up by other code.
    assert got.ravel().tolist() == [25, 52, 28, 2, 0]


@pytest.mark.parametrize(
    ("param", "words"),
    [
        (GaussianBlur(kernel_height=4, kernel_width=3), "odd"),
        (GaussianBlur(), "positive sigma"),
        (GaussianBlur(sigma_x=1e30), "at most 4095"),
        (GaussianBlur(kernel_height=2**32 - 1, kernel_width=3), "at most 4095"),
        (GaussianBlur(kernel_height=3, kernel_width=3, border_mode=BorderMode.ISOLATED), "ISOLATED"),
    ],
)
def test_bad_blurs(param: GaussianBlur, words: str) -> None:
    with pytest.raises(EngineError, match=words):
        compute("GaussianBlur", param, image("bad", U8, (1, 5, 5, 3)))


@pytest.mark.parametrize("block", [1, 3, 8, 48])
def test_cosine_transform_formula(block: int) -> None:
    x = image("dct", U8, (1, 2, 48, 48))
    got = compute("DctChannelSelectV1", DctChannelSelect(dct_block_size=block), x)
    n = 48 // block
    assert got.shape == (1, 2 * block * block, n, n)
    k = np.arange(block)
    basis = np.cos((2 * k + 1) * k[:, None] * np.pi / (2 * block)) * np.sqrt(2 / block)
    basis[0] = np.sqrt(1 / block)
    tile = x[1][0, 1, :block, -block:].astype(float)
    want = (basis @ tile @ basis.T).ravel()
    # Angles are rounded to float32, which shows in large blocks.
    np.testing.assert_allclose(
        got[0, block * block :, 0, -1], want, rtol=1e-5, atol=2e-2 if block > 8 else 1e-3
    )


@pytest.mark.parametrize(
    ("param", "inputs", "out", "words"),
    [
        (DctChannelSelect(dct_block_size=0), [], F32, "do not fill"),
        (DctChannelSelect(dct_block_size=-8), [], F32, "do not fill"),
        (DctChannelSelect(dct_block_size=5), [], F32, "do not fill"),
        (DctChannelSelect(), [ints(0, 4), ints(1, 2, 3)], F32, "rise from 0 to 3"),
        (DctChannelSelect(), [ints(0, 1, 2), ints(1, 2)], F32, "in 1 steps"),
        (DctChannelSelect(), [ints(0, 1), ints(64)], F32, r"lie in 0\.\.63"),
        (
            DctChannelSelect(format=Format.NCHW4),
            [ints(0, 3), ints(1, 2, 3)],
            DType("QuantizedS8", 1.0),
            "multiple of 4",
        ),
        (DctChannelSelect(fastImpl=DctFastImpl.FIX_32_MASK), [], F32, "selects 32"),
        (DctChannelSelect(), [], DType("QuantizedS8", 1.0), "turns Uint8 into"),
    ],
)
def test_bad_transforms(
    param: DctChannelSelect, inputs: list[tuple[DType, Array]], out: DType, words: str
) -> None:
    with pytest.raises(EngineError, match=words):
        compute("DctChannelSelectV1", param, image("bad", U8, (1, 1, 8, 8)), *inputs, out=out)
