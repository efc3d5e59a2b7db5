"""What a plain replay imports: modules that it does not use stay away, however many options and packages there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tabulate import tabulate

import loadrun
from loadrun.report.text import Rows

PLAIN = "fixtures/nets/mlp.mge"
ASKED_FOR = """
asyncio bz2 concurrent csv decimal email hashlib html http importlib.metadata json lzma multiprocessing
pathlib random shutil socket ssl statistics tempfile traceback unittest urllib.parse urllib.request zipfile zlib
numpy.random
numpy.testing flatbuffers tabulate cv2 onnx onnxruntime openvino torch megengine loadrun.megengine
loadrun.runtimes loadrun.verify.bench loadrun.dump.checkpoint loadrun.verify.diff
loadrun.dump.store loadrun.dump.writer loadrun.engines.divided loadrun.engines.profile
loadrun.engines.recompute
loadrun.engines.recompute loadrun.engines.wide loadrun.tensors loadrun.inputs.loading
loadrun.inputspec loadrun.tracing loadrun.arrays loadrun.onnx loadrun.ops.conv
loadrun.ops.image loadrun.ops.rnn loadrun.passes.inference
loadrun.verify.pack loadrun.report.json
loadrun.testing loadrun.torch
"""
"""Nothing of it is needed to replay a file of products and activations."""
PROBE = """
import sys, loadrun.cli
before = set(sys.modules)
assert loadrun.cli.main([{file!r}, *{options!r}]) == 0
print("\\n".join(sys.modules), file=sys.stderr)
"""


def imported(*options: str) -> set[str]:
    """The modules in a fresh process after a replay, with all packages that they lie in; those of numpy left out."""
    code = PROBE.format(file=PLAIN, options=list(options))
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    alone = subprocess.run(
        [sys.executable, "-c", "import sys, numpy; print('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(ran.stderr.split()) - set(alone.stdout.split())


def test_a_plain_replay_imports_nothing_that_it_does_not_use() -> None:
    assert sorted(imported() & set(ASKED_FOR.split())) == []


COLLECTOR = """
import gc, sys, loadrun.cli.info
from loadrun.__main__ import program
during = []
loadrun.cli.info.main = lambda argv: during.append((gc.isenabled(), gc.get_freeze_count() > 10_000)) or 0
sys.argv = ["loadrun", "info", "model.mge"]
assert program() == 0
print(during, gc.isenabled())
"""


def test_a_command_runs_with_the_collector_on_and_what_was_imported_left_alone() -> None:
    ran = subprocess.run([sys.executable, "-c", COLLECTOR], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[(True, True)] True"


def test_what_is_asked_for_is_imported() -> None:
    assert "loadrun.report.json" in imported("--quiet", "--json", "-")


def test_rows_are_those_of_tabulate() -> None:
    results = loadrun.run(PLAIN)
    rows = [line.split() for line in Rows().block(results).splitlines()]
    headers = ["testcase", "output", "shape", "dtype", "max error", "tolerance", "verdict", "ms"]
    align = ["right" if h in ("testcase", "max error", "tolerance", "ms") else "left" for h in headers]
    want = tabulate(rows[2:], headers, tablefmt="simple", colalign=align, disable_numparse=True)
    assert Rows().block(results) == want


COUNT = """
import sys
from loadrun.cli import main
main([{file!r}, "--quiet"])
print(*sorted(sys.modules))
"""


def assert_few_modules(file: str, most: int, *, draws: bool = False) -> None:
    """Assert that at most so many modules of loadrun are imported for a file, and no needless others.

    Args:
        draws: whether its inputs are drawn.
    """
    code = COUNT.format(file=file)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = ran.stdout.split()
    assert len([m for m in modules if m.split(".")[0] == "loadrun"]) <= most
    assert not {"decimal", "fractions", "json", "logging", "loadrun.ops.formulas.images"} & set(modules)
    # numpy 1 imports these at once.
    if int(np.__version__.split(".")[0]) >= 2:
        assert not {"numpy.testing", "numpy.f2py", "numpy.ma"} & set(modules)
        assert draws or "numpy.random" not in modules


def test_a_replay_imports_few_modules() -> None:
    assert_few_modules(PLAIN, 94)


@pytest.mark.parametrize("name", ["control", "convnet", "names"])
def test_an_onnx_file_imports_what_it_needs(name: str) -> None:
    assert_few_modules(f"fixtures/onnx/{name}/model.onnx", 168)


def test_an_onnx_file_imports_the_families_that_it_needs(tmp_path: Path) -> None:
    """A convolution, an activation and a product: no family of other operators, and none of numpy's functions."""
    onnx = pytest.importorskip("onnx")
    make, rng = onnx.helper, np.random.default_rng(0)
    weights = {"w": (4, 3, 3, 3), "b": (4,), "m": (10, 144), "c": (10,)}
    stored = [onnx.numpy_helper.from_array(rng.random(s, np.float32), n) for n, s in weights.items()]
    nodes = [
        make.make_node("Conv", ["x", "w", "b"], ["conv"]),
        make.make_node("Relu", ["conv"], ["relu"]),
        make.make_node("Flatten", ["relu"], ["flat"]),
        make.make_node("Gemm", ["flat", "m", "c"], ["y"], transB=1),
    ]
    x = make.make_tensor_value_info("x", 1, [1, 3, 8, 8])
    y = make.make_tensor_value_info("y", 1, [1, 10])
    graph = make.make_graph(nodes, "small", [x], [y], stored)
    opset = make.make_opsetid("", 17)
    onnx.save(make.make_model(graph, opset_imports=[opset], ir_version=8), tmp_path / "small.onnx")
    assert_few_modules(str(tmp_path / "small.onnx"), 146, draws=True)
