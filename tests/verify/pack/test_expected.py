"""Expected values from anywhere, judged anywhere: given values, any function, saved results, two reports."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun import Bundle, FormatError, InputError, Testcase, Verdict
from loadrun.cli import main
from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import DType
from loadrun.graph.params import Elemwise, ElemwiseMode, Host2DeviceCopy
from loadrun.testing import GraphBuilder
from loadrun.verify.pack.capture import embed
from loadrun.verify.pack.packing import Packer
from loadrun.verify.saved import judge_saved, read_saved

MLP = "fixtures/nets/mlp.mge"
MANY = "fixtures/nets/many_inputs_outputs.mge"


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """What MegEngine recorded for testcase 1, moved by 0.5 in one place."""
    case = loadrun.load(MLP).testcases[1]
    value = case.expects["out"].copy()
    np.save(tmp_path / "x.npy", case.inputs["data"])
    np.save(tmp_path / "golden.npy", value)
    value[2, 3] += 0.5
    np.save(tmp_path / "other.npy", value)
    return tmp_path


def test_given_values_are_expected(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["pack", MLP, "--replace", "-d", str(golden / "x.npy"), "-o", str(golden / "p.mge"), "-q"]
    assert main([*argv, "--expect", f"out:{golden / 'golden.npy'}"]) == 0
    assert capsys.readouterr().err == ""
    bundle = loadrun.load(golden / "p.mge")
    np.testing.assert_array_equal(bundle.testcases[0].expects["out"], np.load(golden / "golden.npy"))
    assert main([str(golden / "p.mge"), "-q"]) == 0
    assert main([*argv, "--expect", str(golden / "other.npy")]) == 0
    said = capsys.readouterr().err
    assert "the model does not compute the expected value of 'out'" in said
    assert r"\n" not in said
    np.save(golden / "long.npy", np.full_like(np.load(golden / "golden.npy"), 2**24 + 1, "i8"))
    assert main([*argv[:-3], "-q", "-o", str(golden / "l.mge"), "--expect", str(golden / "long.npy")]) == 0
    assert "more digits than Float32 holds and are rounded" in capsys.readouterr().err
    (result,) = loadrun.run(golden / "p.mge")
    assert result.verdict is Verdict.FAIL
    assert result.outputs[0].comparison is not None
    assert result.outputs[0].comparison.worst_index == (2, 3)


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        (["z:golden.npy"], "there is an expected value for 'z', but the outputs are 'out'"),
        (["out:none.npy"], "none.npy"),
        (["out:golden.npy", "--no-assert"], "--no-assert packs none"),
        (["out:golden.npy", "-d", "#ones"], "there is no expected value for it"),
        (
            ["out:golden.npy", "--expect", "out:golden.npy"],
            "for more testcases than the data makes, which are 1",
        ),
    ],
)
def test_given_values_that_do_not_fit(
    expect: list[str],
    said: str,
    golden: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mlp = str(Path(MLP).resolve())
    monkeypatch.chdir(golden)
    assert main(["pack", mlp, "--replace", "-d", "x.npy", "-o", "p.mge", "--expect", *expect]) == 2
    assert said in capsys.readouterr().err


def test_given_values_without_data(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The testcases of the file keep their values, which the option does not change."""
    assert main(["pack", MLP, "-o", str(golden / "p.mge"), "--expect", str(golden / "golden.npy")]) == 2
    assert "for more testcases than the data makes, which are 0" in capsys.readouterr().err
    assert not (golden / "p.mge").exists()


def test_unpacked_values_are_packed_again(tmp_path: Path) -> None:
    assert main(["convert", MANY, "-o", str(tmp_path / "u") + "/"]) == 0
    argv = ["-d", f"@{tmp_path / 'u/inputs.txt'}", "--expect", str(tmp_path / "u/testcases.json")]
    assert main(["pack", str(tmp_path / "u/model.mge"), *argv, "-o", str(tmp_path / "p.mge"), "-q"]) == 0
    old, new = loadrun.load(MANY), loadrun.load(tmp_path / "p.mge")
    assert len(old.testcases) == len(new.testcases)
    for one, other in zip(old.testcases, new.testcases, strict=True):
        for name, value in one.expects.items():
            np.testing.assert_array_equal(other.expects[name], value)
    assert main([str(tmp_path / "p.mge"), "-q"]) == 0


