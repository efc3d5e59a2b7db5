"""What passes leave of the checks that a graph holds: the same question, in float16 where the graph computes in it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.megengine.functional as F
from loadrun.compare.metrics import Formula
from loadrun.graph import Graph, StoredTensor, params as P
from loadrun.graph.dtypes import DType, encode
from loadrun.ops.catalog import TypeParam
from loadrun.passes.checks import formula
from loadrun.passes.inference import simplify
from loadrun.testcase import Testcase
from loadrun.tracing import trace

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "negated": (lambda x: -(x * 3), lambda x: -3 * x),
    "absolute": (lambda x: F.abs(x - 0.5), lambda x: abs(x - 0.5)),
    "absolute of negated": (lambda x: F.abs(-x), abs),
    "negated and absolute": (lambda x: (-x, F.abs(-x)), lambda x: -x),
    "logarithm of the sigmoid": (F.logsigmoid, lambda x: -np.log1p(np.exp(-x))),
    "largest": (lambda x: F.maximum(x, -x), abs),
    "sum of constants": (lambda x: x + 1 + 2, lambda x: x + 3),
    "whole": (lambda x: (x * 5).astype("int32"), lambda x: np.trunc(x * 5)),
    "beside a constant": (lambda x: (x * 2, loadrun.tensor([1.0, 2.0]) * -2), lambda x: x * 2),
}
HALF = ("enable_io16xc32", "enable_ioc16")


def dumped(f: Callable[[Any], Any], **options: Any) -> loadrun.Bundle:
    t = trace(f, symbolic=True, capture_as_const=True)
    t(loadrun.tensor(X))
    file = io.BytesIO()
    t.dump(file, arg_names=["x"], input_data=["#rand(-1,1,seed=1)"], **options)
    return loadrun.loads(file.getvalue())


def wrong(bundle: loadrun.Bundle, name: str, change: float) -> loadrun.Bundle:
    """The same file with other expected values of one output."""
    (case,) = bundle.testcases
    arrays = {
        n: a + np.asarray(change).astype(a.dtype) if n == f"{name}:expect" else a
        for n, a in case.arrays.items()
    }
    bundle.testcases = [Testcase(arrays, case.dtypes)]
    return bundle


@pytest.mark.parametrize("name", FUNCTIONS)
def test_optimized_dumps_ask_megengine_formula(name: str) -> None:
    f, numpy_f = FUNCTIONS[name]
    bundle = dumped(f)
    assert {formula(c) for c in bundle.checks} == {Formula.REAL}
    (result,) = loadrun.run(bundle)
    assert {o.verdict.value for o in result.outputs} == {"pass"}
    x = bundle.testcases[0].arrays["x"].astype(np.float64)
    np.testing.assert_allclose(result.outputs[0].value, numpy_f(x), rtol=1e-5, atol=1e-6)
    first = bundle.checks[0].name
    (changed,) = loadrun.run(wrong(bundle, first, 1))
    assert next(o.verdict.value for o in changed.outputs) == "fail"


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("level", [1, 2, 3])
def test_simplified_files_ask_megengine_formula(name: str, level: int) -> None:
    bundle = dumped(FUNCTIONS[name][0], optimize_for_inference=False)
    bundle.graph = simplify(bundle.graph, level)
    assert {formula(c) for c in bundle.checks} == {Formula.REAL}
    assert loadrun.run(bundle)[0].verdict.value == "pass"


@pytest.mark.parametrize("flag", HALF)
def test_float16_dumps_measure_in_float16(flag: str) -> None:
    """MegEngine passes the doubled values: what float16 keeps of both sides is the same."""
    bundle = dumped(lambda x: x * 2, **{flag: True})
    assert [formula(c) for c in bundle.checks] == [Formula.NARROW]
    (result,) = loadrun.run(bundle)
    (output,) = result.outputs
    case = bundle.testcases[0]
    (expect,) = (a for n, a in case.arrays.items() if n.endswith(":expect"))
    # Rounding the input alone is an error of more than the tolerance, in float32.
    exact = abs(expect - case.arrays["x"].astype("f2") * np.float16(2)).max()
    assert exact > 1e-4
    assert (output.verdict.value, output.error) == ("pass", 0.0)
    assert output.value is not None
    np.testing.assert_array_equal(output.value, (case.arrays["x"] * 2).astype("f2"))


@pytest.mark.parametrize("flag", HALF)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_float16_errors_are_those_of_the_formula_in_float16(name: str, flag: str) -> None:
    bundle = dumped(FUNCTIONS[name][0], maxerr=0.01, **{flag: True})
    assert {formula(c) for c in bundle.checks} <= {Formula.NARROW, Formula.REAL}
    (result,) = loadrun.run(bundle)
    for output in result.outputs:
        assert output.verdict.value == "pass"
        if output.value is None or output.value.dtype != np.float16:
            continue
        expect, get = bundle.testcases[0].arrays[f"{output.name}:expect"].astype("f2"), output.value
        one = np.float16(1)
        error = np.max(abs(expect - get) / np.maximum(one, np.minimum(abs(expect), abs(get))))
        assert output.error == pytest.approx(float(error), abs=1e-7)


def test_float16_files_that_widen_what_they_check_are_asked_as_they_are() -> None:
    """Such files computed the error in float16 and named the float32 value as the computed one."""
    graph = Graph()
    half, full = DType("Float16"), DType("Float32")

    def given(name: str) -> Any:
        stored = StoredTensor(full, (3,), name)
        return graph.add("Host2DeviceCopy", P.Host2DeviceCopy(), names=[name], tensors=[stored])[0]

    def converted(v: Any, dtype: Any) -> Any:
        return graph.add("TypeCvtV2", TypeParam(dtype=dtype), inputs=[v])[0]

    def constant(value: Any, dtype: Any) -> Any:
        held = encode(np.array([value], dtype.np), dtype)
        return graph.add("ImmutableTensor", tensors=[StoredTensor(dtype, (1,), None, held)])[0]

    expect, x = given("y:expect"), given("x")
    a, b = converted(expect, half), converted(x, half)
    (gap,) = graph.add("Elemwise", P.Elemwise(mode=P.ElemwiseMode.SUB), inputs=[a, b])
    (gap,) = graph.add("Elemwise", P.Elemwise(mode=P.ElemwiseMode.ABS), inputs=[gap])
    one = constant(1, DType("Int32"))
    (err,) = graph.add("ReduceV2", P.Reduce(mode=P.ReduceMode.MAX), inputs=[gap, one])
    check = P.AssertEqual(maxerr=1e-4)
    graph.outputs = graph.add("AssertEqual", check, inputs=[expect, converted(b, full), converted(err, full)])
    values = np.array([0.1, 0.2, 0.3], np.float32)
    bundle = loadrun.Bundle(graph, [Testcase({"x": values, "y:expect": values})])
    (result,) = loadrun.run(bundle)
    assert (result.verdict.value, result.outputs[0].error) == ("pass", 0.0)
    bundle.testcases = [Testcase({"x": values, "y:expect": values + np.float32(0.01)})]
    assert loadrun.run(bundle)[0].verdict.value == "fail"
