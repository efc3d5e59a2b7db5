"""`trace`: recording, later calls, what is refused. Expected values are computed by hand or by numpy."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import EngineError
from loadrun.tensors import Tensor, TracedInt, tensor
from loadrun.tracing import TraceError, exclude_from_trace, is_tracing, trace

MODES = [{"symbolic": s, "capture_as_const": c} for s in (False, True) for c in (False, True)]


def told(error: BaseException) -> str:
    """Join a message and its notes."""
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


@pytest.mark.parametrize("options", MODES)
def test_calls_agree_with_numpy_at_every_batch_size(options: dict[str, bool]) -> None:
    w = tensor([1.0, 2.0, 3.0])

    @trace(**options)
    def f(x: Tensor, *, k: int) -> dict[str, object]:
        y = x * w + 1
        return {"a": y, "b": [y * x.shape[0], k], "c": (y,)}

    for n in (2, 2, 4, 1):
        x = np.random.default_rng(n).random((n, 3), np.float32)
        found = f(tensor(x), k=5)
        want = x * np.array([1, 2, 3], np.float32) + 1
        np.testing.assert_array_equal(found["a"].numpy(), want)
        np.testing.assert_array_equal(found["b"][0].numpy(), want * n)
        assert found["b"][1] == 5
        assert isinstance(found["c"], tuple)


@pytest.mark.parametrize("options", MODES)
def test_a_later_call_computes_nothing_in_python(
    options: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    f = trace(lambda x: x * 2 + 1, **options)
    f(tensor([1.0]))
    monkeypatch.setattr("loadrun.tensors.applying.execute", None)
    monkeypatch.setattr("loadrun.tracing.recording.execute", None)
    assert f(tensor([4.0])).numpy().tolist() == [9.0]


def test_ndarrays_come_back_as_ndarrays_and_scalars_stay_scalars() -> None:
    f = trace(lambda x, y: (x + y, x * y), symbolic=True)
    for _ in range(2):
        total, product = f(np.float32([1, 2]), np.array([3.0, 4.0], np.float32))
        assert isinstance(total, np.ndarray)
        assert total.tolist() == [4, 6]
        assert product.tolist() == [3, 8]
    g = trace(lambda x: x * 2, symbolic=True)
    for _ in range(2):
        assert g(tensor(3.0)).shape == ()
        assert g(tensor(3.0)).item() == 6


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("a + b + c", "a + b - c", "operator mismatch"),
        ("a + b + 1", "a + b + 2", "tensors not equals"),
        ("((a + b), (b + c))[0]", "a + b", "mismature end"),
        ("a + b + c", "c + (a + b)", "expect internal node, got external"),
        ("a + b + c", "a + b + c + c", "too many instructions"),
        ("(a + b, b + c)[1] + a", "(a + b, b + c)[0] + a", "input id mismatch"),
    ],
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_another_path_is_refused_with_both_lines(
    first: str, second: str, reason: str, symbolic: bool
) -> None:
    a, b = tensor([1, 2]), tensor([5, 6])
    c = tensor([9, 0])
    other = False

    @trace(symbolic=symbolic)
    def f(a: Tensor, b: Tensor) -> Tensor:
        if other:
            return eval(second)
        return eval(first)

    names = {"a": a, "b": b, "c": c}
    globals()["c"] = c
    want = eval(first, names).numpy()
    np.testing.assert_array_equal(f(a, b).numpy(), want)
    other = True
    with pytest.raises(TraceError, match=f"trace error because {reason}"):
        f(a, b)
    other = False
    np.testing.assert_array_equal(f(a, b).numpy(), want)


def test_the_message_shows_the_recorded_and_the_present_line() -> None:
    plus = True

    @trace
    def f(x: Tensor) -> Tensor:
        if plus:
            y = x + 1
        else:
            y = x - 1
        return y

    f(tensor([1]))
    plus = False
    with pytest.raises(TraceError) as e:
        f(tensor([1]))
    text = told(e.value)
    assert "SUB where ADD was recorded" in text
    assert "`y = x - 1`" in text
    assert "`y = x + 1`" in text
    assert "test_trace.py" in text


def test_an_exception_leaves_no_recording_and_no_active_trace() -> None:
    fail = True

    @trace(symbolic=True)
    def f(x: Tensor) -> Tensor:
        y = x + 1
        if fail:
            raise KeyError("stop")
        return y * 2

    x = tensor([1.0])
    with pytest.raises(KeyError, match="stop"):
        f(x)
    assert not is_tracing()
    assert f.recording is None
    fail = False
    assert f(x).item() == 4
    fail = True
    with pytest.raises(KeyError, match="stop"):
        f(x)
    fail = False
    assert f(tensor([2.0])).item() == 6


def test_a_captured_tensor_is_read_anew_unless_it_is_a_constant() -> None:
    w = tensor([2.0])
    free, fixed = trace(lambda x: x * w), trace(lambda x: x * w, capture_as_const=True)
    x = tensor([3.0])
    assert free(x).item() == fixed(x).item() == 6
    w[...] = tensor([5.0])
    assert free(x).item() == 15
    with pytest.raises(TraceError, match="tensors not equals"):
        fixed(x)


@pytest.mark.parametrize("symbolic", [False, True])
def test_values_can_be_read_and_decide_within_the_function(symbolic: bool) -> None:
    seen: list[float] = []

    @trace(symbolic=symbolic)
    def f(x: Tensor) -> Tensor:
        y = x * 2
        seen.append(y.item())
        return y + 1

    assert [f(tensor([v])).item() for v in (1.0, 2.0, 3.0)] == [3, 5, 7]
    assert seen == [2, 4, 6]


@pytest.mark.parametrize("symbolic", [False, True])
def test_excluded_regions_run_in_every_call(symbolic: bool) -> None:
    i = 0

    @trace(symbolic=symbolic)
    def f(x: Tensor) -> Tensor:
        x = -x
        with exclude_from_trace():
            assert not is_tracing()
            if i % 2:
                x = x * 10
        return -x

    for i in range(4):
        assert f(tensor([1 + i])).item() == (1 + i) * (10 if i % 2 else 1)


def test_an_excluded_region_cannot_be_dumped() -> None:
    @trace(capture_as_const=True)
    def f(x: Tensor) -> Tensor:
        with exclude_from_trace():
            y = x * 2
        return y + x

    f(tensor([1.0]))
    with pytest.raises(TraceError, match=r"leaves a region out of the trace in test_trace\.py"):
        f.dump("nowhere.mge")


def test_record_only_executes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("executed")

    monkeypatch.setattr("loadrun.tracing.recording.execute", refuse)
    monkeypatch.setattr("loadrun.tracing.recording.execute", refuse)
    f = trace(lambda x: x * 2 + 1, record_only=True)
    y = f(tensor([1.0]))
    with pytest.raises(RuntimeError, match="its value was not kept"):
        y.numpy()
    monkeypatch.undo()
    path = f"{tmp_path}/f.mge"
    f.dump(path, arg_names=["x"], output_names=["y"], input_data="#rand(0,1)")
    assert loadrun.run(path)[0].verdict.value == "pass"


def test_record_only_refuses_a_decision_on_data() -> None:
    f = trace(lambda x: x if (x * 2).item() > 1 else -x, record_only=True)
    with pytest.raises(TraceError, match="record_only=True computes nothing"):
        f(tensor([1.0]))


def test_without_host_python_runs_once() -> None:
    calls = []

    @trace(without_host=True, symbolic=True)
    def f(a: Tensor, b: Tensor) -> list[Tensor]:
        calls.append(1)
        return [a + b, (a * b,)]

    for k in (1.0, 2.0, 3.0):
        total, (product,) = f(tensor([k]), tensor([4.0]))
        assert total.item() == k + 4
        assert product.item() == 4 * k
    assert len(calls) == 1


def test_without_host_refuses_tensors_from_nowhere() -> None:
    const = tensor([8.0])
    f = trace(lambda a: a + const, without_host=True)
    with pytest.raises(TraceError, match=r"unknown input tensors .* `capture_as_const=True`"):
        f(tensor([1.0]))
    assert trace(lambda a: a + const, without_host=True, capture_as_const=True)(tensor([1.0])).item() == 9


@pytest.mark.parametrize(("first", "then"), [(1, 2), (2, 1), (2, 3)])
@pytest.mark.parametrize("symbolic", [False, True])
def test_an_assigned_part_may_have_one_row_in_one_call_and_more_in_another(
    first: int, then: int, symbolic: bool
) -> None:
    def f(x: Tensor) -> Tensor:
        y = x + 1
        y[..., :2] = (y[..., :2] + tensor([[[1.0], [2.0], [3.0]]])) * 2
        return y

    t = trace(f, symbolic=symbolic)
    for rows in (first, then, first):
        x = np.arange(rows * 12, dtype=np.float32).reshape(rows, 3, 4)
        want = x + 1
        want[..., :2] = (want[..., :2] + [[1], [2], [3]]) * 2
        np.testing.assert_array_equal(t(tensor(x)).numpy(), want)


def test_a_size_that_became_a_number_is_named_when_it_changes() -> None:
    t = trace(lambda x: x.reshape(int(x.shape[0]), 1, -1), symbolic=True)
    assert t(tensor(np.zeros((2, 3)))).shape == (2, 1, 3)
    with pytest.raises(
        TraceError, match=r"int32 \[2, 1, -1\], now int32 \[4, 1, -1\]; sizes that Python turns"
    ):
        t(tensor(np.zeros((4, 3))))


def test_sizes_are_values_of_the_graph_or_numbers() -> None:
    kinds: list[type] = []

    def f(x: Tensor) -> Tensor:
        kinds.append(type(x.shape[0]))
        return x / x.shape[0]

    follows, fixed = trace(f, symbolic=True), trace(f, symbolic=True, symbolic_shape=False)
    for t in (follows, fixed):
        assert t(tensor([8.0, 4.0])).numpy().tolist() == [4, 2]
    assert kinds == [TracedInt, int]
    assert follows(tensor([8.0, 4.0, 2.0, 2.0])).numpy().tolist() == [2, 1, 0.5, 0.5]
    with pytest.raises(TraceError, match="tensors not equals"):
        fixed(tensor([8.0, 4.0, 2.0, 2.0]))


def test_arithmetic_on_sizes_follows_them() -> None:
    @trace(symbolic=True, capture_as_const=True, without_host=True)
    def f(x: Tensor) -> tuple[Tensor, ...]:
        n, m = x.shape
        return x * 0 + (n * m - 1) // 2 % 5 + -n, x * 0 + (10 - m)

    for n, m in ((2, 3), (4, 5)):
        a, b = f(tensor(np.zeros((n, m))))
        assert a.numpy()[0, 0] == (n * m - 1) // 2 % 5 - n
        assert b.numpy()[0, 0] == 10 - m


def test_the_arguments_are_those_of_the_first_call() -> None:
    f = trace(lambda *xs, **ks: sum(xs), symbolic=True)
    x = tensor([1.0])
    f(x, x)
    with pytest.raises(TraceError, match=r"traced with the tensors arg_0, arg_1 .* called with arg_0;"):
        f(x)
    with pytest.raises(TraceError, match=r"arg_1 was traced as Float32 with 1 axes, but now is Int32"):
        f(x, tensor([1]))
    f.reset()
    assert f(x).item() == 1


def test_positional_arguments_of_a_dumpable_trace_are_tensors() -> None:
    f = trace(lambda x: x * 2, capture_as_const=True)
    with pytest.raises(
        AssertionError, match="Only support tensor type args when capture_as_const is enabled"
    ) as e:
        f(1)
    assert "positional argument 0 is int 1" in told(e.value)


def test_assignment_to_an_argument_reaches_the_caller() -> None:
    def f(x: Tensor) -> None:
        x[...] = x * 2

    for symbolic in (False, True):
        traced = trace(f, symbolic=symbolic)
        x = tensor([1.0, 2.0])
        traced(x)
        traced(x)
        assert x.numpy().tolist() == [4, 8]


def test_state_that_the_function_changes_is_changed_in_every_call() -> None:
    total = tensor([0.0])

    @trace(symbolic=True)
    def f(x: Tensor) -> None:
        total[...] = total + x

    for _ in range(3):
        f(tensor([2.0]))
    assert total.item() == 6


def test_every_instance_has_its_own_recording() -> None:
    class Net:
        def __init__(self, k: float) -> None:
            self.k = k

        @trace(symbolic=True)
        def forward(self, x: Tensor) -> Tensor:
            return x * self.k

    a, b = Net(2.0), Net(3.0)
    for _ in range(2):
        assert a.forward(tensor([1.0])).item() == 2
        assert b.forward(tensor([1.0])).item() == 3


def test_a_trace_inside_a_trace_is_part_of_it() -> None:
    inner = trace(lambda x: x + 1, symbolic=True)
    outer = trace(lambda x: inner(x) * 2, symbolic=True)
    for v in (1.0, 2.0):
        assert outer(tensor([v])).item() == (v + 1) * 2
    assert inner.recording is None


def test_threads_trace_and_call_independently() -> None:
    shared = trace(lambda x: x * 3, symbolic=True)
    wrong: list[object] = []

    def work(k: int) -> None:
        own = trace(lambda x: x + k, symbolic=bool(k % 2))
        for i in range(20):
            x = tensor(np.full((k + 1,), float(i)))
            if own(x).numpy().tolist() != [i + k] * (k + 1) or shared(x).numpy().tolist() != [3.0 * i] * (
                k + 1
            ):
                wrong.append((k, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="opt_level must be 0, 1, 2 or 3, found 7"):
        trace(lambda x: x, opt_level=7)
    with pytest.raises(TypeError, match="trace wraps a function, found int 3"):
        trace(3)  # type: ignore[arg-type]


def test_values_of_tensors_left_behind_are_kept_or_refused() -> None:
    kept: list[Tensor] = []

    @trace(symbolic=True)
    def f(x: Tensor) -> Tensor:
        kept.append(x + 1)
        return x * 2

    f(tensor([1.0]))
    f(tensor([5.0]))
    assert [t.item() for t in kept] == [2, 6]


@pytest.mark.parametrize("symbolic", [False, True])
def test_assignment_to_an_argument_reaches_the_caller_without_python_too(symbolic: bool) -> None:
    outside = tensor([7.0])

    @trace(symbolic=symbolic, without_host=True, capture_as_const=True)
    def f(x: Tensor, y: Any, z: Tensor) -> Tensor:
        x += y
        y[1:] = 0
        z[...] = outside
        return x * 2

    for start in (1.0, 5.0):
        x, y, z = tensor(start), np.full(2, start, np.float32), tensor([start])
        np.testing.assert_array_equal(f(x, y, z).numpy(), np.full(2, 4 * start))
        np.testing.assert_array_equal(x.numpy(), np.full(2, 2 * start))
        np.testing.assert_array_equal(y, [start, 0])
        assert z.item() == 7


def test_an_excluded_region_needs_the_python_code() -> None:
    @trace(without_host=True, capture_as_const=True)
    def f(x: Tensor) -> Tensor:
        with exclude_from_trace():
            y = tensor(x.numpy() * 2)
        return x + y

    with pytest.raises(TraceError, match=r"in test_trace.py:\d+ `with exclude.*` *, which would not run"):
        f(tensor([1.0]))


def test_sizes_that_were_numbers_hold_for_their_shape_alone() -> None:
    f = trace(lambda x: x * x.shape[0], symbolic_shape=False, without_host=True)
    for _ in range(2):
        np.testing.assert_array_equal(f(tensor([1.0, 2.0])).numpy(), [2, 4])
    with pytest.raises(
        TraceError, match=r"shape \[2\], now it has \[3\], .* first in test_trace.py:\d+ `f = trace"
    ):
        f(tensor([1.0, 2.0, 3.0]))
    free = trace(lambda x: x * 2, symbolic_shape=False, without_host=True)
    assert [free(tensor(np.ones(n, np.float32))).shape for n in (1, 3)] == [(1,), (3,)]


@pytest.mark.parametrize("symbolic", [False, True])
def test_an_error_of_the_first_call_names_the_line(symbolic: bool) -> None:
    f = trace(lambda x: x[x > 0].max() + 1, symbolic=symbolic)
    with pytest.raises(EngineError, match=r"without elements.*; in test_trace.py:\d+ `f = trace"):
        f(tensor([-1.0]))


@pytest.mark.parametrize("without_host", [False, True])
def test_an_error_in_the_compiled_graph_names_the_line(without_host: bool) -> None:
    f = trace(lambda x, y: (x + 1) * 2 + y, symbolic=True, without_host=without_host)
    f(tensor([1.0, 2.0]), tensor([1.0, 2.0]))
    with pytest.raises(EngineError, match=r"in test_trace.py:\d+ `f = trace\(lambda x, y"):
        f(tensor([1.0, 2.0]), tensor([1.0, 2.0, 3.0]))


def test_slices_that_begin_before_the_tensor_follow_its_size(tmp_path: Path) -> None:
    f = trace(lambda x: (x[-3:2], x[:-3], x[-3::2]), symbolic=True, capture_as_const=True)
    for n in (2, 1):
        x = np.arange(n, dtype=np.float32)
        for got, want in zip(f(tensor(x)), (x[-3:2], x[:-3], x[-3::2]), strict=True):
            np.testing.assert_array_equal(got.numpy(), want)
    f.dump(tmp_path / "slices.mge", arg_names=["x"], output_names=["a", "b", "c"])
    model = loadrun.load(tmp_path / "slices.mge")
    for n in (1, 5):
        x = np.arange(n, dtype=np.float32)
        found = loadrun.run(model, {"x": x})[0].outputs
        for got, want in zip(found, (x[-3:2], x[:-3], x[-3::2]), strict=True):
            np.testing.assert_array_equal(got.value, want)


@pytest.mark.parametrize("options", [{}, {"symbolic": True}, {"without_host": True, "symbolic": True}])
def test_checks_inside_a_function_are_made_in_every_call(options: dict[str, bool]) -> None:
    check = loadrun.megengine.functional.utils._assert_equal
    f = trace(lambda a, b: check(a * 2, b) + 1, **options)
    one, two = tensor([1.0]), tensor([2.0])
    assert f(one, two).item() == 3
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"the largest error is 0\.5, allowed is 0\.0001"):
            f(one, tensor([3.0]))
    assert f(one, two).item() == 3
    with pytest.raises(RuntimeError, match="the largest error is 0\\.5"):
        trace(lambda a, b: check(a * 2, b) + 1, **options)(one, tensor([3.0]))


def test_a_size_is_used_as_the_tensor_that_it_is_in_megengine():
    # MegEngine 1.13.0 gives the same: a size keeps following, the number that item() reads out does not.
    def scaled(x):
        return x * x.shape[1].astype("float32") / x.shape[1].item()

    traced = loadrun.tracing.trace(scaled, symbolic=True, capture_as_const=True)
    traced(loadrun.Tensor(np.ones((2, 4), np.float32)))
    file = io.BytesIO()
    traced.dump(file)
    bundle = loadrun.loads(file.getvalue())
    found = loadrun.Runner(bundle).run({"arg_0": np.ones((2, 8), np.float32)})
    result = found[next(iter(bundle.outputs))]
    np.testing.assert_array_equal(result, np.full((2, 8), 8 / 4, np.float32))
