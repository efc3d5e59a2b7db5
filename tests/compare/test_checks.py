"""Checks that cannot fail are not passes: hand-made error graphs, tolerances and files that hide a difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun import Bundle, Testcase, Verdict
from loadrun.cli import main
from loadrun.compare.metrics import Formula
from loadrun.compare.results import OutputResult
from loadrun.graph import Graph, StoredTensor, Var
from loadrun.graph.dtypes import DType
from loadrun.graph.params import AssertEqual, Elemwise, ElemwiseMode as M, ReduceMode
from loadrun.ops.catalog import TypeParam
from loadrun.passes.checks import add_check, formula
from tests.support.error_graphs import (
    F16,
    F32,
    I8,
    I16,
    I32,
    RIGHT,
    U8,
    Measure,
    N,
    bundle_of,
    constant,
    elem,
    feed,
    ratio,
    reduced,
    standard,
)


def judged(bundle: Bundle, expect: object, x: object = None) -> OutputResult:
    x = np.arange(1, N + 1, dtype="f4") if x is None else np.asarray(x, "f4")
    bundle.testcases = [Testcase({"x": x, "y:expect": np.asarray(expect, "f4")})]
    (result,) = loadrun.run(bundle)
    assert result.message is None
    return result.outputs[0]


def sliced(g: Graph, v: Var) -> Var:
    """The value without its last element: a product with 1, 1, ..., 0."""
    stored = np.array([1] * (N - 1) + [0], "f4")
    tensor = StoredTensor(F32, (N,), None, stored.view(np.uint8))
    return elem(g, M.MUL, v, g.add("ImmutableTensor", tensors=[tensor])[0])


BLIND: dict[str, Measure] = {
    "scaled away": lambda g, e, y: elem(g, M.MUL, reduced(g, ratio(g, e, y)), constant(g, 1e-6)),
    "multiplied by zero": lambda g, e, y: elem(g, M.MUL, reduced(g, ratio(g, e, y)), constant(g, 0)),
    "another bound than 1": lambda g, e, y: reduced(g, ratio(g, e, y, one=1e9)),
    "a bound of 50": lambda g, e, y: reduced(g, ratio(g, e, y, one=50)),
    "a sum of signed differences": lambda g, e, y: elem(
        g, M.MAX, constant(g, 0), reduced(g, elem(g, M.SUB, e, y), ReduceMode.SUM)
    ),
    "the least difference": lambda g, e, y: reduced(g, ratio(g, e, y), ReduceMode.MIN),
    "a part": lambda g, e, y: reduced(g, ratio(g, sliced(g, e), sliced(g, y))),
    "one sided": lambda g, e, y: reduced(g, elem(g, M.RELU, elem(g, M.SUB, e, y))),
    "rounded away": lambda g, e, y: reduced(g, elem(g, M.FLOOR, ratio(g, e, y))),
    "a difference with itself": lambda g, e, y: reduced(
        g, elem(g, M.SUB, elem(g, M.ADD, e, y), elem(g, M.ADD, e, y))
    ),
}


@pytest.mark.parametrize("name", BLIND)
def test_blind_error_graph_is_not_compared(name: str) -> None:
    right = judged(bundle_of(BLIND[name]), RIGHT)
    assert right.verdict is Verdict.NOT_COMPARED
    assert right.reason is not None
    assert right.reason.startswith("its error graph does not compare: with ")
    wrong = judged(bundle_of(BLIND[name]), [*RIGHT[:-1], -60])
    assert wrong.verdict in (Verdict.NOT_COMPARED, Verdict.FAIL)


def test_error_that_is_an_array_is_refused_by_megengine() -> None:
    """One number is looked at, so an array would hide all others."""
    found = judged(bundle_of(lambda g, e, y: ratio(g, e, y)), [RIGHT[0], *[9] * (N - 1)])
    assert found.verdict is Verdict.NOT_COMPARED
    assert found.reason == "its error has shape 6, but MegEngine requires a single number"


def test_expected_value_that_broadcasts_is_another_shape() -> None:
    for measure in (
        lambda g, e, y: reduced(g, ratio(g, e, y)),
        lambda g, e, y: reduced(g, elem(g, M.MUL, ratio(g, e, y), constant(g, 0.5))),
    ):
        assert judged(bundle_of(measure, shape=(1,)), [-3], [3] * N).verdict is Verdict.FAIL


def graph_with(make: Callable[[Graph, Var, Var], tuple[Var, Var]], maxerr: float = 1e-3) -> Bundle:
    """A check of MegEngine's formula between two variables made of the expected and the computed value."""
    g = Graph()
    e, x = feed(g, "y:expect"), feed(g, "x")
    y = elem(g, M.NEGATE, x)
    a, b = make(g, e, y)
    g.outputs = g.add("AssertEqual", AssertEqual(maxerr=maxerr), inputs=[a, b, standard(g, a, b)])
    return Bundle(g)


