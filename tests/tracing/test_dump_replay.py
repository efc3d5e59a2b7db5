"""`trace.dump` with input data replays what it wrote; what optimization may not change so that it would not hold."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.megengine.functional as F
from loadrun.base.errors import FormatError
from loadrun.graph import Graph
from loadrun.tensors import tensor
from loadrun.tracing import Traced, trace

X = np.random.default_rng(0).uniform(-4, 4, (3, 5)).astype(np.float32)


def traced(f: Callable[..., Any], x: np.ndarray[Any, Any] = X) -> Traced:
    t: Traced = trace(f, symbolic=True, capture_as_const=True)
    t(x.copy())
    return t


def replayed(file: io.BytesIO) -> list[str]:
    return [r.verdict.value for r in loadrun.run(loadrun.loads(file.getvalue()))]


def other(graph: Graph, **_: object) -> tuple[Graph, int]:
    """What no optimization should do: the outputs' constants are others."""
    for opr in graph.oprs:
        for t in opr.tensors:
            if opr.type == "ImmutableTensor" and t.data is not None and t.value().tolist() == [3.0]:
                t.data = np.array([5.0], np.float32).view(np.uint8)
    return graph, 0


def test_what_does_not_hold_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    t = traced(lambda x: {"y": x * 3})
    monkeypatch.setattr("loadrun.tracing.writing.optimize_for_inference", other)
    for target in (io.BytesIO(), tmp_path / "a.mge"):
        with pytest.warns(UserWarning, match="the written file fails its checks: y of testcase 0"):
            t.dump(target, input_data=["#rand(1,2)"])
    t.dump(tmp_path / "b.mge", input_data=["#rand(1,2)"], replay=False)
    results = loadrun.run(loadrun.load(tmp_path / "b.mge"))
    assert results[0].outputs[0].error == pytest.approx(2 / 3)


def test_what_does_not_run_is_not_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    t = traced(lambda x: {"y": x * 3})
    path = tmp_path / "a.mge"
    path.write_bytes(b"old")
    monkeypatch.setattr("loadrun.verify.pack.files.Runner", _Failing)
    file = io.BytesIO(b"old")
    for target in (path, file):
        with pytest.raises(FormatError, match="would not run, so it was not written"):
            t.dump(target, input_data=["#rand(1,2)"])
    assert (path.read_bytes(), file.getvalue()) == (b"old", b"old")
    assert [p.name for p in tmp_path.iterdir()] == ["a.mge"]


class _Failing:
    def __init__(self, *args: object, **kwargs: object) -> None:
        raise FormatError("nothing runs")


def test_an_open_file_is_written_from_where_it_stands(tmp_path: Path) -> None:
    t = traced(lambda x: {"y": x * 3})
    for append in (False, True):
        with (tmp_path / "a.mge").open("w+b") as f:
            f.write(b"head")
            result = t.dump(f, input_data=["#rand(1,2)"], append=append)
        held = (tmp_path / "a.mge").read_bytes()
        assert held[:4] == b"head"
        assert len(held) == 4 + result.tot_bytes
        assert replayed(io.BytesIO(held[4:])) == ["pass"]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.round(x, 1)[:, ::-1] // 0.3,
        lambda x: np.floor(np.round(x, 1) / 0.7),
        lambda x: np.ceil(x / 3 / 7),
    ],
)
def test_quotients_stay_where_a_step_follows(f: Callable[..., Any]) -> None:
    # Tenths and their multiples: one ulp decides.
    x = (np.arange(-60, 60).reshape(2, 60) / np.float32(10)).astype(np.float32)
    t, file = traced(lambda x: {"y": f(x)}, x), io.BytesIO()
    t.dump(file, input_data=["#rand(-5,5,50,60)"])
    assert replayed(file) == ["pass"]
    got = loadrun.run(loadrun.loads(file.getvalue()), {"arg_0": x})[0].outputs[0].value
    np.testing.assert_array_equal(got, f(x.copy()))


