"""`loadrun pack` replays what it wrote before it says that it is done; lists and arrays that numpy 1 scripts feed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import EngineError
from loadrun.cli import main
from loadrun.graph import Graph, StoredTensor
from loadrun.inputs.files import read_array


def pack(*argv: Any) -> int:
    return main(["pack", *map(str, argv), "-q"])


@pytest.mark.parametrize("net", ["quant_resnet_qint4", "quant_resnet_minmax", "quant_mobilenet_minmax"])
def test_wide_packs_of_quantized_nets_are_read_again(net: str, tmp_path: Path) -> None:
    out = tmp_path / "o.mge"
    assert pack(f"fixtures/nets/{net}.mge", "-d", "#rand(0,1)", "-o", out, "--replace", "--enable-nchw64") < 2
    bundle = loadrun.load(out)
    assert [o for o in bundle.graph.oprs if o.type == "Concat" and len(o.inputs) < 2] == []
    results = loadrun.run(bundle)
    assert [r.verdict.value for r in results] != ["error"]


def test_a_file_that_does_not_run_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "o.mge"
    out.write_bytes(b"old")

    monkeypatch.setattr(
        "loadrun.verify.pack.files.optimize_for_inference", lambda g, **flags: (_without_weights(g), 0)
    )
    command = (
        "fixtures/nets/mlp.mge",
        "-d",
        "#rand(0,1)",
        "-o",
        out,
        "--replace",
        "--optimize-for-inference",
    )
    assert pack(*command) == 2
    assert out.read_bytes() == b"old"
    assert "the file would not run, so it was not written" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["o.mge"]


def _without_weights(graph: Graph) -> Graph:
    """A graph whose weights have another shape than its products take."""
    for opr in graph.oprs:
        if opr.type in ("SharedDeviceTensor", "ImmutableTensor") and len(opr.tensors[0].shape or ()) == 2:
            held = opr.tensors[0]
            wrong = np.zeros((held.shape[0] + 1, held.shape[1] + 3), held.dtype.np)
            opr.tensors[0] = StoredTensor(
                held.dtype, wrong.shape, held.name, wrong.reshape(-1).view(np.uint8)
            )
            return graph
    raise EngineError("no weight")


def test_outputs_that_do_not_hold_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "o.mge"
    argv = ("fixtures/nets/mlp.mge", "-d", "#rand(0,1)", "-o", out, "--replace", "--enable-ioc16")
    assert pack(*argv, "--maxerr", "1e-9") == 1
    assert "the written file fails its checks: out of testcase 0" in capsys.readouterr().err
    assert loadrun.run(loadrun.load(out))[0].verdict.value == "fail"
    assert pack(*argv, "--maxerr", "0.5") == 0


def test_a_model_without_inputs_is_packed(tmp_path: Path) -> None:
    graph = Graph()
    held = np.array([1.0, 4.0], np.float32)
    stored = StoredTensor(loadrun.graph.dtypes.DType("Float32"), (2,), None, held.view(np.uint8))
    graph.outputs = graph.add("SharedDeviceTensor", tensors=[stored], names=["w"])
    loadrun.save(graph, tmp_path / "m.mge")
    assert pack(tmp_path / "m.mge", "-o", tmp_path / "o.mge") == 0
    bundle = loadrun.load(tmp_path / "o.mge")
    assert bundle.testcases[0].expects["w"].tolist() == [1.0, 4.0]
    assert loadrun.run(bundle)[0].verdict.value == "pass"


@pytest.mark.parametrize("end", [b"\r", b"\n", b"\r\n"])
def test_list_files_with_any_line_ends(end: bytes, tmp_path: Path) -> None:
    lines = [b"#ones", b"", b"#zeros", b"#full(2)"]
    (tmp_path / "list.txt").write_bytes(end.join(lines) + end)
    out = tmp_path / "o.mge"
    assert pack("fixtures/nets/mlp.mge", "-d", f"@{tmp_path / 'list.txt'}", "-o", out, "--replace") == 0
    data = [case.inputs["data"].ravel()[0] for case in loadrun.load(out).testcases]
    assert data == [1, 0, 2]


@pytest.mark.parametrize("dtype", ["longdouble", "clongdouble", "complex64", ">c16"])
def test_wide_and_complex_arrays_are_read(dtype: str, tmp_path: Path) -> None:
    values = np.array([[1.5, -2.25], [3.0, 1e-3]]).astype(dtype) + np.zeros((), dtype)
    np.save(tmp_path / "a.npy", values)
    got = read_array(str(tmp_path / "a.npy"), lambda pixels: pixels)
    np.testing.assert_allclose(got, values.astype(np.complex128 if values.dtype.kind == "c" else np.float64))


@pytest.mark.parametrize("name", ["o", "o.foo", "o.pt2", "o.mge.bak"])
def test_names_of_other_formats_are_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pack("fixtures/nets/mlp.mge", "-d", "#ones", "-o", tmp_path / name) == 2
    assert "to end in .mge or .onnx" in capsys.readouterr().err
    assert not (tmp_path / name).exists()
