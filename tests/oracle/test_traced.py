"""Dumps made by tracing are executed by real MegEngine with all checks holding: every recorded call of the API."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

import loadrun
from fixtures.functional._case import Case, flatten
from loadrun.base.errors import LoadRunError, TraceError
from loadrun.passes.inference import optimize_for_inference
from loadrun.verify.pack.capture import capture, embed
from tests.support.oracle import ROOT, run

pytestmark = pytest.mark.oracle

FAMILIES = sorted(p.name.removesuffix("_cases.py") for p in (ROOT / "functional").glob("*_cases.py"))
UNDUMPABLE = {"BatchNorm2d-untracked": "MegEngine refuses batch norm that computes its statistics"}


def dump(case: Case, path: Path) -> bool:
    """Trace a case and write it with its inputs and what the graph computes; False where nothing can be checked."""
    function = case.make(loadrun.megengine)
    traced = loadrun.tracing.trace(symbolic=True, capture_as_const=True)(
        lambda *xs: tuple(x for x in flatten(function(*xs)) if isinstance(x, loadrun.Tensor))
    )
    tensors = [loadrun.tensor(x) for x in case.inputs]
    if not tensors or not traced(*tensors):
        return False
    try:
        recorded = traced.graph([f"x{i}" for i in range(len(tensors))])
    except (TraceError, UserWarning) as e:
        # Neither statistics of a batch nor random numbers can be checked.
        if "training mode" not in str(e) and "draws random numbers" not in str(e):
            raise
        return False
    graph, _ = optimize_for_inference(recorded)
    if any(not x.size for x in case.inputs):
        return False
    used = {v.name for v in graph.inputs}
    # Not the traced tensors, which the function may have changed in place.
    given = [loadrun.tensor(x) for x in case.inputs]
    feeds = {f"x{i}": np.atleast_1d(t.numpy()) for i, t in enumerate(given) if f"x{i}" in used}
    try:
        found = capture(graph, feeds)
    except LoadRunError as e:
        raise AssertionError(f"{case.id}: {e}") from e
    if any(not np.isfinite(v).all() for v in found.expects.values() if v.dtype.kind == "f"):
        return False
    loadrun.save(embed(graph, [found], max(case.maxerr, 1e-5), silent=True, warn=lambda _: None), path)
    return bool(loadrun.load(path).checks)


@pytest.mark.parametrize("family", FAMILIES)
def test_traced_calls_hold_in_megengine(family: str, tmp_path: Path) -> None:
    cases: list[Case] = importlib.import_module(f"fixtures.functional.{family}_cases").CASES
    files = {}
    for i, case in enumerate(cases):
        path = tmp_path / f"{i}.mge"
        if case.raises is None and case.traceable and case.id not in UNDUMPABLE and dump(case, path):
            files[str(path)] = case.id
    if not files:
        pytest.skip("random numbers alone, which no check can hold")
    found = run([Path(f) for f in files])
    wrong = {files[f]: found.get(f) for f in files if found.get(f, {}).get("result") != "pass"}
    assert not wrong
