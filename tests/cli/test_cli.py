"""The command: tables, exit codes, options, and errors without tracebacks."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

import loadrun
from loadrun.cli import main
from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import DType, encode
from loadrun.graph.params import Axis, Elemwise, ElemwiseMode, Host2DeviceCopy
from loadrun.testing import GraphBuilder

MLP = "fixtures/nets/mlp.mge"


def plain_model(path: Path, mode: ElemwiseMode = ElemwiseMode.NEGATE) -> Path:
    graph = Graph()
    (x,) = graph.add(
        "Host2DeviceCopy",
        Host2DeviceCopy(),
        tensors=[StoredTensor(DType("Float32"), (2, 3), "x")],
        names=["x"],
    )
    graph.outputs = graph.add("Elemwise", Elemwise(mode=mode), inputs=[x], names=["y"])
    loadrun.save(graph, path)
    return path


def broken_model(path: Path) -> Path:
    """The fixture with the last byte of its last testcase's values changed, so that a check fails."""
    bundle = loadrun.load(MLP)
    cases = []
    for testcase in bundle.testcases:
        arrays = {k: v.copy() for k, v in testcase.arrays.items()}
        cases.append(loadrun.Testcase(arrays, testcase.dtypes))
    key = next(k for k in cases[-1].arrays if k.endswith(":expect"))
    cases[-1].arrays[key].reshape(-1)[1] += 3
    bundle.testcases = cases
    loadrun.save(bundle, path)
    return path


def test_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([MLP]) == 0
    out = capsys.readouterr().out
    assert "tolerance" in out
    assert "0 failed" in out.splitlines()[-1]


def test_fail_names_the_worst_element(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = broken_model(tmp_path / "m.mge")
    assert main([str(path)]) == 1
    out = capsys.readouterr().out
    assert "FAIL" in out
    assert "(0, 1)" in out or "[0, 1]" in out
    assert "1 failed" in out.splitlines()[-1]


def test_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(plain_model(tmp_path / "p.mge"))
    assert main([path]) == 3
    assert "1 file with nothing compared" in capsys.readouterr().out
    assert main([path, "--allow-uncompared"]) == 0


def test_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "absent.mge")]) == 2
    assert "No such file" in capsys.readouterr().out
    (tmp_path / "junk.mge").write_bytes(b"junk, nothing but junk")
    assert main([str(tmp_path / "junk.mge"), MLP]) == 2
    out = capsys.readouterr().out
    assert "expected a MegEngine dump" in out
    assert "pass" in out, "a bad file does not keep the others from being replayed"
    assert main([str(tmp_path)]) == 2


@pytest.mark.parametrize(
    "argv", [[], ["--nonsense", MLP], ["run"], [MLP, "--iter", "-3"], [MLP, "--engine", "x"]]
)
def test_bad_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out


def test_input_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(plain_model(tmp_path / "p.mge"))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x, other=np.zeros(3))
    out = tmp_path / "out"
    for spec in (
        f"x:{tmp_path}/x.npy",
        f"{tmp_path}/x.npy",
        f"{tmp_path}/x.npz",
        f"x:{tmp_path}/x.npz!x",
        "x:[[0,1,2],[3,4,5]]",
    ):
        assert main([path, "--input", spec, "--output", str(out)]) == 3, capsys.readouterr()
        np.testing.assert_array_equal(np.load(out / "y.npy"), -x)
    assert main([path, "--input", "x:{4,3}", "--output", str(out)]) == 3
    assert np.load(out / "y.npy").shape == (4, 3)
    assert main([path, "--input", "z:#ones"]) == 2
    assert "no input 'z'; its input is 'x' (Float32 [2, 3])\n" in capsys.readouterr().out
    assert main([path, "--input", "x:#rand(0,"]) == 2
    assert "^" in capsys.readouterr().out


def test_random_inputs_are_the_same_everywhere(tmp_path: Path) -> None:
    bundle = loadrun.load(plain_model(tmp_path / "p.mge"))
    x = loadrun.random_inputs(bundle, seed=1)["x"]
    # The first raw words of PCG64(1), as documented by numpy's bit stream guarantee.
    raw = np.random.PCG64(1).random_raw(6)
    np.testing.assert_array_equal(x.reshape(-1), ((raw >> np.uint64(40)) / 2.0**24).astype("f4"))
    assert x.tobytes() != loadrun.random_inputs(bundle, seed=2)["x"].tobytes()


