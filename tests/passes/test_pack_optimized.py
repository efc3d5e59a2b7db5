"""`loadrun pack` with MegEngine's optimization options."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import UsageError
from loadrun.cli.pack import main
from loadrun.passes import inference
from loadrun.passes.constants import bare
from loadrun.passes.fusion import fuse_conv_bias_z
from loadrun.passes.inference import optimize_for_inference
from loadrun.passes.options import Layout
from loadrun.testing import random_feeds as feeds_of
from tests.support.fixture_files import FIXTURES
from tests.support.optimize_graphs import run

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
    assert bundle.graph.header.metadata is not None
    assert bundle.graph.header.metadata.optimize_options == bits
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


@pytest.mark.parametrize("net", ["quant_resnet_qint4", "quant_resnet_minmax", "quant_mobilenet_quint8"])
def test_wide_packs_alone_change_no_bit_of_a_quantized_net(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes is that a residual sum is rounded once, as in the files that MegEngine fused so."""
    graph = bare(loadrun.load(FIXTURES / f"nets/{net}.mge"))
    feeds = feeds_of(graph)
    fused, _ = optimize_for_inference(graph, enable_nchw64=True)
    assert max(len(o.inputs) for o in fused.oprs if o.type == "ConvBiasForwardV4") == 4
    passes = tuple(p for p in inference._LAYOUTS[Layout.NCHW64] if p is not fuse_conv_bias_z)
    monkeypatch.setitem(inference._LAYOUTS, Layout.NCHW64, passes)
    packed, _ = optimize_for_inference(graph, enable_nchw64=True)
    for a, b in zip(run(graph, feeds), run(packed, feeds), strict=True):
        np.testing.assert_array_equal(a, b)
