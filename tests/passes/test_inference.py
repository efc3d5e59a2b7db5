"""optimize_for_inference against what MegEngine's own optimizer wrote, and against the graph as it was."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.megengine.functional as F
from loadrun.base.errors import UsageError
from loadrun.graph import Graph
from loadrun.graph.dtypes import Array
from loadrun.passes.constants import bare
from loadrun.passes.inference import optimize_for_inference
from loadrun.passes.loadable import unavailable
from loadrun.passes.options import InferenceOptions, Layout
from loadrun.testing import random_feeds as feeds_of
from loadrun.tracing import trace
from loadrun.verify.pack.files import pack_file
from loadrun.verify.pack.options import PackOptions
from tests.support.cases import WHOLE, check_all, kind_of_file, some_of
from tests.support.fixture_files import FIXTURES
from tests.support.optimize_graphs import error, operators, run

INDEX: dict[str, dict[str, Any]] = json.loads((FIXTURES / "optimized/index.json").read_text())
CASES = [name.removesuffix(".mge") for name in INDEX if not name.endswith("_plain.mge")]

FEWER = ({"ConvolutionV2": 2, "FUSE_ADD_RELU": 2}, {"ConvBiasForwardV4": 1})
"""MegEngine leaves the first layer, which two operators read, both fused and not, and computes it twice."""
DIFFERENT: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    **{
        f"cnn_{option}": FEWER
        for option in (
            "nonlinearity",
            "z",
            "nchw4",
            "nchw32",
            "nchw44",
            "nchw44_dot",
            "nchw88",
            "chwn4",
            "hwcd4",
        )
    },
    # The padding of the input follows its batch size; MegEngine's is of the size that was traced.
    "dense4_nchw64": ({}, {"constants": 1, "GetVarShapeV1": 1, "Subtensor": 3, "Concat": 2, "Broadcast": 1}),
    # MegEngine takes differences apart, whose terms may be large and alike; max(v, v) keeps it from doing so.
    **{
        f"arithmetic_{option}": (
            {"FUSE_MUL_ADD4": 1},
            {"ADD": 1, "MUL": 1, "FUSE_MUL_ADD3": 1, "SUB": 1, "MAX": 1},
        )
        for option in ("default", "io16xc32", "ioc16")
    },
    # MegEngine leaves the output in the packed layout.
    "residual8_hwcd4": ({}, {"RelayoutFormatV1": 1}),
}
"""(what MegEngine has besides, what loadrun has besides)."""
TOLERANCE = {"io16xc32": 3e-2, "ioc16": 3e-2, "preprocess": 0.51 * 2}
ONE_QUANTUM = {"residual8_" + option: 0.12 for option in ("z", "nchw4", "nchw32", "chwn4", "nchw64")}
"""Where the residual sum is fused, values are rounded once instead of twice."""


def test_exceptions_are_of_recorded_graphs() -> None:
    assert {*DIFFERENT, *ONE_QUANTUM} <= set(CASES)


def plain(name: str) -> Graph:
    return loadrun.load(FIXTURES / "optimized" / f"{name.partition('_')[0]}_plain.mge").graph


def by_type(counts: dict[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for described, n in counts.items():
        kind = described.partition(" ")[0]
        found[kind] = found.get(kind, 0) + n
    return found


@pytest.mark.parametrize("name", [c for c in CASES if "error" not in INDEX[f"{c}.mge"]])
def test_operators_are_those_of_megengine(name: str) -> None:
    optimized, bits = optimize_for_inference(plain(name), **INDEX[f"{name}.mge"]["options"])
    theirs = loadrun.load(FIXTURES / "optimized" / f"{name}.mge").graph
    a, b = operators(optimized), operators(theirs)
    assert (by_type(b - a), by_type(a - b)) == DIFFERENT.get(name, ({}, {}))
    assert theirs.header.metadata is not None
    assert bits == theirs.header.metadata.optimize_options


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_graph_before(name: str) -> None:
    graph = plain(name)
    before = str(graph)
    optimized, _ = optimize_for_inference(graph, **INDEX[f"{name}.mge"]["options"])
    assert str(graph) == before
    assert [v.name for v in optimized.outputs] == [v.name for v in graph.outputs]
    assert [v.name for v in optimized.inputs] == [v.name for v in graph.inputs]
    option = name.partition("_")[2]
    limit = ONE_QUANTUM.get(name, TOLERANCE.get(option, 2e-5))
    feeds, worst = feeds_of(graph), 0.0
    for a, b in zip(run(graph, feeds), run(optimized, feeds), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        worst = max(worst, error(a, b))
    assert (2e-5 if name in ONE_QUANTUM else 0) <= worst <= limit


@pytest.mark.parametrize("option", ["", "nchw44", "nchw88", "hwcd4", "nchw4", "chwn4", "nchw64"])
@pytest.mark.parametrize("name", ["cnn", "residual8"])
def test_other_batch_sizes_run(name: str, option: str) -> None:
    graph = plain(name)
    optimized, _ = optimize_for_inference(graph, **({f"enable_{option}": True} if option else {}))
    feeds = {k: v.repeat(3, axis=0) for k, v in feeds_of(graph, 1).items()}
    limit = 0.12 if option in ("nchw4", "chwn4", "nchw64") and name == "residual8" else 2e-5
    for a, b in zip(run(graph, feeds), run(optimized, feeds), strict=True):
        assert a.shape == b.shape
        assert error(a, b) <= limit


NETS = [
    *("layout_float", "layout_quant"),
]
OPTIONS = {
    "default": {},
    "no_fuse_grain": {"enable_fuse_grain": False},
    "fuse_nonlinearity": {"enable_fuse_conv_bias_nonlinearity": True},
    "fuse_with_z": {"enable_fuse_conv_bias_with_z": True},
    **{
        name: {f"enable_{name}": True}
        for name in ("nchw4", "nchw32", "nchw44", "nchw44_dot", "nchw88", "hwcd4", "chwn4", "fuse_preprocess")
    },
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("kind", NETS)
def test_operators_behind_checks_are_those_of_megengine(kind: str, option: str) -> None:
    path = FIXTURES / f"nets/{kind}_{option}.mge"
    path = path if path.exists() else path.with_name(f"xfail_{path.name}")
    if not path.exists():
        pytest.skip("MegEngine cannot optimize this net so")
    graph = bare(loadrun.load(FIXTURES / f"nets/{kind}_unoptimized.mge"))
    optimized, bits = optimize_for_inference(graph, **OPTIONS[option])
    theirs = loadrun.load(path)
    assert operators(optimized) == operators(bare(theirs))
    assert theirs.graph.header.metadata is not None
    assert bits == theirs.graph.header.metadata.optimize_options


LAYOUTS = ("nchw44", "nchw88", "hwcd4", "ioc16")
NETS_ALONE = sorted(
    p.name
    for p in (FIXTURES / "nets").glob("*.mge")
    if not p.name.startswith(("xfail", "layout", "float16", "quant_unet")) and ".v1" not in p.name
)


@pytest.mark.parametrize("name", some_of(NETS_ALONE, 4, kind_of_file))
def test_nets_compute_what_they_did(name: str) -> None:
    bundle = loadrun.load(FIXTURES / "nets" / name)
    if not len(bundle.testcases):
        pytest.skip("no testcase")
    graph, feeds = bare(bundle), bundle.testcases[0].inputs
    before = run(graph, feeds)
    # Each option in turn: test_results_are_those_of_the_graph_before has all of them on each kind of graph.
    turn = NETS_ALONE.index(name) % len(LAYOUTS)
    options = ["", *LAYOUTS] if WHOLE else ["", LAYOUTS[turn]]
    check_all(options, partial(computes_as_before, graph, feeds, before), lambda option: option or "none")


def computes_as_before(graph: Graph, feeds: dict[str, Array], before: list[Array], option: str) -> None:
    optimized, _ = optimize_for_inference(graph, **({f"enable_{option}": True} if option else {}))
    for a, b in zip(before, run(optimized, feeds), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if option == "ioc16" and a.dtype.kind != "f":
            # What is decided by a comparison may turn out otherwise.
            assert np.mean(a != b) < 0.05
        else:
            assert error(a, b) <= (0.4 if option == "ioc16" else 2e-5)


def test_bits_are_those_of_megengine() -> None:
    # GraphOptimizeOptions().serialize() of MegEngine 1.13.0.
    assert InferenceOptions.of().bits == 64
    assert InferenceOptions.of(enable_fuse_grain=False).bits == 0
    assert InferenceOptions.of(enable_io16xc32=True).bits == 65
    assert InferenceOptions.of(enable_ioc16=True).bits == 66
    assert InferenceOptions.of(enable_fuse_conv_bias_nonlinearity=True).bits == 68
    assert InferenceOptions.of(enable_fuse_conv_bias_with_z=True).bits == 72
    assert InferenceOptions.of(weight_preprocess=True).bits == 80
    assert InferenceOptions.of(enable_fuse_preprocess=True).bits == 96
    assert InferenceOptions.of(enable_nchw64=True).bits == (8 << 32) | 64


def test_options_have_several_names() -> None:
    wanted = InferenceOptions(layout=Layout.NHWCD4, f16_io_comp=True)
    assert InferenceOptions.of(use_nhwcd4=True, f16_io_comp=True) == wanted
    assert InferenceOptions.of(enable_hwcd4=True, enable_ioc16=True, enable_nchw4=False) == wanted


def test_unknown_options_and_two_layouts_are_refused() -> None:
    with pytest.raises(UsageError, match=r"unknown options: enable_nchw16; expected some of enable_io16xc32"):
        InferenceOptions.of(enable_nchw16=True)
    with pytest.raises(UsageError, match="enable_nchw4 and enable_nchw88 both choose a layout"):
        optimize_for_inference(Graph(), enable_nchw4=True, enable_nchw88=True)


def test_metadata_tell_what_was_done() -> None:
    graph = plain("cnn")
    optimized, bits = optimize_for_inference(graph, enable_nchw44=True)
    assert optimized.header.metadata is not None
    assert graph.header.metadata is not None
    assert (optimized.header.metadata.optimize_options, graph.header.metadata.optimize_options) == (bits, 0)
    assert optimized.header.metadata.user_info == graph.header.metadata.user_info


@pytest.mark.parametrize(
    "option", ["fuse_conv_bias_nonlinearity", "fuse_conv_bias_with_z", "nchw44", "nchw88"]
)
def test_a_bias_with_a_row_for_every_sample_follows_the_batch(option: str, tmp_path: Path) -> None:
    r = np.random.default_rng(0)
    w, proj = (r.random(shape, np.float32) - 0.5 for shape in ((8, 8, 1, 1), (4, 8)))

    @trace(symbolic=True, capture_as_const=True)
    def embedded(x: loadrun.Tensor, t: loadrun.Tensor) -> loadrun.Tensor:
        return F.relu(F.conv2d(x, w) + F.expand_dims(F.matmul(t, proj), (2, 3)))

    embedded(loadrun.tensor(r.random((1, 8, 5, 5))), loadrun.tensor(r.random((1, 4))))
    path = tmp_path / "embedded.mge"
    embedded.dump(path, arg_names=["x", "t"], **{"optimize_for_inference": True, f"enable_{option}": True})
    x, t = r.random((3, 8, 5, 5), np.float32), r.random((3, 4), np.float32)
    want = np.einsum("nchw,oc->nohw", x.astype(float), w[:, :, 0, 0]) + (t @ proj)[:, :, None, None]
    (got,) = loadrun.Runner(loadrun.load(path)).run({"x": x, "t": t}).outputs
    np.testing.assert_allclose(got.value, np.maximum(want, 0), rtol=1e-5, atol=1e-6)


def test_what_only_gpus_run_is_said() -> None:
    """MegEngine's own optimizer gave residual8 convolutions of that layout, which its CPU build refuses to run."""
    quantized = loadrun.load(FIXTURES / "optimized/residual8_chwn4.mge").graph
    said = unavailable(quantized)
    assert said is not None
    assert "convolutions in CHWN4, which MegEngine runs on GPUs only" in said
    assert "and 5 more" in said
    assert unavailable(loadrun.load(FIXTURES / "optimized/residual8_nchw4.mge").graph) is None


