"""What checks catch: mutants of hand-made models whose score is known."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun import Bundle
from loadrun.cli import main
from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import DType
from loadrun.graph.params import Elemwise, ElemwiseMode, Host2DeviceCopy
from loadrun.verify.audit import audit
from loadrun.verify.pack.capture import capture, embed

F32 = DType("Float32")


def scaled(weight: list[float], maxerr: float) -> Bundle:
    """``y = x * weight`` on two testcases."""
    g = Graph()
    (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (3,), "x")], names=["x"])
    data = np.array(weight, "f4")
    (w,) = g.add("SharedDeviceTensor", tensors=[StoredTensor(F32, (3,), "w", data.view(np.uint8))])
    g.outputs = g.add("Elemwise", Elemwise(mode=ElemwiseMode.MUL), inputs=[x, w], names=["y"])
    model = Bundle(g)
    cases = [capture(model, {"x": np.array(v, "f4")}) for v in ([1, 2, 3], [4, 5, 7])]
    return embed(model, cases, maxerr, warn=lambda text: None)


def test_every_mutant_is_caught() -> None:
    """Negated, zero, permuted, moved by one, swapped: five mutants, all far beyond 1e-4."""
    (score,) = audit(scaled([0.5, -2.0, 3.0], 1e-4))
    assert score.caught == {
        "weights negated": 1,
        "weights zero": 1,
        "weights permuted": 1,
        "inputs moved by one": 1,
        "testcases swapped": 1,
    }
    assert (score.passed, score.value) == ({}, 1.0)


def test_tolerance_above_all_values_catches_nothing() -> None:
    """Outputs of at most 0.07 * 3 differ by less than 0.5 whatever is done to the weights."""
    (score,) = audit(scaled([0.01, -0.02, 0.03], 0.5))
    assert score.caught == {}
    assert sum(score.passed.values()) == score.mutants == 5
    assert score.value == 0.0


def test_equal_weights_have_no_other_order() -> None:
    (score,) = audit(scaled([2.0, 2.0, 2.0], 1e-4))
    assert "weights permuted" not in {**score.caught, **score.passed}


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, weight, maxerr in (("good", [0.5, -2.0, 3.0], 1e-4), ("bad", [0.01, -0.02, 0.03], 0.5)):
        loadrun.save(scaled(weight, maxerr), tmp_path / f"{name}.mge")
    assert main(["audit", str(tmp_path / "good.mge")]) == 0
    assert "1 output, 1 with a check that catches every mutant, 0 that catch none" in capsys.readouterr().out
    assert main(["audit", str(tmp_path / "good.mge"), str(tmp_path / "bad.mge")]) == 1
    shown = capsys.readouterr().out
    assert "0 %" in shown
    assert "1 weights negated, 1 weights zero" in shown
    assert main(["audit", str(tmp_path / "none.mge")]) == 2


@pytest.mark.parametrize(
    "name", ["nets/mlp.mge", "nets/many_inputs_outputs.mge", "nets/layout_quant_default.mge"]
)
def test_megengines_dumps_catch_negated_weights(name: str) -> None:
    for score in audit(loadrun.load(f"fixtures/{name}"), mutants=2):
        assert "weights negated" not in score.passed, score


def test_the_page_of_the_fixtures_holds() -> None:
    """The figures in docs/audit.md add up, and files of its lists are as it says."""
    page = Path("docs/audit.md").read_text()
    found = re.search(r"(\d+) files, (\d+) checks\. (\d+) of them compare; mutants reached (\d+)\.", page)
    assert found is not None
    rows = [r.split("|") for r in re.findall(r"^\| (?:\w|/)+ \|.*", page, re.M)[1:]]
    for column, total in ((2, 1), (3, 2), (4, 4)):
        assert sum(int(r[column]) for r in rows) == int(found[total])
    names = re.findall(r"^- `([\w./]+)` (\S+?)(?:: (.*))?$", page, re.M)
    assert names
    for name, output, _ in names[:: max(1, len(names) // 5)]:
        score = {s.output: s for s in audit(loadrun.load(f"fixtures/{name}"), mutants=2)}[output]
        unmoved = page.index(f"`{name}` {output}") > page.index("## Checks whose outputs no mutant moves")
        assert bool(score.mutants) != unmoved, name
