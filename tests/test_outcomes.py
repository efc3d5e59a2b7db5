"""One verdict for a file on every surface: table, -q, many files, JSON, JUnit, HTML, pytest, verify, exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun import Bundle, Testcase, Verdict
from loadrun.base.errors import UsageError
from loadrun.cli import main
from loadrun.compare.policy import parse
from loadrun.graph import Graph, StoredTensor, Var
from loadrun.graph.dtypes import DType
from loadrun.graph.params import AssertEqual, Elemwise, ElemwiseMode, ReduceMode
from loadrun.verify.pack.options import PackOptions
from loadrun.verify.pack.packing import Packer
from loadrun.verify.saved import ResultWriter, judge_saved, read_saved
from tests.support.error_graphs import F16, RIGHT, bundle_of, elem, feed, ratio, reduced, standard
from tests.support.forks import python
from tests.support.small_models import unary

ROOT = Path(__file__).resolve().parent.parent
MLP = ROOT / "fixtures" / "nets" / "mlp.mge"


def sum_of_differences(path: Path) -> None:
    """Every value is off by 3, and the sum of the signed differences is 0."""
    bundle = bundle_of(
        lambda g, e, y: elem(g, ElemwiseMode.ABS, reduced(g, elem(g, ElemwiseMode.SUB, e, y), ReduceMode.SUM))
    )
    expect = RIGHT + np.array([3, -3, 3, -3, 3, -3], "f4")
    loadrun.save(bundle, path, testcases=[Testcase({"x": -RIGHT, "y:expect": expect})])


def unread(path: Path) -> None:
    """A check that passes, and an expected value of ``z`` that none reads."""
    bundle = bundle_of(standard)
    z = feed(bundle.graph, "z:expect")
    bundle.graph.outputs.append(
        bundle.graph.add("Elemwise", Elemwise(mode=ElemwiseMode.NEGATE), inputs=[z], names=["spare"])[0]
    )
    case = Testcase({"x": -RIGHT, "y:expect": RIGHT, "z:expect": np.ones(6, "f4")})
    loadrun.save(bundle, path, testcases=[case])


def lost_check(path: Path) -> None:
    """The output ``z`` is there and so is its expected value, but its AssertEqual is gone."""
    bundle = bundle_of(standard)
    expect = feed(bundle.graph, "z:expect")
    y = bundle.checks[0].get
    z = bundle.graph.add("Elemwise", Elemwise(mode=ElemwiseMode.NEGATE), inputs=[y], names=["z"])[0]
    bundle.graph.outputs += [z, bundle.graph.add("Identity", inputs=[expect], names=["spare"])[0]]
    case = Testcase({"x": -RIGHT, "y:expect": RIGHT, "z:expect": np.ones(6, "f4")})
    loadrun.save(bundle, path, testcases=[case])


def fewer(path: Path) -> None:
    """Three testcases, of which the header announces one."""
    data = bytearray(MLP.read_bytes())
    data[8:12] = (1).to_bytes(4, "little")
    path.write_bytes(data)


def without_checks(path: Path) -> None:
    """A plain model."""
    loadrun.save(unary(), path)


def inputs_alone(path: Path) -> None:
    """Testcases without expected values."""
    case = {"x": np.ones((1, 3), np.float32)}
    Packer(Bundle(unary()), PackOptions(no_assert=True), warn=lambda _: None).pack([case], path)


SILENT: dict[str, tuple[Callable[[Path], None], str]] = {
    "sum": (
        sum_of_differences,
        "its error graph gives 0 and lets it pass, but MegEngine's formula gives 3",
    ),
    "unread": (unread, "the testcases have an expected value for it, but no check uses it"),
    "lost": (lost_check, "the testcases have an expected value for it, but no check uses it"),
    "fewer": (fewer, "the header claims 1 testcase(s), 2 more are not replayed"),
    "plain": (without_checks, "there is nothing to compare it with"),
    "inputs": (inputs_alone, "there is nothing to compare it with"),
}


def pytest_run(folder: Path, name: str) -> tuple[int, str]:
    """What the plugin makes of a file."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
    plugins = ["-p", "no:loadrun", "-p", "loadrun.testing.plugin", "-p", "no:cacheprovider"]
    argv = [*python(), "-m", "pytest", *plugins, name, "-q"]
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("what", SILENT)
def test_not_compared_is_so_on_every_surface(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, reason = SILENT[what]
    make(tmp_path / "m.mge")
    path = str(tmp_path / "m.mge")
    names = {n: str(tmp_path / f"r.{n}") for n in ("json", "junit", "html", "zip")}
    reports = ["--json", names["json"], "--junit", names["junit"], "--html", names["html"]]
    assert main([path, *reports, "--output", names["zip"]]) == 3
    shown = capsys.readouterr().out
    if "nothing to compare" not in reason:
        assert reason in shown
    assert "not compared" in shown.splitlines()[-1] or "nothing compared" in shown.splitlines()[-1]

    assert main([path, "-q"]) == 3
    quiet = capsys.readouterr().out
    assert re.search(r"m\.mge: not compared: .", quiet)
    assert reason in quiet or "nothing was compared" in quiet

    assert main([path, *[str(MLP)] * 5]) == 3
    many = capsys.readouterr().out
    assert re.search(r"^not compared +\S*m\.mge", many, re.M)

    (file,) = json.loads(Path(names["json"]).read_text())["files"]
    assert file["verdict"] == "not compared"
    assert json.loads(Path(names["json"]).read_text())["exit_code"] == 3
    suite = ET.parse(names["junit"]).getroot()
    assert int(suite.attrib["failures"]) == 1
    (failure,) = suite.iter("failure")
    assert reason in failure.attrib["message"]
    html = Path(names["html"]).read_text()
    assert "badge not-compared" in html
    assert "class='total fail'" in html
    assert main([names["zip"], "-q"]) == 3
    assert main([path, "-q"]) == 3
    capsys.readouterr()

    code, out = pytest_run(tmp_path, "m.mge")
    assert code == 1, out
    assert "1 failed" in out
    assert "compared" in out

    # What is wanted is no failure, but no pass either.
    assert main([path, "-q", "--allow-uncompared", "--junit", names["junit"], "--json", names["json"]]) == 0
    wanted = ET.parse(names["junit"]).getroot()
    assert (int(wanted.attrib["failures"]), int(wanted.attrib["errors"])) == (0, 0)
    report = json.loads(Path(names["json"]).read_text())["files"][0]
    outputs = [o["verdict"] for case in report["testcases"] for o in case["outputs"]]
    skipped = sum(int(suite.attrib["skipped"]) for suite in wanted)
    assert skipped == (outputs.count("not compared") or 1), (
        "a file of which only the whole was not compared is one"
    )
    assert json.loads(Path(names["json"]).read_text())["files"][0]["verdict"] == "not compared"


def test_an_audit_does_not_call_such_a_check_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sum_of_differences(tmp_path / "m.mge")
    assert main(["audit", str(tmp_path / "m.mge")]) != 0
    assert "MegEngine's formula gives 3" in capsys.readouterr().out


def test_values_in_another_layout_are_contradicted_too() -> None:
    """The graph reshapes the expected value and adds signed differences up; the values differ in any order."""

    def mean(g: Graph, e: Var, y: Var) -> Var:
        stored = np.array([6], "i4")
        tensor = StoredTensor(DType("Int32"), (1,), None, stored.view(np.uint8))
        turned = g.add("ReshapeV1", inputs=[e, g.add("ImmutableTensor", tensors=[tensor])[0]])[0]
        return elem(g, ElemwiseMode.ABS, reduced(g, elem(g, ElemwiseMode.SUB, turned, y), ReduceMode.SUM))

    bundle = bundle_of(mean, shape=(3, 2))
    for far, verdict in ((0, Verdict.PASS), (30, Verdict.NOT_COMPARED)):
        expect = RIGHT + np.array([far, -far] * 3, "f4")
        bundle.testcases = [Testcase({"x": -RIGHT, "y:expect": expect.reshape(3, 2)})]
        (result,) = loadrun.run(bundle)
        assert result.verdict is verdict
    # In order, -36, -34, -32, 25, 27, 29 lie beside -6, -5, -4, -3, -2, -1: |29 + 1| is the largest.
    assert "MegEngine's formula gives 30 for the same values" in (result.outputs[0].reason or "")


def test_what_float16_rounds_away_is_no_contradiction() -> None:
    """3 + 2**-9 against 3: 2**-9 / 3 is 0.000651, in float16 a little less, and that is the tolerance."""
    expect, got = np.float16(3), np.float16(3 + 2.0**-9)
    narrow = np.float16((got - expect) / np.float16(3))
    assert float(narrow) < 2.0**-9 / 3
    g = Graph()
    e, x = feed(g, "y:expect", (1,), F16), feed(g, "x", (1,), F16)
    y = elem(g, ElemwiseMode.NEGATE, x)
    err = reduced(g, ratio(g, e, y, 1, F16))
    g.outputs = g.add("AssertEqual", AssertEqual(maxerr=float(narrow)), inputs=[e, y, err])
    bundle = Bundle(g, [Testcase({"x": np.array([-got]), "y:expect": np.array([expect])})])
    assert loadrun.run(bundle)[0].verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("terms", "verdict"),
    [("exact", Verdict.FAIL), ("cosine>=0.9", Verdict.NOT_COMPARED), ("maxerr<=2", Verdict.PASS)],
)
def test_a_violated_policy_fails_whatever_the_tolerance(terms: str, verdict: Verdict) -> None:
    """Values are off by 1 to 2 by MegEngine's measure, the file's own tolerance is 1e10."""
    bundle = bundle_of(standard, 1e10)
    bundle.testcases = [Testcase({"x": -RIGHT, "y:expect": RIGHT - 1.5})]
    (result,) = loadrun.Runner(bundle, policies={"y": parse(terms)}).replay()
    assert result.verdict is verdict