def test_files_that_only_gpus_run_are_written_with_a_warning(tmp_path: Path) -> None:
    options = PackOptions(input_data=("#rand(0,1)",), passes={"enable_chwn4": True}, maxerr=1.0)
    with pytest.warns(UserWarning, match="convolutions in CHWN4"):
        pack_file(FIXTURES / "optimized/residual8_plain.mge", tmp_path / "x.mge", options)


@pytest.mark.parametrize(
    ("function", "dtype", "said"),
    [
        (lambda x: F.vision.cvt_color(x, mode="RGB2BGR"), "float32", "colour conversions of float images"),
        (lambda x: F.vision.cvt_color(x, mode="RGB2BGR"), "uint8", None),
        (lambda x: F.vision.cvt_color(x, mode="RGB2GRAY"), "float32", None),
        (lambda x: F.max_pool2d(x, 2), "float16", "max pooling of float16"),
        (lambda x: F.avg_pool2d(x, 2), "float16", None),
        (lambda x: F.conv2d(x, np.ones((4, 4, 3, 3), np.int8)), "int8", "convolutions of int8"),
    ],
)
def test_what_megengine_has_no_kernel_for_is_said(
    function: Callable[..., Any], dtype: str, said: str | None, tmp_path: Path
) -> None:
    """Each was run by MegEngine 1.13 on x86: it has no kernel, or gives other numbers; those without a word pass."""
    traced = trace(function, symbolic=True, capture_as_const=True)
    traced(loadrun.tensor(np.ones((1, 4, 4, 3 if dtype != "int8" else 4), dtype)))
    for data in (None, ["#rand(0,1)"]):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            traced.dump(tmp_path / "x.mge", input_data=data)
        texts = [str(w.message) for w in told if "MegEngine does not" in str(w.message)]
        assert len(texts) == (said is not None)
        assert said is None or said in texts[0]
