"""A dump that holds a gradient is read, described and written; running it ends in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

import loadrun
from loadrun.base.errors import UnsupportedError
from loadrun.cli import main
from loadrun.ops.catalog import CATALOG
from loadrun.ops.registry import implementation

FILE = Path(__file__).resolve().parents[1] / "data" / "softmax_gradient.mge"
"""What MegEngine's GradManager recorded of ``F.softmax(x, 1)``."""
WHY = "cannot be executed: it computes a gradient, which belongs to training; MegEngine runs it"
GRADIENTS = [op.name for op in CATALOG.values() if op.category == "backward"]


def test_gradients_have_no_kernel() -> None:
    assert "SoftmaxBackward" in GRADIENTS
    transposed = {"ConvolutionBackwardDataV2", "Convolution3DBackwardData"}
    assert not {*transposed, "RegionRestrictedConvolutionBackwardData"} & {*GRADIENTS}
    for name in GRADIENTS:
        with pytest.raises(UnsupportedError, match=f"operator {name} {WHY}"):
            implementation(name)


def test_a_gradient_is_read_and_written(tmp_path: Path) -> None:
    bundle = loadrun.load(FILE)
    for name in ("again.mge", "older.v1.mge"):
        loadrun.save(bundle, tmp_path / name)
        again = loadrun.load(tmp_path / name)
        assert [o.type for o in again.graph.needed()] == [o.type for o in bundle.graph.needed()]
        assert "SoftmaxBackward" in [o.type for o in again.graph.needed()]


def test_a_gradient_is_described_and_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(FILE)]) == 0
    told = capsys.readouterr()
    assert "SoftmaxBackward" in told.out
    assert f"operator SoftmaxBackward {WHY}" in told.out + told.err
    assert main(["run", str(FILE)]) == 2
    assert f"testcase 0: operator SoftmaxBackward {WHY}" in capsys.readouterr().out
