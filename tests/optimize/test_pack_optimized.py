"""`loadrun pack` with MegEngine's optimization options."""

from __future__ import annotations

from pathlib import Path

import pytest

import loadrun
from loadrun.cli.pack import main
from loadrun.errors import UsageError
from tests.support.optimize_graphs import FIXTURES

NET = str(FIXTURES / "nets/layout_float_unoptimized.mge")


def pack(target: Path, *options: str) -> loadrun.Bundle:
    assert main([NET, "-d", "#rand(-1,1)", "--replace", "-q", "-o", str(target), *options]) == 0
    return loadrun.load(target)


@pytest.mark.parametrize(
    ("options", "bits", "operator"),
    [
        (["--optimize-for-inference"], 64, "FUSE_ADD_RELU"),
        (["--enable-fuse-conv-bias-nonlinearity"], 68, "ConvBiasForwardV4"),
        (["--enable-nchw44"], 64 | 4 << 32, "ConvBiasForwardV4"),
        (["--no-enable-fuse-grain", "--enable-hwcd4"], 2 << 32, "RelayoutFormatV1"),
    ],
)
def test_packed_models_are_optimized(options: list[str], bits: int, operator: str, tmp_path: Path) -> None:
    bundle = pack(tmp_path / "a.mge", *options)
    assert operator in {o.title for o in bundle.graph.oprs}
    assert bundle.graph.metadata is not None
    assert bundle.graph.metadata.optimize_options == bits
    (result,) = loadrun.Runner(bundle).replay()
    assert result.verdict is loadrun.Verdict.PASS
    assert [o.name for o in result.outputs] == ["classes", "map"]


def test_without_options_the_graph_stays(tmp_path: Path) -> None:
    bundle = pack(tmp_path / "a.mge")
    assert "BatchNormV1" in {o.type for o in bundle.graph.oprs}


def test_two_layouts_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="both choose a layout"):
        pack(tmp_path / "a.mge", "--enable-nchw44", "--enable-nchw88")
    assert not (tmp_path / "a.mge").exists()
