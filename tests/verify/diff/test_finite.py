"""What is not finite, or beyond a dtype, is named first, and agreement of infinities acquits nobody."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.cli import main
from loadrun.engines.wide import WideEngine
from loadrun.graph import Graph, Var
from loadrun.graph.dtypes import DType
from loadrun.graph.params import Reduce, ReduceMode
from loadrun.ops.catalog import TypeParam
from loadrun.testing import GraphBuilder
from loadrun.verify.diff import StoredValues, between
from loadrun.verify.diff.watching import overflowed
from loadrun.verify.pack.capture import embed

HALF, F32 = DType("Float16"), DType("Float32")
MANY = 262_144


def cast(b: GraphBuilder, x: Var, dtype: DType, name: str) -> Var:
    return b.add("TypeCvtV2", TypeParam(dtype=dtype), inputs=[x], name=name)


def total(dtype: DType = HALF) -> Graph:
    """y = 1 / sum(x), added up in a type of few bits."""
    b = GraphBuilder()
    small = cast(b, b.input("x", MANY), dtype, "small")
    added = b.add("ReduceV2", Reduce(mode=ReduceMode.SUM, axis=0), inputs=[small], name="added")
    return b.done(b.elemwise("TRUE_DIV", b.const(1.0), cast(b, added, F32, "wide"), name="y"))


ONES = {"x": np.ones(MANY, "f4")}


@pytest.mark.parametrize("dtype", [HALF, pytest.param(DType("BFloat16"), marks=pytest.mark.slow)])
def test_every_value_is_computed_in_float64(dtype: DType) -> None:
    """262,144 ones are that many, in whatever type the model adds them up; float16 ends at 65,504."""
    graph = total(dtype)
    (y,) = WideEngine(graph).run(ONES)
    assert y.tolist() == [1 / MANY]
    found = between(graph, "float64", ONES)
    if dtype == HALF:
        assert [r.var.name for r in found.roots] == ["added"]
        (finding,) = found.findings
        assert (finding.var.name, finding.what, finding.value) == ("added", "beyond float16", MANY)


def test_a_conversion_to_few_bits_keeps_all_of_them() -> None:
    b = GraphBuilder()
    graph = b.done(cast(b, cast(b, b.input("x", 2), HALF, "half"), F32, "y"))
    x = np.array([1 / 3, 1e5], "f4")
    assert WideEngine(graph).run({"x": x})[0].tolist() == x.astype("f8").tolist()
    found = between(graph, "float64", {"x": x})
    assert [(f.var.name, f.value) for f in found.findings] == [("half", 1e5)]
    # 1/3 in 11 bits is as near as they can be.
    assert between(graph, "float64", {"x": x[:1].repeat(2)}).agree


@pytest.mark.slow
def test_what_leaves_the_range_is_told_where_a_testcase_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = total()
    bundle = loadrun.Bundle(graph, testcases=[loadrun.Testcase(dict(ONES))])
    loadrun.save(bundle, tmp_path / "plain.mge")
    assert main(["diff", str(tmp_path / "plain.mge"), "--json", str(tmp_path / "d.json")]) == 1
    out = capsys.readouterr().out
    assert "what is beyond the range of float16 begins at ReduceV2 'added'" in out
    (said,) = json.loads((tmp_path / "d.json").read_text())["findings"]
    assert (said["variable"], said["what"], said["value"]) == ("added", "beyond float16", MANY)
    checked = embed(bundle, [loadrun.Testcase({**ONES, "y:expect": np.array([1 / MANY], "f4")})], 1e-9)
    loadrun.save(checked, tmp_path / "checked.mge")
    assert main([str(tmp_path / "checked.mge"), "--explain"]) == 1
    out = capsys.readouterr().out
    assert "what is beyond the range of float16 begins at ReduceV2 'added'" in out
    assert "so the arithmetic is right" not in out


def overflowing(last: Callable[[GraphBuilder, Var], Var]) -> Graph:
    """The exponential of 1000 is infinite in float32."""
    b = GraphBuilder()
    return b.done(last(b, b.elemwise("EXP", b.input("x", 3), name="grown")))


X = {"x": np.array([1, 1000, 2], "f4")}


def test_where_infinity_begins_is_told_without_being_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both sides overflow alike: nothing differs, and nothing was shown."""
    graph = overflowing(lambda b, v: b.elemwise("SQRT", v, name="y"))
    loadrun.save(loadrun.Bundle(graph, testcases=[loadrun.Testcase(dict(X))]), tmp_path / "m.mge")
    loadrun.save(loadrun.Bundle(graph, testcases=[loadrun.Testcase(dict(X))]), tmp_path / "n.mge")
    assert main(["diff", str(tmp_path / "m.mge"), str(tmp_path / "n.mge")]) == 3
    out = capsys.readouterr().out
    assert (
        "infinity begins at Elemwise 'grown' (operator 1): 1 of 3 elements of 'grown', first at [1]: inf"
        in out
    )
    assert "all of them agree; the model's outputs were not all compared" in out


def test_no_operator_is_blamed_for_what_it_makes_of_infinities() -> None:
    """The same infinity on both sides need not come from the same number."""
    graph = overflowing(lambda b, v: b.elemwise("COS", v, name="y"))
    grown = np.array([np.exp(1.0), np.inf, np.exp(2.0)], "f4")
    there = StoredValues([("grown", grown), ("y", np.array([0.5, np.nan, 0.5], "f4"))])
    (root,) = between(graph, there, X).roots
    assert (root.var.name, root.changes) == (
        "grown",
        ("it is not finite on both sides, so what follows cannot be compared",),
    )
    # What is another operator before anything runs is to blame all the same.
    other = overflowing(lambda b, v: b.elemwise("SIN", v, name="y"))
    assert [r.var.name for r in between(graph, other, X).roots] == ["y"]


def test_infinities_of_a_mask_are_what_the_model_means() -> None:
    def masked(mode: str) -> Graph:
        b = GraphBuilder()
        sum_ = b.elemwise("ADD", b.input("x", 3), b.const([0.0, -np.inf, 0.0]), name="masked")
        return b.done(b.elemwise(mode, sum_, name="y"))

    feeds = {"x": np.array([1, 2, 3], "f4")}
    found = between(masked("EXP"), masked("EXP"), feeds)
    assert (found.agree, found.outputs_agree) == (True, True)
    assert overflowed(found.graph, found.rows, feeds) == set()
    wrong = StoredValues([("masked", np.array([1, -np.inf, 3], "f4")), ("y", np.ones(3, "f4"))])
    assert [r.var.name for r in between(masked("EXP"), wrong, feeds).roots] == ["y"]
