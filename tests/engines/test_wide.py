"""The float64 engine against what MegEngine recorded."""

from __future__ import annotations

import numpy as np
import pytest

import loadrun
from loadrun.compare import assert_equal_error
from loadrun.engines.wide import WideEngine
from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import DType
from loadrun.graph.params import CondTake, Elemwise, ElemwiseMode, Host2DeviceCopy, MatrixMul
from tests.support.cases import kind_of_file, some_of
from tests.support.fixture_files import FIXTURES

F32 = DType("Float32")
FAMILIES = (
    "nets",
    *(
        f"ops/{n}"
        for n in (
            *(
                "attention",
                "conv",
                "elemwise",
                "index",
                "linalg",
                "matmul",
                "norm",
                "pooling",
                "reduce",
                "rnn",
            ),
            *("roi", "shape", "sort", "vision", "window"),
        )
    ),
)
SUBTRACTS_SQUARES = {"general_norm_0_1_affine.mge": 1e-4}
"""Where MegEngine loses digits, and how many: it takes a variance as the difference of two float32 sums of squares."""


@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_numbers(family: str) -> None:
    """All checks hold, each within MegEngine's own measure, and most of the work is in float64."""
    wide = narrow = 0
    files = [
        path
        for path in sorted((FIXTURES / family).glob("*.mge"))
        if not path.name.startswith("xfail_") and not path.name.endswith(".v1.mge")
    ]
    for path in some_of(files, 4, lambda p: (kind_of_file(p.as_posix()), p.name in SUBTRACTS_SQUARES)):
        bundle = loadrun.load(path)
        if not bundle.checks:
            continue
        engine = WideEngine(bundle.graph, [v for c in bundle.checks for v in (c.expect, c.get)])
        case = bundle.testcases[0]
        values = iter(engine.run(case.arrays))
        wide, narrow = wide + engine.wide, narrow + sum(engine.narrow.values())
        needed = False
        for check in bundle.checks:
            expect, get = next(values), next(values)
            if expect.shape == get.shape:
                # MegEngine rounds to float16 after every step, each time by half of its epsilon or less.
                half = check.expect.dtype is not None and check.expect.dtype.name == "Float16"
                error, limit = assert_equal_error(expect, get), max(check.maxerr, 2.0**-8 if half else 1e-5)
                needed |= error > limit
                assert error <= SUBTRACTS_SQUARES.get(path.name, limit), f"{path.name} {check.name}"
        assert needed == (path.name in SUBTRACTS_SQUARES), path.name
    assert wide > narrow


def product() -> Graph:
    graph = Graph()
    tensors = [StoredTensor(F32, (3, 4), "a"), StoredTensor(F32, (4, 2), "b")]
    a, b = (graph.add("Host2DeviceCopy", Host2DeviceCopy(), names=[t.name], tensors=[t])[0] for t in tensors)
    (y,) = graph.add("MatrixMulV2", MatrixMul(), inputs=[a, b], names=["y"])
    graph.outputs = [y]
    return graph


def test_values_are_those_of_float64() -> None:
    rng = np.random.default_rng(0)
    feeds = {n: rng.normal(size=s).astype("f4") for n, s in (("a", (3, 4)), ("b", (4, 2)))}
    engine = WideEngine(product())
    (y,) = engine.run(feeds)
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, feeds["a"].astype("f8") @ feeds["b"].astype("f8"), rtol=1e-14)
    assert sorted(engine.inputs) == ["a", "b"]


def test_what_stays_in_float32() -> None:
    """An operator without a formula computes on rounded values; what only moves numbers keeps all their bits."""
    graph = product()
    (y,) = graph.outputs
    (slope,) = graph.add("Elemwise", Elemwise(mode=ElemwiseMode.SIGMOID_GRAD), inputs=[y, y])
    taken, where = graph.add("CondTake", CondTake(), inputs=[y, y], n_outputs=2)
    engine = WideEngine(graph, [slope, taken, where])
    feeds = {"a": np.full((3, 4), 0.1, "f4"), "b": np.full((4, 2), 0.3, "f4")}
    values = engine.run(feeds)
    assert [v.dtype.name for v in values] == ["float32", "float64", "int32"]
    assert (engine.wide, dict(engine.narrow)) == (2, {"SIGMOID_GRAD": 1})


def test_errors() -> None:
    with pytest.raises(loadrun.InputError, match="input 'b' is missing"):
        WideEngine(product()).run({"a": np.zeros((3, 4), "f4")})
    with pytest.raises(loadrun.EngineError, match=r"MatrixMulV2.*failed"):
        WideEngine(product()).run({"a": np.zeros((3, 4), "f4"), "b": np.zeros((5, 2), "f4")})