@pytest.mark.parametrize("shape", [(2, 8), (5, 4), (1, 1), (7, 3)])
@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.filterwarnings("ignore:input 'arg_0' has shape")
def test_the_first_testcase_may_have_any_shape(shape: tuple[int, int], optimize: bool) -> None:
    t = traced(lambda x: {"y": np.sqrt(x * x + 1), "n": x.sum(axis=0) * x.shape[1]}, np.ones((2, 4), "f4"))
    file = io.BytesIO()
    specs = [f"#rand(0,1,{n},{m})" for n, m in (shape, (3, 2))]
    t.dump(file, input_data=specs, optimize_for_inference=optimize)
    bundle = loadrun.loads(file.getvalue())
    assert replayed(file) == ["pass", "pass"]
    x = bundle.testcases[0].arrays["arg_0"].astype("f8")
    assert x.shape == shape
    np.testing.assert_allclose(bundle.testcases[0].arrays["y:expect"], np.sqrt(x * x + 1), rtol=1e-6)
    np.testing.assert_allclose(bundle.testcases[0].arrays["n:expect"], x.sum(axis=0) * shape[1], rtol=1e-6)
    held = {v.name: v.owner.tensors[0].shape for v in bundle.graph.inputs}
    assert held == {"arg_0": (2, 4), "y:expect": (2, 4), "n:expect": (4,)}


def test_an_output_whose_shape_the_data_decide_is_checked() -> None:
    t: Traced = trace(lambda x: {"y": x[x > 1] * 2}, symbolic=True, capture_as_const=True)
    t(tensor(X))
    file = io.BytesIO()
    t.dump(file, input_data=["#rand(0,2)"])
    assert replayed(file) == ["pass"]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.concatenate([x, np.zeros((0, 3), "f4")]) * 2,
        lambda x: x * 2 + np.take(x, np.zeros(0, "i4"), 0).sum(),
        lambda x: x * 2 + (np.zeros((0, 3), "f4") * x.sum()).sum(0),
    ],
)
@pytest.mark.parametrize("optimize", [True, False])
def test_no_stored_tensor_and_no_elementwise_operator_is_empty(f: Callable[..., Any], optimize: bool) -> None:
    """MegEngine asserts ``value.initialized()`` and ``!dev_tensor().empty()`` on them."""
    x = X[:, :3]
    file = io.BytesIO()
    traced(lambda x: {"y": f(x)}, x).dump(file, input_data=["#rand(0,1)"], optimize_for_inference=optimize)
    bundle = loadrun.loads(file.getvalue())
    assert [o.type for o in bundle.graph.oprs for t in o.tensors if 0 in (t.shape or ())] == []
    assert replayed(file) == ["pass"]
    np.testing.assert_allclose(loadrun.run(bundle, {"arg_0": x})[0].outputs[0].value, 2 * x, rtol=1e-6)


def test_what_traced_sizes_make_empty_is_told() -> None:
    def central(x: Any) -> Any:
        return np.concatenate([x[:1], (x[2:] - x[:-2]) / 2, x[-1:]])

    t = traced(lambda x: {"y": central(x)}, X[:2])
    file = io.BytesIO()
    with pytest.warns(UserWarning, match="SUB in .*gives no elements at the traced.*on larger inputs"):
        t.dump(file)
    # At other sizes the same file runs, and gives what numpy gives.
    got = loadrun.run(loadrun.loads(file.getvalue()), {"arg_0": X})[0].outputs[0].value
    np.testing.assert_allclose(got, central(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("f", "told"),
    [
        (lambda x: F.reshape(x[5:], (-1, 2)) * 2, "it can run the dump only on larger inputs"),
        (lambda x: x[2:2] + 1, "it cannot run the dump on such inputs or on a batch 16 times as large"),
        (lambda x: x[x > 100] + 1, ""),
        (lambda x: F.sum(x[5:]), ""),
        (lambda x: F.concat([x[5:], x]), ""),
    ],
)
def test_what_is_said_of_empty_values_is_what_megengine_does(f: Callable[..., Any], told: str) -> None:
    """MegEngine 1.13 on four rows: asserts in the first two, and in the second on 8 and 64 rows; the others run."""
    t = trace(f, symbolic=True, capture_as_const=True)
    t(loadrun.Tensor(np.arange(8, dtype=np.float32).reshape(4, 2)))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        t.dump(io.BytesIO())
    assert [told in str(w.message) for w in found] == ([True] if told else [])
