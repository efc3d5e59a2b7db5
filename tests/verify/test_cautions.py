"""What is said of models whose results change without any fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.cli import main
from loadrun.graph import Opr, params as P
from loadrun.verify.cautions import cautions

HEAD = '<ir_version: 9, opset_import: ["" : 17]> g (float[4] x) => (float[4] y)'


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "<bool t = {1}> { r = Constant <value_float = 0.5> () y = Dropout(x, r, t) }",
            "exported in training mode",
        ),
        ("<bool t = {0}> { r = Constant <value_float = 0.5> () y = Dropout(x, r, t) }", ""),
        ("{ n = RandomNormalLike(x) y = Add(x, n) }", "draws random numbers (RandomNormalLike"),
    ],
    ids=["training", "inference", "random"],
)
def test_info_says_it_and_so_does_a_failure(
    body: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx = pytest.importorskip("onnx", reason="models are built with the package onnx")
    model = onnx.parser.parse_model(f"{HEAD} {body}")
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    for name, value in (("input_0.pb", 1.0), ("output_0.pb", 7.0)):
        tensor = onnx.numpy_helper.from_array(np.full(4, value, np.float32))
        (folder / name).write_bytes(tensor.SerializeToString())
    path = str(tmp_path / "m.onnx")
    for command, code in (["info", path], 0), ([path], 1):
        assert main(command) == code
        shown = capsys.readouterr().out
        assert (said in shown) if said else ("training mode" not in shown and "random" not in shown)
    assert len(loadrun.load(path).testcases) == 1


@pytest.mark.parametrize(
    ("probabilities", "training", "expected"),
    [((0.5, 0), True, True), ((0, 0.5), True, True), ((0.5, 0.5), False, False), ((0, 0), True, False)],
)
def test_attention_draws_only_in_training(
    probabilities: tuple[float, float], training: bool, expected: bool
) -> None:
    attention = P.MultiHeadAttn(attn_prob=probabilities[0], out_prob=probabilities[1], training=training)
    assert bool(cautions([Opr("MultiHeadAttn", (attention,))])) == expected
