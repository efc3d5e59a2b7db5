"""`loadrun reduce --anonymize` keeps the failure and nothing of the tensors."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import UsageError
from loadrun.cli import main
from loadrun.dump.options import DumpOptions
from loadrun.testing import GraphBuilder
from loadrun.verify.share import _other, share_file

NETS = Path("fixtures/nets")


def floats(bundle: loadrun.Bundle) -> list[np.ndarray]:
    """All weights and inputs with more than one number."""
    stored = [t.value() for o in bundle.graph.oprs for t in o.tensors if t.data is not None]
    return [
        a.reshape(-1)
        for a in (*stored, *bundle.testcases[0].inputs.values())
        if a.dtype.kind == "f" and a.size > 1
    ]


@pytest.mark.parametrize("name", ["resnet_basic.mge", "bert.mge", "gru_unrolled.mge"])
def test_no_tensor_can_be_read_off(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared = tmp_path / "shared.mge"
    argv = ["reduce", str(NETS / name), "--against", "float64", "--maxerr", "1e-9", "--anonymize"]
    assert main([*argv, "-o", str(shared)]) == 0
    assert "values differ" in capsys.readouterr().out
    old, new = loadrun.load(NETS / name), loadrun.load(shared)
    known = np.concatenate(floats(old))
    drawn = np.concatenate(floats(new))
    assert len(drawn) >= len(known) - sum(a.size for a in old.testcases[0].inputs.values())
    nonzero = drawn[drawn != 0]
    assert np.isin(nonzero, known).mean() < 1e-3
    given = {v.name for v in old.graph.vars() if v.name}
    assert not given & {v.name for v in new.graph.vars()}
    assert [o.type for o in new.graph.oprs if o.type == "ConvolutionV2"] == [
        o.type for o in old.graph.oprs if o.type == "ConvolutionV2"
    ]
    # It fails by itself: float64 is expected, to a tolerance that float32 does not hold.
    assert main([str(shared), "-q"]) == 1


@pytest.mark.slow
def test_signs_are_kept_where_the_failure_needs_them(tmp_path: Path) -> None:
    """It fails where all weights are negative: random signs would never do."""
    b = GraphBuilder()
    weights = -np.arange(1, 41, dtype="f4")
    graph = b.done(b.elemwise("MUL", b.input("x", 40), b.const(weights), name="y"))
    loadrun.save(graph, tmp_path / "m.mge", DumpOptions(keep_var_name=2))
    script = tmp_path / "check.py"
    script.write_text(
        "import loadrun, sys\n"
        "tensors = [t for o in loadrun.load(sys.argv[1]).graph.oprs for t in o.tensors]\n"
        "values = [t.value() for t in tensors if t.data is not None and t.shape == (40,)]\n"
        "sys.exit(4 * any((v < 0).all() for v in values))\n"
    )
    options = loadrun.FailureOptions(fails=f"{sys.executable} {script}")
    found = loadrun.share_file(tmp_path / "m.mge", tmp_path / "shared.mge", options)
    assert (found.reason, found.kept) == ("exit code 4", "zeros, signs and what is not finite")


def test_what_is_refused(tmp_path: Path) -> None:
    model, target = NETS / "mlp.mge", tmp_path / "shared.mge"
    with pytest.raises(UsageError, match="here --against takes an engine or float64"):
        loadrun.share_file(model, target, loadrun.FailureOptions(against=str(model)))
    with pytest.raises(UsageError, match="does not fail"):
        loadrun.share_file(model, target, loadrun.FailureOptions(against="float64"))
    assert not target.exists()


def test_numbers_are_of_the_same_kind() -> None:
    rng = np.random.default_rng(0)
    positive = np.array([0.25, 3.0, 5.0], "f4")
    drawn = _other(positive, None, 0, rng)
    assert drawn.dtype == np.float32
    assert (drawn >= 0.25).all()
    assert (drawn < 8).all()
    indices = np.array([3, 9, 4], "i4")
    drawn = _other(indices, None, 0, rng)
    assert drawn.dtype == np.int32
    assert ((drawn >= 0) & (drawn <= 9)).all()
    gaps = np.array([0.0, np.inf, 1.0, -2.0], "f4")
    drawn = _other(gaps, None, 2, rng)
    assert (drawn[0], drawn[1]) == (0.0, np.inf)
    assert (np.sign(drawn[2:]) == [1, -1]).all()


def test_random_numbers_that_an_operator_does_not_take(tmp_path: Path) -> None:
    """Regions begin with the number of an image, 0; where zeros are kept, the model runs."""
    options = loadrun.FailureOptions(against="float64", maxerr=1e-9)
    shared = share_file(NETS / "mask_head.mge", tmp_path / "shared.mge", options)
    assert (shared.reason, shared.kept) == ("values differ", "zeros and what is not finite")