SIDES: dict[str, tuple[Callable[[Graph, Var, Var], tuple[Var, Var]], str]] = {
    "computed twice": (lambda g, e, y: (y, y), "compares a value with itself"),
    "expected twice": (lambda g, e, y: (e, e), "compares a value with itself"),
    "a copy": (lambda g, e, y: (y, g.add("Identity", inputs=[y])[0]), "compares a value with itself"),
    "computed from expected": (
        lambda g, e, y: (e, elem(g, M.ADD, e, elem(g, M.MUL, y, constant(g, 0)))),
        "is computed from an expected one",
    ),
    "the same expression": (
        lambda g, e, y: (elem(g, M.ADD, y, constant(g, 2)), elem(g, M.ADD, constant(g, 2), y)),
        "both of its values are computed by the same expression, and none is stored",
    ),
    "the same conversion": (
        lambda g, e, y: (elem(g, M.RELU, y), elem(g, M.RELU, g.add("Identity", inputs=[y])[0])),
        "computed by the same expression",
    ),
    "constants": (lambda g, e, y: (constant(g, 2), constant(g, 2)), "both values are constants"),
}


@pytest.mark.parametrize("name", SIDES)
def test_sides_that_cannot_differ(name: str) -> None:
    make, reason = SIDES[name]
    found = judged(graph_with(make), [7] * N)
    assert found.verdict is Verdict.NOT_COMPARED
    assert found.reason is not None
    assert reason in found.reason


@pytest.mark.parametrize(
    "make",
    [
        lambda g, e, y: (elem(g, M.ADD, y, constant(g, 2)), elem(g, M.ADD, y, constant(g, 3))),
        lambda g, e, y: (elem(g, M.SUB, y, constant(g, 2)), elem(g, M.SUB, constant(g, 2), y)),
        lambda g, e, y: (elem(g, M.RELU, y), elem(g, M.ABS, y)),
    ],
)
def test_sides_that_differ(make: Callable[[Graph, Var, Var], tuple[Var, Var]]) -> None:
    assert judged(graph_with(make), [7] * N).verdict is Verdict.FAIL


def test_constant_against_computed_value_is_compared() -> None:
    made = graph_with(lambda g, e, y: (constant(g, -3, shape=(N,)), y))
    assert judged(made, [0] * N, [3] * N).verdict is Verdict.PASS
    assert judged(made, [0] * N, [4] * N).verdict is Verdict.FAIL


@pytest.mark.parametrize("maxerr", [np.inf, 1e10, 6.5])
def test_absurd_tolerance(maxerr: float) -> None:
    """All of 1 to 6, their negation and zeros are within 6.5 of one another by MegEngine's measure."""
    found = judged(bundle_of(standard, maxerr), RIGHT)
    assert found.verdict is Verdict.NOT_COMPARED
    assert found.reason is not None
    assert "tolerance" in found.reason
    assert judged(bundle_of(standard, 1.9), RIGHT).verdict is Verdict.PASS


def test_values_without_elements() -> None:
    g = Graph()
    e, x = feed(g, "y:expect", (0,)), feed(g, "x", (0,))
    y = elem(g, M.NEGATE, x)
    g.outputs = g.add("AssertEqual", AssertEqual(maxerr=1e-3), inputs=[e, y, standard(g, e, y)])
    bundle = Bundle(g, [Testcase({"x": np.zeros(0, "f4"), "y:expect": np.zeros(0, "f4")})])
    (out,) = loadrun.run(bundle)[0].outputs
    assert (out.verdict, out.reason) == (Verdict.NOT_COMPARED, "the value has no elements")


