"""Engines side by side, and the commands that take an engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import EngineError, UsageError
from loadrun.cli import main
from loadrun.compare.results import EngineResults, FileResult
from loadrun.engines import Setup, registry
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph, Var
from loadrun.graph.dtypes import Array
from loadrun.report.changes import compare_reports
from loadrun.verify.against import EngineComparison
from tests.support.schema import faults, undescribed
from tests.support.shifted import Shifted, doubled


class Failing(Shifted):
    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        raise EngineError("it fell over")


class Missing(Shifted):
    def __init__(self, graph: Graph, targets: Sequence[Var], setup: Setup) -> None:
        raise UsageError("the engine missing is not installed")


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = {"shifted": Shifted, "failing": Failing, "missing": Missing}
    monkeypatch.setattr(registry, "_registered", engines)


MLP = "fixtures/nets/mlp.mge"


def test_errors_between_engines() -> None:
    beside = EngineComparison(loadrun.load(MLP), ["reference", "shifted:0.5"])
    rounds = [beside.check(case, i) for i, case in enumerate(beside.bundle.testcases)]
    assert [[r.index for r in found] for found in rounds] == [[0, 0], [1, 1], [2, 2]]
    file = FileResult(MLP)
    for found in rounds:
        assert [(r.choice, r.verdict.value) for r in found] == [
            ("reference", "pass"),
            ("shifted:0.5", "fail"),
        ]
        # Outputs of the file are below 1, so MegEngine's error is the difference.
        assert found[1].apart["out"].max_error == pytest.approx(0.5, rel=1e-5)
        for result in found:
            file.add(result)
    assert (file.counts.testcases, file.counts.passed, file.counts.failed) == (3, 3, 3)
    assert file.counts.first is not None
    assert file.counts.first.choice == "shifted:0.5"
    assert file.entrants["shifted:0.5"].error["out"] == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize(
    ("by", "check", "code", "verdict"),
    [
        ("0.00009", "", 3, "not compared"),
        ("0.00021", "", 1, "fail"),
        ("0.00009", "maxerr<=1e-4", 0, "pass"),
        ("0.00009", "maxerr<=1e-5", 1, "fail"),
    ],
)
def test_what_has_no_check_is_held_against_the_first_engine(
    by: str,
    check: str,
    code: int,
    verdict: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Engines can agree on wrong numbers, so that their agreement is a pass only where somebody said what must hold."""
    reports = ["--junit", str(tmp_path / "r.xml"), "--json", str(tmp_path / "r.json")]
    asked = ["--check", check] if check else []
    command = [MLP, "--input", "data:#rand(0,1)", "--engine", f"reference,shifted:{by}", *asked]
    assert main([*command, *reports]) == code
    assert ("compared with each other only" in capsys.readouterr().out) == (code == 3)
    assert main([*command, "--allow-uncompared"]) == code % 3
    (file,) = json.loads((tmp_path / "r.json").read_text())["files"]
    assert [t["verdict"] for t in file["testcases"]] == ["not compared", verdict]
    assert file["verdict"] == verdict
    assert len(list(ElementTree.parse(tmp_path / "r.xml").iter("failure"))) == (code != 0)


def test_nan_is_the_largest_error() -> None:
    from loadrun.testcase import Bundle

    beside = EngineComparison(Bundle(doubled()), ["reference", "shifted:1"])
    entrant = EngineResults("shifted:1")
    for i, x in enumerate((np.array([np.nan, 1, 1], "f4"), np.ones(3, "f4"))):
        _, result = beside.run({"x": x}, i)
        entrant.add(result)
    assert np.isnan(entrant.error["y"])


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert (
        main([MLP, "--engine", "reference,float64", "--engine", "shifted:0.25", "--json", str(report)]) == 1
    )
    shown = capsys.readouterr().out
    assert "from first" in shown
    assert "shifted 3.1 (by 0.25), float32: fail" in shown
    data = json.loads(report.read_text())
    assert data["exit_code"] == 1
    (file,) = data["files"]
    assert [(e["name"], e["verdict"]) for e in file["engines"]] == [
        ("reference", "pass"),
        ("float64", "pass"),
        ("shifted:0.25", "fail"),
    ]
    assert len(file["testcases"]) == 9
    last = file["testcases"][-1]
    assert (last["testcase"], last["engine"], last["verdict"]) == (2, "shifted:0.25", "fail")
    assert last["apart"]["out"]["max_error"] == pytest.approx(0.25, rel=1e-4)


