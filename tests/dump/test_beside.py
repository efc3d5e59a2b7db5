"""`pack --weights beside`: graph and testcases apart from the weights, which are named by digest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun import trace
from loadrun.base.errors import FormatError, InputError
from loadrun.cli import main
from loadrun.graph.dtypes import Array
from loadrun.runner import Verdict

WEIGHTS = np.random.default_rng(1).normal(size=(64, 48)).astype("f4")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    @trace(symbolic=True, capture_as_const=True)
    def product(x: Array) -> Array:
        return x @ WEIGHTS

    product(np.zeros((2, 64), "f4"))
    product.dump(tmp_path / "m.mge", arg_names=["x"], output_names=["y"])
    return tmp_path / "m.mge"


def pack(model: Path, out: Path, *more: str) -> int:
    return main(["pack", str(model), "-d", "#rand(0,1)", "-o", str(out), "--weights", "beside", "-q", *more])


def test_weights_are_written_once_and_named_by_their_digest(model: Path, tmp_path: Path) -> None:
    cases = tmp_path / "cases"
    cases.mkdir()
    for i in range(3):
        assert pack(model, cases / f"{i}.mge", "--seed", str(i)) == 0
    (weights,) = cases.glob("*.weights")
    assert weights.stem == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert weights.read_bytes() == WEIGHTS.tobytes()
    for i in range(3):
        path = cases / f"{i}.mge"
        assert path.stat().st_size < WEIGHTS.nbytes
        (result,) = loadrun.run(path)
        assert result.verdict is Verdict.PASS
        case = loadrun.load(path).testcases[0].arrays
        np.testing.assert_allclose(case["y:expect"], case["x"].astype("f8") @ WEIGHTS, rtol=1e-4, atol=1e-5)
    assert main([str(cases)]) == 0


def test_a_mapped_file_in_the_folder_serves_itself(model: Path, tmp_path: Path) -> None:
    assert pack(model, tmp_path / "case.mge") == 0
    assert not [*tmp_path.glob("*.weights")]
    assert [r.verdict for r in loadrun.run(tmp_path / "case.mge")] == [Verdict.PASS]
    # Packed over itself, the model would be gone.
    assert pack(model, model) == 0
    assert len([*tmp_path.glob("*.weights")]) == 1
    assert [r.verdict for r in loadrun.run(model)] == [Verdict.PASS]


def test_external_data_serves_itself(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    ends = [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in (("x", (2, 64)), ("y", (2, 48)))]
    stored = onnx.numpy_helper.from_array(WEIGHTS, "w")
    graph = onnx.helper.make_graph([node], "g", ends[:1], ends[1:], [stored])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    assert pack(tmp_path / "m.onnx", tmp_path / "case.mge") == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["case.mge", "m.bin", "m.onnx"]
    assert [r.verdict for r in loadrun.run(tmp_path / "case.mge")] == [Verdict.PASS]


def test_weights_are_looked_for_in_the_folders_named(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases, store = tmp_path / "cases", tmp_path / "store"
    cases.mkdir()
    store.mkdir()
    assert pack(model, cases / "c.mge") == 0
    (weights,) = cases.glob("*.weights")
    moved = weights.rename(store / weights.name)
    assert main([str(cases / "c.mge")]) == 2
    assert f"{weights.name} ({WEIGHTS.nbytes} bytes" in capsys.readouterr().out
    with pytest.raises(InputError, match="name their folder with --weights DIR"):
        loadrun.load(cases / "c.mge")
    assert main([str(cases / "c.mge"), "--weights", str(store), "-j", "2"]) == 0
    assert [r.verdict for r in loadrun.run(loadrun.load(cases / "c.mge", weights=[store]))] == [Verdict.PASS]
    # The digest tells them, whatever they are called, and though a folder before has others of their name.
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    (wrong / moved.name).write_bytes(b"\1" + moved.read_bytes()[1:])
    renamed = moved.rename(store / "model.bin")
    assert [r.verdict for r in loadrun.run(loadrun.load(cases / "c.mge", weights=[wrong, store]))] == [
        Verdict.PASS
    ]
    with pytest.raises(InputError, match=r"nowhere \(no such folder\)"):
        loadrun.load(cases / "c.mge", weights=[tmp_path / "nowhere"])
    renamed.rename(moved)
    # Packing again puts them back, where it is not asked otherwise.
    again = ["pack", str(cases / "c.mge"), "-o", str(tmp_path / "whole.mge"), "--weights", str(store), "-q"]
    assert main(again) == 0
    moved.write_bytes(b"\1" + moved.read_bytes()[1:])
    with pytest.raises(InputError, match="the weights differ"):
        loadrun.load(cases / "c.mge", weights=[store])
    moved.unlink()
    assert [r.verdict for r in loadrun.run(tmp_path / "whole.mge")] == [Verdict.PASS]


@pytest.mark.parametrize("name", ["../m.mge", "/etc/passwd", "a/b"])
def test_a_table_that_names_a_path_is_refused(model: Path, tmp_path: Path, name: str) -> None:
    assert pack(model, tmp_path / "case.mge") == 0
    data = (tmp_path / "case.mge").read_bytes()
    size = int.from_bytes(data[8:16], "little")
    table = json.loads(data[16 : 16 + size])
    table["files"][0]["name"] = name
    text = json.dumps(table).encode()
    with pytest.raises(FormatError, match="is not a plain name"):
        loadrun.loads(data[:8] + len(text).to_bytes(8, "little") + text + data[16 + size :])


@pytest.mark.parametrize("change", [{"number": 99}, {"offset": 1 << 40}, {"file": 3}, {"shape": [1 << 40]}])
def test_a_table_that_does_not_fit_is_refused(model: Path, tmp_path: Path, change: dict[str, object]) -> None:
    assert pack(model, tmp_path / "case.mge") == 0
    data = (tmp_path / "case.mge").read_bytes()
    size = int.from_bytes(data[8:16], "little")
    table = json.loads(data[16 : 16 + size])
    table["tensors"][0].update(change)
    text = json.dumps(table).encode()
    broken = tmp_path / "broken.mge"
    broken.write_bytes(data[:8] + len(text).to_bytes(8, "little") + text + data[16 + size :])
    with pytest.raises(FormatError, match="the table of external weights"):
        loadrun.load(broken)
    broken.write_bytes(data[: 12 + size // 2])
    with pytest.raises(FormatError, match="cut off"):
        loadrun.load(broken)