def test_expected_value_that_no_check_reads() -> None:
    bundle = bundle_of(standard)
    feed(bundle.graph, "z:expect")
    bundle.testcases = [
        Testcase({"x": -RIGHT, "y:expect": RIGHT, "z:expect": np.ones(N, "f4")}),
    ]
    (result,) = loadrun.run(bundle)
    assert [(o.name, o.verdict) for o in result.outputs] == [
        ("y", Verdict.PASS),
        ("z", Verdict.NOT_COMPARED),
    ]
    assert result.outputs[1].reason == "the testcases have an expected value for it, but no check uses it"


def integer_check(dtype: DType, maxerr: float = 1e-4) -> Bundle:
    """``y = x + 0`` with the check that MegEngine writes for integers: FLOOR_DIV, in the integers' own type."""
    g = Graph()
    e, x = feed(g, "y:expect", (2,), dtype), feed(g, "x", (2,), dtype)
    y = elem(g, M.ADD, x, constant(g, 0, dtype))
    err = reduced(g, ratio(g, e, y, 1, dtype, M.FLOOR_DIV))
    g.outputs = g.add("AssertEqual", AssertEqual(maxerr=maxerr), inputs=[e, y, err])
    return Bundle(g)


@pytest.mark.parametrize(
    ("dtype", "expect", "got", "error"),
    [
        (I32, [150, 1], [299, 1], 149 / 150),
        (I16, [150, 1], [299, 1], 149 / 150),
        (I16, [-32768, 1], [32767, 1], 65535 / 32767),
        (I8, [-128, 1], [127, 1], 255 / 127),
        (U8, [0, 1], [255, 1], 255.0),
    ],
)
def test_integers_are_judged_in_real_numbers(
    dtype: DType, expect: list[int], got: list[int], error: float
) -> None:
    bundle = integer_check(dtype)
    assert formula(bundle.checks[0]) is Formula.INTEGER
    bundle.testcases = [Testcase({"x": np.array(got, dtype.np), "y:expect": np.array(expect, dtype.np)})]
    (out,) = loadrun.run(bundle)[0].outputs
    assert out.verdict is Verdict.FAIL
    assert out.error == pytest.approx(error, rel=1e-6)
    bundle.testcases = [Testcase({"x": np.array(got, dtype.np), "y:expect": np.array(got, dtype.np)})]
    assert loadrun.run(bundle)[0].verdict is Verdict.PASS


def test_report_says_that_megengine_would_pass_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = integer_check(I32)
    case = Testcase({"x": np.array([299, 1], "i4"), "y:expect": np.array([150, 1], "i4")})
    loadrun.save(bundle, tmp_path / "i.mge", testcases=[case])
    assert main([str(tmp_path / "i.mge")]) == 1
    shown = capsys.readouterr().out
    assert "off by 149" in shown
    assert "the file's own operators divide whole numbers, give 0 and pass it" in shown


def converted_check(maxerr: float = 1e-4, dtype: DType = I32) -> Bundle:
    """An integer output with loadrun's own check: both sides converted to float32."""
    g = Graph()
    x = feed(g, "x", (2,), dtype)
    (y,) = g.add("Elemwise", Elemwise(mode=M.ADD), inputs=[x, constant(g, 0, dtype)], names=["ids"])
    y.dtype = dtype
    g.outputs = [add_check(g, "ids", y, (2,), maxerr=maxerr, verbose=False)]
    return Bundle(g)


def test_integers_are_shown_and_judged_before_their_conversion() -> None:
    """float32 holds no 16777217."""
    bundle = converted_check(maxerr=0.0)
    values = np.array([16777217, 3], "i4")
    bundle.testcases = [
        Testcase({"x": values, "ids:expect": values}),
        Testcase({"x": values, "ids:expect": np.array([16777216, 3], "i4")}),
    ]
    same, other = loadrun.run(bundle)
    assert same["ids"].dtype == np.int32
    assert same["ids"].tolist() == [16777217, 3]
    assert same.outputs[0].dtype == I32
    assert (same.verdict, other.verdict) == (Verdict.PASS, Verdict.FAIL)
    assert other.outputs[0].comparison is not None
    assert other.outputs[0].comparison.measures.off_by == 1


def test_halves_are_shown_and_judged_before_their_conversion() -> None:
    """From 4 to 4.00390625 is one last place of float16."""
    bundle = converted_check(dtype=DType("Float16"))
    expect = np.array([4.00390625, 3], "f2")
    bundle.testcases = [Testcase({"x": np.array([4, 3], "f2"), "ids:expect": expect})]
    (output,) = loadrun.run(bundle)[0].outputs
    assert output.dtype == DType("Float16")
    assert output.verdict is Verdict.FAIL
    assert output.comparison is not None
    assert output.comparison.measures.ulp == 1


