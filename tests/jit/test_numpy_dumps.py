"""Dumps of traced numpy code run on loadrun's engine, and give what numpy gives."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from numpy_cases import agree, dump, feeds, shaped

import loadrun
from loadrun.engines.reference import ReferenceEngine


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ["index", "linalg", "reduce", "select", "shape", "statistics", "ufuncs"])
def test_dumps_agree_with_numpy(family: str, tmp_path: Path) -> None:
    arrays, wrong, count = feeds(), {}, 0
    for found in importlib.import_module(f"test_numpy_{family}").ALL:
        path = tmp_path / "case.mge"
        if not (wanted := dump(found, path)):
            continue
        count += 1
        graph = loadrun.load(path).graph
        with np.errstate(all="ignore"):
            outs = ReferenceEngine(graph).run({v.name or "": arrays[v.name or ""] for v in graph.inputs})
        try:
            agree(shaped(outs, wanted), wanted, 5e-4, 5e-4)
        except AssertionError as error:
            wrong[found[0]] = str(error)
    assert count > 30
    assert not wrong
