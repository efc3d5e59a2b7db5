"""numpy code that was traced and dumped gives in real MegEngine what it gives in numpy."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_oracle import ROOT, pytestmark, run

sys.path.insert(0, str(ROOT.parent / "tests" / "jit"))
from numpy_cases import Case, agree, dump, feeds, shaped

__all__ = ["pytestmark"]

FAMILIES = ("index", "linalg", "reduce", "select", "shape", "statistics", "ufuncs")
KNOWN = {
    "np.nanprod(nan * 0 + 2, 1)": "x * 0 is simplified to 0, also where x is NaN",
    "np.sort(nan)": "NaN is sorted anywhere",
    "np.hypot(f * 1e30, g * 1e30)": "the square of a quotient becomes a quotient of squares, which overflow",
}
"""Cases in which MegEngine 1.13.0 itself computes something else, and why."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FAMILIES)
def test_megengine_agrees_with_numpy(family: str, tmp_path: Path) -> None:
    cases: list[Case] = importlib.import_module(f"test_numpy_{family}").ALL
    files: dict[str, tuple[str, list[Any]]] = {}
    for i, found in enumerate(cases):
        path = tmp_path / f"{i}.mge"
        if found[0] not in KNOWN and (wanted := dump(found, path)):
            files[str(path)] = found[0], wanted
    assert len(files) > 30
    feed = tmp_path / "feed.npz"
    np.savez(feed, **feeds())
    results = run([Path(f) for f in files], "--feed", str(feed))
    wrong = {}
    for file, (text, wanted) in files.items():
        if results.get(file, {}).get("result") != "loaded":
            wrong[text] = str(results.get(file))
            continue
        with np.load(file + ".out.npz") as outs:
            got = [outs[f"out.{i}"] for i in range(len(wanted))]
        try:
            agree(shaped(got, wanted), wanted, 5e-4, 5e-4)
        except (AssertionError, ValueError) as error:
            wrong[text] = str(error)
    assert not wrong
