"""Operators that one side has alone are named, and not what reads their numbers."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest

import loadrun
from loadrun.cli import main
from loadrun.passes.inference import optimize_for_inference
from loadrun.verify.diff import between
from tests.support.broken_models import copied, model, weight_changed

pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

from tests.support.onnx_files import model as onnx_model, write

LAYERS = 3


def layers(folder: Path, dropped: int | None = None) -> Path:
    """A file of three products with biases, a ReLU behind each but one."""
    rng = np.random.default_rng(1)
    nodes, stored, x = [], [], "x"
    for i in range(LAYERS):
        w, b = rng.standard_normal((8, 8)) / 3, rng.standard_normal(8)
        stored += [
            numpy_helper.from_array(w.astype("f4"), f"w{i}"),
            numpy_helper.from_array(b.astype("f4"), f"b{i}"),
        ]
        nodes.append(helper.make_node("MatMul", [x, f"w{i}"], [f"m{i}"], f"product{i}"))
        nodes.append(helper.make_node("Add", [f"m{i}", f"b{i}"], [x := f"a{i}"], f"bias{i}"))
        if i != dropped:
            nodes.append(helper.make_node("Relu", [x], [f"r{i}"], f"act{i}"))
            x = f"r{i}"
    nodes.append(helper.make_node("Neg", [x], ["y"], "last"))
    ends = [("x", TensorProto.FLOAT, [4, 8])], [("y", TensorProto.FLOAT, [4, 8])]
    return write(folder, onnx_model(nodes, *ends, initializer=stored))


@pytest.mark.parametrize("dropped", range(LAYERS))
@pytest.mark.parametrize("kinds", [".onnx .mge", ".mge .onnx", ".onnx .onnx", ".mge .mge"])
def test_a_dropped_activation(
    dropped: int, kinds: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = []
    for what, kind in zip((dropped, None), kinds.split(), strict=True):
        path = layers(tmp_path / str(what), what)
        if kind == ".mge":
            loadrun.convert_file(path, made := path.with_suffix(".mge"))
            path = made
        pair.append(str(path))
    assert main(["diff", *pair, "--json", str(tmp_path / "d.json")]) == 1
    (blamed,) = (t for t in capsys.readouterr().out.splitlines() if t.startswith("to blame"))
    # What a dump has of a node is named after its operator, too.
    theirs = f"act{dropped}.RELU" if kinds.endswith(".mge") else f"act{dropped}"
    assert f"'{theirs}'" in blamed
    assert "of the reference: the model lacks it before" in blamed
    assert theirs in json.loads((tmp_path / "d.json").read_text())["missing"][0]
    assert main(["diff", *reversed(pair)]) == 1
    (blamed,) = (t for t in capsys.readouterr().out.splitlines() if t.startswith("to blame"))
    assert f"'act{dropped}" in blamed
    assert blamed.endswith("it is not in the reference")


def test_what_another_suspect_explains_is_not_listed() -> None:
    """The sum of a residual that was fused into a convolution is another value than what is at its place."""
    good, feeds = model("layout_quant_unoptimized", named=False)
    bad = optimize_for_inference(copied(good), enable_fuse_conv_bias_with_z=True)[0]
    readers = [o for o in bad.oprs if o.type == "ConvBiasForwardV4" and len(o.inputs) == 3]
    checked = 0
    for opr in readers:
        (tensor,) = opr.inputs[1].owner.tensors
        right = tensor.data
        value = tensor.value().copy()
        value.reshape(-1)[::2] = np.clip(3 - value.reshape(-1)[::2], -100, 100)
        tensor.data = loadrun.graph.dtypes.encode(value, tensor.dtype)
        found = between(bad, good, feeds)
        tensor.data = right
        if not found.agree:
            assert [r.opr for r in found.roots] == [opr]
            checked += 1
    assert checked >= 3


def test_an_innocent_constant_is_not_accused() -> None:
    """What was found by its effect stands elsewhere, so that other constants stand at its place there."""
    good, feeds = model("mobilenet_v3", named=False)
    for seed in range(4):
        bad = optimize_for_inference(copied(good))[0]
        opr = weight_changed(bad, Random(seed))
        found = between(bad, good, feeds)
        for root in found.roots:
            assert root.how != "effect" or not any(t.startswith("constant ") for t in root.changes)
        assert opr is found.roots[0].opr or opr in found.roots[0].between
