"""Engines side by side, and the commands that take an engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.cli import main
from loadrun.dtypes import Array
from loadrun.engines import Choice, Setup, registry
from loadrun.engines.reference import ReferenceEngine
from loadrun.errors import EngineError, UsageError
from loadrun.graph import Graph, Var
from loadrun.review.beside import Beside
from tests.backends.test_registry import Shifted, doubled


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
    beside = Beside(loadrun.load(MLP), [Choice("reference"), Choice("shifted:0.5")])
    rounds = list(beside.rounds())
    assert [r.index for r in rounds] == [0, 1, 2]
    for found in rounds:
        assert [r.verdict.value for r in found.results] == ["pass", "fail"]
        # Outputs of the file are below 1, so MegEngine's error is the difference.
        assert found.apart[1]["out"].max_error == pytest.approx(0.5, rel=1e-5)
    assert beside.entrants[1].error["out"] == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize(("by", "verdict"), [("0.00009", "pass"), ("0.00021", "fail")])
def test_what_has_no_check_is_held_against_the_first_engine(by: str, verdict: str) -> None:
    from loadrun.testcase import Bundle

    beside = Beside(Bundle(doubled()), [Choice("reference"), Choice(f"shifted:{by}")])
    (found,) = beside.rounds([{"x": np.array([1, -1, 0.5], "f4")}])
    assert [r.verdict.value for r in found.results] == ["not compared", verdict]


def test_nan_is_the_largest_error() -> None:
    from loadrun.testcase import Bundle

    beside = Beside(Bundle(doubled()), [Choice("reference"), Choice("shifted:1")])
    list(beside.rounds([{"x": np.array([np.nan, 1, 1], "f4")}, {"x": np.ones(3, "f4")}]))
    assert np.isnan(beside.entrants[1].error["y"])


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert (
        main([MLP, "--engine", "reference,float64", "--engine", "shifted:0.25", "--json", str(report)]) == 1
    )
    shown = capsys.readouterr().out
    assert "from reference" in shown
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
    assert main([MLP, "--engine", "reference,float64", "--iter", "3", "-q"]) == 0
    assert "of reference's)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "reference,reference"], "named twice"),
        (["--engine", "reference,nothing"], "unknown; known are"),
        (["--engine", "reference,float64", "--explain"], "--explain take a single --engine"),
    ],
)
def test_bad_usage(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([MLP, *options]) == 2
    assert said in capsys.readouterr().err


def test_a_report_says_what_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    assert main([MLP, "--engine", "shifted:0", "--json", str(report)]) == 0
    assert "  engine: shifted 3.1 (by 0), float32" in capsys.readouterr().out.splitlines()
    assert json.loads(report.read_text())["files"][0]["engine"] == {
        "engine": "shifted",
        "version": "3.1",
        "provider": "by 0",
        "arithmetic": "float32",
        "operators": 0,
        "islands": [],
    }


def test_an_engine_that_is_not_there_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([MLP, "--engine", "missing"]) == 2
    assert capsys.readouterr().out.count("is not installed") == 1


def test_info_lists_islands(capsys: pytest.CaptureFixture[str]) -> None:
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
