"""ONNX files as they are in ONNX Runtime: verdicts, types, options and what reports say of it."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import EngineError, InputError, UsageError
from loadrun.cli import main
from loadrun.engines import file_of, make_file_engine, runs_file
from loadrun.graph import StoredTensor
from loadrun.graph.dtypes import DType
from loadrun.onnx.file import rule_error
from loadrun.onnx.types import from_codes, to_codes
from loadrun.passes.constants import bare
from loadrun.verify.diff import FileSide

pytest.importorskip("onnx", reason="the files of these tests are written with the package onnx")
pytest.importorskip("onnxruntime", reason="these files run in ONNX Runtime")

import onnx
from onnx import TensorProto as T, helper, numpy_helper

from tests.support.onnx_files import model, write

ONNX = Path("fixtures/onnx")


def replay(path: Path, engine: str = "onnxruntime") -> Any:
    return loadrun.Runner(path, engine).replay_one(0)


def doubled(kind: int) -> Any:
    two = numpy_helper.from_array(np.array(2, helper.tensor_dtype_to_np_dtype(kind)), "two")
    node = helper.make_node("Mul", ["x", "two"], ["y"])
    return model([node], [("x", kind, ["n"])], [("y", kind, ["n"])], initializer=[two])


def texts(folder: Path, expected: list[str]) -> Path:
    node = helper.make_node("StringConcat", ["a", "b"], ["y"])
    made = model([node], [("a", T.STRING, [2]), ("b", T.STRING, [2])], [("y", T.STRING, [2])], opset=20)
    a, b = np.array(["a", "é"], object), np.array(["b", ""], object)
    return write(folder, made, ((a, b), (np.array(expected, object),)))


@pytest.mark.parametrize("name", ["convnet", "dynamic", "forest", "names", "quantized", "transformer"])
def test_published_data_holds_in_both_ways(name: str) -> None:
    for engine, way in (("onnxruntime", "native"), ("onnxruntime:translated", "translated")):
        for result in loadrun.Runner(ONNX / name / "model.onnx", engine).replay():
            assert result.verdict.value == "pass"
            assert result.engine is not None
            assert result.engine.way == way


def test_the_operators_are_those_of_the_file() -> None:
    path = ONNX / "transformer" / "model.onnx"
    assert loadrun.Runner(path, "onnxruntime").about.operators == len(onnx.load(path).graph.node) == 4
    assert loadrun.Runner(path, "onnxruntime:translated").about.operators > 4


def test_integers_of_64_bits_stay_what_they_are(tmp_path: Path) -> None:
    few, many = np.array([1, -3], np.int64), np.array([2**40, -3], np.int64)
    path = write(tmp_path, doubled(T.INT64), ((few,), (few * 2,)), ((many,), (many * 2,)))
    result = loadrun.Runner(path, "onnxruntime").replay_one(1)
    assert (result.verdict.value, result.outputs[0].dtype.spelling) == ("pass", "int64")
    assert result["y"].tolist() == [2**41, -6]
    assert main([str(path), "--engine", "reference,onnxruntime", "-q"]) == 0
    beside = loadrun.Runner(loadrun.load(path, native=True), "reference")
    assert [r.verdict.value for r in beside.replay()] == ["pass", "pass"]
    assert beside.replay_one(1)["y"].tolist() == [2**41, -6]


def test_doubles_are_not_rounded_to_float32(tmp_path: Path) -> None:
    x = np.array([1 / 3, 1e-300])
    path = write(tmp_path, doubled(T.DOUBLE), ((x,), (x * 2,)))
    assert replay(path)["y"].tolist() == (x * 2).tolist()
    assert loadrun.Runner(path, "onnxruntime").run({"x": x})["y"].tolist() == (x * 2).tolist()


def test_a_wrong_value_fails_and_so_does_another_type(tmp_path: Path) -> None:
    x = np.ones(2, "f4")
    wrong = replay(write(tmp_path / "a", doubled(T.FLOAT), ((x,), (x * 2 + np.float32(0.003),))))
    assert wrong.verdict.value == "fail"
    near = replay(write(tmp_path / "b", doubled(T.FLOAT), ((x,), (x * 2 + np.float32(0.001),))))
    assert near.verdict.value == "pass"
    other = replay(write(tmp_path / "c", doubled(T.FLOAT), ((x,), ((x * 2).astype("f8"),))))
    assert other.verdict.value == "fail"
    assert other.outputs[0].notes == (
        "its expected value holds double, but the model has float",
        "expected float64 values, but the runtime returns float32",
    )
    shape = replay(write(tmp_path / "d", doubled(T.FLOAT), ((x,), ((x * 2)[None],))))
    assert shape.verdict.value == "fail"


def test_what_a_dump_asked_holds_for_the_file_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.onnx"
    loadrun.convert_file("fixtures/nets/mlp.mge", path)
    good = replay(path)
    assert good.verdict.value == "pass"
    assert good.outputs[0].tolerance.maxerr == np.float32(1e-5)
    # Cut rows do not pass, nor does a value that ONNX's own tolerance of a thousandth would let through.
    assert main([str(path), "--engine", "onnxruntime", "--batch-size", "1"]) == 3
    assert "the first 1 of 5 expected rows were run" in capsys.readouterr().out
    output = tmp_path / "m.test_data_set_0" / "output_0.pb"
    stored = numpy_helper.to_array(onnx.load_tensor(str(output)))
    onnx.save_tensor(numpy_helper.from_array(stored + np.float32(1e-4)), str(output))
    assert replay(path).verdict.value == "fail"
    onnx.save_tensor(numpy_helper.from_array(stored), str(output))
    (output.parent / "output_1.pb").write_bytes(output.read_bytes())
    assert [(o.name, o.verdict.value) for o in replay(path).outputs] == [
        ("out", "pass"),
        ("output_1.pb", "fail"),
    ]


def test_what_is_judged_again_says_which_way_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, saved = str(ONNX / "convnet" / "model.onnx"), str(tmp_path / "saved.zip")
    for engine, way in (
        ("onnxruntime:opt=basic", "native, opt=basic"),
        ("onnxruntime:translated", "translated"),
    ):
        assert main([path, "--engine", engine, "--output", saved, "-q"]) == 0
        capsys.readouterr()
        assert main([saved]) == 0
        (line,) = (t for t in capsys.readouterr().out.splitlines() if "engine:" in t)
        assert line.endswith(way)


def test_diff_says_why_a_runtime_does_not_take_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = helper.make_node("Nope", ["x"], ["y"], domain="my.ops")
    made = model([node], [("x", T.FLOAT, [2])], [("y", T.FLOAT, [2])])
    made.opset_import.append(helper.make_opsetid("my.ops", 1))
    path = write(tmp_path, made, ((np.ones(2, "f4"),), (np.ones(2, "f4"),)))
    assert main(["diff", str(path), "--against", "onnxruntime"]) == 2
    assert "my.ops:Nope(-1) is not a registered function/op" in capsys.readouterr().err


def test_text_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = texts(tmp_path / "good", ["ab", "é"]), texts(tmp_path / "bad", ["ab", "e"])
    assert [o.value.tolist() for o in replay(good).outputs if o.value is not None] == [["ab", "é"]]
    assert main([str(good), "--engine", "reference,onnxruntime"]) == 0
    assert main([str(bad)]) == 1
    saved = str(tmp_path / "saved.zip")
    assert main([str(bad), "--engine", "onnxruntime", "--output", saved]) == 1
    assert "1 of 2 values differs" in capsys.readouterr().out


def test_what_only_the_runtime_runs_is_no_fault_of_the_reference_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # An operator of the packed layout in which ONNX Runtime computes convolutions, which no definition knows.
    node = helper.make_node("GlobalMaxPool", ["x"], ["y"], domain="com.microsoft.nchwc")
    made = model([node], [("x", T.FLOAT, [1, 16, 1, 1])], [("y", T.FLOAT, [1, 16, 1, 1])])
    made.opset_import.append(helper.make_opsetid("com.microsoft.nchwc", 1))
    x = np.arange(16, dtype=np.float32).reshape(1, 16, 1, 1)
    path = str(write(tmp_path, made, ((x,), (x,))))
    names = {n: tmp_path / f"r.{n}" for n in ("junit", "html", "json")}
    reports = [arg for n, p in names.items() for arg in (f"--{n}", str(p))]
    # An engine that was named and ran nothing is no silent pass.
    assert main([path, "--engine", "reference,onnxruntime", "--allow-uncompared", "--quiet"]) == 0
    assert main([path, "--engine", "reference,onnxruntime", "--quiet"]) == 3
    assert "not compared: not run by reference" in capsys.readouterr().out
    assert main([path, "--engine", "reference,onnxruntime", "--iter", "2", *reports]) == 3
    said = capsys.readouterr().out
    assert "not run by reference: " in said
    assert "reference: not compared" in said
    (file,) = json.loads(names["json"].read_text())["files"]
    assert [(e["name"], e["verdict"]) for e in file["engines"]] == [
        ("reference", "not compared"),
        ("onnxruntime", "pass"),
    ]
    assert file["engines"][1]["way"] == "native"
    tests = list(ElementTree.parse(names["junit"]).iter("testcase"))
    assert [[e.tag for e in t] for t in tests] == [["failure"], []]
    assert "native: pass" in said
    assert main([path, "--engine", "reference"]) == 2


def test_a_fault_of_the_graph_shows_beside_the_file(tmp_path: Path) -> None:
    """What the importer reads wrongly is wrong in the translated way alone, as here a constant of the graph."""
    x = np.ones(2, "f4")
    bundle = loadrun.load(write(tmp_path, doubled(T.FLOAT), ((x,), (x * 2,))))
    (two,) = (t for o in bundle.graph.oprs for t in o.tensors if t.name == "two")
    two.data = np.array([3], "f4").view("u1")
    ways = {
        e: loadrun.Runner(bundle, e).replay_one(0).verdict.value
        for e in ("onnxruntime", "onnxruntime:translated")
    }
    assert ways == {"onnxruntime": "pass", "onnxruntime:translated": "fail"}


@pytest.mark.parametrize("engine", ["onnxruntime", "reference"])
def test_sequences_are_judged_value_by_value(tmp_path: Path, engine: str) -> None:
    node = helper.make_node("SplitToSequence", ["x"], ["y"], axis=0)
    info = helper.make_tensor_sequence_value_info("y", T.FLOAT, None)
    made = model([node], [("x", T.FLOAT, [2, 2])], [info])
    x = np.arange(4, dtype="f4").reshape(2, 2)
    good = replay(write(tmp_path / "a", made, ((x,), ([x[:1], x[1:]],))), engine)
    assert [(o.name, o.verdict.value) for o in good.outputs] == [("y.0", "pass"), ("y.1", "pass")]
    short = replay(write(tmp_path / "b", made, ((x,), ([x[:1]],))), engine)
    assert [(o.name, o.verdict.value) for o in short.outputs] == [("y.0", "pass"), ("y.1", "fail")]
    long = replay(write(tmp_path / "c", made, ((x,), ([x[:1], x[1:], x[1:]],))), engine)
    assert [(o.name, o.verdict.value) for o in long.outputs][-1] == ("y.2", "fail")
    assert main([str(tmp_path / "c" / "model.onnx"), "--engine", engine, "-q"]) == 1
    other = replay(write(tmp_path / "d", made, ((x,), ([x[:1], x[1:] + 1],))), engine)
    assert [(o.name, o.verdict.value) for o in other.outputs] == [("y.0", "pass"), ("y.1", "fail")]
    with pytest.raises(InputError, match=r"fails whatever 'y\.[12]' is"):
        loadrun.save(
            loadrun.load(tmp_path / ("b" if engine == "reference" else "c") / "model.onnx"),
            tmp_path / "x.mge",
        )


@pytest.mark.parametrize("engine", ["onnxruntime", "reference"])
def test_a_sequence_has_as_many_values_as_its_data(tmp_path: Path, engine: str) -> None:
    node = helper.make_node("SplitToSequence", ["x"], ["y"], axis=0)
    info = helper.make_tensor_sequence_value_info("y", T.FLOAT, None)
    made = model([node], [("x", T.FLOAT, ["n", 1])], [info])
    x = np.arange(3, dtype="f4").reshape(3, 1)
    sets = (
        ((x[:2],), ([x[:1], x[1:2]],)),
        ((x,), ([x[:1], x[1:2], x[2:]],)),
        ((x,), ([x[:1], x[1:2], x[:1]],)),
    )
    runner = loadrun.Runner(loadrun.load(write(tmp_path, made, *sets)), engine)
    assert [r.verdict.value for r in runner.replay()] == ["pass", "pass", "fail"]


@pytest.mark.parametrize("engine", ["onnxruntime", "reference"])
def test_empty_sequences_and_policies_of_sequences(tmp_path: Path, engine: str) -> None:
    nodes = [
        helper.make_node("SequenceEmpty", [], ["none"]),
        helper.make_node("SplitToSequence", ["x"], ["two"], axis=0),
    ]
    ends = [helper.make_tensor_sequence_value_info(n, T.FLOAT, None) for n in ("none", "two")]
    made = model(nodes, [("x", T.FLOAT, [2, 1])], ends)
    x = np.ones((2, 1), np.float32)
    near = [x[:1], x[1:] * np.float32(1 + 1e-6)]
    empty = write(tmp_path / "a", made, ((x,), ([], near)))
    assert {o.name: o.verdict.value for o in replay(empty, engine).outputs} == dict.fromkeys(
        ("none", "two.0", "two.1"), "pass"
    )
    filled = replay(write(tmp_path / "b", made, ((x,), ([x], near))), engine)
    assert [o.name for o in filled.outputs if o.verdict.value == "fail"] == ["none.0"]
    # A policy is for all values of a sequence, or for one.
    run = [str(empty), "--engine", engine, "-q", "--check"]
    assert [main([*run, p]) for p in ("two: exact", "two.1: exact", "two.0: exact")] == [1, 1, 0]


@pytest.mark.parametrize("engine", ["onnxruntime", "reference"])
def test_optional_outputs_have_a_value_where_one_is_expected(tmp_path: Path, engine: str) -> None:
    kind = helper.make_tensor_type_proto(T.FLOAT, [2])
    info = helper.make_value_info("some", helper.make_optional_type_proto(kind))
    x = np.array([1, 2], np.float32)
    verdicts = []
    for inputs, given in ((["x"], x), (["x"], x + 1), (["x"], None), ([], x), ([], None)):
        nodes = [
            helper.make_node("Optional", inputs, ["some"], **({} if inputs else {"type": kind})),
            helper.make_node("Relu", ["x"], ["y"]),
        ]
        made = model(nodes, [("x", T.FLOAT, [2])], [info, ("y", T.FLOAT, [2])])
        path = write(tmp_path / str(len(verdicts)), made, ((x,), (x, x)))
        proto = onnx.OptionalProto(name="some", elem_type=onnx.OptionalProto.TENSOR)
        if given is not None:
            proto.tensor_value.CopyFrom(numpy_helper.from_array(given))
        (path.parent / "test_data_set_0" / "output_0.pb").write_bytes(proto.SerializeToString())
        verdicts.append(main([str(path), "--engine", engine, "-q"]))
    assert verdicts == [0, 1, 1, 1, 0]


def test_an_output_that_is_listed_twice(tmp_path: Path) -> None:
    """ONNX Runtime gives its value twice; the second data file belongs to no name."""
    made = model([helper.make_node("Neg", ["x"], ["y"])], [("x", T.FLOAT, [2])], [("y", T.FLOAT, [2])] * 2)
    x = np.arange(2, dtype="f4")
    for second in (-x, x):
        path = write(tmp_path / str(second), made, ((x,), (-x, second)))
        assert replay(path, "reference").verdict.value == "fail"
        assert main([str(path), "--config", "none", "-q"]) == 1


def test_types_that_numpy_lacks(tmp_path: Path) -> None:
    """bfloat16 has 8 bits of mantissa: 1 + 2**-8 is a tie, which goes to the even 1; 4-bit integers end at 7."""
    for kind, given, expected in (
        (T.BFLOAT16, [1 + 2**-8, 1.5, -0.0], [1, 1.5, -0.0]),
        (T.FLOAT8E4M3FN, [1.0625, 448, -2], [1, 448, -2]),
        (T.INT4, [7, -8, 3], [7, -8, 3]),
    ):
        nodes = [
            helper.make_node("Cast", ["x"], ["h"], to=kind),
            helper.make_node("Identity", ["h"], ["y"]),
        ]
        made = model(nodes, [("x", T.FLOAT, [3])], [("y", kind, [3])], opset=21)
        result = loadrun.Runner(write(tmp_path / str(kind), made), "onnxruntime").run(
            {"x": np.array(given, "f4")}
        )
        assert result["y"].tolist() == expected
        back = model(
            [helper.make_node("Cast", ["x"], ["y"], to=T.FLOAT)],
            [("x", kind, [3])],
            [("y", T.FLOAT, [3])],
            opset=21,
        )
        path = write(
            tmp_path / f"{kind}b",
            back,
            ((helper.make_tensor("x", kind, [3], expected),), (np.array(expected, "f4"),)),
        )
        assert replay(path).verdict.value == "pass"


def test_codes_are_those_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="it has the types of 8 bits")
    kinds = {
        17: "float8_e4m3fn",
        18: "float8_e4m3fnuz",
        19: "float8_e5m2",
        20: "float8_e5m2fnuz",
        24: "float8_e8m0fnu",
    }
    codes = np.arange(256, dtype="u1")
    for kind, name in kinds.items():
        values = codes.view(getattr(ml_dtypes, name)).astype("f4")
        there = ~np.isnan(values)
        assert to_codes(values, kind)[there].tolist() == codes[there].tolist()
        assert np.isnan(to_codes(values[~there], kind).view(getattr(ml_dtypes, name)).astype("f4")).all()
    whole = np.arange(-8, 7).astype("i1")
    assert from_codes(to_codes(whole, 22).tobytes(), 22, [15]).tolist() == whole.tolist()


def test_external_weights_lie_beside_the_file(tmp_path: Path) -> None:
    w = np.random.default_rng(0).normal(size=(32, 64)).astype("f4")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    made = model(
        [node],
        [("x", T.FLOAT, [1, 32])],
        [("y", T.FLOAT, [1, 64])],
        initializer=[numpy_helper.from_array(w, "w")],
    )
    x = np.ones((1, 32), "f4")
    path = write(tmp_path, made, ((x,), ((x.astype("f8") @ w).astype("f4"),)))
    onnx.save(made, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert (tmp_path / "w.bin").stat().st_size >= w.nbytes
    assert replay(path).verdict.value == "pass"
    w[0] += 1
    (tmp_path / "w.bin").write_bytes(w.tobytes())
    assert replay(path).verdict.value == "fail"


def test_constants_and_inputs_without_use(tmp_path: Path) -> None:
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)]
    made = model(
        nodes,
        [("x", T.FLOAT, [2, 3]), ("axes", T.INT64, [1]), ("left", T.FLOAT, [2])],
        [("y", T.FLOAT, None)],
    )
    path = write(tmp_path, made)
    bundle = loadrun.load(path, constants={"axes": [0]})
    runner = loadrun.Runner(bundle, "onnxruntime")
    assert runner.run({"x": np.arange(6, dtype="f4").reshape(2, 3)})["y"].tolist() == [3, 5, 7]
    with pytest.raises(InputError, match="the input 'x' is missing"):
        runner.run({})
    with pytest.raises(InputError, match="no input 'z'; its inputs are x, axes, left"):
        runner.run({"x": np.ones((2, 3), "f4"), "z": np.ones(1)})
    with pytest.raises(InputError, match="values that do not fit"):
        loadrun.Runner(bundle, "onnxruntime").run({"x": np.array([["a"]])})


def test_options() -> None:
    path = ONNX / "convnet" / "model.onnx"
    given = ["opt=disable", "intra_op=1", "inter_op=1", "mode=parallel", "mem_pattern=0", "arena=0"]
    given.append("session.set_denormal_as_zero=0")
    result = replay(path, ":".join(["onnxruntime", "cpu", *given]))
    assert result.verdict.value == "pass"
    assert result.engine.text.endswith(f"(CPUExecutionProvider), native, {', '.join(given)}")
    for wrong, said in {
        "opt=most": "opt= takes disable, basic, extended, all, found 'most'",
        "intra_op=two": "intra_op= takes a whole number of at least 0, found 'two'",
        "speed=1": "has no option 'speed'; it has opt=",
        "opt=all:opt=basic": "'opt' is given twice",
        "tpu": "this build of onnxruntime has no execution provider 'tpu'; it has",
        "library=absent.so": "the library absent.so cannot be loaded",
    }.items():
        with pytest.raises(UsageError, match=said.replace("(", r"\(")):
            replay(path, f"onnxruntime:{wrong}")
    assert replay(Path("fixtures/nets/mlp.mge"), "onnxruntime:opt=basic").verdict.value == "pass"


def test_the_level_of_optimization_is_the_one_asked_for(tmp_path: Path) -> None:
    """The runtime fuses MatMul and Add to Gemm, unless it is told not to: its own profile says what it executed."""
    w, b = np.ones((3, 4), "f4"), np.ones(4, "f4")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])]
    weights = [numpy_helper.from_array(a, n) for a, n in ((w, "w"), (b, "b"))]
    path = write(
        tmp_path, model(nodes, [("x", T.FLOAT, [2, 3])], [("y", T.FLOAT, [2, 4])], initializer=weights)
    )
    found = {}
    for level in ("disable", "all"):
        out = tmp_path / f"{level}.onnx"
        made = loadrun.load(path).source.file
        assert made is not None
        engine = make_file_engine(f"onnxruntime:opt={level}", made)
        settings = engine._runtime.settings()  # type: ignore[attr-defined]
        settings.optimized_model_filepath = str(out)
        engine._runtime.session(str(path), settings)  # type: ignore[attr-defined]
        found[level] = sorted(n.op_type for n in onnx.load(out).graph.node)
    assert found["disable"] == ["Add", "MatMul"]
    assert found["all"] != found["disable"]


def plain(path: Path, case: Any) -> str | None:
    """The verdict of ONNX's own test runner on ONNX Runtime; None for types that its Python interface has not."""
    import onnxruntime
    from onnx.backend.test.runner import Runner

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = 1
    ((inputs, outputs),) = case.data_sets
    if any(name in str(getattr(v, "dtype", v)) for v in (*inputs, *outputs) for name in LACKING):
        return None
    try:
        session = onnxruntime.InferenceSession(str(path), settings)
        names = [i.name for i in session.get_inputs()]
        given = [np.asarray(v) if isinstance(v, np.generic) else v for v in inputs]
        found = session.run(None, dict(zip(names, given, strict=False)))
    except Exception:
        return "error"
    try:
        Runner.assert_similar_outputs(outputs, found, case.rtol, case.atol)
    except AssertionError:
        return "fail"
    return "pass"


