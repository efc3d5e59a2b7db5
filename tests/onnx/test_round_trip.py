"""Networks written as ONNX, read again and stored as a dump give the values that MegEngine recorded, or theirs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.compare import assert_equal_error
from loadrun.onnx import export
from loadrun.onnx.exported import available
from loadrun.runner import random_inputs
from loadrun.verify.pack.capture import capture
from tests.support.cases import slow_but

NETS = Path(__file__).resolve().parent.parent.parent / "fixtures" / "nets"
NAMES = sorted(
    p.stem for p in NETS.glob("*.mge") if not p.stem.startswith("xfail_") and not p.stem.endswith(".v1")
)
FEW = [
    "bert",
    "detector_rcnn",
    "dynamic_reshape",
    "gpt",
    "lstm_2_both",
    "mobilenet_v2",
    "quant_conversions",
    "quant_mobilenet_ema",
    "rnn_1_one",
    "super_resolution_nearest",
]
PARTS = 6
PACKED = "layout_dense_nchw64"
"""Its check expects the plain layout of an output that the graph has packed."""
REFUSED = {"mask_head", "optical_flow"}
"""Data decide the pixels of their bins, or they correlate images, which ONNX's operators do not."""


def test_there_are_networks() -> None:
    assert len(NAMES) == 99
    assert {*FEW, PACKED} <= set(NAMES)


def differences(name: str, folder: Path) -> list[str]:
    """Outputs of a network that came back with other values."""
    source = NETS / f"{name}.mge"
    folder.mkdir(exist_ok=True)
    export(source, f=folder / f"{name}.onnx")
    again = folder / f"{name}.mge"
    loadrun.save(loadrun.load(folder / f"{name}.onnx"), again)
    bundle, runner = loadrun.load(source), loadrun.Runner(loadrun.load(again))
    known = {v.name for v in runner.bundle.inputs}
    limits = {c.name: c.maxerr for c in bundle.checks} or dict.fromkeys(bundle.outputs, 1e-4)
    found = []
    for i, case in enumerate(bundle.testcases or [capture(bundle, random_inputs(bundle))]):
        got = runner.run({n: v for n, v in case.inputs.items() if n in known})
        if got.message is not None:
            found.append(f"testcase {i}: {got.message}")
            continue
        values = {o.name: np.atleast_1d(o.value) for o in got.outputs}
        for output, expect in case.expects.items():
            value = values[output]
            if value.shape != expect.shape:
                found.append(f"testcase {i}: {output} has shape {value.shape}, expected {expect.shape}")
                continue
            error = float(assert_equal_error(expect, value))
            if not error <= limits[output]:
                found.append(f"testcase {i}: {output} is off by {error:g}, allowed {limits[output]:g}")
    return [f"{name}: {f}" for f in found]


@pytest.mark.parametrize("name", slow_but({*FEW} - {"dynamic_reshape"}, FEW))
def test_a_few(name: str, tmp_path: Path) -> None:
    assert differences(name, tmp_path) == []


@pytest.mark.slow
@pytest.mark.skipif(
    not available(), reason="needs onnx and onnxruntime, as the other tests over all networks"
)
@pytest.mark.parametrize("part", range(PARTS))
def test_all(part: int, tmp_path: Path) -> None:
    for name in REFUSED.intersection(NAMES[part::PARTS]):
        with pytest.raises(loadrun.UnsupportedError, match="cannot be written as ONNX"):
            export(NETS / f"{name}.mge", f=tmp_path / "refused.onnx")
    found = {n: differences(n, tmp_path / n) for n in NAMES[part::PARTS] if n not in REFUSED}
    assert {n: d for n, d in found.items() if bool(d) != (n == PACKED)} == {}


def test_later_trips_change_nothing(tmp_path: Path) -> None:
    source = NETS.parent / "onnx" / "convnet" / "model.onnx"
    trips = []
    for i in range(3):
        loadrun.save(loadrun.load(source), tmp_path / f"{i}.mge")
        source = tmp_path / f"{i}.onnx"
        export(tmp_path / f"{i}.mge", f=source)
        trips.append(source.read_bytes())
    assert trips[0] == trips[1] == trips[2]
