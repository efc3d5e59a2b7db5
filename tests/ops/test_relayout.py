"""RelayoutFormat: packing by hand, the shape rule, error texts. What MegEngine gives is in fixtures/ops/conv."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadrun.graph import Opr
from loadrun.graph.dtypes import Array, DType
from loadrun.graph.params import RelayoutFormat, RelayoutMode
from loadrun.ops.registry import Call, ShapeCall, implementation

F32 = DType("Float32")


def run(mode: str, x: Array, dtype: DType = F32, output: DType | None = None, **param: int) -> Array:
    impl = implementation("RelayoutFormatV1")
    opr = Opr("RelayoutFormatV1", (RelayoutFormat(mode=RelayoutMode[mode], **param),), output_dtype=output)
    (out_dtype,) = impl.dtype(opr, (dtype,))
    (shape,) = impl.shape(ShapeCall(opr, (dtype,), (x.shape,), (None,)))
    out = impl.kernel(Call(opr, (dtype,), (out_dtype,)), x)
    assert isinstance(out, np.ndarray)
    assert (out.shape, out.dtype) == (shape, out_dtype.np)
    return out


def test_packs_by_hand() -> None:
    x = np.arange(1, 7, dtype="f4").reshape(1, 6, 1, 1)
    assert run("NCHW_NCHW4", x).ravel().tolist() == [1, 2, 3, 4, 5, 6, 0, 0]
    assert run("NCHW_NCHW4", x, group=2).ravel().tolist() == [1, 2, 3, 0, 4, 5, 6, 0]
    packed = np.arange(8, dtype="f4").reshape(1, 2, 1, 1, 4)
    assert run("NCHW4_NCHW", packed).ravel().tolist() == list(range(8))
    assert run("NCHW4_NCHW", packed, oc=6).ravel().tolist() == list(range(6))
    assert run("NCHW4_NCHW", packed, oc=6, group=2).ravel().tolist() == [0, 1, 2, 4, 5, 6]


@pytest.mark.parametrize(
    ("there", "back", "shape"),
    [
        ("NCHW_NHWCD4I", "NHWCD4I_NCHW", (2, 8, 3, 5)),
        ("NHWC_NHWCD4I", "NHWCD4I_NHWC", (2, 3, 5, 8)),
        ("NCHW_NHWC", "NHWC_NCHW", (2, 3, 4, 5)),
        ("NCHW_NCHW88", "NCHW88_NCHW", (2, 16, 4, 5)),
        ("NCHW_NCHW64", "NCHW64_NCHW", (1, 64, 2, 3)),
        ("NCHW4_CHWN4", "CHWN4_NCHW4", (2, 3, 4, 5, 4)),
    ],
)
def test_there_and_back(there: str, back: str, shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    moved = run(there, x)
    assert not np.array_equal(moved.ravel(), x.ravel())
    np.testing.assert_array_equal(run(back, moved), x)


def test_image_weights() -> None:
    """Image modes differ from the others only in how rows are padded in a device's memory."""
    w = np.arange(8 * 4 * 6, dtype="f4").reshape(8, 4, 3, 2)
    np.testing.assert_array_equal(run("INTER_WEIGHT_DENSEI", w), run("INTER_WEIGHT_DENSE", w))
    dot = run("INTER_WEIGHT_DENSEI_DOT", w)
    # (output pack, y, x, input pack, output in pack, input in pack)
    assert dot.shape == (2, 3, 2, 1, 4, 4)
    assert dot[1, 2, 1, 0, 3, 2] == w[7, 2, 2, 1]


def test_new_channels_hold_the_zero_point() -> None:
    d = DType("Quantized8Asymm", 0.5, 9)
    x = np.full((1, 3, 1, 1), 200, "u1")
    assert run("NCHW_NCHW4", x, d).ravel().tolist() == [200, 200, 200, 9]
    # 200 stands for 95.5, which is 96 at scale 1; the new channel is real zero.
    assert run("NCHW_NCHW4_IC_SMALL", x, d, DType("QuantizedS8", 1.0)).ravel().tolist() == [96, 96, 96, 0]
    u = np.array([0, 128, 255], "u1").reshape(1, 3, 1, 1)
    found = run("NCHW_NCHW4_IC_SMALL", u, DType("Uint8"), DType("QuantizedS8", 1.0))
    assert found.ravel().tolist() == [-128, 0, 127, 0]


@pytest.mark.parametrize(
    ("mode", "shape", "param", "text"),
    [
        ("NCHW_NCHW4", (1, 4, 4), {}, "NCHW_NCHW4 takes 4 axes"),
        ("NCHW_NCHW4_WEIGHT", (1, 4, 4), {}, "takes 4 or 5 axes"),
        ("NCHW4_NCHW", (1, 1, 2, 2, 3), {}, "with packs of 4"),
        ("NCHW_NCHW4", (1, 6, 2, 2), {"group": 4}, "cannot be cut into 4 groups"),
        ("NCHW_NCHW4", (1, 6, 2, 2), {"group": 0}, "cannot be cut into 0 groups"),
        ("NCHW4_NCHW", (1, 1, 2, 2, 4), {"oc": 5}, "cannot take 5 channels from 4"),
        ("NCHW4_NCHW", (1, 1, 2, 2, 4), {"oc": 3, "group": 2}, "3 channels cannot be cut into 2 groups"),
        ("NCHW_NCHW4_IC_SMALL", (1, 5, 2, 2), {}, "at most 4 along C"),
        ("INTER_WEIGHT_DENSE", (6, 4, 1, 1), {}, "a multiple of 4 along O"),
        ("INTER_WEIGHT_CHAN", (8, 2, 1, 3, 3), {}, "takes axes G11HW"),
    ],
)
def test_bad_shapes(mode: str, shape: tuple[int, ...], param: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        run(mode, np.zeros(shape, "f4"), **param)


def test_bad_conversion() -> None:
    with pytest.raises(ValueError, match="relayout does not convert"):
        run("NCHW_NHWC", np.zeros((1, 1, 1, 1), "f4"), F32, DType("Float16"))
