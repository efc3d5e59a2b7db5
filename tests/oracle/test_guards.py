"""What MegEngine would take for something else gives in real MegEngine what it gives in numpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.tracing import trace
from tests.support.guard_cases import INTEGERS, MODES, POWERS, ROWS, STEPS, SUMS, TENSORS, X, Y
from tests.support.oracle import run

pytestmark = pytest.mark.oracle


def _written(f: Callable[..., Any], tensors: bool, path: Path, **options: Any) -> Any:
    make = loadrun.tensor if tensors else np.copy
    want = f(make(X), make(Y))
    t = trace(f, symbolic=True, capture_as_const=True)
    t(make(X), make(Y))
    t.dump(path, arg_names=["x", "y"], **options)
    return want.numpy() if tensors else want


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", MODES)
def test_guarded_programs_hold_in_megengine(mode: str, tmp_path: Path) -> None:
    cases = [
        *((n, f, False) for n, f in (POWERS | ROWS | STEPS | SUMS | INTEGERS).items()),
        *((n, f, True) for n, f in TENSORS.items()),
    ]
    wanted = {}
    for i, (name, f, tensors) in enumerate(cases):
        path = tmp_path / f"{i}.mge"
        wanted[str(path)] = name, _written(f, tensors, path, **MODES[mode])
    feed = tmp_path / "feed.npz"
    np.savez(feed, x=X, y=Y)
    results = run([Path(f) for f in wanted], "--feed", str(feed))
    wrong = {}
    for file, (name, want) in wanted.items():
        if results.get(file, {}).get("result") != "loaded":
            wrong[name] = str(results.get(file))
            continue
        with np.load(file + ".out.npz") as outs:
            got = outs["out.0"]
        if not np.allclose(got.reshape(want.shape), want, rtol=1e-4, atol=1e-5, equal_nan=True):
            wrong[name] = f"{got.ravel()[:4]}, not {want.ravel()[:4]}"
    assert not wrong
