"""ONNX models written again have the nodes of their file, and ONNX Runtime computes the same of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="writes and checks models")
ort = pytest.importorskip("onnxruntime", reason="runs them")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import loadrun  # noqa: E402
from loadrun.base.errors import UnsupportedError  # noqa: E402
from loadrun.cli import main  # noqa: E402
from loadrun.onnx import export  # noqa: E402
from tests.support.onnx_files import model, write  # noqa: E402

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
FIXTURES = Path("fixtures/onnx")
node, value = helper.make_node, helper.make_tensor_value_info


def stored(name: str, array: Any, dtype: str = "f4") -> Any:
    return numpy_helper.from_array(np.asarray(array, dtype), name)


def branches() -> Any:
    """Both branches read a stored tensor and a value from around; one name stands in both, for two values."""
    then = helper.make_graph([node("Mul", ["h", "w"], ["t"], "scale")], "then", [], [value("t", FLOAT, None)])
    inner = [node("Sub", ["h", "w"], ["d"]), node("Add", ["d", "own"], ["t"], "shift")]
    other = helper.make_graph(
        inner, "other", [], [value("t", FLOAT, ["n", 4])], [stored("own", np.arange(4))]
    )
    nodes = [
        node("Add", ["x", "w"], ["h"], "first"),
        node("ReduceSum", ["x"], ["s"], "sum", keepdims=0),
        node("Greater", ["s", "zero"], ["g"]),
        node("If", ["g"], ["y"], "choose", then_branch=then, else_branch=other),
    ]
    ends = [("x", FLOAT, ["n", 4])], [("y", FLOAT, ["n", 4]), ("h", FLOAT, ["n", 4])]
    return model(nodes, *ends, initializer=[stored("w", [1, 2, 3, 4]), stored("zero", 0)])


def loop() -> Any:
    """A loop in whose body a branch reads what the body computes and what is around the loop."""
    small = helper.make_graph([node("Neg", ["a"], ["b"])], "small", [], [value("b", FLOAT, None)])
    large = helper.make_graph([node("Mul", ["a", "k"], ["b"])], "large", [], [value("b", FLOAT, None)])
    body = helper.make_graph(
        [
            node("Add", ["state", "h"], ["a"], "grow"),
            node("ReduceMax", ["a"], ["m"], keepdims=0),
            node("Less", ["m", "k"], ["l"]),
            node("If", ["l"], ["next"], "inner", then_branch=small, else_branch=large),
            node("Identity", ["go"], ["on"]),
        ],
        "body",
        [value("i", INT64, []), value("go", TensorProto.BOOL, []), value("state", FLOAT, [3])],
        [value("on", TensorProto.BOOL, []), value("next", FLOAT, [3]), value("a", FLOAT, [3])],
    )
    nodes = [
        node("Exp", ["x"], ["h"]),
        node("Loop", ["count", "", "x"], ["y", "rows"], "turns", body=body),
    ]
    ends = [("x", FLOAT, [3])], [("y", FLOAT, [3]), ("rows", FLOAT, [None, 3])]
    return model(nodes, *ends, initializer=[stored("count", 4, "i8"), stored("k", 3)])


def functions() -> Any:
    """A function that is called twice, with an attribute that its node refers to."""
    inside = [node("LeakyRelu", ["a"], ["b"]), node("Add", ["b", "a"], ["c"], "add")]
    inside[0].attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    opset = helper.make_opsetid("", 18)
    made = model(
        [
            node("Twice", ["x"], ["h"], domain="own", slope=0.25),
            node("Twice", ["h"], ["y"], domain="own", slope=0.5),
        ],
        [("x", FLOAT, ["n", 3])],
        [("y", FLOAT, ["n", 3])],
        opsets=[helper.make_opsetid("own", 1)],
    )
    made.functions.append(helper.make_function("own", "Twice", ["a"], ["c"], inside, [opset], ["slope"]))
    return made


def odd_types() -> Any:
    """Stored tensors of types that numpy lacks, and one without axes."""
    kinds = {
        "brain": (TensorProto.BFLOAT16, [1.5, -2.0, 0.125]),
        "half": (TensorProto.FLOAT16, [0.5, 1.0, 65504.0]),
        "small": (TensorProto.FLOAT8E4M3FN, [0.5, -448.0, 2.0]),
        "nibbles": (TensorProto.INT4, [-8, 7, 1]),
        "unsigned": (TensorProto.UINT4, [15, 0, 3]),
        "flags": (TensorProto.BOOL, [True, False, True]),
    }
    made = [helper.make_tensor(n, kind, [3], v) for n, (kind, v) in kinds.items()]
    nodes = [node("Cast", [n], [f"f_{n}"], to=FLOAT) for n in kinds]
    nodes += [node("Mul", ["x", "one"], ["c_x"]), node("Sum", ["c_x", *(f"f_{n}" for n in kinds)], ["y"])]
    return model(
        nodes, [("x", FLOAT, [3])], [("y", FLOAT, [3])], initializer=[*made, stored("one", 1)], opset=21
    )


def ends() -> Any:
    """Outputs that are an input and a stored tensor, and an input that is left out."""
    nodes = [
        node("TopK", ["x", "k"], ["top", "places"], axis=-1),
        node("Clip", ["x", "", "w"], ["c"], "clip"),
        node("Constant", [], ["five"], value_float=5.0),
        node("Mul", ["c", "five"], ["y"]),
    ]
    return model(
        nodes,
        [("x", FLOAT, ["n", 4])],
        [("y", FLOAT, ["n", 4]), ("places", INT64, ["n", 2]), ("x", FLOAT, ["n", 4]), ("w", FLOAT, [])],
        initializer=[stored("w", 0.5), stored("k", [2], "i8")],
    )


def sequences() -> Any:
    """A sequence between nodes, and one that a loop carries."""
    body = helper.make_graph(
        [node("SequenceInsert", ["s", "x"], ["longer"]), node("Identity", ["go"], ["on"])],
        "body",
        [
            value("i", INT64, []),
            value("go", TensorProto.BOOL, []),
            helper.make_tensor_sequence_value_info("s", FLOAT, None),
        ],
        [value("on", TensorProto.BOOL, []), helper.make_tensor_sequence_value_info("longer", FLOAT, None)],
    )
    nodes = [
        node("SequenceEmpty", [], ["none"], dtype=FLOAT),
        node("Loop", ["count", "", "none"], ["all"], body=body),
        node("ConcatFromSequence", ["all"], ["y"], axis=0),
    ]
    return model(
        nodes, [("x", FLOAT, [2, 3])], [("y", FLOAT, [None, 3])], initializer=[stored("count", 3, "i8")]
    )


def same_nodes(before: Any, after: Any) -> None:
    """Compare nodes, but for Constant, whose values are stored tensors afterwards."""
    own = [n for n in before.node if n.op_type != "Constant"]
    assert len(own) == len(after.node)
    for one, two in zip(own, after.node, strict=True):
        assert (one.op_type, one.name, one.domain) == (two.op_type, two.name, two.domain)
        assert (list(one.input), list(one.output)) == (list(two.input), list(two.output))
        named = {a.name: a for a in two.attribute}
        assert {a.name for a in one.attribute} == named.keys()
        for a in one.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                same_nodes(a.g, named[a.name].g)
                pairs = zip(
                    [*a.g.input, *a.g.output], [*named[a.name].g.input, *named[a.name].g.output], strict=True
                )
                assert all(x.name == y.name for x, y in pairs)
            else:
                assert helper.get_attribute_value(a) == helper.get_attribute_value(named[a.name])


def results(path: Path, feeds: dict[str, Any]) -> list[Any]:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(None, feeds)
    return found


def trip(source: Path, folder: Path) -> Path:
    """Write a model twice; both files are the same to the byte, and onnx.checker takes them."""
    first, second = folder / "first.onnx", folder / "second.onnx"
    export(source, f=first)
    export(first, f=second)
    assert first.read_bytes() == second.read_bytes()
    onnx.checker.check_model(first, full_check=True)
    return first


MODELS = {
    f.__name__: (f, shape)
    for f, shape in (
        (branches, (2, 4)),
        (loop, (3,)),
        (odd_types, (3,)),
        (ends, (3, 4)),
        (sequences, (2, 3)),
        (functions, (2, 3)),
    )
}


@pytest.mark.parametrize("name", MODELS)
def test_onnxruntime_computes_the_same_to_the_bit(name: str, tmp_path: Path) -> None:
    make, shape = MODELS[name]
    made = make()
    onnx.checker.check_model(made, full_check=True)
    source = write(tmp_path, made)
    written = trip(source, tmp_path)
    for seed in (0, 1, 2):
        x = np.random.default_rng(seed).standard_normal(shape).astype("f4")
        for mine, theirs in zip(results(written, {"x": x}), results(source, {"x": x}), strict=True):
            np.testing.assert_array_equal(mine, theirs)
            assert mine.dtype == theirs.dtype


@pytest.mark.parametrize("name", [n for n in MODELS if n != "functions"])
def test_nodes_are_those_of_the_file(name: str, tmp_path: Path) -> None:
    made = MODELS[name][0]()
    again = onnx.load(trip(write(tmp_path, made), tmp_path))
    same_nodes(made.graph, again.graph)
    assert [*made.graph.input, *made.graph.output] == [*again.graph.input, *again.graph.output]
    assert {o.domain: o.version for o in again.opset_import} == {
        o.domain: o.version for o in made.opset_import
    }


def test_a_tensor_that_several_graphs_read_is_stored_once(tmp_path: Path) -> None:
    again = onnx.load(trip(write(tmp_path, branches()), tmp_path))
    assert sorted(t.name for t in again.graph.initializer) == ["w", "zero"]
    inner = {a.name: [t.name for t in a.g.initializer] for a in again.graph.node[-1].attribute}
    assert inner == {"then_branch": [], "else_branch": ["own"]}


def test_nodes_of_functions_stand_where_these_were_called(tmp_path: Path) -> None:
    graph = onnx.load(trip(write(tmp_path, functions()), tmp_path)).graph
    assert [n.op_type for n in graph.node] == ["LeakyRelu", "Add", "LeakyRelu", "Add"]
    assert [n.attribute[0].f for n in graph.node if n.op_type == "LeakyRelu"] == [0.25, 0.5]
    assert graph.node[1].output == ["h"]
    # ONNX Runtime refuses two nodes of one name.
    assert [n.name for n in graph.node] == ["", "add", "", "add_1"]


def test_stored_values_of_odd_types_keep_their_bytes(tmp_path: Path) -> None:
    made = odd_types()
    again = {t.name: t for t in onnx.load(trip(write(tmp_path, made), tmp_path)).graph.initializer}
    for tensor in made.graph.initializer:
        assert again[tensor.name].data_type == tensor.data_type
        mine, theirs = numpy_helper.to_array(again[tensor.name]), numpy_helper.to_array(tensor)
        assert mine.tobytes() == theirs.tobytes()


def test_functions_of_another_opset_are_refused_by_name(tmp_path: Path) -> None:
    made = functions()
    made.functions[0].opset_import[0].version = 13
    made.functions[0].node.append(node("Clip", ["b", "c"], ["d"]))
    made.functions[0].output[0] = "d"
    made.functions[0].node[0].op_type = "ReduceMax"
    del made.functions[0].node[0].attribute[:]
    made.graph.node.append(node("ReduceMax", ["y"], ["z"]))
    made.graph.output.append(value("z", FLOAT, None))
    source = write(tmp_path, made)
    with pytest.raises(
        UnsupportedError, match=r"ReduceMax in version 13 of ai\.onnx, and other nodes need version 18"
    ):
        export(source, f=tmp_path / "b.onnx")


@pytest.mark.parametrize("name", ["control", "convnet", "dynamic", "names", "quantized", "transformer"])
def test_files_with_testcases(name: str, tmp_path: Path) -> None:
    """Data sets go along: ONNX Runtime's results of the written model are what they expect."""
    source, target = FIXTURES / name / "model.onnx", tmp_path / "b.onnx"
    assert main(["convert", str(source), str(target)]) == 0
    if not onnx.load(source).functions:
        same_nodes(onnx.load(source).graph, onnx.load(target).graph)
    sets = sorted(tmp_path.glob("b.test_data_set_*"))
    assert len(sets) == len(list((FIXTURES / name).glob("test_data_set_*")))
    for path in sets:
        old = FIXTURES / name / path.name.removeprefix("b.")
        for file in path.glob("*.pb"):
            mine, theirs = (onnx.load_tensor(f) for f in (file, old / file.name))
            assert mine.data_type == theirs.data_type
            np.testing.assert_array_equal(numpy_helper.to_array(mine), numpy_helper.to_array(theirs))
    assert {r.verdict.value for r in loadrun.run(target, engine="onnxruntime")} == {"pass"}
    assert {r.verdict.value for r in loadrun.run(target)} == {"pass"}


