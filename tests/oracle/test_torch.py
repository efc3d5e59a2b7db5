"""Dumps of torch modules are executed by real MegEngine with all checks holding."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import loadrun.torch  # noqa: E402
from tests.support.oracle import run  # noqa: E402
from tests.torch.nn_cases import NN_CASES  # noqa: E402
from tests.torch.torch_models import CASES  # noqa: E402

pytestmark = pytest.mark.oracle


def test_modules_hold_in_megengine(tmp_path: Path) -> None:
    files = []
    for name, (make, example) in {**NN_CASES, **CASES}.items():
        torch.manual_seed(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loadrun.torch.save(make().eval(), tmp_path / f"{name}.mge", example())
        files.append(tmp_path / f"{name}.mge")
    found = run(files)
    wrong = {f.stem: found.get(str(f)) for f in files if found.get(str(f), {}).get("result") != "pass"}
    assert not wrong


def test_zeros_and_ones_of_an_open_size_hold_in_megengine(tmp_path: Path) -> None:
    filled = (
        lambda x, y: (torch.zeros(x.size(1)) + y).sum(),
        lambda x, y: (torch.zeros(x.size(1)) - 2 * y).exp().sum(),
        lambda x, y: (torch.ones(x.size(1)) * y).cumsum(0),
        lambda x, y: (y ** torch.ones(x.size(1))).cumsum(0),
    )
    example, files = (torch.ones(3, 4), torch.tensor([2.0])), []
    for i, function in enumerate(filled):
        files.append(tmp_path / f"{i}.mge")
        traced = loadrun.torch.trace(function, example, dynamic_shapes=({1: torch.export.Dim.DYNAMIC}, {}))
        traced.dump(files[-1], input_data=[example])
    found = run(files)
    assert [found.get(str(f), {}).get("result") for f in files] == ["pass"] * len(files)
