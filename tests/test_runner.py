"""Verdicts: what passes, what fails, what was never compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun import Bundle, InputError, Testcase, Verdict
from loadrun.graph import Graph, StoredTensor, Var
from loadrun.graph.dtypes import DType
from loadrun.graph.params import AssertEqual, Elemwise, ElemwiseMode, Host2DeviceCopy, Reduce, ReduceMode

F32 = DType("Float32")


def feed(graph: Graph, name: str, shape: tuple[int, ...]) -> Var:
    return graph.add(
        "Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, shape, name)], names=[name]
    )[0]


def constant(graph: Graph, values: list[float]) -> Var:
    data = np.array(values, "<f4")
    tensor = StoredTensor(F32, data.shape, None, data.view(np.uint8))
    return graph.add("ImmutableTensor", tensors=[tensor])[0]


def elemwise(graph: Graph, mode: ElemwiseMode, *inputs: Var) -> Var:
    return graph.add("Elemwise", Elemwise(mode=mode), inputs=inputs)[0]


def checked(maxerr: float = 0.1, *, err: str = "standard") -> Bundle:
    """y = -x with a check, its err graph as MegEngine writes it, constant, or from expect alone."""
    g = Graph()
    expect, x = feed(g, "y:expect", (3,)), feed(g, "x", (3,))
    (y,) = g.add("Elemwise", Elemwise(mode=ElemwiseMode.NEGATE), inputs=[x], names=["y"])
    one = constant(g, [1.0])
    if err == "constant":
        measure = constant(g, [0.0])
    else:
        top = elemwise(g, ElemwiseMode.ABS, elemwise(g, ElemwiseMode.SUB, expect, y))
        smaller = elemwise(
            g, ElemwiseMode.MIN, elemwise(g, ElemwiseMode.ABS, expect), elemwise(g, ElemwiseMode.ABS, y)
        )
        ratio = elemwise(g, ElemwiseMode.TRUE_DIV, top, elemwise(g, ElemwiseMode.MAX, smaller, one))
        if err in ("halved", "doubled"):
            factor = {"halved": 0.5, "doubled": 2.0}[err]
            ratio = elemwise(g, ElemwiseMode.MUL, ratio, constant(g, [factor]))
        (measure,) = g.add("ReduceV2", Reduce(mode=ReduceMode.MAX), inputs=[ratio, ones(g)])
    g.outputs = g.add("AssertEqual", AssertEqual(maxerr=maxerr), inputs=[expect, y, measure])
    return Bundle(g)


def ones(graph: Graph) -> Var:
    data = np.array([1], "<i4")
    return graph.add(
        "ImmutableTensor", tensors=[StoredTensor(DType("Int32"), (1,), None, data.view(np.uint8))]
    )[0]


def case(x: list[float], expect: list[float]) -> Testcase:
    return Testcase({"x": np.array(x, "f4"), "y:expect": np.array(expect, "f4")})


def judge(bundle: Bundle, testcase: Testcase) -> loadrun.Result:
    bundle.testcases = [testcase]
    (result,) = loadrun.run(bundle)
    return result


@pytest.mark.parametrize("err", ["standard", "halved"])
def test_pass(err: str) -> None:
    result = judge(checked(err=err), case([1, 2, 3], [-1, -2, -3]))
    assert result.verdict is Verdict.PASS
    assert result.outputs[0].name == "y"
    assert result.outputs[0].error == 0


def test_error_measure() -> None:
    """|−2.5 − −2| / max(1, min(2.5, 2)) = 0.25, and elements below 1 count absolutely."""
    result = judge(checked(0.25), case([1, 2.5, 0.25], [-1, -2, -0.125]))
    assert result.outputs[0].error == 0.25
    assert result.verdict is Verdict.PASS
    assert judge(checked(0.2499), case([1, 2.5, 0.25], [-1, -2, -0.125])).verdict is Verdict.FAIL


def test_worst_element_is_reported() -> None:
    result = judge(checked(), case([1, 2, 3], [-1, -2, -4]))
    (out,) = result.outputs
    assert out.comparison is not None
    assert out.comparison.worst_index == (2,)
    assert (out.comparison.expected.worst, out.comparison.got.worst) == (-4.0, -3.0)


@pytest.mark.parametrize(("x", "expect"), [(np.nan, 1.0), (1.0, np.nan), (np.nan, np.nan), (np.inf, -np.inf)])
def test_non_finite_values_fail(x: float, expect: float) -> None:
    assert judge(checked(), case([x, 1, 1], [expect, -1, -1])).verdict is Verdict.FAIL


def test_constant_error_cannot_hide_a_difference() -> None:
    same = judge(checked(err="constant"), case([1, 2, 3], [-1, -2, -3]))
    assert same.verdict is Verdict.NOT_COMPARED
    assert same.outputs[0].reason == "its error is not computed from both values"
    assert judge(checked(err="constant"), case([1, 2, 3], [9, 9, 9])).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("err", "maxerr", "factor", "verdict"),
    [
        ("doubled", 0.7, 2, Verdict.PASS),
        ("doubled", 0.6, 2, Verdict.FAIL),
        ("halved", 0.4, 0.5, Verdict.PASS),
        ("halved", 0.3, 0.5, Verdict.NOT_COMPARED),
        ("halved", 0.1, 0.5, Verdict.FAIL),
    ],
)
def test_own_error_graph_can_only_be_stricter(
    err: str, maxerr: float, factor: float, verdict: Verdict
) -> None:
    """A file may measure otherwise, here a third times a factor; what MegEngine's formula fails is no pass."""
    result = judge(checked(maxerr, err=err), case([2, 1, 1], [-1.5, -1, -1]))
    assert result.outputs[0].error == pytest.approx(0.5 / 1.5 * factor, rel=1e-6)
    assert result.verdict is verdict
    if verdict is Verdict.NOT_COMPARED:
        assert result.outputs[0].reason == (
            "its error graph gives 0.166667 and lets it pass, "
            "but MegEngine's formula gives 0.333333 for the same values"
        )


