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
from tests.support.cases import slow_but

onnx = pytest.importorskip("onnx", reason="ONNX's node tests come with the package onnx")
reference = pytest.importorskip("onnx.reference", reason="comes with the package onnx")

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


@pytest.mark.parametrize("part", slow_but([0], range(PARTS)))
def test_no_traced_input_becomes_a_constant(part: int) -> None:
    """One input is traced, all others are known; the graph must follow other numbers as the definition does."""
    wrong, followed = [], 0
    for name, data, fed, place in all_places()[part::PARTS]:
        others = {n: v for n, v in fed.items() if n != place}
        try:
            bundle = loadrun.load(data, constants=others, input_shapes={place: fed[place].shape})
            if bundle.source.lower is None or bundle.holds_objects:
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


def onnx_bytes(body: str) -> bytes:
    """A model in ONNX's own text."""
    text = '<ir_version: 9, opset_import: ["" : 20]>\n' + body
    return bytes(onnx.parser.parse_model(text).SerializeToString())


def made(body: str, **shapes: tuple[int, ...]) -> loadrun.Bundle:
    return loadrun.load(onnx_bytes(body), input_shapes=shapes)


def operators(graph: Graph) -> list[str]:
    return [o.title for o in graph.needed() if not o.tensors]


def test_positions_in_a_stored_table_stay_an_input(tmp_path: Path) -> None:
    bundle = made("g (int64[2] at) => (float[2] y) <float[3] table = {1, 2, 3}> { y = Gather(table, at) }")
    loadrun.save(bundle, tmp_path / "m.mge")
    for at in ([0, 1], [2, 0]):
        (result,) = loadrun.run(tmp_path / "m.mge", {"at": np.array(at)})
        assert np.asarray(result["y"]).tolist() == [at[0] + 1, at[1] + 1]


def test_outputs_that_no_input_changes_are_compared_too(tmp_path: Path) -> None:
    body = """g (float[3] x) => (float[3] y, float[3] k, int64[1] s) <float[3] c = {1, 2, 3}> {
      y = Add(x, c)  k = Identity(c)  s = Shape(x)
    }"""
    (tmp_path / "m.onnx").write_bytes(onnx_bytes(body))
    (tmp_path / "m.test_data_set_0").mkdir()
    x = np.array([5, 6, 7], "f4")
    arrays = {"input_0": x, "output_0": x + [1, 2, 3], "output_1": [1, 2, 3], "output_2": [3]}
    for name, values in arrays.items():
        array = np.asarray(values, "i8" if name == "output_2" else "f4")
        tensor = onnx.numpy_helper.from_array(array)
        (tmp_path / "m.test_data_set_0" / f"{name}.pb").write_bytes(tensor.SerializeToString())
    loadrun.save(loadrun.load(tmp_path / "m.onnx"), tmp_path / "m.mge")
    (result,) = loadrun.run(tmp_path / "m.mge")
    assert [(o.name, o.verdict.value) for o in result.outputs] == [
        ("y", "pass"),
        ("k", "pass"),
        ("s", "pass"),
    ]


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


@pytest.mark.parametrize(
    ("groups", "sizes", "bias"), [(1, (6, 5), False), (2, (6, 5), True), (1, (7,), True)]
)
def test_batch_normalization_goes_into_the_filters_of_a_convolution(
    groups: int, sizes: tuple[int, ...], bias: bool
) -> None:
    rng = np.random.default_rng(1)
    shapes = {
        "w": (6, 4 // groups, *(3 for _ in sizes)),
        "b": (6,),
        "s": (6,),
        "a": (6,),
        "m": (6,),
        "v": (6,),
    }
    values = {n: rng.uniform(0.5, 2, shape).astype(np.float32) for n, shape in shapes.items()}
    float32, text = onnx.TensorProto.FLOAT, onnx.helper
    nodes = [
        text.make_node(
            "Conv", ["x", "w", *["b"][: int(bias)]], ["c"], group=groups, pads=[1, 0] * len(sizes)
        ),
        text.make_node("BatchNormalization", ["c", "s", "a", "m", "v"], ["y"]),
    ]
    x = rng.standard_normal((2, 4, *sizes)).astype(np.float32)
    ends = [[text.make_tensor_value_info(n, float32, s)] for n, s in (("x", x.shape), ("y", None))]
    stored = [onnx.numpy_helper.from_array(v, n) for n, v in values.items() if n != "b" or bias]
    model = text.make_model(
        text.make_graph(nodes, "g", *ends, stored), opset_imports=[text.make_opsetid("", 20)]
    )
    graph = recorded(loadrun.load(model.SerializeToString()).graph, {"x": x.shape})
    assert "BatchNormV1" not in operators(graph)
    assert operators(graph).count("ADD") == 1
    assert "MUL" not in operators(graph)
    (want,) = reference.ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(ReferenceEngine(graph).run({"x": x})[0], want, 1e-5, 1e-5)


def test_neighbouring_axes_are_reduced_at_once(tmp_path: Path) -> None:
    body = "y = GlobalAveragePool(x) z = ReduceMax<keepdims = 0>(x, ends) t = ReduceSum(x, some)"
    stored = "<int64[2] ends = {0, 3}, int64[3] some = {0, 1, 3}>"
    text = f"g (float[2,3,4,5] x) => (float[2,3,1,1] y, float[3,4] z, float[1,1,4,1] t) {stored} {{ {body} }}"
    graph = recorded(made(text).graph, {"x": (2, 3, 4, 5)})
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 5)).astype(np.float32)
    wide = x.astype(np.float64)
    wants = wide.mean((2, 3), keepdims=True), wide.max((0, 3)), wide.sum((0, 1, 3), keepdims=True)
    for got, want in zip(ReferenceEngine(graph).run({"x": x}), wants, strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-5)
    assert operators(graph).count("ReduceV2") == 1 + 2 + 2
    loadrun.onnx.export(graph, f=tmp_path / "m.onnx")
    nodes = onnx.load(tmp_path / "m.onnx").graph.node
    assert sorted(n.op_type for n in nodes if n.op_type.startswith("Re")) == [
        "ReduceMax",
        "ReduceMean",
        "ReduceSum",
    ]


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_what_reads_quantized_numbers_gets_them_as_floats(kind: str) -> None:
    nodes = "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)"
    text = f"g (float[7] x) => ({kind}[7] q, float[7] y) <float s = {{0.5}}, {kind} z = {{3}}> {{ {nodes} }}"
    graph = recorded(made(text).graph, {"x": (7,)})
    x = np.float32([-1e9, -1.25, -0.25, 0.25, 0.75, 60.25, 1e9])
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    # Halves go to even numbers; 120.5 steps and the zero point are 123.
    whole = [low, 3 - 2, 3, 3, 3 + 2, 123, high]
    q, y = ReferenceEngine(graph).run({"x": x})
    assert q.tolist() == whole
    assert y.tolist() == [(n - 3) / 2 for n in whole]
    assert operators(graph).count("TypeCvtV2") == 1