def test_any_function_is_judged() -> None:
    runner = loadrun.Runner(MLP)

    def right(data: np.ndarray) -> Any:
        return runner.run({"data": data})["out"].astype("f8")

    def mapped(x: np.ndarray) -> Any:
        return {"out": right(x)}

    def wrong(data: np.ndarray) -> Any:
        return [right(data) + 0.01]

    assert [r.verdict for r in loadrun.check(right, MLP)] == [Verdict.PASS] * 3
    assert [r.verdict for r in loadrun.check(mapped, MLP)] == [Verdict.PASS] * 3
    found = loadrun.check(wrong, MLP)
    assert [r.verdict for r in found] == [Verdict.FAIL] * 3
    assert found[0].outputs[0].error == pytest.approx(0.01, rel=1e-3)
    assert [o.tolerance.loosened for r in loadrun.check(wrong, MLP, maxerr=0.1) for o in r.outputs] == [
        pytest.approx(1e-5)
    ] * 3


def test_functions_that_do_not_fit() -> None:
    (first, *_) = loadrun.check(lambda data: 1 / 0, MLP)
    assert (first.verdict, first.message) == (
        Verdict.ERROR,
        "the function failed: ZeroDivisionError: division by zero",
    )
    (first, *_) = loadrun.check(lambda data: (data, data), MLP)
    assert first.message is not None
    assert "returned 2 values, the outputs are out" in first.message
    (first, *_) = loadrun.check(lambda data: {}, MLP)
    assert (first.verdict, first.outputs[0].notes) == (
        Verdict.FAIL,
        ("the function returned no such output",),
    )
    with pytest.raises(InputError, match="no testcases"):
        loadrun.check(lambda data: data, loadrun.Bundle(loadrun.load(MLP).graph))


def test_torch_module_is_judged() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    runner = loadrun.Runner(MLP)

    class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, data: Any) -> Any:
            return torch.from_numpy(runner.run({"data": data.numpy()})["out"])

    assert [r.verdict for r in loadrun.check(Net(), MLP)] == [Verdict.PASS] * 3


