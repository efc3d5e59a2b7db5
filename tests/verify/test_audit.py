"""What checks catch: mutants of hand-made models whose score is known."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import loadrun
from loadrun import Bundle
from loadrun.cli import main
from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import DType
from loadrun.graph.params import Elemwise, ElemwiseMode, Host2DeviceCopy
from loadrun.passes.constants import bare
from loadrun.verify.audit import Audit, Score, audit
from loadrun.verify.audit_mutants import EXPECTED, Weight, drawn
from loadrun.verify.pack.capture import capture, embed
from tests.support.fixture_files import FIXTURES

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
    """Three weights; of two testcases an expected value, the inputs moved and those of the other: nine mutants."""
    found = audit(scaled([0.5, -2.0, 3.0], 1e-4))
    assert found.whole.caught == {
        "expected values": 2,
        "inputs moved by one": 2,
        "testcases swapped": 2,
        "weight elements": 3,
    }
    assert (found.whole.passed, found.whole.unmoved, found.whole.value, found.findings) == ({}, {}, 1.0, [])
    # All elements were tried, so that nothing is left to chance.
    assert found.whole.interval == (1.0, 1.0)


def test_tolerance_above_what_a_wrong_weight_does() -> None:
    """The root mean square of the weights is 0.0216, so outputs move by at most 0.0432 * 7 = 0.3."""
    found = audit(scaled([0.01, -0.02, 0.03], 0.5))
    assert found.whole.passed["weight elements"] == 3
    assert found.whole.value == 0.0


def relu_net(bias: list[float], inputs: list[list[float]], maxerr: float = 1e-4) -> Bundle:
    """``y = relu(x + bias) * (1, 2, 3, 4)``."""
    g = Graph()
    (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (1, 4), "x")], names=["x"])
    stored = [
        g.add("SharedDeviceTensor", tensors=[StoredTensor(F32, (1, 4), n, np.array(v, "f4").view(np.uint8))])[
            0
        ]
        for n, v in (("b", bias), ("w", [1, 2, 3, 4]))
    ]
    h = g.add("Elemwise", Elemwise(mode=ElemwiseMode.FUSE_ADD_RELU), inputs=[x, stored[0]])
    g.outputs = g.add("Elemwise", Elemwise(mode=ElemwiseMode.MUL), inputs=[*h, stored[1]], names=["y"])
    model = Bundle(g)
    cases = [capture(model, {"x": np.array([row], "f4")}) for row in inputs]
    return embed(model, cases, maxerr, warn=lambda text: None)


def test_dead_channels_lower_the_score() -> None:
    """Two of four channels are 0: their weights, and one bias that moves down, change nothing."""
    found = audit(relu_net([1, 1, -90, -90], [[1, 2, 3, 4], [2, 3, 4, 5]]))
    # The root mean square of the biases is 64: 1 - 127 makes a channel 0, -90 + 127 brings one back.
    assert found.whole.caught_of(("weight elements",)) == (6, 8)
    assert found.whole.unmoved == {"weight elements": 2}
    assert found.whole.value == 0.75
    assert (
        "2 of 4 elements drawn of w (1x4) of operator 4 MUL change no output in any testcase"
        in found.findings
    )


def test_equal_testcases_lower_the_score() -> None:
    found = audit(relu_net([1, 1, 1, 1], [[1, 2, 3, 4]] * 3))
    assert found.whole.unmoved == {"testcases swapped": 2}
    assert found.whole.value == 6 / 8
    assert found.findings == ["testcases 1, 2 have the inputs of testcase 0"]


def test_a_model_of_zeros_has_a_low_score() -> None:
    found = audit(relu_net([-1, -1, -1, -1], [[0, 0, 0, 0]]))
    assert found.whole.value is not None
    assert found.whole.value <= 0.5


def test_a_file_without_checks_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, report = str(tmp_path / "bare.mge"), tmp_path / "r.xml"
    assert (
        main(["pack", "fixtures/nets/mlp.mge", "--replace", "-d", "#rand(0,1)", "--no-assert", "-o", path])
        == 0
    )
    assert main(["audit", path, "--junit", str(report)]) == 3
    assert "no score, no output has a check" in capsys.readouterr().out
    assert len(list(ElementTree.parse(report).iter("failure"))) == 1


def test_outputs_without_check_lower_the_score() -> None:
    """``y = x * w`` is checked, ``z = x * v`` is not: half of the weights."""
    bundle = scaled([0.5, -2.0, 3.0], 1e-4)
    g = bundle.graph
    data = np.array([4, 5, 6], "f4").view(np.uint8)
    (v,) = g.add("SharedDeviceTensor", tensors=[StoredTensor(F32, (3,), "v", data)])
    z = g.add("Elemwise", Elemwise(mode=ElemwiseMode.MUL), inputs=[bundle.inputs[0], v], names=["z"])
    g.outputs = [*g.outputs, *z]
    found = audit(bundle)
    by_name = {s.output: s for s in found.scores}
    assert (by_name["y"].value, by_name["z"].value, by_name["z"].reason) == (1.0, 0.0, "no check")
    assert found.whole.caught_of(("weight elements",)) == (3, 6)
    assert found.whole.caught_of(("expected values",)) == (2, 4)
    assert found.whole.value == 3 / 6 * 6 / 8
    assert found.findings == ["output 'z' has no check"]


def test_the_score_follows_what_wrong_elements_do() -> None:
    """A weak tolerance lowers it: the same net, the same draw."""
    model = Bundle(bare(loadrun.load("fixtures/nets/resnet_basic.mge")))
    cases = [capture(model, c.inputs) for c in loadrun.load("fixtures/nets/resnet_basic.mge").testcases]
    values = {}
    for maxerr in (1e-4, 0.5):
        whole = audit(embed(model, cases, maxerr, warn=lambda text: None), mutants=40).whole
        low, high = whole.interval or (0, 0)
        assert whole.value is not None
        assert low < whole.value < high
        values[maxerr] = whole.value
    # Elements that only meet padding are not counted.
    assert values[0.5] < 0.6 < 0.8 < values[1e-4]


def test_a_sample_has_an_interval() -> None:
    """Wilson's interval of 13 in 60, whose bounds solve (p - 13/60)^2 = 1.96^2 p (1 - p) / 60."""
    score = Score("", {"weight elements": 13}, {"weight elements": 47}, elements=5000)
    for bound in score.interval or ():
        assert (bound - 13 / 60) ** 2 == pytest.approx(1.959964**2 * bound * (1 - bound) / 60)


