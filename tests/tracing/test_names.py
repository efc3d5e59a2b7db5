"""Names in dumps: modules, parameters and tensors give theirs, as in MegEngine's own tests of its naming."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.megengine.functional as F
import loadrun.megengine.module as M
from loadrun.graph import Opr
from loadrun.tensors import Parameter, Tensor
from loadrun.tracing import trace


def operators(function: Any, symbolic: bool, **options: Any) -> list[Opr]:
    traced = trace(function, symbolic=symbolic, capture_as_const=True)
    traced(Tensor(np.ones((2, 3), np.float32)))
    file = io.BytesIO()
    kept = {"arg_names": ("x",), "keep_opr_name": True, "keep_var_name": 2, **options}
    traced.dump(file, optimize_for_inference=False, **kept)
    return loadrun.loads(file.getvalue()).graph.oprs


class Simple(M.Module):
    def __init__(self, forward: Any, name: str | None = "simple") -> None:
        super().__init__(name=name)
        self.run = forward

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.run(x)
        return result


@pytest.mark.parametrize("symbolic", [False, True])
def test_modules_give_their_path(symbolic: bool) -> None:
    last = operators(Simple(lambda x: x + x), symbolic)[-1]
    assert (last.name, last.outputs[0].name) == ("simple.ADD", "simple.ADD")
    assert operators(Simple(lambda x: x + x, None), symbolic)[-1].name == "ADD"
    assert [o.name for o in operators(Simple(lambda x: F.relu(F.relu(x))), symbolic)[1:]] == [
        "simple.RELU[0]",
        "simple.RELU[1]",
    ]
    linear = M.Linear(3, 3)
    net = Simple(lambda x: linear(x))
    net.linear = linear
    assert [o.name for o in operators(net, symbolic) if not o.tensors] == [
        "simple.linear.MatrixMul",
        "simple.linear.ADD",
    ]
    named = M.Linear(3, 3, name="fc")
    net = Simple(lambda x: named(x))
    net.linear = named
    assert operators(net, symbolic)[-1].name == "simple.fc.ADD"


@pytest.mark.parametrize("symbolic", [False, True])
def test_parameters_and_tensors_give_their_own(symbolic: bool) -> None:
    def forward(x: Tensor) -> Tensor:
        y = net.k * x
        y.name = "o_x"
        return y

    net = Simple(forward)
    net.k = Parameter(2.0, name="k")
    last = operators(net, symbolic)[-1]
    assert (last.name, last.outputs[0].name) == ("simple.MUL", "o_x")
    assert sorted(v.name or "" for v in last.inputs) == ["simple.k", "x"]


def test_arguments_have_their_own_names_unless_others_are_given() -> None:
    def inputs(name: str | None, **options: Any) -> list[str | None]:
        traced = trace(lambda x: x * 2, symbolic=True, capture_as_const=True)
        traced(Tensor(np.ones((2, 3)), name=name))
        return [v.name for v in traced.graph(**options).inputs]

    assert inputs("data") == ["data"]
    assert inputs(None) == ["arg_0"]
    assert inputs("data", arg_names="x") == ["x"]


def test_names_of_weights_reach_the_file() -> None:
    net = M.Sequential(M.Conv2d(3, 4, 1), M.BatchNorm2d(4))
    net.eval()
    traced = trace(net, symbolic=True, capture_as_const=True)
    traced(Tensor(np.ones((1, 3, 4, 4), np.float32)))
    found = traced.dump(io.BytesIO(), keep_param_name=True, optimize_for_inference=False)
    assert {"0.weight", "0.bias", "1.weight", "1.running_mean"} <= set(found.params)