def test_drift_of_integers_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """50004 against 50000 has an error of 8e-05, which a relative tolerance of 1e-4 lets pass."""
    case = Testcase({"x": np.array([50004, 3], "i4"), "ids:expect": np.array([50000, 3], "i4")})
    loadrun.save(converted_check(), tmp_path / "ids.mge", testcases=[case])
    assert main([str(tmp_path / "ids.mge")]) == 0
    assert "off by 4: the check's tolerance is relative, which lets integers drift" in capsys.readouterr().out


def test_exit_code_of_a_file_whose_only_check_is_blind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundle_of(BLIND["multiplied by zero"])
    case = Testcase({"x": -RIGHT, "y:expect": RIGHT})
    loadrun.save(bundle, tmp_path / "b.mge", testcases=[case])
    assert main([str(tmp_path / "b.mge")]) == 3
    assert "not compared: its error graph does not compare" in capsys.readouterr().out


def test_error_graph_in_another_layout_compares() -> None:
    """Layout passes compare reshaped values; that is MegEngine's own formula elsewhere."""

    def reshaped(g: Graph, e: Var, y: Var) -> Var:
        def turned(v: Var) -> Var:
            stored = np.array([2, 3], "i4")
            shape = g.add("ImmutableTensor", tensors=[StoredTensor(I32, (2,), None, stored.view(np.uint8))])[
                0
            ]
            return g.add("ReshapeV1", inputs=[v, shape])[0]

        return reduced(g, ratio(g, turned(e), turned(y)))

    assert judged(bundle_of(reshaped), RIGHT).verdict is Verdict.PASS
    assert judged(bundle_of(reshaped), [*RIGHT[:-1], -6.1]).verdict is Verdict.FAIL


def test_float16_error_follows_the_file() -> None:
    g = Graph()
    e, x = feed(g, "y:expect", (N,), F16), feed(g, "x", (N,), F16)
    y = elem(g, M.NEGATE, x)
    err = reduced(g, ratio(g, e, y, 1, F16))
    g.outputs = g.add("AssertEqual", AssertEqual(maxerr=1e-2), inputs=[e, y, err])
    bundle = Bundle(g)
    assert formula(bundle.checks[0]) is Formula.NARROW
    bundle.testcases = [Testcase({"x": (-RIGHT).astype("f2"), "y:expect": RIGHT.astype("f2")})]
    assert loadrun.run(bundle)[0].verdict is Verdict.PASS


def test_converted_expected_value_is_still_one() -> None:
    g = Graph()
    e, x = feed(g, "y:expect", (N,), F16), feed(g, "x")
    y = elem(g, M.NEGATE, x)
    (wide,) = g.add("TypeCvtV2", TypeParam(dtype=F32), inputs=[e])
    g.outputs = g.add("AssertEqual", AssertEqual(maxerr=1e-2), inputs=[wide, y, standard(g, wide, y)])
    bundle = Bundle(g, [Testcase({"x": -RIGHT, "y:expect": RIGHT.astype("f2")})])
    assert loadrun.run(bundle)[0].verdict is Verdict.PASS


@pytest.mark.parametrize("what", ["fewer", "rubbish", "broken dump"])
def test_damaged_end(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(Path("fixtures/nets/mlp.mge").read_bytes())
    said = {
        "fewer": "the header claims 1 testcase(s), 2 more are not replayed",
        "rubbish": "7 bytes at the end belong to no dump and are ignored",
        "broken dump": "the data after the last dump cannot be read: ",
    }[what]
    if what == "fewer":
        data[8:12] = (1).to_bytes(4, "little")
    else:
        data += b"rubbish" if what == "rubbish" else data[:200]
    path = tmp_path / "d.mge"
    path.write_bytes(data)
    code = 3 if what == "fewer" else 0
    assert main([str(path)]) == code
    shown = capsys.readouterr().out
    assert f"warning: {said}" in shown
    assert "1 file, " in shown
    assert main([str(path), "-q"]) == code
    assert f"warning: {said}" in capsys.readouterr().out
    assert main([str(path), "--strict", "damage"]) == 2
    assert said in capsys.readouterr().out
