"""Torch's operators give torch's results in memory, written as .mge and exported as ONNX, on data of every kind."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional
X = torch.linspace(-2, 3, 12).reshape(3, 4)
BORDERS = torch.tensor([-1.0, 0.0, 2.0])
SAMPLES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "softmax": (lambda x: torch.softmax(x, -1), (X,)),
    "cumsum": (lambda x: torch.cumsum(x, 0), (X,)),
    "linear": (F.linear, (X, X[:2] * 0.5, torch.ones(2))),
    "bucketize": (torch.bucketize, (X, BORDERS)),
    "take": (lambda x, i: x[:, i], (X, torch.tensor([3, 0, 3]))),
    "tanhshrink": (F.tanhshrink, (X,)),
    "sort": (torch.sort, (X.flip(1),)),
    "and": (torch.bitwise_and, (torch.arange(6), torch.arange(6).flip(0))),
    "scalar": (lambda x: x * 2, (torch.tensor(1.5),)),
}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "scripts")
    return importlib.import_module("prove")


@pytest.mark.parametrize("name", SAMPLES)
def test_an_operator_is_right_by_every_door(name: str, script: Any) -> None:
    function, (first, *rest) = SAMPLES[name]
    op = SimpleNamespace(name=name, get_op=lambda: function)
    found = script.outcomes(op, SimpleNamespace(input=first, args=tuple(rest), kwargs={}))
    assert found == dict.fromkeys(("memory", "mge", "onnx"), ("right", ""))


def test_what_is_wrong_is_seen(script: Any) -> None:
    x = {"x": np.linspace(-2, 2, 5, dtype="f4")}
    right = lambda feeds: [np.tanh(feeds["x"])]  # noqa: E731
    assert script.compared(right, right, x, True) == ""
    for wrong in (
        lambda v: -np.tanh(v),
        lambda v: np.tanh(v)[::-1],
        lambda v: np.where(np.abs(v) < 1e-3, 0, np.tanh(v)),
        lambda v: np.where(v == 0, 1, np.tanh(v)),
    ):
        assert script.compared(right, lambda feeds, wrong=wrong: [wrong(feeds["x"])], x, True)