def test_session_is_judged() -> None:
    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

    class Session:
        def get_inputs(self) -> list[Named]:
            return [Named("data")]

        def get_outputs(self) -> list[Named]:
            return [Named("out")]

        def run(self, names: None, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
            return [loadrun.Runner(MLP).run(feeds)["out"]]

    assert [r.verdict for r in loadrun.check(Session(), MLP)] == [Verdict.PASS] * 3  # type: ignore[arg-type]


@pytest.mark.parametrize("terms", ["ulp<=1", "exact", "maxerr<=1e-6", "rtol=1e-6"])
def test_saved_results_are_judged_by_what_held_in_the_run(terms: str, tmp_path: Path) -> None:
    """Values of 1 to 4 that are off by 5e-5 of their size, within the file's 1e-4."""
    x = np.arange(1, 5, dtype="f4")
    b = GraphBuilder()
    graph = b.done(b.elemwise("RELU", b.input("x", 4), name="y"))
    case = Testcase({"x": x, "y:expect": x * np.float32(1 + 5e-5)})
    loadrun.save(embed(Bundle(graph), [case], maxerr=1e-4), tmp_path / "net.mge")
    saved = str(tmp_path / "results.zip")
    assert main([str(tmp_path / "net.mge"), "--check", terms, "--output", saved, "-q"]) == 1
    assert main([saved, "-q"]) == 1
    assert main([saved, "--maxerr", "1e-5", "-q"]) == 1
    assert main([saved, "--maxerr", "1e-3", "-q"]) == 0
    assert main([saved, "--check", "rtol=1e-4", "-q"]) == 0


def test_saved_results_are_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "r.zip"
    assert main([MLP, MANY, "--output", str(saved), "-q"]) == 0
    assert main([str(saved), "-q"]) == 0
    assert main([str(saved), "--maxerr", "1e-12", "-q"]) == 1
    assert main([str(saved), "--check", "best: exact", "--check", "chosen: exact", "-q"]) == 2
    capsys.readouterr()
    assert main([str(saved), "--maxerr", "0.5"]) == 0
    assert "LOOSENED: the tolerance was 1e-05" in capsys.readouterr().out
    files = read_saved(saved)
    assert [(f.path, len(f.entries)) for f in files] == [(MLP, 3), (MANY, 2)]
    again = [o for r in judge_saved(files[0]) for o in r.outputs]
    ran = [o for r in loadrun.run(MLP) for o in r.outputs]
    assert [(o.verdict, o.error, o.tolerance.maxerr) for o in again] == [
        (o.verdict, o.error, o.tolerance.maxerr) for o in ran
    ]


def test_what_is_no_archive_of_results(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"PK no")
    with pytest.raises((FormatError, InputError)):
        read_saved(tmp_path / "a")
    with zipfile.ZipFile(tmp_path / "b", "w") as z:
        z.writestr("format", "loadrun results 1")
        z.writestr("0/file.json", '"m"')
        z.writestr("0/0.json", '{"outputs": [{}]}')
    with pytest.raises(FormatError, match="the member 'testcase' is missing"):
        read_saved(tmp_path / "b")


def report(path: Path, outputs: dict[str, tuple[str, float | None]], seconds: float = 0.01) -> str:
    outs = [{"name": n, "verdict": v, "max_error": e} for n, (v, e) in outputs.items()]
    case = {"testcase": 0, "verdict": "pass", "seconds": seconds, "outputs": outs}
    path.write_text(json.dumps({"files": [{"file": "m.mge", "verdict": "pass", "testcases": [case]}]}))
    return str(path)


def test_two_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {
        "a": ("pass", 1e-6),
        "b": ("fail", 1.0),
        "c": ("pass", 1e-6),
        "d": ("pass", 0.0),
        "e": ("pass", 0.0),
    }
    now = {
        "a": ("fail", 1.0),
        "b": ("pass", 0.0),
        "c": ("pass", 5e-6),
        "d": ("pass", 0.0),
        "f": ("pass", 0.0),
    }
    old = report(tmp_path / "old.json", before)
    new = report(tmp_path / "new.json", now, seconds=0.1)
    assert main(["report", old, new]) == 1
    rows = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()[2:8]]
    assert rows == ["newly failing", "missing", "fixed", "new", "greater error", "slower"]
    assert main(["report", old, old]) == 0
    assert main(["report", new, report(tmp_path / "x.json", {})]) == 1
    empty = report(tmp_path / "y.json", {})
    assert main(["report", empty, empty]) == 3
    (tmp_path / "z.json").write_text("[")
    assert main(["report", old, str(tmp_path / "z.json")]) == 2


