"""What MegEngine would take for something else gives in real MegEngine what it gives in numpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.cli import main
from loadrun.tracing import trace
from tests.support.guard_cases import INTEGERS, MODES, POWERS, ROWS, STEPS, SUMS, TENSORS, X, Y
from tests.support.oracle import run

pytestmark = pytest.mark.oracle


def _written(f: Callable[..., Any], tensors: bool, path: Path, **options: Any) -> Any:
    make = loadrun.tensor if tensors else np.copy
    want = f(make(X), make(Y))
    t = trace(f, symbolic=True, capture_as_const=True)
    t(make(X), make(Y))
    t.dump(path, arg_names=["x", "y"], **options)
    return want.numpy() if tensors else want


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", MODES)
def test_guarded_programs_hold_in_megengine(mode: str, tmp_path: Path) -> None:
    cases = [
        *((n, f, False) for n, f in (POWERS | ROWS | STEPS | SUMS | INTEGERS).items()),
        *((n, f, True) for n, f in TENSORS.items()),
    ]
    wanted = {}
    for i, (name, f, tensors) in enumerate(cases):
        path = tmp_path / f"{i}.mge"
        wanted[str(path)] = name, _written(f, tensors, path, **MODES[mode])
    feed = tmp_path / "feed.npz"
    np.savez(feed, x=X, y=Y)
    results = run([Path(f) for f in wanted], "--feed", str(feed))
    wrong = {}
    for file, (name, want) in wanted.items():
        if results.get(file, {}).get("result") != "loaded":
            wrong[name] = str(results.get(file))
            continue
        with np.load(file + ".out.npz") as outs:
            got = outs["out.0"]
        if not np.allclose(got.reshape(want.shape), want, rtol=1e-4, atol=1e-5, equal_nan=True):
            wrong[name] = f"{got.ravel()[:4]}, not {want.ravel()[:4]}"
    assert not wrong


_TIES = np.arange(-300, 300, dtype=np.float32).reshape(2, 3, 10, 10) / 2
"""Halves, which QuantizeLinear rounds to even numbers."""
_SCALES = np.float32([0.1, 0.3, 0.7])
_PER_CHANNEL = (_TIES * _SCALES[:, None, None]).astype(np.float32)
_QUANTIZED = {
    "a sum before": (["s = Add(x, b)", "y = QuantizeLinear(s, one, z)"], _TIES),
    "a scale of each channel": (["y = QuantizeLinear<axis = 1>(x, c, zs)"], _PER_CHANNEL),
    "a sum and a scale of each channel": (
        ["s = Add(x, b)", "y = QuantizeLinear<axis = 1>(s, c, zs)"],
        _PER_CHANNEL,
    ),
    "a sum before floats of the same steps": (
        [
            "s = Add(x, b)",
            "q = QuantizeLinear(s, one, z)",
            "d = DequantizeLinear(q, few, z)",
            "y = MatMul(d, eye)",
        ],
        _TIES,
    ),
    "floats of the same steps of each channel": (
        [
            "q = QuantizeLinear<axis = 1>(x, c, zs)",
            "d = DequantizeLinear<axis = 1>(q, fews, zs)",
            "y = MatMul(d, eye)",
        ],
        _PER_CHANNEL,
    ),
}
"""The last two are whole numbers, times a power of two, in front of a product."""


@pytest.mark.parametrize("options", [[], ["--optimize-for-inference"]], ids=["as it is", "optimized"])
@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint16], ids=lambda k: k.__name__)
def test_ties_are_quantized_to_even_numbers_in_megengine(
    kind: Any, options: list[str], tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx")
    zeros, ends = np.arange(3).astype(kind), np.iinfo(kind)
    stored = {"b": np.float32(7.5), "one": np.float32(1), "z": kind(3), "c": _SCALES, "zs": zeros}
    stored |= {
        "few": np.float32(0.25),
        "fews": np.full(3, 0.25, np.float32),
        "eye": np.eye(10, dtype=np.float32),
    }
    names = {}
    for i, (name, (nodes, x)) in enumerate(_QUANTIZED.items()):
        text = f'<ir_version: 10, opset_import: ["" : 21]> g (float[2, 3, 10, 10] x) => (y) {{ {" ".join(nodes)} }}'
        model = onnx.parser.parse_model(text)
        used = {n for node in model.graph.node for n in node.input}
        model.graph.initializer.extend(
            onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in stored.items() if n in used
        )
        onnx.save(model, tmp_path / "m.onnx")
        np.save(tmp_path / "x.npy", x)
        path = str(tmp_path / f"{i}.mge")
        data = f"x:{tmp_path / 'x.npy'}"
        assert main(["pack", str(tmp_path / "m.onnx"), "-d", data, "-o", path, *options]) == 0
        each, floats = "each channel" in name, "floats" in name
        s = x + stored["b"] if "sum" in name else x
        steps = np.rint(s / (_SCALES[:, None, None] if each else np.float32(1)))
        zero = (zeros[:, None, None] if each else stored["z"]).astype(np.float32)
        want = np.clip(steps + zero, ends.min, ends.max)
        want = (want - zero) * 0.25 if floats else want
        np.testing.assert_array_equal(loadrun.load(path).testcases[0].arrays["y:expect"], want, err_msg=name)
        names[path] = name
    results = run([Path(p) for p in names])
    assert {name: results.get(p, {}).get("result") for p, name in names.items()} == dict.fromkeys(
        names.values(), "pass"
    ), results
