"""Rewriting newer operators for older runtimes, against numbers and dumps that MegEngine wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import UsageError
from loadrun.cli import main
from loadrun.compare.record import header
from loadrun.dump.options import DumpOptions
from loadrun.graph import Graph
from loadrun.graph.params import Elemwise, ElemwiseMode
from loadrun.passes.older import for_older, newer
from loadrun.runner import Verdict
from loadrun.testcase import Bundle
from loadrun.verify.pack.packing import Packer
from loadrun.verify.pack.unpacking import mismatches
from tests.support.fixture_files import FIXTURES
from tests.support.small_models import unary

CASES = {
    "nets": {"FBS_V2": 11, "FBS": 22},
    "ops/elemwise": {"FBS_V2": 61, "FBS": 61},
    "ops/elemwise_multi": {"FBS_V2": 12, "FBS": 12},
    "ops/norm": {"FBS_V2": 16, "FBS": 28},
    "ops/attention": {"FBS": 15},
}
"""How many files of a folder have operators that are newer than a format's runtimes."""
ROUNDED = ("prelu_int32", "square_int32")
"""MegEngine's kernel of int32 products, which stand in for these, rounds large ones to float32."""


def titles(graph: Graph) -> set[str]:
    return {o.title for o in graph.needed()}


def written_by_megengine(name: str) -> Graph:
    return loadrun.load(next((FIXTURES / "ops").rglob(f"rewritten_{name}.mge"))).graph


@pytest.mark.parametrize("folder", CASES)
def test_rewritten_graphs_give_the_recorded_numbers(folder: str) -> None:
    seen = dict.fromkeys(CASES[folder], 0)
    for path in sorted((FIXTURES / folder).glob("*.mge")):
        bundle = loadrun.load(path)
        if path.name.startswith("xfail_") or not bundle.checks or "Dropout" in titles(bundle.graph):
            continue
        for format in seen:
            if newer(bundle.graph, format):
                seen[format] += 1
                rewritten(path, bundle, format)
    assert seen == CASES[folder]


def rewritten(path: Path, bundle: Bundle, format: str) -> None:
    made = for_older(bundle.graph, format)
    assert not newer(made, format)
    results = loadrun.run(Bundle(made, bundle.testcases))
    rounded = path.stem.partition(".")[0] in ROUNDED
    assert (Verdict.FAIL in {r.verdict for r in results}) == rounded, path.name
    assert {r.verdict for r in results} <= {Verdict.PASS, Verdict.FAIL}, path.name


@pytest.mark.parametrize(
    ("name", "modes"),
    [
        ("sqrt", "POW"),
        ("relu6", "MAX MIN"),
        ("hsigmoid", "ADD MAX MIN TRUE_DIV"),
        ("prelu", "MIN MAX FUSE_MUL_ADD3"),
        ("softplus", "ABS NEGATE EXP LOG1P RELU ADD"),
        ("logsigmoid", "ABS NEGATE EXP LOG1P RELU ADD"),
        ("tan", "SIN COS TRUE_DIV"),
    ],
)
def test_operators_that_megengine_writes(name: str, modes: str) -> None:
    """Where the formula is MegEngine's, so are the operators that a runtime needs."""
    found = [p for p in (FIXTURES / "ops/elemwise").glob(f"{name}_float32*.mge") if ".v1" not in p.name]
    made = for_older(loadrun.load(found[0]).graph)
    assert set(modes.split()) <= titles(made)
    check = {
        "SUB",
        "ABS",
        "MIN",
        "MAX",
        "TRUE_DIV",
        "ImmutableTensor",
        "Host2DeviceCopy",
        "ReduceV2",
        "AssertEqual",
    }
    assert titles(made) - check <= titles(written_by_megengine(name))


@pytest.mark.parametrize(
    ("mode", "x", "want"),
    [
        # Where MegEngine 1.13.0 writes something else: the opposite sign, and infinity from the cancelled sum.
        (ElemwiseMode.SIGN, [-2.5, 0, 3], [-1, 0, 1]),
        (ElemwiseMode.ASINH, [-1e4, -1, 1e-6], [-9.903487555036127, -0.881373587019543, 1e-6]),
        (ElemwiseMode.ASINH, [-1e30, np.inf, 1e10], [-69.77069997038098, np.inf, 23.71899811050042]),
        (ElemwiseMode.ACOSH, [1, 1.0001, 100], [0, 0.014142017775615126, 5.298292365610484]),
        (ElemwiseMode.ACOSH, [1e30, np.inf, 2], [69.77069997038098, np.inf, 1.3169578969248166]),
        (ElemwiseMode.ATANH, [-0.5, 1e-6, 0.5], [-0.5493061443340548, 1e-6, 0.5493061443340548]),
        (ElemwiseMode.COSH, [1e-3, -2, 100], [1.0000005000000417, 3.7621956910836314, np.inf]),
        (ElemwiseMode.SINH, [1e-6, 1, -3], [1e-6, 1.1752011936438014, -10.017874927409903]),
        (ElemwiseMode.SOFTPLUS, [-50, 0, 50], [1.9287498479639178e-22, 0.6931471805599453, 50]),
    ],
)
def test_values(mode: ElemwiseMode, x: list[float], want: list[float]) -> None:
    made = for_older(unary(mode))
    got = loadrun.run(Bundle(made), {"x": np.array([x], "f4")})[0]["y"]
    np.testing.assert_allclose(got[0], want, rtol=2e-4 if mode is ElemwiseMode.ACOSH else 1e-6, atol=1e-30)