def test_other_shape_fails() -> None:
    assert judge(checked(), case([1], [-1, -1, -1])).verdict is Verdict.FAIL


def test_failing_testcase_does_not_stop_the_others() -> None:
    bundle = checked()
    bundle.testcases = [
        case([1, 2, 3], [1, 2, 3]),
        Testcase({"x": np.zeros(3, "f4")}),
        Testcase({"x": np.zeros(3, "i4"), "y:expect": np.zeros(3, "f4")}),
        case([1, 2, 3], [-1, -2, -3]),
    ]
    verdicts = [r.verdict for r in loadrun.run(bundle)]
    assert verdicts == [Verdict.FAIL, Verdict.ERROR, Verdict.ERROR, Verdict.PASS]


def test_testcases_of_several_batch_sizes() -> None:
    bundle = checked()
    bundle.testcases = [case([1.0] * n, [-1.0] * n) for n in (3, 1, 7)]
    results = loadrun.run(bundle)
    assert [r.outputs[0].shape for r in results] == [(3,), (1,), (7,)]
    assert {r.verdict for r in results} == {Verdict.PASS}


def test_unchecked_output_says_so() -> None:
    bundle = checked()
    y = bundle.checks[0].get
    bundle.graph.outputs.append(bundle.graph.add("Elemwise", Elemwise(), inputs=[y], names=["z"])[0])
    result = judge(bundle, case([1, 2, 3], [-1, -2, -3]))
    assert [(o.name, o.verdict) for o in result.outputs] == [("y", Verdict.PASS), ("z", Verdict.NOT_COMPARED)]
    assert result.verdict is Verdict.PASS


def test_run_on_given_inputs() -> None:
    bundle = checked()
    (result,) = loadrun.run(bundle, {"x": np.array([1, 2], "f8")})
    np.testing.assert_array_equal(result["y"], np.array([-1, -2], "f4"))
    assert result.verdict is Verdict.NOT_COMPARED


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "no value was given for the input 'x'"),
        ({"z": np.zeros(3)}, "no input 'z'; its inputs are x"),
        ({"x": np.zeros((2, 3), "f4")}, r"has shape \[3\], the given array has \[2, 3\]"),
        ({"x": np.array([1j, 2, 3])}, "holds values that do not fit"),
    ],
)
def test_bad_inputs(inputs: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError, match=message):
        loadrun.run(checked(), inputs)


def test_runs_repeat_and_do_not_change_what_was_given() -> None:
    x = np.array([1, 2, 3], "f4")
    runner = loadrun.Runner(checked())
    first = runner.run({"x": x})["y"].copy()
    np.testing.assert_array_equal(runner.run({"x": x})["y"], first)
    np.testing.assert_array_equal(x, [1, 2, 3])


def test_file_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        loadrun.run(tmp_path / "no.mge")


def test_random_inputs_have_a_limit() -> None:
    graph = Graph()
    held = StoredTensor(DType("Float32"), (2**27 + 1,), "x")
    (x,) = graph.add("Host2DeviceCopy", Host2DeviceCopy(), names=["x"], tensors=[held])
    graph.outputs = graph.add("Elemwise", Elemwise(mode=ElemwiseMode.NEGATE), inputs=[x], names=["y"])
    with pytest.raises(InputError, match=r"134217729 random values, and no more than 134217728 .*--input"):
        loadrun.Runner(Bundle(graph)).run()
