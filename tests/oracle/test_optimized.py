"""What the optimizer makes of a model is executed by real MegEngine with all checks holding.

The expected values are those of the graph before, so that MegEngine judges the optimizer, too. Where a pass rounds
differently on purpose they are those of the graph after it. MegEngine's CPU executes no NHWCD4, and NCHW88 convolutions
do not come back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import loadrun
from loadrun.graph import Graph
from loadrun.passes.constants import bare
from loadrun.passes.inference import optimize_for_inference, simplify
from loadrun.testing import random_feeds as feeds_of
from loadrun.verify.pack.capture import capture, embed
from tests.support.oracle import ROOT, run

pytestmark = pytest.mark.oracle

EXACT: dict[str, dict[str, Any]] = {
    "default": {},
    "nonlinearity": {"enable_fuse_conv_bias_nonlinearity": True},
    "nchw44": {"enable_nchw44": True},
    "nchw44_dot": {"enable_nchw44_dot": True},
}
ROUNDED: dict[str, dict[str, Any]] = {
    "z": {"enable_fuse_conv_bias_with_z": True},
    "preprocess": {"enable_fuse_preprocess": True},
    "nchw4": {"enable_nchw4": True},
    "nchw32": {"enable_nchw32": True},
    "io16xc32": {"enable_io16xc32": True},
    "ioc16": {"enable_ioc16": True},
}
FAULTS = {
    "cnn_plain-io16xc32": "MegEngine's float16 max pooling computes garbage",
    "cnn_plain-ioc16": "MegEngine's float16 max pooling computes garbage",
    "residual8_plain-z": "MegEngine's x86 kernels ignore a fused residual",
    **dict.fromkeys(
        (
            f"float16_{kind}-{how}"
            for kind in ("ioc16", "native")
            for how in ("nonlinearity", "nchw44", "nchw44_dot")
        ),
        "MegEngine's x86 kernels leave the bias out in float16",
    ),
}


def optimized(graph: Graph, how: str) -> Graph:
    if how.startswith("level"):
        return simplify(graph, int(how[-1]), jit_fuse_dimshuffle=True, jit_fuse_reduce=True)
    return optimize_for_inference(graph, **{**EXACT, **ROUNDED}[how])[0]


def usable(path: Path) -> bool:
    words = ("xfail", "hwcd4", "nchw88", ".v1.", "nchw64", "qint4", "quint4")
    return not any(word in path.name for word in words)


def pack(path: Path, how: str, target: Path) -> Path:
    bundle = loadrun.load(path)
    graph = bare(bundle)
    feeds = bundle.testcases[0].inputs if len(bundle.testcases) else feeds_of(graph)
    made = optimized(graph, how)
    # Where a quantized transposed convolution takes in its conversion, a value is rounded once.
    own = how in ROUNDED or "unet" in path.name
    case = capture(made if own else graph, feeds)
    file = target / f"{path.stem}-{how}.mge"
    limit = 2e-2 if how in ("io16xc32", "ioc16") else 1e-4
    loadrun.save(embed(made, [case], limit, silent=True, warn=lambda _: None), file)
    return file


def failures(files: list[Path]) -> dict[str, Any]:
    found = run(files)
    verdicts = {f.stem: found.get(str(f), {}).get("result", "none") for f in files}
    return {n: v for n, v in verdicts.items() if v != "pass" and n not in FAULTS}


@pytest.mark.parametrize("how", [*EXACT, *ROUNDED, "level1", "level2", "level3"])
def test_small_nets_hold_in_megengine(how: str, tmp_path: Path) -> None:
    paths = [p for p in sorted((ROOT / "optimized").glob("*_plain.mge")) if p.stem != "dense4_plain"]
    assert failures([pack(p, how, tmp_path) for p in paths]) == {}


@pytest.mark.parametrize("how", [*EXACT, "level3"])
def test_nets_hold_in_megengine(how: str, tmp_path: Path) -> None:
    paths = [p for p in sorted((ROOT / "nets").glob("*.mge")) if usable(p)]
    assert failures([pack(p, how, tmp_path) for p in paths if len(loadrun.load(p).testcases)]) == {}
