"""`trace_module`: methods, checks and their messages, saving and loading."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import UsageError
from loadrun.tensors import Tensor, tensor
from loadrun.tracing import TraceError, trace_module


class Coder:
    """Two methods that share a parameter, and some that cannot be traced faithfully."""

    def __init__(self) -> None:
        self.w = tensor([1.0, 2.0, 4.0])
        self.count = 0
        self.training = False

    def encode(self, x: Tensor) -> Tensor:
        return x * self.w

    def decode(self, z: Tensor, shift: float | Tensor = 0.0) -> tuple[Tensor, Tensor]:
        return z / self.w + shift, z + 1

    def counting(self, x: Tensor) -> Tensor:
        self.count += 1
        return x * self.count

    def noisy(self, x: Tensor) -> Tensor:
        return x + np.random.default_rng().random(3).astype(np.float32)

    def branching(self, x: Tensor) -> Tensor:
        y = x * 2
        if x.numpy().max() > 5:
            y = y - 1
        return y + 1

    def sized(self, x: Tensor) -> Tensor:
        return x / float(x.shape[0])

    def listed(self, x: Tensor) -> list[Tensor]:
        return [x + 1]

    def counted(self, x: Tensor) -> int:
        return int(x.shape[0])


def ones(n: int) -> Tensor:
    return tensor(np.ones((n, 3), np.float32))


def test_methods_share_the_object_s_parameters() -> None:
    coder = Coder()
    traced = trace_module(
        coder, {"encode": ones(2), "decode": (ones(2),)}, check_inputs=[{"encode": ones(5)}]
    )
    assert traced.encode(ones(4)).numpy().tolist() == [[1, 2, 4]] * 4
    coder.w[...] = tensor([2.0, 2.0, 2.0])
    assert traced.encode(ones(1)).numpy().tolist() == [[2, 2, 2]]
    half, more = traced.decode(ones(1))
    assert half.numpy().tolist() == [[0.5, 0.5, 0.5]]
    assert more.numpy().tolist() == [[2, 2, 2]]
    with pytest.raises(AttributeError, match="'counting' was not traced; traced methods are encode, decode"):
        _ = traced.counting


def test_inputs_by_keyword() -> None:
    example = {"decode": {"z": ones(1), "shift": tensor(1.0)}}
    traced = trace_module(Coder(), example, example_inputs_is_kwarg=True)
    assert traced.decode(z=ones(1), shift=tensor(3.0))[0].numpy().tolist() == [[4, 3.5, 3.25]]


@pytest.mark.parametrize(
    ("method", "check", "texts"),
    [
        ("counting", [], ["differs by", "MUL in", "return x * self.count", "changes the object's state"]),
        ("noisy", [], ["differs by", "ADD in", "draws random numbers outside the trace"]),
        (
            "branching",
            [9],
            [
                "a different operator",
                "traced: ADD in",
                "return y + 1",
                "now:    SUB in",
                "y = y - 1",
                "depends on data",
            ],
        ),
    ],
)
def test_what_a_trace_cannot_follow_is_reported_with_its_cause(
    method: str, check: list[int], texts: list[str]
) -> None:
    given = [{method: tensor(np.full((2, 3), float(v)))} for v in check]
    with pytest.raises(TraceError) as e:
        trace_module(Coder(), {method: ones(2)}, check_inputs=given)
    for text in (f"{method}: output", "likely cause: ", *texts):
        assert text in str(e.value)


def test_a_size_used_as_a_number_shows_at_another_batch_size() -> None:
    trace_module(Coder(), {"sized": ones(2)})
    with pytest.raises(TraceError, match=r"float\(x.shape\[0\]\)") as e:
        trace_module(Coder(), {"sized": ones(2)}, check_inputs=[{"sized": ones(7)}])
    assert "likely cause: a size that was used as a number" in str(e.value)
    assert trace_module(Coder(), {"sized": ones(2)}, check_trace=False).sized(ones(4)).numpy()[0, 0] == 0.5


def test_methods_that_assign_to_their_arguments_leave_the_examples_alone() -> None:
    class Shift:
        def run(self, x: Tensor, y: Any) -> Tensor:
            x += 0.5
            y[0] = 7
            return x * y

    given = (tensor([1.0, 2.0]), np.ones(2, np.float32))
    traced = trace_module(Shift(), {"run": given}, check_inputs=[{"run": given}])
    np.testing.assert_array_equal(given[0].numpy(), [1, 2])
    np.testing.assert_array_equal(given[1], [1, 1])
    np.testing.assert_array_equal(traced.run(*given).numpy(), [10.5, 2.5])
    np.testing.assert_array_equal(given[1], [7, 1])


def test_training_mode_is_named_as_a_cause() -> None:
    coder = Coder()
    coder.training = True
    with pytest.raises(TraceError, match=r"training mode: was \.eval\(\) forgotten"):
        trace_module(coder, {"sized": ones(2)}, check_inputs=[{"sized": ones(7)}])


def test_the_tolerance_is_the_largest_error_that_counts_as_equal() -> None:
    scale = 1.0

    def drifted() -> Iterator[dict[str, Tensor]]:
        nonlocal scale
        scale = 1.0 + 3e-4
        yield {"drifting": ones(1)}

    coder = Coder()
    coder.drifting = lambda x: x * scale  # type: ignore[attr-defined]
    with pytest.raises(TraceError, match=r"differs by 0\.0003 \(tolerance 1e-05\)"):
        trace_module(coder, {"drifting": ones(1)}, check_inputs=drifted())
    scale = 1.0
    trace_module(coder, {"drifting": ones(1)}, check_inputs=drifted(), check_tolerance=1e-3)


def test_mutable_outputs_need_strict_false() -> None:
    with pytest.raises(TraceError, match=r"listed returns a list, which a caller may change.*strict=False"):
        trace_module(Coder(), {"listed": ones(1)})
    assert trace_module(Coder(), {"listed": ones(1)}, strict=False).listed(ones(1))[0].numpy()[0, 0] == 2
    with pytest.raises(TraceError, match="counted returns int 2; a traced method returns tensors"):
        trace_module(Coder(), {"counted": ones(2)})


def test_misuse_is_explained() -> None:
    with pytest.raises(UsageError, match="inputs maps method names to example inputs"):
        trace_module(Coder(), ones(1))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"Coder has no method 'forward'; it has branching, count.*encode"):
        trace_module(Coder(), {"forward": ones(1)})
    with pytest.raises(UsageError, match="check_inputs names 'decode', which is not traced"):
        trace_module(Coder(), {"encode": ones(1)}, check_inputs=[{"decode": ones(1)}])
    with pytest.raises(UsageError, match="the inputs of 'encode' are a dict, found Tensor"):
        trace_module(Coder(), {"encode": ones(1)}, example_inputs_is_kwarg=True)


def test_one_method_as_a_file(tmp_path: Path) -> None:
    traced = trace_module(Coder(), {"encode": ones(2), "decode": ones(2)})
    with pytest.raises(UsageError, match="name the method to dump; traced are encode, decode"):
        traced.dump(tmp_path / "x.mge")
    traced.dump(tmp_path / "x.mge", "encode", arg_names=["x"], output_names=["z"], input_data="#rand(0,1)")
    (result,) = loadrun.run(tmp_path / "x.mge")
    assert result.verdict.value == "pass"