def test_names_stay() -> None:
    made = for_older(unary(ElemwiseMode.SIGN))
    assert [v.name for v in made.outputs] == ["y"]
    assert list(loadrun.run(Bundle(made), {"x": np.ones((1, 3), "f4")})[0].outputs[0].shape) == [1, 3]


def test_statistics_that_are_read_stay() -> None:
    """An operator of several outputs is rewritten when only its first is in use."""
    graph = loadrun.load(FIXTURES / "ops/norm/group_norm_three_outputs.mge").graph
    assert "GroupNorm" in titles(for_older(graph))


def test_options(tmp_path: Path) -> None:
    out = tmp_path / "o.mge"
    graph = unary(ElemwiseMode.SQRT)
    for options, found in (
        (DumpOptions(), "SQRT"),
        (DumpOptions(no_change_graph=True), "SQRT"),
        (DumpOptions(no_change_graph=False), "POW"),
        (DumpOptions(compat_older_version="8.14"), "POW"),
        (DumpOptions(no_change_graph=False, dump_format="FBS", keep_var_name=2, keep_opr_name=True), "POW"),
    ):
        loadrun.save(graph, out, options)
        assert found in titles(loadrun.load(out).graph)
    assert titles(graph) == {"Host2DeviceCopy", "SQRT"}, "the source stays"
    with pytest.raises(UsageError, match="which no_change_graph forbids"):
        DumpOptions(compat_older_version="8.14", no_change_graph=True)


def test_softmax_stays_in_v2(tmp_path: Path) -> None:
    """MegEngine rewrites it in version 1 files alone, whose runtimes are older."""
    bundle = loadrun.load(FIXTURES / "ops/attention/softmax_axism1.mge")
    for format, there in (("FBS_V2", True), ("FBS", False)):
        options = DumpOptions(dump_format=format, no_change_graph=False)
        loadrun.save(bundle, tmp_path / "o.mge", options)
        found = loadrun.load(tmp_path / "o.mge")
        assert ("Softmax" in titles(found.graph)) == there
        assert {r.verdict for r in loadrun.run(found)} == {Verdict.PASS}


def test_dropout() -> None:
    """The rewritten form drops as many and scales the rest alike; which ones is for a runtime's own numbers."""
    path = FIXTURES / "ops/rng/dropout.mge"
    bundle = loadrun.load(path)
    made = for_older(bundle.graph, "FBS")
    assert "Dropout" not in titles(made)
    (name, tensor), *_ = ((v.name, v.owner.tensors[0]) for v in bundle.inputs)
    assert tensor.shape is not None
    ones = {str(name): np.ones((100, *tensor.shape[1:]), tensor.dtype.np)}
    was, now = (loadrun.run(Bundle(g), ones)[0]["y"] for g in (bundle.graph, made))
    np.testing.assert_allclose(np.unique(now), np.unique(was), rtol=1e-6)
    assert abs(float((now == 0).mean()) - float((was == 0).mean())) < 0.05


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = tmp_path / "m.mge", tmp_path / "o.mge"
    loadrun.save(unary(ElemwiseMode.SQRT), model)
    argv = ["pack", str(model), "-d", "#full(9)", "-o", str(out)]
    assert main([*argv, "--no-change-graph"]) == 0
    assert "SQRT" in titles(loadrun.load(out).graph)
    assert main([*argv, "--change-graph"]) == 0
    found = loadrun.load(out)
    assert "SQRT" not in titles(found.graph)
    assert found.testcases[0].expects["y"].tolist() == [[3.0] * 3] * 2
    assert main([str(out), "-v"]) == 0
    assert "all digests agree" in capsys.readouterr().out


def test_a_rewritten_file_keeps_its_record(tmp_path: Path) -> None:
    """The digest is that of what was written; a wrong one is not made right."""
    first, second = tmp_path / "a.mge", tmp_path / "b.mge"
    packer = Packer(Bundle(unary(ElemwiseMode.SQRT)), warn=print)
    packer.pack([{"x": np.ones((2, 3), "f4")}], first)
    loadrun.save(loadrun.load(first), second, DumpOptions(no_change_graph=False))
    assert list(mismatches(loadrun.load(second))) == []
    damaged = loadrun.load(first)
    (sqrt,) = (o for o in damaged.graph.oprs if o.title == "SQRT")
    sqrt.params = (Elemwise(mode=ElemwiseMode.SQUARE),)
    loadrun.save(damaged, second, DumpOptions(no_change_graph=False))
    assert "not the one that was packed" in next(mismatches(loadrun.load(second)))
    record = loadrun.load(second).record
    assert isinstance(record, memoryview)
    assert header(record)["policy"]["y"]["maxerr"] == pytest.approx(1e-4)
