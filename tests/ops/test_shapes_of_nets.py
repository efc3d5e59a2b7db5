"""Static inference against the shapes that values have in a run, for every network fixture.

The v1 files hold no shapes but those of inputs and constants, so that all others must follow from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Opr
from loadrun.ops.infer import infer_dtypes, infer_shapes

NETS = Path(__file__).resolve().parents[2] / "fixtures" / "nets"
FILES = sorted(p.name for p in NETS.glob("*.mge") if "style_transfer_batches" not in p.name)
DEPENDS_ON_DATA = {"CondTake", "NMSKeepMGB"}


@pytest.mark.parametrize("name", FILES)
def test_static_shapes_are_those_of_the_run(name: str) -> None:
    bundle = loadrun.load(NETS / name)
    graph = bundle.graph
    targets = [v for c in bundle.checks for v in (c.expect, c.get, c.err)] or graph.outputs
    oprs = graph.needed(targets)
    infer_dtypes(oprs)
    if bundle.testcases:
        feeds: dict[str, Any] = dict(bundle.testcases[0].arrays)
    else:
        with np.load((NETS / name).with_suffix(".npz")) as z:
            feeds = {k[3:]: z[k] for k in z.files if k.startswith("in.")}
    known = infer_shapes(graph, oprs, {k: a.shape for k, a in feeds.items()})
    wrong: list[str] = []

    def look(opr: Opr, outs: Sequence[Any]) -> None:
        for var, array in zip(opr.outputs, outs, strict=True):
            if var.id in known.shapes and known.shapes[var.id] != array.shape:
                wrong.append(f"{opr}: inferred {known.shapes[var.id]}, found {array.shape}")
            value = known.values.get(var.id)
            if value is not None and not np.array_equal(value, array, equal_nan=array.dtype.kind == "f"):
                wrong.append(f"{opr}: inferred value {value}, found {array}")

    ReferenceEngine(graph, targets).run(feeds, look)
    assert not wrong, "\n".join(wrong)
    # A shape may be open only after an operator whose result has as many elements as the data says.
    open_after: set[int] = set()
    for opr in oprs:
        if opr.type in DEPENDS_ON_DATA or any(v.id in open_after for v in opr.inputs):
            open_after.update(v.id for v in opr.outputs)
        for var in opr.outputs:
            assert var.id in known.shapes or var.id in open_after, f"no static shape: {opr}"