def test_metadata_and_open_sizes_stay(tmp_path: Path) -> None:
    made = branches()
    helper.set_model_props(made, {"labels": "cat,dog"})
    again = onnx.load(trip(write(tmp_path, made), tmp_path))
    assert {p.key: p.value for p in again.metadata_props} == {"labels": "cat,dog"}
    assert again.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"


def test_another_opset_is_written_in_that_opset(tmp_path: Path) -> None:
    made = export(write(tmp_path, branches()), opset_version=18)
    assert made.opset_version == 18
    assert [n.op_type for n in made.written.model.graph.nodes][-1] == "If"
    assert export(tmp_path / "model.onnx", opset_version=17).opset_version == 17


def test_names_can_be_given(tmp_path: Path) -> None:
    source = write(tmp_path, branches())
    export(source, f=tmp_path / "b.onnx", input_names=["image"], output_names=["score"])
    x = np.ones((2, 4), "f4")
    mine, theirs = results(tmp_path / "b.onnx", {"image": x}), results(source, {"x": x})
    np.testing.assert_array_equal(mine[0], theirs[0])
    assert [o.name for o in onnx.load(tmp_path / "b.onnx").graph.output] == ["score", "h"]


# Parts of models


def faulty(folder: Path) -> tuple[Path, Path]:
    """Two models of a convolution, a bounded activation and a branch, of which one has another weight."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((4, 3, 3, 3)).astype("f4")
    then = helper.make_graph([node("Mul", ["f", "secret"], ["t"])], "then", [], [value("t", FLOAT, None)])
    other = helper.make_graph([node("Add", ["f", "secret"], ["e"])], "else", [], [value("e", FLOAT, None)])
    nodes = [
        node("Conv", ["x", "weight"], ["c"], "conv"),
        node("Clip", ["c", "low", "high"], ["k"], "clip"),
        node("GlobalAveragePool", ["k"], ["p"], "pool"),
        node("Flatten", ["p"], ["f"], "flatten"),
        node("ReduceMax", ["f"], ["m"], "most", keepdims=0),
        node("Greater", ["m", "low"], ["g"], "positive"),
        node("If", ["g"], ["y"], "choose", then_branch=then, else_branch=other),
    ]
    made = model(
        nodes,
        [("x", FLOAT, ["n", 3, 6, 6])],
        [("y", FLOAT, ["n", 4])],
        initializer=[
            stored("weight", weight),
            stored("low", 0),
            stored("high", 6),
            stored("secret", [3.25, 5.5, 7.125, 9.75]),
        ],
    )
    good = write(folder / "good", made)
    x = rng.standard_normal((2, 3, 6, 6)).astype("f4")
    shutil.rmtree(folder / "good")
    (folder / "plain").mkdir()
    (folder / "plain" / "model.onnx").write_bytes(made.SerializeToString())
    y = results(folder / "plain" / "model.onnx", {"x": x})
    good = write(folder / "good", made, ([x], y))
    weight[2] *= 1.5
    made.graph.initializer[0].CopyFrom(stored("weight", weight))
    return good, write(folder / "bad", made, ([x], y))


def conv_alone(path: Path) -> None:
    """A part of a model is a model of one node of the file, whose testcase ONNX Runtime fails too."""
    onnx.checker.check_model(path, full_check=True)
    (left,) = onnx.load(path).graph.node
    assert (left.op_type, left.name, list(left.input)) == ("Conv", "conv", ["x", "weight"])
    assert (path.parent / f"{path.stem}.test_data_set_0").is_dir()
    for engine in ("reference", "onnxruntime"):
        assert [r.verdict.value for r in loadrun.run(path, engine=engine)] == ["fail"]


def test_reduce(tmp_path: Path) -> None:
    good, bad = faulty(tmp_path)
    target = tmp_path / "part.onnx"
    assert main(["reduce", str(bad), "--against", str(good), "-o", str(target)]) == 0
    conv_alone(target)
    dump = tmp_path / "part.mge"
    assert main(["reduce", str(bad), "--against", str(good), "-o", str(dump)]) == 0
    assert [r.verdict.value for r in loadrun.run(dump)] == ["fail"]


def test_diff_extracts(tmp_path: Path) -> None:
    good, bad = faulty(tmp_path)
    target = tmp_path / "part.onnx"
    assert main(["diff", str(bad), "--against", str(good), "--output", str(target)]) == 1
    conv_alone(target)


def test_share_hides_branches_too(tmp_path: Path) -> None:
    good, _ = faulty(tmp_path)
    target = tmp_path / "shared.onnx"
    argv = ["reduce", str(good), "--against", "float64", "--maxerr", "1e-9", "--anonymize", "-o", str(target)]
    assert main(argv) == 0
    onnx.checker.check_model(target, full_check=True)
    data = target.read_bytes()
    for name in (b"secret", b"conv", b"choose", b"weight", b"flatten"):
        assert name not in data
    assert np.array([3.25, 5.5, 7.125, 9.75], "f4").tobytes() not in data
    graph = onnx.load(target).graph
    assert [n.op_type for n in graph.node] == [n.op_type for n in onnx.load(good).graph.node]
    assert len([t for t in graph.initializer if list(t.dims) == [4]]) == 1
    assert [r.verdict.value for r in loadrun.run(target, engine="onnxruntime")] == ["fail"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--top", "5"], "Conv + Clip"),
        (["--engine", "float64"], "1 passed"),
        (["--optimize-for-inference"], "1 passed"),
        (["--engine", "onnxruntime:translated"], "1 passed"),
    ],
)
def test_commands(argv: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, _ = faulty(tmp_path)
    assert main([str(good), *argv]) == 0
    assert said in capsys.readouterr().out


def test_data_sets_of_text_and_sequences(tmp_path: Path) -> None:
    """They hold what the graph's arrays cannot, as the data sets of the source do."""
    made = model(
        [node("Equal", ["word", "other"], ["same"]), node("SequenceAt", ["list", "place"], ["item"])],
        [
            ("word", TensorProto.STRING, [2]),
            ("other", TensorProto.STRING, [2]),
            helper.make_tensor_sequence_value_info("list", FLOAT, ["n"]),
        ],
        [("same", TensorProto.BOOL, [2]), ("item", FLOAT, ["n"])],
        initializer=[stored("place", 1, "i8")],
        opset=19,
    )
    rows = [np.arange(3, dtype="f4"), np.ones(3, "f4")]
    words = np.array(["cat", "dog"]), np.array(["cat", "cow"])
    source = write(tmp_path, made, ([*words, rows], [np.array([True, False]), rows[1]]))
    exported = export(source, f=tmp_path / "b.onnx")
    assert (exported.test_data_sets, exported.left_out) == (1, [])
    onnx.checker.check_model(tmp_path / "b.onnx", full_check=True)
    for file in (tmp_path / "test_data_set_0").iterdir():
        kind = onnx.SequenceProto if file.name == "input_2.pb" else TensorProto
        mine, theirs = kind(), kind()
        mine.ParseFromString((tmp_path / "b.test_data_set_0" / file.name).read_bytes())
        theirs.ParseFromString(file.read_bytes())
        read = numpy_helper.to_list if kind is onnx.SequenceProto else numpy_helper.to_array
        np.testing.assert_array_equal(read(mine), read(theirs))
    assert [r.verdict.value for r in loadrun.run(tmp_path / "b.onnx", engine="onnxruntime")] == ["pass"]