def test_a_budget_ends_the_trial() -> None:
    found = audit(scaled([0.5, -2.0, 3.0], 1e-4), budget=0.0)
    assert found.cut
    assert found.whole.value is None
    assert Audit([("m.mge", found)]).exit_code == 3


def test_elements_are_drawn_alike() -> None:
    """Of 10 and 990 elements every tenth is drawn: one of the small tensor, 99 of the large one."""
    g = Graph()
    stored = [g.add("SharedDeviceTensor", tensors=[StoredTensor(F32, (n,), "w")])[0] for n in (10, 990)]
    tensors = [Weight(v.owner, 0, frozenset("y"), v.owner, str(i)) for i, v in enumerate(stored)]
    found = drawn(tensors, 100, np.random.default_rng(0))
    assert Counter(w.label for w, _ in found) == {"0": 1, "1": 99}
    assert all(0 <= e < w.size for w, e in found)
    assert len({(w.label, e) for w, e in found}) == 100
    assert len(drawn(tensors, 2000, np.random.default_rng(0))) == 1000


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, weight, maxerr in (("good", [0.5, -2.0, 3.0], 1e-4), ("bad", [0.01, -0.02, 0.03], 0.5)):
        loadrun.save(scaled(weight, maxerr), tmp_path / f"{name}.mge")
    assert main(["audit", str(tmp_path / "good.mge"), "--timeout", "30"]) == 0
    shown = capsys.readouterr().out
    assert (
        "good.mge: score 100 %\n  3 of 3 wrong weight elements caught, drawn from 3; 6 of 6 mutants of 2 "
        in shown
    )
    assert "1 file, 1 output: lowest score 100 %" in shown
    assert main(["audit", str(tmp_path / "good.mge"), str(tmp_path / "bad.mge")]) == 1
    shown = capsys.readouterr().out
    assert "0 %" in shown
    assert "3 weight elements passed" in shown
    assert "2 files, 2 outputs: lowest score 0 %" in shown
    assert main(["audit", str(tmp_path / "none.mge")]) == 2


@pytest.mark.parametrize("name", ["nets/mlp.mge", "nets/many_inputs_outputs.mge", "nets/unet.mge"])
def test_megengines_dumps_have_a_high_score(name: str) -> None:
    whole = audit(loadrun.load(f"fixtures/{name}"), mutants=20).whole
    assert whole.value is not None
    assert whole.value >= 0.9, whole


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
        score = {s.output: s for s in audit(loadrun.load(FIXTURES / name), mutants=4).scores}[output]
        unmoved = page.index(f"`{name}` {output}") > page.index("## Checks whose outputs no mutant moves")
        assert bool({*score.caught, *score.passed} - {EXPECTED}) != unmoved, name