@pytest.mark.parametrize(
    ("other", "code"), [("float64", 0), ("shifted:1", 1), ("failing", 2), ("missing", 2)]
)
def test_the_worst_verdict_counts(other: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([MLP, "--engine", f"reference,{other}"]) == code
    shown = capsys.readouterr().out
    assert "reference 0" in shown
    assert ("it fell over" in shown) == (other == "failing")
    assert ("is not installed" in shown) == (other == "missing")


def test_times_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([MLP, "--engine", "reference,float64", "--iter", "3"]) == 0
    assert "times that of reference)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "reference,reference"], "named twice"),
        (["--engine", "reference,nothing"], "unknown; expected one of"),
        (["--engine", "reference,float64", "--output", "s.npz"], "take a single --engine, found 2"),
        (["--engine", "reference,float64", "--range", "1"], "take a single --engine, found 2"),
    ],
)
def test_bad_usage(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([MLP, *options]) == 2
    assert said in capsys.readouterr().err


def test_reports_of_several_engines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {n: tmp_path / f"r.{n}" for n in ("junit", "html", "json", "jsonl")}
    flags = {"jsonl": "json"}
    reports = [arg for n, path in names.items() for arg in (f"--{flags.get(n, n)}", str(path))]
    files = [MLP, "fixtures/nets/resnet_basic.mge"]
    engines = ["--engine", "reference,shifted:0.5"]
    assert main([*files, *engines, "--fail-fast", "--output", str(tmp_path / "out"), *reports]) == 1
    shown = capsys.readouterr().out
    assert "1 more files were not run" in shown
    assert "--testcase 0 --against shifted:0.5" in shown
    tests = [t.attrib["name"] for t in ElementTree.parse(names["junit"]).iter("testcase")]
    assert tests == [f"{i}::{e}::out" for i in range(3) for e in ("reference", "shifted:0.5")]
    assert len(list(ElementTree.parse(names["junit"]).iter("failure"))) == 3
    assert "shifted 3.1 (by 0.5), float32: fail" in names["html"].read_text()
    report = json.loads(names["json"].read_text())
    schema = json.loads(Path("docs/report.schema.json").read_text())
    assert [*faults(report, schema, schema), *undescribed(report, schema, schema)] == []
    lines = [json.loads(line) for line in names["jsonl"].read_text().splitlines()]
    results = [entry for entry in lines if entry["type"] == "result"]
    assert [entry["engine"] for entry in results] == ["reference", "shifted:0.5"] * 3
    assert sorted(p.name for p in (tmp_path / "out").iterdir())[:2] == [
        "mlp.0.reference.out.npy",
        "mlp.0.shifted_0.5.out.npy",
    ]
    a, b = (np.load(tmp_path / "out" / f"mlp.0.{e}.out.npy") for e in ("reference", "shifted_0.5"))
    np.testing.assert_allclose(b - a, 0.5, rtol=1e-6)


def test_several_engines_in_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What workers send is what one process shows."""
    told = []
    for more in ([], ["-j", "2", "--timeout", "60"]):
        report = tmp_path / "r.json"
        assert main([MLP, "--engine", "reference,float64", "--json", str(report), *more]) == 0
        (file,) = json.loads(report.read_text())["files"]
        told.append([(c["testcase"], c["engine"], c["verdict"], c["apart"]) for c in file["testcases"]])
        assert [e["name"] for e in file["engines"]] == ["reference", "float64"]
    assert told[0] == told[1]
    assert len(told[0]) == 6


@pytest.mark.parametrize("engines", ["reference,shifted:0.5", "shifted:0.5"])
def test_the_engine_that_failed_is_explained(engines: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside the reference engine; were it float64, the blame would be on the expected values."""
    assert main([MLP, "--engine", engines, "--explain"]) == 1
    shown = capsys.readouterr().out
    assert "testcase 0 beside the same model on shifted:0.5:" in shown
    assert "to blame" in shown
    assert "so the arithmetic is right" not in shown
    assert main([MLP, "--engine", engines]) == 1
    assert "--testcase 0 --against shifted:0.5\n" in capsys.readouterr().out


def test_changes_tell_engines_apart(tmp_path: Path) -> None:
    def report(*verdicts: str) -> Path:
        cases = [
            {
                "testcase": 0,
                "engine": engine,
                "verdict": verdict,
                "seconds": 0.1,
                "outputs": [{"name": "y", "verdict": verdict, "max_error": 0.0}],
            }
            for engine, verdict in zip(("reference", "torch"), verdicts, strict=True)
        ]
        path = tmp_path / "-".join(verdicts)
        path.write_text(json.dumps({"files": [{"file": "m.mge", "testcases": cases}]}))
        return path

    (change,) = compare_reports(report("pass", "pass"), report("pass", "fail")).changes
    assert (change.kind, change.testcase) == ("newly failing", "0 torch")


def test_a_report_says_what_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    assert main([MLP, "--engine", "shifted:0", "--json", str(report)]) == 0
    assert "  engine: shifted 3.1 (by 0), float32" in capsys.readouterr().out.splitlines()
    assert json.loads(report.read_text())["files"][0]["engine"] == {
        "engine": "shifted",
        "version": "3.1",
        "provider": "by 0",
        "arithmetic": "float32",
        "way": None,
        "options": [],
        "operators": 0,
    }


def test_an_engine_that_is_not_there_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([MLP, "--engine", "missing"]) == 2
    assert capsys.readouterr().out.count("is not installed") == 1


def test_info_says_what_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--engine", "reference", MLP]) == 0
    assert "all 19 operators run on reference" in capsys.readouterr().out


def test_pack_takes_ground_truth_from_an_engine(tmp_path: Path) -> None:
    packed = tmp_path / "packed.mge"
    command = ["pack", MLP, "--replace", "--engine", "shifted:3", "-d", "#rand(0,1)", "-o", str(packed), "-q"]
    assert main([*command, "--maxerr", "0.001"]) == 0
    (case,) = loadrun.load(packed).testcases
    graph = loadrun.load(MLP)
    plain = ReferenceEngine(graph.graph, list(graph.outputs.values())).run(case.inputs)[0]
    np.testing.assert_allclose(case.expects["out"], plain + 3, atol=1e-6)
    assert loadrun.run(packed)[0].verdict.value == "fail"
    assert loadrun.run(packed, engine="shifted:3")[0].verdict.value == "pass"
