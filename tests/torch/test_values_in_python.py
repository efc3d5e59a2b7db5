"""Modules in which Python looks at values of tensors, which torch.jit.trace records along the example's way."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import TraceError, UsageError

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")


class Branch(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            return self.linear(x) * 2
        return self.linear(x) - 1


class Steps(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        for _ in range(int(x.max())):
            x = x * 0.5 + 1
        return x


class Divided(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any, *, scale: Any) -> Any:
        return x * scale / float(x.max())


@pytest.mark.parametrize("module", [Branch(), Steps()], ids=["branch", "loop"])
def test_the_way_of_the_example_is_recorded(module: Any) -> None:
    """As torch.jit.trace has it, which warns of each value; other data may go another way there, too."""
    x, other = torch.tensor([1.0, 3.0, 2.0]), torch.tensor([-9.0, 3.5, 1.0])
    with pytest.warns(torch.jit.TracerWarning, match="might cause the trace to be incorrect"):
        expected = torch.jit.trace(module, (x,), check_trace=False)
    traces = []
    for make in (
        lambda: loadrun.torch.trace(module, (x,)),
        lambda: loadrun.trace_module(module, {"forward": (x,)}),
    ):
        with pytest.warns(torch.jit.TracerWarning, match="might cause the trace to be incorrect"):
            traces.append(make())
    for traced in traces:
        for value in (x, other):
            np.testing.assert_allclose(traced(value).numpy(), expected(value).detach().numpy(), 1e-6)
    assert "the graph goes the example's way" in traces[0].notes[0]


def test_what_torch_cannot_record_names_the_line() -> None:
    with pytest.raises(TraceError) as told:
        loadrun.torch.trace(Divided(), (torch.ones(3),), {"scale": torch.tensor(2.0)})
    assert "Python looks at the value of a tensor in" in str(told.value)
    assert "return x * scale / float(x.max())" in str(told.value)
    assert "GuardOnDataDependent" not in str(told.value)
    assert "loadrun/torch" not in str(told.value)


def test_a_trace_says_what_it_is(tmp_path: Any) -> None:
    traced = loadrun.trace_module(torch.nn.Linear(3, 2), {"forward": (torch.ones(3),)})
    assert "no ScriptModule" in repr(traced)
    for each in (traced, loadrun.torch.trace(torch.nn.ReLU(), (torch.ones(3),))):
        with pytest.raises(UsageError, match=r"\.save\('NAME\.mge'\)"):
            torch.jit.save(each, str(tmp_path / "m.pt"))


def test_parameters_are_shown_by_name() -> None:
    """Of MegEngine's trace, and of torch.jit.trace_module and torch.onnx.export."""
    shown = inspect.signature(loadrun.trace).parameters
    guide = [
        "symbolic",
        "capture_as_const",
        "record_only",
        "sublinear_memory_config",
        "dtr_config",
        "profiling",
    ]
    assert {*guide, "opt_level", "graph_opt_config", "symbolic_shape", "without_host"} <= set(shown)
    for own, theirs in (
        (loadrun.trace_module, torch.jit.trace_module),
        (loadrun.onnx.export, torch.onnx.export),
    ):
        assert set(inspect.signature(theirs).parameters) - {"kwargs"} <= set(
            inspect.signature(own).parameters
        )
