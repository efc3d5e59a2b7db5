"""`loadrun convert`."""

from __future__ import annotations

from pathlib import Path

import pytest

import loadrun
from loadrun.cli import main
from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import DType
from loadrun.graph.params import Elemwise, ElemwiseMode, Host2DeviceCopy

MLP = "fixtures/nets/mlp.mge"


def test_to_onnx(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "mlp.onnx"
    assert main(["convert", MLP, str(target), "--opset", "17"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{target}: opset 17, ")
    assert "3 test data sets" in out
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "mlp.onnx",
        "mlp.test_data_set_0",
        "mlp.test_data_set_1",
        "mlp.test_data_set_2",
    ]


def test_external_data(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    target = tmp_path / "m.onnx"
    assert main(["convert", "fixtures/nets/resnet_basic.mge", str(target), "--external-data", "-q"]) == 0
    stored = onnx.load(target, load_external_data=False).graph.initializer
    places = {e.value for t in stored for e in t.external_data if e.key == "location"}
    assert places == {"m.onnx.data"}
    assert (tmp_path / "m.onnx.data").is_file()
    assert {r.verdict.value for r in loadrun.run(target)} == {"pass"}


def test_what_was_approximated_is_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = "fixtures/ops/sort/topk_nosort_float32_k3.mge"
    assert main(["convert", path, str(tmp_path / "m.onnx")]) == 0
    out = capsys.readouterr().out
    assert "first at" in out
    assert "TopK: elements are sorted" in out
    assert main(["convert", path, str(tmp_path / "m.onnx"), "-q"]) == 0
    assert "first at" not in capsys.readouterr().out


def test_between_the_versions_of_mge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.mge", tmp_path / "new.mge"
    assert main(["convert", MLP, str(old), "--format", "FBS"]) == 0
    assert main(["convert", str(old), str(new), "--format", "FBS_V2"]) == 0
    assert capsys.readouterr().out.count("3 testcases") == 2
    assert [loadrun.load(p).graph.header.format for p in (old, new)] == ["FBS", "FBS_V2"]
    assert {r.verdict.value for r in loadrun.run(new)} == {"pass"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([MLP, "b.pt"], "b.pt: the name must end in .mge or .onnx"),
        (["a.txt", "b.onnx"], "a.txt: the name must end in .mge or .onnx"),
        ([MLP, "b.mge", "--opset", "17"], "--opset applies to .onnx files only"),
        ([MLP, "b.mge", "--external-data"], "--external-data applies to .onnx files only"),
        (["a.onnx", "b.onnx"], "a.onnx: No such file"),
        ([MLP, "b.onnx", "--format", "FBS"], "--format applies to .mge files only"),
        ([MLP, "b.onnx", "--opset", "5"], "opset_version must be from 7 to 26, found 5"),
        ([MLP, "b.onnx", "--dynamic", "data"], "--dynamic takes INPUT:AXIS=NAME"),
        ([MLP, "b.onnx", "--dynamic", "x:0=n"], "names 'x', which is neither an input"),
        (["fixtures/ops/linalg/matinv_1x1.mge", "b.onnx"], "ONNX has no inverse of a matrix"),
    ],
)
def test_errors(args: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    args = [str(tmp_path / a) if a.startswith("b.") else a for a in args]
    assert main(["convert", *args]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_testcases_that_the_model_does_not_take_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = Graph()
    tensor = StoredTensor(DType("Float32"), (1, 3), "x")
    (x,) = graph.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[tensor], names=["x"])
    graph.outputs = list(graph.add("Elemwise", Elemwise(mode=ElemwiseMode.RELU), inputs=[x], names=["y"]))
    loadrun.save(graph, tmp_path / "bare.mge")
    data = [a for text in ("[[1,-2,3]]", "[[1,2,3,4]]", "[[1,2,3],[4,5,6]]") for a in ("-d", text)]
    argv = ["pack", str(tmp_path / "bare.mge"), "-q", "-o", str(tmp_path / "m.mge")]
    assert main([*argv, *data]) == 0
    capsys.readouterr()
    argv = ["convert", str(tmp_path / "m.mge"), str(tmp_path / "m.onnx")]
    assert main([*argv, "--dynamic", "x:0=n"]) == 3
    shown = capsys.readouterr()
    assert "2 test data sets" in shown.out
    assert shown.err.startswith(
        "warning: 1 of 3 testcases are not written, since the model does not take them: testcase 1, whose 'x' has "
        "shape [1, 4], while the model takes ['n', 3]; "
    )
    # By themselves both axes are dynamic.
    assert main(argv) == 0
    shown = capsys.readouterr()
    assert "3 test data sets" in shown.out
    assert not shown.err
