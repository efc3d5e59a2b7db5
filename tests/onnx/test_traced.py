"""Definitions on traced arrays: what ONNX models become in .mge files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import InputError, LoadRunError, UnsupportedError
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph
from loadrun.onnx.traced.recording import recorded
from tests.onnx.contrib_cases import CASES

onnx = pytest.importorskip("onnx", reason="ONNX's node tests come with the package onnx")

PARTS = 4
KINDS = frozenset(
    ["bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64"]
    + ["uint8", "uint16", "uint32", "uint64"]
)


def examples() -> Iterator[tuple[str, bytes, dict[str, np.ndarray]]]:
    """Yield models of one node, at most two of each operator, with inputs."""
    from tests.onnx.contrib_models import proto  # needs onnx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    count: dict[str, int] = {}
    for case in cases:
        nodes = case.model.graph.node
        values = case.data_sets[0][0]
        key = f"{nodes[0].domain}.{nodes[0].op_type}".removeprefix(".")
        numbers = all(isinstance(v, np.ndarray) for v in values) and any(
            v.dtype.name in KINDS for v in values
        )
        if len(nodes) != 1 or count.get(key, 0) > 1 or not numbers:
            continue
        count[key] = count.get(key, 0) + 1
        fed = {i.name: v for i, v in zip(case.model.graph.input, values, strict=False)}
        yield case.name, case.model.SerializeToString(), fed
    for name, case in CASES.items():
        inputs = enumerate(case.inputs)
        yield name, proto(case), {f"i{i}": v for i, v in inputs if v is not None and i not in case.stored}


def places() -> Iterator[tuple[str, bytes, dict[str, np.ndarray], str]]:
    """Yield examples with each of their inputs that hold numbers."""
    for name, data, fed in examples():
        for place, value in fed.items():
            if value.dtype.name in KINDS:
                yield name, data, fed, place


@cache
def all_places() -> list[tuple[str, bytes, dict[str, np.ndarray], str]]:
    return [*places()]


def same(source: Graph, graph: Graph, place: str, value: np.ndarray) -> bool:
    """Whether a graph computes what its source does, if that takes the value; 8-bit results may differ by one."""
    try:
        want = ReferenceEngine(source).run({place: value})
    except LoadRunError:
        return True
    got = ReferenceEngine(graph).run({place: value if value.ndim else value.reshape(1)})
    for a, b in zip(want, got, strict=True):
        near = 1 if a.dtype.kind in "iu" and a.dtype.itemsize == 1 else 0
        x, y = (v.reshape(-1).astype(np.float64) for v in (a, b))
        if x.shape != y.shape or not np.allclose(x, y, 2e-3, 1e-4 + near, equal_nan=True):
            return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_traced_input_becomes_a_constant(part: int) -> None:
    """One input is traced, all others are known; the graph must follow other numbers as the definition does."""
    wrong, followed = [], 0
    for name, data, fed, place in all_places()[part::PARTS]:
        others = {n: v for n, v in fed.items() if n != place}
        try:
            bundle = loadrun.load(data, constants=others, input_shapes={place: fed[place].shape})
            if bundle.lower is None or bundle.holds_objects:
                continue
            graph = recorded(bundle.graph, {place: fed[place].shape})
        except LoadRunError:
            continue
        followed += 1
        if any(o.type.endswith(("RNGV1", "Random")) for o in (*graph.oprs, *bundle.graph.oprs)):
            continue
        turned = np.roll(fed[place].reshape(-1), 1).reshape(fed[place].shape)
        if not all(same(bundle.graph, graph, place, value) for value in (fed[place], turned)):
            wrong.append(f"{name}: {place}")
    assert not wrong, "\n".join(dict.fromkeys(wrong))
    assert followed > 100


def made(body: str, **shapes: tuple[int, ...]) -> loadrun.Bundle:
    """A model in ONNX's own text."""
    text = '<ir_version: 9, opset_import: ["" : 20]>\n' + body
    return loadrun.load(onnx.parser.parse_model(text).SerializeToString(), input_shapes=shapes)


def operators(graph: Graph) -> list[str]:
    return [o.title for o in graph.needed() if not o.tensors]


