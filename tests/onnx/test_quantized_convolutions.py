"""Convolutions between QuantizeLinear and DequantizeLinear against sums of whole numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loadrun
from tests.support.cases import BOTH

onnx = pytest.importorskip("onnx", reason="models are built with the package onnx")

SCALES = {"sx": 0.047, "sy": 0.21, "sz": 0.083, "sw": 0.013, "sv": 0.017}


def quantized(x: np.ndarray, scale: float, zero: int) -> np.ndarray:
    """What float64 gives for the integers, without the zero point."""
    return np.clip(np.rint(x / scale), -zero, 255 - zero)


def convolved(x: np.ndarray, w: np.ndarray, groups: int) -> np.ndarray:
    """3x3 with zeros around, in loops over the taps."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    grouped = windows.reshape(1, groups, -1, *windows.shape[2:])
    filters = w.reshape(groups, -1, *w.shape[1:])
    return np.einsum("ngihwkl,goikl->ngohw", grouped, filters).reshape(1, w.shape[0], *x.shape[2:])


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize("read", ["z", "z, c", "z, b"], ids=["chain", "float-value-read", "pair-read"])
def test_scales_in_filters_give_the_numbers_of_whole_sums(
    read: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What else reads a value between two convolutions gets it in its own unit."""
    monkeypatch.setattr("loadrun.engines.reference._WORTH", -1)
    rng = np.random.default_rng(5)
    w, v = rng.integers(-127, 128, (8, 3, 3, 3), "i1"), rng.integers(-127, 128, (8, 1, 3, 3), "i1")
    bias = rng.integers(-900, 900, 8, "i4")
    outputs = ", ".join(f"float[1,8,9,11] {n.strip()}" for n in read.split(","))
    values = ", ".join(f"float {n} = {{{s}}}" for n, s in SCALES.items())
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 18]>
        g (float[1,3,9,11] x, int8[8,3,3,3] wq, int8[8,1,3,3] vq, float[8] bias) => ({outputs})
        <{values}, uint8 zx = {{121}}, uint8 zy = {{7}}, uint8 zz = {{100}}> {{
        qx = QuantizeLinear(x, sx, zx)  a = DequantizeLinear(qx, sx, zx)
        w = DequantizeLinear(wq, sw)  c = Conv <pads = [1, 1, 1, 1]> (a, w, bias)
        qy = QuantizeLinear(c, sy, zy)  b = DequantizeLinear(qy, sy, zy)
        v = DequantizeLinear(vq, sv)  d = Conv <pads = [1, 1, 1, 1], group = 8> (b, v)
        qz = QuantizeLinear(d, sz, zz)  z = DequantizeLinear(qz, sz, zz)
    }}""")
    real = bias * (SCALES["sx"] * SCALES["sw"])
    for name, value in (("wq", w), ("vq", v), ("bias", real.astype("f4"))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    x = rng.standard_normal((1, 3, 9, 11)).astype("f4") * 3
    a = quantized(x.astype("f8"), SCALES["sx"], 121)
    c = (convolved(a, w.astype("f8"), 1) + bias[:, None, None]) * SCALES["sx"] * SCALES["sw"]
    b = quantized(c, SCALES["sy"], 7)
    d = convolved(b, v.astype("f8"), 8) * SCALES["sy"] * SCALES["sv"]
    wants = {"c": c, "b": b * SCALES["sy"], "z": quantized(d, SCALES["sz"], 100) * SCALES["sz"]}
    result = loadrun.Runner(loadrun.load(tmp_path / "m.onnx"), engine).run({"x": x})
    assert len(result.outputs) == len(read.split(","))
    for output in result.outputs:
        np.testing.assert_allclose(output.value, wants[output.name], 1e-5, 1e-5)
