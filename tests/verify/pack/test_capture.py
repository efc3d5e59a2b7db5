"""Ground truth: captured values, and checks made of them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import loadrun
from loadrun.compare.metrics import Formula
from loadrun.graph.dtypes import DType
from loadrun.graph.params import Elemwise, ElemwiseMode
from loadrun.passes.checks import formula
from loadrun.passes.constants import bare, subgraph
from loadrun.runner import Verdict
from loadrun.verify.pack.capture import Recorder, capture, embed
from tests.support.small_models import F32, X, unary

MLP = "fixtures/nets/mlp.mge"


def test_capture() -> None:
    case = capture(unary(), {"x": X}, seed=7)
    assert list(case.arrays) == ["x", "y:expect"]
    assert case.expects["y"].tolist() == [[-1, 2, -3], [-4, -5, 6]]
    assert case.dtypes == {"x": F32, "y:expect": F32}
    assert case.provenance["seed"] == 7
    assert {"engine", "loadrun", "numpy", "time"} <= set(case.provenance)


def test_time_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert capture(unary(), {"x": X}).provenance["time"] == "1970-01-02T00:00:00Z"


def test_recorder_takes_other_shapes_and_safe_dtypes() -> None:
    recorder = Recorder(unary())
    assert recorder.capture({"x": X}).expects["y"].shape == (2, 3)
    assert recorder.capture({"x": np.ones((5, 3), "i4")}).expects["y"].tolist() == [[-1] * 3] * 5
    with pytest.raises(loadrun.InputError, match="no value was given for the input 'x'"):
        recorder.capture({})
    with pytest.raises(loadrun.InputError, match="the model has no input 'z'"):
        recorder.capture({"x": X, "z": X})
    with pytest.raises(loadrun.InputError, match="expected arrays by input name, found ndarray"):
        recorder.capture(X)  # type: ignore[arg-type]
    if np.lib.NumpyVersion(np.__version__) >= "1.24.0":
        # Older numpy makes an array of lists, with a warning.
        with pytest.raises(
            loadrun.InputError, match=r"value for the input 'x' is not an array: .*inhomogeneous"
        ):
            recorder.capture({"x": [[1, 2], [3]]})  # type: ignore[dict-item]


def test_megengine_recorded_the_same() -> None:
    """The expected values of the fixture were computed by MegEngine."""
    bundle = loadrun.load(MLP)
    recorder = Recorder(bundle)
    for case in bundle.testcases:
        np.testing.assert_allclose(
            recorder.capture(case.inputs).expects["out"], case.expects["out"], rtol=0, atol=1e-6
        )


@pytest.mark.parametrize("silent", [False, True])
def test_embedded_checks_are_megengines(silent: bool) -> None:
    bundle = embed(unary(), [capture(unary(), {"x": X})], 0.5, silent=silent)
    (check,) = bundle.checks
    assert formula(check) is Formula.REAL
    assert (check.name, check.maxerr, check.verbose) == ("y", 0.5, not silent)
    assert [v.name for v in bundle.graph.inputs] == ["x", "y:expect"]
    bundle.testcases[0].arrays["y:expect"][0, 0] = -2
    (result,) = loadrun.run(bundle)
    assert result.verdict is Verdict.FAIL
    assert result.outputs[0].error == 1.0, "|-2 - -1| / max(1, min(2, 1))"


@pytest.mark.parametrize(
    "dtype",
    [
        *(DType(n) for n in ("Bool", "Uint8", "Int8", "Int16", "Uint16", "Int32", "Float16", "BFloat16")),
        *(DType(n, 0.5) for n in ("QuantizedS8", "QuantizedS32", "QuantizedS4")),
        *(DType(n, 0.5, 3) for n in ("Quantized8Asymm", "Quantized4Asymm")),
    ],
    ids=str,
)
def test_every_dtype(dtype: DType) -> None:
    """Conversions hide neither the output's own dtype nor a difference."""
    model = unary(ElemwiseMode.ABS, dtype)
    case = capture(model, {"x": X})
    bundle = embed(model, [case], 0)
    assert formula(bundle.checks[0]) is Formula.REAL
    assert [r.verdict for r in loadrun.run(bundle)] == [Verdict.PASS]
    out = loadrun.Runner(bundle).run({"x": X}).outputs[0]
    assert (out.name, out.dtype) == ("c", dtype)
    value = case.arrays["c:expect"]
    value[0, 1] = ~value[0, 1] if dtype.name == "Bool" else value[0, 1] + 1
    assert [r.verdict for r in loadrun.run(embed(model, [case], 0))] == [Verdict.FAIL]