def test_json_and_timing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "r.json"
    assert main([MLP, "--iter", "3", "--json", str(report)]) == 0
    assert "3 runs after 1 warm-up" in capsys.readouterr().out
    data = json.loads(report.read_text())
    assert data["exit_code"] == 0
    (entry,) = data["files"]
    assert entry["verdict"] == "pass"
    assert [(t["testcase"], len(t["samples"]), len(t["processor"])) for t in entry["timings"]] == [
        *((0, 3, 3), (1, 3, 3), (2, 3, 3))
    ]
    assert [t["testcase"] for t in entry["testcases"]] == [0, 1, 2]
    assert main([MLP, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["files"][0]["verdict"] == "pass"


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", MLP]) == 0
    text = capsys.readouterr().out
    for word in ("FBS_V2", "MatrixMulV2", "maxerr", "FLOP", "3 testcases", "metadata"):
        assert word in text
    assert main(["info", "--json", MLP]) == 0
    (data,) = json.loads(capsys.readouterr().out)
    assert data["testcases"] == 3
    assert [v["name"] for v in data["inputs"]] == [v.name for v in loadrun.load(MLP).inputs]
    assert [[v["shape"] for v in case] for case in data["cases"]] == [[[n, 20], [n, 4]] for n in (1, 5, 2)]


def test_info_shortens_long_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every row is as wide as the widest: one operator of many inputs would make all of them long."""
    g = GraphBuilder()
    inputs = [g.input("x", 2, 3)] * 500
    loadrun.save(g.done(g.add("Concat", Axis(axis=1), inputs=inputs, name="y")), tmp_path / "wide.mge")
    assert main(["info", str(tmp_path / "wide.mge")]) == 0
    text = capsys.readouterr().out
    assert ", ".join(["2x3"] * 12) + ", ... (500 in all)  2x1500 " in text
    assert max(map(len, text.splitlines())) < 200


def test_info_of_batch_norm(capsys: pytest.CaptureFixture[str]) -> None:
    """Three operations for each of 48 numbers; the statistics that nothing reads are no outputs."""
    assert main(["info", "--json", "fixtures/ops/norm/batch_norm_1chw.mge"]) == 0
    (data,) = json.loads(capsys.readouterr().out)
    (opr,) = data["operators"]
    assert (opr["flops"], data["flops"]) == (144, 144)
    assert [v["shape"] for v in opr["outputs"]] == [[2, 3, 2, 4]]


def test_info_shows_what_is_indexed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    @loadrun.trace(symbolic=True, capture_as_const=True)
    def cut(x):
        return {"y": x[:, 1:5:2], "z": x[2]}

    cut(loadrun.tensor(np.zeros((3, 6), "f4")))
    cut.dump(tmp_path / "cut.mge", arg_names=["x"], input_data=["#rand(0,1)", "#rand(0,1,4,...)"])
    assert main(["info", str(tmp_path / "cut.mge")]) == 0
    out = capsys.readouterr().out
    assert "x[:, 1:5:2]" in out
    assert "x[2]" in out
    assert "IndexDescMaskDump" not in out
    assert "packed with engine " in out, "provenance"
    assert "0  x         3x6" in out
    assert "1  x         4x6" in out


def test_info_of_a_bad_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.mge").write_bytes(struct.pack("<I4s4s", 100, b"\4\0\0\0", b"mgv2"))
    assert main(["info", str(tmp_path / "x.mge")]) == 2
    assert "truncated" in capsys.readouterr().err


def test_names_from_files_are_printed_safely(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = Graph()
    (x,) = graph.add(
        "Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(DType("Float32"), (1,), "x")], names=["x"]
    )
    graph.outputs = graph.add("Elemwise", Elemwise(), inputs=[x], names=["\x1b[31mred\n" + "long" * 100])
    loadrun.save(graph, tmp_path / "n.mge")
    assert main([str(tmp_path / "n.mge"), "--allow-uncompared", "--output", str(tmp_path / "o")]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\\x1b[31mred\\n" in out


def test_module_entry() -> None:
    done = subprocess.run([sys.executable, "-m", "loadrun", MLP], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "3 passed" in done.stdout


def test_a_failure_says_where_to_look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.mge"
    bundle = loadrun.load(MLP)
    weight = next(t for o in bundle.graph.oprs for t in o.tensors if t.data is not None and t.shape != (1,))
    value = weight.value().copy()
    value.reshape(-1)[0] += 1
    weight.data = encode(value, weight.dtype)
    loadrun.save(bundle, path)
    assert main([str(path)]) == 1
    assert f"where it diverged: loadrun diff {path} --testcase 0 --against" in capsys.readouterr().out
    assert main([str(path), "--explain"]) == 1
    out = capsys.readouterr().out
    assert "testcase 0 beside the same model in float64" in out
    # The weight is wrong on both sides, so both agree and the file itself is to blame.
    assert "so the arithmetic is right" in out
    assert "a weight or a value is another one, which no operator shows; `loadrun diff MODEL --against" in out
    # In processes the explanation counts for the time that a file may take.
    assert main([str(path), "--explain", "-j", "2", "--timeout", "120"]) == 1
    there = capsys.readouterr().out
    assert there[there.index("  testcase 0 beside") :] == out[out.index("  testcase 0 beside") :]


def test_a_policy_beyond_rounding_is_told_from_wrong_expected_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([MLP, "--check", "max_abs<=0", "--explain"]) == 1
    out = capsys.readouterr().out
    assert "so the arithmetic is right, and all outputs are within their tolerances" in out
    assert "not packed together" not in out


def test_without_opencv_an_image_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "cat.png"
    picture.write_bytes(cv2.imencode(".png", np.zeros((4, 4, 3), np.uint8))[1].tobytes())
    monkeypatch.setitem(sys.modules, "cv2", None)
    code = main(["fixtures/nets/resnet_basic.mge", "--input", str(picture)])
    assert code == 2
    printed = capsys.readouterr()
    assert "pip install '/path/to/loadrun[images]'" in printed.out + printed.err