def test_positions_in_a_stored_table_stay_an_input(tmp_path: Path) -> None:
    bundle = made("g (int64[2] at) => (float[2] y) <float[3] table = {1, 2, 3}> { y = Gather(table, at) }")
    loadrun.save(bundle, tmp_path / "m.mge")
    for at in ([0, 1], [2, 0]):
        (result,) = loadrun.run(tmp_path / "m.mge", {"at": np.array(at)})
        assert np.asarray(result["y"]).tolist() == [at[0] + 1, at[1] + 1]


def test_a_shape_that_is_fed_is_refused() -> None:
    bundle = made("g (float[6] x, int64[2] s) => (float[n,m] y) { y = Reshape(x, s) }")
    with pytest.raises(
        UnsupportedError, match=r"Reshape 'y': an input that decides .* constants=\{'s': \.\.\.\}"
    ):
        recorded(bundle.graph, {"x": (6,), "s": (2,)})


def test_other_sizes_than_the_files_are_refused_by_name(tmp_path: Path) -> None:
    bundle = made("g (float[n,3] x) => (float[n,3] y) { y = Softmax(x) }", x=(2, 3))
    loadrun.save(bundle, tmp_path / "m.mge")
    dump = loadrun.load(tmp_path / "m.mge")
    assert dump.fixed_shapes == {"x": (2, 3)}
    with pytest.raises(InputError, match=r"input 'x' has shape \[4, 3\], but the file is made for \[2, 3\]"):
        loadrun.run(dump, {"x": np.zeros((4, 3), np.float32)})


LOOP = """
g (float[2] x) => (float[2] y) <int64 n = {3}> {
  y = Loop(n, , x) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w) { d = Identity(c)  w = Add(v, x) }>
}
"""


def test_turns_whose_number_is_known_are_recorded() -> None:
    graph = recorded(made(LOOP).graph, {"x": (2,)})
    assert operators(graph) == ["ADD"] * 3
    assert ReferenceEngine(graph).run({"x": np.array([1, 2], np.float32)})[0].tolist() == [4, 8]


BRANCHES = """g (float[2] x, bool c) => (float[n] y) {
  y = If(c) <then_branch = t () => (float[k] a) { a = Neg(x) }, else_branch = e () => (float[m] b) { b = OTHER }>
}"""


def test_both_branches_are_computed_where_data_choose() -> None:
    graph = recorded(made(BRANCHES.replace("OTHER", "Abs(x)")).graph, {"x": (2,), "c": ()})
    for c, want in ((True, [-3, 4]), (False, [3, 4])):
        feeds = {"x": np.array([3, -4], np.float32), "c": np.array([c])}
        assert ReferenceEngine(graph).run(feeds)[0].tolist() == want


def test_data_do_not_choose_between_shapes() -> None:
    body = BRANCHES.replace("OTHER", "Concat <axis=0> (x, x)")
    with pytest.raises(UnsupportedError, match=r"If 'y': .*\(2,\) and \(4,\).* constants=\{'c': \.\.\.\}"):
        recorded(made(body).graph, {"x": (2,), "c": ()})


def test_what_data_decide_the_size_of() -> None:
    graph = recorded(made("g (float[4] x) => (int64[1,n] y) { y = NonZero(x) }").graph, {"x": (4,)})
    (y,) = ReferenceEngine(graph).run({"x": np.array([0, 3, 0, 5], np.float32)})
    assert y.tolist() == [[1, 3]]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("Relu(x)", ["RELU"]),
        ("Sigmoid(x)", ["SIGMOID"]),
        ("Softmax(x)", ["Softmax"]),
        ("Erf(x)", ["ERF"]),
        ("Clip(x, low, high)", ["MAX", "MIN"]),
        ("MatMul(x, x)", ["MatrixMulV2"]),
    ],
)
def test_operators_of_one_node(node: str, expected: list[str]) -> None:
    stored = "<float low = {0}, float high = {6}>" if "low" in node else ""
    bundle = made(f"g (float[3,3] x) => (float[3,3] y) {stored} {{ y = {node} }}")
    assert operators(recorded(bundle.graph, {"x": (3, 3)})) == expected