def test_same_output_twice() -> None:
    model = unary()
    model.outputs *= 2
    bundle = embed(model, [capture(model, {"x": X})], {"y#2": 0.25})
    assert [(c.name, c.maxerr) for c in bundle.checks] == [("y", 1e-4), ("y#2", 0.25)]
    assert loadrun.run(bundle)[0].verdict is Verdict.PASS


def test_zero_size_output_is_left_unchecked() -> None:
    model = unary()
    (z,) = model.add("Elemwise", Elemwise(mode=ElemwiseMode.ABS), inputs=[model.outputs[0]], names=["z"])
    model.outputs.append(z)
    said: list[str] = []
    bundle = embed(model, [capture(model, {"x": X[:0]})], warn=said.append)
    assert said[:2] == [f"output {n!r} has no elements, so it gets no check" for n in "yz"]
    assert said[2:] == ["input 'x' has no elements; MegEngine cannot read such a testcase"]
    assert list(bundle.outputs) == ["y", "z"]
    assert not bundle.checks
    assert loadrun.run(bundle)[0].verdict is Verdict.NOT_COMPARED


def test_nonfinite_ground_truth_warns() -> None:
    model = unary(ElemwiseMode.LOG)
    with pytest.warns(UserWarning, match="output 'y' holds NaN, so its check fails"):
        embed(model, [capture(model, {"x": X})])
    with pytest.warns(UserWarning, match="output 'y' holds infinity, so its check fails"):
        embed(model, [capture(model, {"x": X * 0})])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        embed(model, [capture(model, {"x": abs(X)})])


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), 1e39, {"y": -0.5}])
def test_tolerances_are_finite_and_not_negative(bad: float | dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"maxerr must be a finite number >= 0, found .* for the output 'y'"):
        embed(unary(), [capture(unary(), {"x": X})], bad)


def test_tolerance_of_an_unknown_output() -> None:
    with pytest.raises(ValueError, match="maxerr names the output 'z'; the outputs are 'y'"):
        embed(unary(), [capture(unary(), {"x": X})], {"z": 1})


def test_no_assert() -> None:
    bundle = embed(loadrun.load(MLP), [capture(unary(), {"x": X})], no_assert=True)
    assert (bundle.checks, list(bundle.testcases[0].arrays)) == ([], ["x"])


def test_values_that_are_missing() -> None:
    case = capture(unary(), {"x": X})
    with pytest.raises(loadrun.InputError, match="at least one testcase"):
        embed(unary(), [])
    del case.arrays["y:expect"]
    with pytest.raises(loadrun.InputError, match="has no value for the output 'y'"):
        embed(unary(), [case])


def test_bare_model() -> None:
    bundle = loadrun.load(MLP)
    graph = bare(bundle)
    assert [v.name for v in graph.inputs] == ["data"]
    assert [v.name for v in graph.outputs] == ["out"]
    assert len(bundle.graph.oprs) - len(graph.oprs) == 12, "the check, its ten operators and its input"
    assert bundle.checks, "the source stays as it is"
    again = embed(graph, [capture(graph, bundle.testcases[0].inputs)])
    assert len(again.graph.oprs) == len(bundle.graph.oprs)


def test_input_named_like_an_expected_value() -> None:
    model = unary()
    model.oprs[0].outputs[0].name = model.oprs[0].tensors[0].name = "x:expect"
    with pytest.raises(loadrun.LoadRunError, match="computes with its input 'x:expect'"):
        embed(model, [capture(unary(), {"x": X})])


def test_subgraph_keeps_what_is_needed() -> None:
    model = unary(to=DType("Int32"))
    part, known = subgraph(model, [model.oprs[1].outputs[0]])
    assert [o.type for o in part.oprs] == ["Host2DeviceCopy", "Elemwise"]
    assert part.outputs == [known[1]]
    assert part.oprs[0].tensors[0] is not model.oprs[0].tensors[0]


def test_input_that_is_an_output_under_another_name() -> None:
    model = unary()
    model.outputs = [model.oprs[0].outputs[0]]
    bundle = embed(model, [capture(model, {"x": X})])
    for opr in bundle.graph.oprs:
        if opr.outputs[0].name == "x:expect":
            opr.outputs[0].name = opr.tensors[0].name = "y:expect"
    graph = bare(bundle)
    assert [v.name for v in graph.inputs] == ["x"]
    again = embed(graph, [capture(graph, {"x": X})])
    assert [c.name for c in again.checks] == ["y"]
    assert loadrun.run(again)[0].verdict is Verdict.PASS