def test_reports_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        assert main([MLP, "-q", "--json", str(tmp_path / f"{name}.json")]) == 0
    assert (
        main(["report", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--max-slowdown", "1000x"]) == 0
    )
    assert "3 outputs in both reports, 0 changes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("dtype", "given", "said"),
    [
        ("Int32", np.array([[2, 4.5, 6]], "f4"), "4.5 would become 4"),
        ("Int32", np.array([[2, np.nan, 6]], "f4"), "holds NaN"),
        ("Int32", np.array([[2, 2**40, 6]], "i8"), "1099511627776 would become 0"),
        ("Uint8", np.array([[2, -2, 6]], "i1"), "-2 would become 254"),
        ("Int8", np.array([[2, 254, 6]], "u1"), "254 would become -2"),
    ],
)
def test_expected_values_that_a_whole_number_is_not_are_refused(
    dtype: str, given: np.ndarray, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = doubled(dtype, tmp_path)
    np.save(tmp_path / "given.npy", given)
    np.save(tmp_path / "right.npy", np.array([[2, 4, 6]], "f8"))
    argv = ["pack", source, "-d", "[[1,2,3]]", "-o", str(tmp_path / "o.mge"), "-q", "--expect"]
    assert main([*argv, str(tmp_path / "given.npy")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "o.mge").exists()
    assert main([*argv, str(tmp_path / "right.npy")]) == 0, "whole numbers in another dtype are what they are"
    assert main([str(tmp_path / "o.mge"), "-q"]) == 0
    packer = Packer(loadrun.load(source), warn=print)
    with pytest.raises(InputError, match="the expected value of 'y' is float64, but the output is "):
        packer.pack(
            [{"x": np.array([[1, 2, 3]], DType(dtype).np)}], io.BytesIO(), expected=[{"y": np.ones((1, 3))}]
        )


def doubled(dtype: str, folder: Path) -> str:
    """``y = x + x`` in a file."""
    graph = Graph()
    tensor = StoredTensor(DType(dtype), (1, 3), "x")
    x = graph.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[tensor], names=["x"])
    graph.outputs = graph.add("Elemwise", Elemwise(mode=ElemwiseMode.ADD), inputs=[*x, *x], names=["y"])
    loadrun.save(graph, folder / "m.mge")
    return str(folder / "m.mge")


def test_a_file_without_a_record_has_no_policies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = doubled("Float32", tmp_path), tmp_path / "o.mge"
    argv = ["pack", source, "-d", "[[1,2,3]]", "-o", str(out), "-q"]
    assert main([*argv, "--check", "y: exact", "--no-record"]) == 2
    assert "which --no-record leaves out" in capsys.readouterr().err
    assert not out.exists()
    assert main([*argv, "--check", "y: exact", "--no-assert"]) == 2
    assert main([*argv, "--check", "y: exact"]) == 0
    # Nor are those of the file that is packed again lost without a word.
    assert main(["pack", str(out), "-o", str(tmp_path / "p.mge"), "-q", "--no-record"]) == 2
    assert main(["pack", source, "-d", "[[1,2,3]]", "-o", str(out), "-q", "--no-record"]) == 0


def written(
    path: Path,
    *,
    maxerr: float | None = 1e-6,
    data: str = "aa",
    inputs: str = "ii",
    error: float = 0.0,
    shape: int = 3,
    model: str = "m1",
    policy: str | None = "rtol=1e-3, top1=1",
    way: str = "native",
) -> str:
    """A report of one output that passes."""
    out = {"name": "y", "verdict": "pass", "max_error": error, "maxerr": maxerr, "policy": policy}
    case = {"testcase": 0, "verdict": "pass", "seconds": 0.01, "outputs": [out]}
    case |= {"data_digest": data, "inputs": {"x": [1, shape]}, "input_digest": inputs}
    file = {"file": "m.mge", "model_digest": model, "verdict": "pass", "testcases": [case]}
    file["engine"] = {"engine": "onnxruntime", "version": "1", "way": way, "options": ["opt=all"]}
    path.write_text(json.dumps({"files": [file], "exit_code": 0}))
    return str(path)


@pytest.mark.parametrize(
    ("change", "code", "row"),
    [
        ({}, 0, None),
        ({"maxerr": 1.0}, 1, r"greater tolerance +m\.mge +0 +y +1e-06 +1"),
        ({"maxerr": None}, 1, r"greater tolerance +m\.mge +0 +y +1e-06 +none"),
        ({"maxerr": 1e-8}, 0, r"smaller tolerance +m\.mge +0 +y +1e-06 +1e-08"),
        ({"data": "bb", "inputs": "jj"}, 0, r"other inputs +m\.mge +0 +digest aa +digest bb"),
        ({"data": "bb"}, 0, r"other expected values +m\.mge +0 +digest aa +digest bb"),
        ({"error": 1e-7}, 0, None),
        ({"error": 9e-7}, 1, r"greater error +m\.mge +0 +y +0 +9e-07"),
        ({"data": "bb", "inputs": "jj", "shape": 5}, 0, r"other inputs +m\.mge +0 +x \[1, 3\] +x \[1, 5\]"),
        ({"policy": None}, 1, r"weaker policy +m\.mge +0 +y +rtol=1e-3, top1=1 +none"),
        (
            {"policy": "rtol=1e-2, top1=1"},
            1,
            r"weaker policy +m\.mge +0 +y +rtol=1e-3, top1=1 +rtol=1e-2, top1=1",
        ),
        ({"policy": "rtol=1e-3, atol=1, top1=1"}, 1, "weaker policy"),
        ({"policy": "rtol=1e-3"}, 1, "weaker policy"),
        ({"policy": "rtol=1e-3, top1=1, ppm<=5"}, 1, "weaker policy"),
        ({"policy": "rtol=1e-4, top1=1, ulp<=9"}, 0, "other policy"),
        ({"policy": "rtol=1e-3, top1=1, of=later"}, 0, "other policy"),
        ({"policy": "top1>=1, rtol<=0.001"}, 0, None),
        ({"model": "m2"}, 0, r"other model +m\.mge +digest m1 +digest m2"),
        (
            {"way": "translated"},
            0,
            r"other engine +m\.mge +onnxruntime, native, opt=all +onnxruntime, translated, opt=all",
        ),
    ],
)
def test_compare_tells_what_was_asked_of_what(
    change: dict[str, Any], code: int, row: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = written(tmp_path / "old.json"), written(tmp_path / "new.json", **change)
    assert main(["report", old, new]) == code
    out = capsys.readouterr().out
    assert ("0 changes" in out) == (row is None)
    assert row is None or re.search(row, out), out


def test_replaced_expected_values_are_no_other_inputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = loadrun.load(MLP)
    reports = []
    for factor in (1.0, 1000.0):
        case = bundle.testcases[0]
        case.arrays["out:expect"] = case.arrays["out:expect"] + np.float32(0.025 * factor)
        loadrun.save(bundle, tmp_path / "m.mge")
        reports.append(str(tmp_path / f"{factor}.json"))
        assert main([str(tmp_path / "m.mge"), "-q", "--json", reports[-1]]) == 1
    capsys.readouterr()
    # How long each run took is no part of this, and a busy machine may take 10 ms longer for one.
    assert main(["report", *reports, "--max-slowdown", "1000x"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"greater error +\S+ +0 +out +0\.025 +25\.0", out), out
    assert re.search(r"other expected values +\S+ +0 +digest", out), out
    assert "3 outputs in both reports, 2 changes, 1 for the worse" in out


def test_a_report_without_its_end_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, cut = tmp_path / "r.jsonl", tmp_path / "cut.jsonl"
    assert main([MLP, "-q", "--json", str(whole)]) == 0
    lines = whole.read_bytes().splitlines(keepends=True)
    assert json.loads(lines[-1])["type"] == "end"
    cut.write_bytes(b"".join(lines[:-1]))
    assert main(["report", str(whole), str(whole)]) == 0
    for pair in ((whole, cut), (cut, whole)):
        capsys.readouterr()
        assert main(["report", *map(str, pair)]) == 1
        assert "the run is incomplete" in capsys.readouterr().out


def test_folders_that_are_skipped_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in ("models", "models/.old", "elsewhere", "models/more/.git"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "m.mge").write_bytes(Path(MLP).read_bytes())
    (tmp_path / "models" / ".hidden.mge").write_bytes(b"")
    (tmp_path / "models" / "link").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    folder = str(tmp_path / "models")
    for argv in (
        [folder, "-q"],
        [folder],
        ["audit", folder, "--mutants", "1"],
    ):
        assert main(argv) == 0
        told = capsys.readouterr()
        assert "skipped in folders: 2 hidden folders, 1 linked folder, 1 hidden file" in told.out + told.err
    assert main([str(tmp_path / "models" / "link"), "-q"]) == 0
    assert "skipped" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["../secret.npy", "/etc/secret.npy", "0/../../secret.npy"])
def test_an_index_leads_nowhere_else(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", MANY, "-o", str(tmp_path / "u") + "/"]) == 0
    index = tmp_path / "u/testcases.json"
    about = json.loads(index.read_text())
    for values in about["testcases"]:
        for key in (k for k in values if k.endswith(":expect")):
            values[key]["file"] = name
    index.write_text(json.dumps(about))
    argv = ["-d", f"@{tmp_path / 'u/inputs.txt'}", "--expect", str(index), "-o", str(tmp_path / "p.mge")]
    assert main(["pack", str(tmp_path / "u/model.mge"), *argv]) == 2
    assert "is outside its folder" in capsys.readouterr().err
