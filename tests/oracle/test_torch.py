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