LACKING = ("bfloat16", "float8", "float4", "int4", "int2", "data_type")


@pytest.mark.slow
def test_verdicts_of_node_tests_are_those_of_the_plain_runtime(tmp_path: Path) -> None:
    """Every eleventh of ONNX's node tests."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        # Their data are made by numpy beyond what small types hold.
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)[::11]
    seen: Counter[str] = Counter()
    for case in cases:
        if len(case.data_sets) != 1 or (case.rtol, case.atol) != (1e-3, 1e-7):
            continue
        path = write(tmp_path / case.name, case.model, *case.data_sets)
        verdict = plain(path, case)
        if verdict is None:
            continue
        result = loadrun.Runner(path, "onnxruntime:intra_op=1").replay_one(0)
        assert result.verdict.value == verdict, case.name
        seen[verdict] += 1
    assert seen["pass"] > 90
    assert seen["error"] > 2


def test_a_file_that_the_runtime_refuses(tmp_path: Path) -> None:
    node = helper.make_node("Mystery", ["x"], ["y"], domain="nobody")
    made = model(
        [node], [("x", T.FLOAT, [1])], [("y", T.FLOAT, [1])], opsets=[helper.make_opsetid("nobody", 1)]
    )
    path = write(tmp_path, made, ((np.ones(1, "f4"),), (np.ones(1, "f4"),)))
    result = replay(path)
    assert result.verdict.value == "error"
    assert "onnxruntime rejects the file" in str(result.message)
    with pytest.raises(EngineError):
        loadrun.Runner(loadrun.load(path, native=True), "onnxruntime").run()


def test_many_processes_and_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, junit, page = (tmp_path / f"r.{n}" for n in ("json", "xml", "html"))
    args = [str(ONNX), "--engine", "onnxruntime", "-j", "2", "--timeout", "300", "--json", str(report)]
    assert main([*args, "--junit", str(junit), "--html", str(page)]) == 0
    for text in (junit.read_text(), page.read_text()):
        assert text.count("(CPUExecutionProvider), native") >= 7
    files = json.loads(report.read_text())["files"]
    assert len(files) == 7
    assert {f["engine"]["way"] for f in files} == {"native"}
    capsys.readouterr()
    assert main(["info", "--engine", "onnxruntime", str(ONNX / "transformer" / "model.onnx")]) == 0
    assert "onnxruntime runs the file itself, with its 4 operators" in capsys.readouterr().out


def test_saved_results_are_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = str(tmp_path / "saved.zip")
    path = str(ONNX / "forest" / "model.onnx")
    assert main([path, "--engine", "onnxruntime", "--output", saved, "-q"]) == 0
    assert main([saved, "-q"]) == 0


def test_a_changed_graph_is_not_the_file() -> None:
    from loadrun.replay.serial import prepared

    bundle = loadrun.load(ONNX / "convnet" / "model.onnx")
    assert loadrun.Runner(bundle, "onnxruntime").about.way == "native"
    changed = prepared(bundle, ("optimize_for_inference",))
    assert loadrun.Runner(changed, "onnxruntime").about.way == "translated"


def chain(folder: Path) -> tuple[Path, np.ndarray]:
    """A model of forty products, each of which another name has: more than are asked for at once."""
    w = np.float32(1.01)
    nodes = [helper.make_node("Mul", [f"v{i}", "w"], [f"v{i + 1}"]) for i in range(40)]
    made = model(
        nodes,
        [("v0", T.FLOAT, [2])],
        [("v40", T.FLOAT, [2])],
        initializer=[numpy_helper.from_array(np.full(2, w), "w")],
    )
    x = np.array([1, -2], "f4")
    path = write(folder, made, ((x,), ((x.astype("f8") * np.float64(w) ** 40).astype("f4"),)))
    onnx.save(made, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    return path, x


def test_intermediate_values_of_the_file_are_asked_for_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, x = chain(tmp_path)
    before = path.read_bytes()
    bundle = loadrun.load(path)
    graph = bare(bundle)
    source = file_of(bundle, "onnxruntime")
    assert source is not None
    side = FileSide(graph, source, "onnxruntime")
    values = {var.name: value for var, value in side.values({"v0": x})}
    assert sorted(values) == sorted(f"v{i}" for i in range(1, 41))
    for i in range(1, 41):
        np.testing.assert_allclose(
            values[f"v{i}"], x.astype("f8") * np.float64(np.float32(1.01)) ** i, rtol=1e-5
        )
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", "test_data_set_0", "w.bin"]
    assert main(["diff", str(path), "--against", "onnxruntime"]) == 0
    assert "40 values compared" in capsys.readouterr().out


@pytest.mark.parametrize("way", [(), ("--bisect",)])
def test_a_fault_is_found_by_the_files_own_values(
    way: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A graph that was read wrongly parts from the file in the operator that is wrong."""
    path, x = chain(tmp_path)
    bundle = loadrun.load(path)
    (seventeenth,) = (o for o in bundle.graph.oprs if any(v.name == "v17" for v in o.outputs))
    (five,) = bundle.graph.add(
        "ImmutableTensor",
        tensors=[StoredTensor(DType("Float32"), (2,), None, np.full(2, 5, "f4").view("u1"))],
    )
    # An operator's inputs come before it.
    made = bundle.graph.oprs.pop()
    bundle.graph.oprs.insert(0, made)
    for i, opr in enumerate(bundle.graph.oprs):
        opr.id = i
    seventeenth.inputs = [five if v.owner.type != "Elemwise" else v for v in seventeenth.inputs]
    bundle.source.sized = None
    monkeypatch.setattr("loadrun.verify.diff.files.load_dump", lambda *args, **kwargs: bundle)
    assert main(["diff", str(path), "--against", "onnxruntime", *way]) == 1
    said = capsys.readouterr().out
    assert ("first to diverge" if way else "v17") in said
    extracted = tmp_path / "one.mge"
    assert main(["diff", str(path), "--against", "onnxruntime", *way, "--output", str(extracted)]) == 1
    case = loadrun.load(extracted).testcases[0]
    np.testing.assert_allclose(
        case.expects["v17"], x.astype("f8") * np.float64(np.float32(1.01)) ** 17, rtol=1e-5
    )


def test_which_engines_run_files() -> None:
    assert runs_file("onnxruntime:cpu:opt=all")
    assert not runs_file("onnxruntime:opt=all:translated")
    assert not runs_file("onnxruntime", "mge")


def test_the_rule_is_that_of_numpys_allclose() -> None:
    rng = np.random.default_rng(0)
    for dtype in ("f4", "f8", "i8", "u1"):
        for _ in range(200):
            expect = (rng.normal(size=3) * 10.0 ** rng.integers(0, 5)).astype(dtype)
            get = (expect * (1 + rng.normal(scale=1e-3))).astype(dtype)
            close = np.allclose(get.astype("f8"), expect.astype("f8"), rtol=1e-3, atol=1e-7)
            assert (rule_error(expect, get) <= 1) == close
    odd = np.array([np.nan, np.inf, -np.inf])
    assert rule_error(odd, odd) == 0
    assert not rule_error(odd, -odd) <= 1
    assert not rule_error(np.array([1.0]), np.array([np.nan])) <= 1