def test_a_policy_of_an_output_without_expected_value_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundle_of(standard)
    y = bundle.checks[0].get
    z = bundle.graph.add("Elemwise", Elemwise(mode=ElemwiseMode.NEGATE), inputs=[y], names=["z"])[0]
    bundle.graph.outputs.append(z)
    path = str(tmp_path / "m.mge")
    loadrun.save(bundle, path, testcases=[Testcase({"x": -RIGHT, "y:expect": RIGHT})])
    assert main([path, "-q"]) == 0
    assert main([path, "-q", "--check", "z: exact"]) == 2
    assert "for the output 'z', but there is no expected value of it" in capsys.readouterr().err
    assert main([path, "-q", "--check", "y: exact"]) == 0
    assert main([path, "-q", "--input", "x:[1,2,3,4,5,6]", "--check", "y: exact"]) == 2
    assert main([path, "--output", str(tmp_path / "r.zip"), "-q"]) == 0
    assert main([str(tmp_path / "r.zip"), "-q", "--check", "z: exact"]) == 2
    with pytest.raises(UsageError, match="no expected value"):
        loadrun.check(lambda x: {"y": -x, "z": x}, path, policies={"z": parse("exact")})


@pytest.mark.parametrize(("size", "code"), [(1, 3), (3, 3), (5, 0), (7, 0)])
def test_expected_rows_that_are_cut_off_are_no_pass(
    size: int, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second testcase of this net has five rows, the first has one."""
    junit = str(tmp_path / "r.xml")
    assert main([str(MLP), "-q", "--batch-size", str(size), "--junit", junit]) == code
    said = f"the first {size} of 5 expected rows were run (--batch-size {size})"
    assert (said in capsys.readouterr().out) == (code == 3)
    assert (int(ET.parse(junit).getroot().attrib["failures"]) > 0) == (code == 3)


def test_quiet_shows_a_second_dump_that_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = MLP.read_bytes()
    path = tmp_path / "cut.mge"
    path.write_bytes(whole + whole[: len(whole) // 2])
    for argv in ([str(path), "-q"], [str(path), str(MLP), "-q"], [str(path)]):
        assert main(argv) == 0
        assert "warning: the data after the last dump cannot be read: " in capsys.readouterr().out
    code, out = pytest_run(tmp_path, "cut.mge")
    assert code == 0
    assert "PytestWarning: cut.mge: the data after the last dump cannot be read" in out


def test_a_record_that_cannot_be_read_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It may have held a policy."""
    path = tmp_path / "p.mge"
    argv = ["pack", str(MLP), "--replace", "-d", "#rand(0,1)", "--check", "exact", "-o", str(path), "-q"]
    assert main(argv) == 0
    data = path.read_bytes()
    at = data.rindex(b"loadrun\x01") + 16
    path.write_bytes(data[:at] + b"x" + data[at + 1 :])
    capsys.readouterr()
    assert main([str(path), "-q"]) == 2
    assert "error: the record after the testcases is damaged" in capsys.readouterr().out


@pytest.mark.parametrize("source", ["nets/mlp.mge", "nets/mlp.v1.mge", "onnx/names/model.onnx"])
def test_what_is_edited_is_written(source: str, tmp_path: Path) -> None:
    """In place nothing can be changed, since it is not there the next time; a value of one's own is kept."""
    bundle = loadrun.load(ROOT / "fixtures" / source)
    names = list(bundle.testcases[0].arrays)
    before = {n: a.copy() for n, a in bundle.testcases[0].arrays.items()}
    for name in names:
        with pytest.raises(ValueError, match="read-only"):
            bundle.testcases[0].arrays[name] += 1
        with pytest.raises(ValueError, match="read-only"):
            bundle.testcases[0].arrays[name][...] = 0
        np.testing.assert_array_equal(bundle.testcases[0].arrays[name], before[name])
    expected = next(n for n in names if n.endswith(":expect"))
    assert loadrun.run(bundle)[0].verdict is Verdict.PASS
    bundle.testcases[0].arrays[expected] = before[expected] + 1
    assert loadrun.run(bundle)[0].verdict is Verdict.FAIL
    loadrun.save(bundle, tmp_path / "edited.mge")
    again = loadrun.load(tmp_path / "edited.mge").testcases[0].arrays
    np.testing.assert_array_equal(again[expected], before[expected] + 1)
    np.testing.assert_array_equal(again[names[0]], before[names[0]])


@pytest.mark.parametrize(
    ("name", "fault"), [("y", "of another dtype"), ("z", "the model has no such output")]
)
def test_saved_results_keep_what_fails_whatever_is_computed(name: str, fault: str, tmp_path: Path) -> None:
    bundle = bundle_of(standard)
    case = Testcase({"x": -RIGHT, "y:expect": RIGHT}, faults={name: fault})
    bundle = Bundle(bundle.graph, [case])
    (result,) = loadrun.Runner(bundle).replay()
    with open(tmp_path / "r.zip", "wb") as f:
        writer = ResultWriter(f)
        writer.begin("m.onnx")
        writer.add(result)
        writer.close()
    (saved,) = read_saved(tmp_path / "r.zip")
    (again,) = judge_saved(saved)
    assert result.verdict is again.verdict is Verdict.FAIL
    (failed,) = (o for o in again.outputs if o.verdict is Verdict.FAIL)
    assert (failed.name, failed.notes) == (name, (fault,))
