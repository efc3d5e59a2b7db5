"""Small models with the outputs of ONNX Runtime: loaded, run, packed, compared."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import UsageError
from loadrun.cli import main
from loadrun.onnx.encode import (
    GraphMessage,
    ModelMessage,
    NodeMessage,
    TensorMessage,
    ValueMessage,
    encode,
    encode_tensor,
)
from loadrun.onnx.messages import TensorProto, parse
from loadrun.onnx.tensors import ElemType, array

MODELS = Path(__file__).parent.parent.parent / "fixtures" / "onnx"
NAMES = sorted(p.name for p in MODELS.iterdir())


def stored(path: Path) -> np.ndarray:
    return array(parse(TensorProto, memoryview(path.read_bytes())))


def model(name: str) -> str:
    return str(MODELS / name / "model.onnx")


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_of_onnx_runtime(name: str) -> None:
    results = loadrun.run(model(name))
    assert len(results) == len(list((MODELS / name).glob("test_data_set_*")))
    assert [r.verdict.value for r in results] == ["pass"] * len(results)


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_expected_value_fails(name: str) -> None:
    bundle = loadrun.load(model(name))
    case = bundle.testcases[0]
    for key in [k for k in case.arrays if k.endswith(":expect")]:
        case.arrays[key] = case.arrays[key] + np.ones((), case.arrays[key].dtype)
        assert loadrun.Runner(bundle).check(case).verdict.value == "fail"
        case.arrays[key] = case.arrays[key] - np.ones((), case.arrays[key].dtype)


def test_values_without_the_checks() -> None:
    bundle = loadrun.load(model("dynamic"))
    x = stored(MODELS / "dynamic" / "test_data_set_1" / "input_0.pb")
    want = stored(MODELS / "dynamic" / "test_data_set_1" / "output_0.pb")
    (got,) = loadrun.run(bundle, {"x": x})
    np.testing.assert_allclose(got["y"], want, rtol=1e-5)


def test_other_sizes_than_those_of_the_file() -> None:
    bundle = loadrun.load(model("dynamic"))
    x = np.ones((7, 3, 4), np.float32)
    (got,) = loadrun.run(bundle, {"x": x})
    assert got["y"].shape == (7, 5)
    np.testing.assert_allclose(got["y"].sum(1), np.ones(7), rtol=1e-6)


def test_names_ranks_and_64_bits_at_the_border() -> None:
    bundle = loadrun.load(model("names"))
    assert sorted(v.name or "" for v in bundle.inputs) == ["b;c/1", "in:0", "n"]
    (result,) = loadrun.run(bundle)
    shapes = {o.name: (o.shape, np.ndim(o.value)) for o in result.outputs}
    assert shapes == {"out:sum": ((), 0), "most::n": ((), 0), "round": ((4,), 1)}
    # -7 / 3 is -2 toward zero; halves go to the even number: 0.5, 1.5, 2.5, -0.5.
    assert int(result["most::n"]) == 2
    assert result["round"].tolist() == [0, 2, 2, 0]


def test_names_with_marks_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "a.npy", np.float32([2, 4, 6, 8]))
    np.save(tmp_path / "n.npy", np.int32([9, 1, 1]))
    (tmp_path / "m.onnx").write_bytes(Path(model("names")).read_bytes())
    spec = f"in::0:{tmp_path / 'a.npy'};'b;c/1':[0.5];n:{tmp_path / 'n.npy'}"
    code = main(
        [str(tmp_path / "m.onnx"), "--input", spec, "--allow-uncompared", "--output", str(tmp_path / "out")]
    )
    assert code == 0, capsys.readouterr()
    saved = {p.name: np.load(p) for p in (tmp_path / "out").iterdir()}
    assert 10.0 in [float(v) for v in saved.values() if v.size == 1]


def test_data_that_choose_between_shapes_are_not_packed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pack", model("control"), "-o", str(tmp_path / "m.mge"), "-q"]) == 2
    said = capsys.readouterr().err
    assert "If 'chosen': data decide between values of the shapes (4,) and (8,)" in said
    assert "constants={'cond': ...} (--constant)" in said


@pytest.mark.parametrize("name", sorted({*NAMES} - {"control"}))
def test_packed_as_a_dump(name: str, tmp_path: Path) -> None:
    out = tmp_path / "m.mge"
    assert main(["pack", model(name), "-o", str(out), "-q"]) == 0
    before, after = (loadrun.run(p) for p in (model(name), str(out)))
    assert [r.verdict.value for r in after] == ["pass"] * len(before)
    for a, b in zip(before, after, strict=True):
        for o in a.outputs:
            # A dump subtracts the largest number before MegEngine's softmax.
            np.testing.assert_allclose(b[o.name], np.atleast_1d(o.value), rtol=2e-6, atol=1e-6)


def test_test_data_from_another_folder(tmp_path: Path) -> None:
    alone = tmp_path / "m.onnx"
    shutil.copy(model("convnet"), alone)
    assert len(loadrun.load(alone).testcases) == 0
    data = MODELS / "convnet"
    assert main(["pack", str(alone), "-d", str(data), "-o", str(tmp_path / "m.mge"), "-q"]) == 0
    assert [r.verdict.value for r in loadrun.run(str(tmp_path / "m.mge"))] == ["pass"]
    one = loadrun.load(alone, test_data=data / "test_data_set_0")
    assert [r.verdict.value for r in loadrun.run(one)] == ["pass"]
    with pytest.raises(UsageError, match="neither test_data_set_N folders nor input_0"):
        loadrun.load(alone, test_data=tmp_path)


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", model("convnet")]) == 0
    assert "Conv " in capsys.readouterr().out


def test_bytes_and_input_shapes() -> None:
    data = Path(model("transformer")).read_bytes()
    bundle = loadrun.loads(data)
    assert {v.name: v.owner.tensors[0].shape for v in bundle.inputs} == {"x": (1, 1, 8), "skip": (1, 1, 8)}
    other = loadrun.load(data, input_shapes={"x": (2, 4, 8), "skip": (2, 4, 8)})
    assert other.inputs[0].owner.tensors[0].shape == (2, 4, 8)
    with pytest.raises(UsageError, match="no input 'z'; its inputs are x, skip"):
        loadrun.load(data, input_shapes={"z": (1,)})
    for shapes, text in (
        ([1, 1, 8], "input_shapes are shapes by input name, .* found list"),
        ({"x": "1x1x8"}, "the shape of the input 'x' must be a list of whole numbers, found '1x1x8'"),
        ({"x": (1, -1, 8)}, "shape of the input 'x' has a negative size: "),
    ):
        with pytest.raises(UsageError, match=text):
            loadrun.load(data, input_shapes=shapes)


def test_an_input_as_a_constant() -> None:
    data = Path(model("control")).read_bytes()
    whole = loadrun.load(data, input_shapes={"x": (2,)})
    assert any(v.name == "cond" for v in whole.inputs)
    chosen = loadrun.load(data, input_shapes={"x": (2,)}, constants={"cond": True})
    assert not any(v.name == "cond" for v in chosen.inputs)
    (result,) = loadrun.run(chosen, {"x": np.float32([2, 3])})
    assert result["chosen"].tolist() == [4, 9]


def test_arguments_for_dumps_are_refused() -> None:
    dump = MODELS.parent / "nets" / "mlp.mge"
    with pytest.raises(UsageError, match="apply to ONNX models only"):
        loadrun.load(dump, input_shapes={"data": (1,)})


def test_data_of_other_sizes_are_left_out() -> None:
    bundle = loadrun.load(model("dynamic"), input_shapes={"x": (2, 3, 4)})
    assert len(bundle.testcases) == 0
    assert not bundle.checks
    assert len(loadrun.load(model("dynamic"), input_shapes={"x": (1, 3, 4)}).testcases) == 2


def test_sizes_and_constants_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = tmp_path / "m.onnx"
    shutil.copy(model("control"), alone)
    given = ["--input-shape", "x:3", "--constant", "cond:true"]
    for command in ("info", "run"):
        assert (
            main([command, str(alone), *given, *(["--allow-uncompared"] if command != "info" else [])]) == 0
        )
    assert main([str(alone), *given, "--allow-uncompared", "--range", "inf"]) == 0
    assert main(["bench", str(alone), *given, "--min-time", "0", "--top", "2"]) == 0
    assert main(["convert", str(alone), str(tmp_path / "a.mge"), *given]) == 0
    assert [v.name for v in loadrun.load(tmp_path / "a.mge").inputs] == ["x"]
    assert main(["convert", str(alone), "-o", str(tmp_path / "u") + "/", *given]) == 0
    assert [v.name for v in loadrun.load(tmp_path / "u" / "model.mge").inputs] == ["x"]
    np.save(tmp_path / "c.npy", np.array(True))
    given[3] = f"cond:{tmp_path / 'c.npy'}"
    assert main(["diff", str(alone), "--against", str(tmp_path / "a.mge"), *given]) == 0
    assert main(["diff", str(tmp_path / "a.mge"), "--against", str(alone), *given]) == 0
    packed = str(tmp_path / "p.mge")
    assert main(["pack", str(alone), *given, "-d", "x:[1,2,3]", "-o", packed, "-q"]) == 0
    assert loadrun.run(packed)[0]["chosen"].tolist() == [1, 4, 9]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--constant", "cond"], "--constant takes NAME:VALUE"),
        (["--constant", "cond:#zeros"], "as numbers or a .npy file"),
        (["--constant", "cond:absent.npy"], "cannot read absent.npy"),
        (["--constant", "cond:1", "--constant", "cond:0"], "--constant is given twice for 'cond'"),
        (["--constant", "cond:[1,0]"], "input 'cond' has 0 axes, the constant for it 1"),
        (["--constant", "none:1"], "the model has no input 'none'; its inputs are x, cond"),
        (["--input-shape", "x:1,-2"], "--input-shape takes NAME:N,N"),
        (["--input-shape", "x"], "--input-shape takes NAME:N,N"),
        (["--input-shape", "x:1", "--input-shape", "x:2"], "--input-shape is given twice for 'x'"),
        (["--input-shape", "x:1,2,3"], "has 1 axes, but its data or input_shapes have [1, 2, 3]"),
    ],
)
def test_options_that_do_not_fit(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", model("control"), *given]) == 2
    assert said in capsys.readouterr().err


def test_options_for_onnx_models_are_not_for_others(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    dump = str(MODELS.parent / "nets" / "mlp.mge")
    assert main(["info", dump, "--constant", "a:1"]) == 2
    assert "apply to ONNX models only" in capsys.readouterr().err
    assert main(["convert", dump, str(tmp_path / "a.onnx"), "--constant", "a:1"]) == 2
    assert "apply to ONNX models only" in capsys.readouterr().err


@pytest.mark.parametrize("other", ["f8", "f2", "i8"])
def test_data_of_another_type_fail(other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same numbers as the model's float outputs and inputs, stored in another type."""
    shutil.copytree(MODELS / "convnet", tmp_path / "net")
    path, data = str(tmp_path / "net" / "model.onnx"), tmp_path / "net" / "test_data_set_0"
    assert main([path, "-q"]) == 0
    kept = (data / "output_0.pb").read_bytes()
    right = stored(data / "output_0.pb")
    assert right.dtype == np.float32
    (data / "output_0.pb").write_bytes(b"".join(encode_tensor(TensorMessage.of("y", right.astype(other)))))
    assert main([path, "-q"]) == 1
    assert "its expected value holds " in capsys.readouterr().out
    (data / "output_0.pb").write_bytes(kept)
    given = stored(data / "input_0.pb").astype(other)
    (data / "input_0.pb").write_bytes(b"".join(encode_tensor(TensorMessage.of("x", given))))
    assert main([path, "-q"]) == 2
    assert "but the model has float" in capsys.readouterr().out


def test_an_expected_value_of_no_output_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(MODELS / "convnet", tmp_path / "net")
    data = tmp_path / "net" / "test_data_set_0"
    shutil.copy(data / "output_0.pb", data / "output_3.pb")
    assert main([str(tmp_path / "net" / "model.onnx"), "-q"]) == 1
    assert "output output_3.pb: the model has no such output" in capsys.readouterr().out


def test_values_whose_names_are_those_of_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The number of a file says which output it is, as in ONNX's tests; a name that says otherwise is a fault."""
    shutil.copytree(MODELS / "control", tmp_path / "net")
    path, data = str(tmp_path / "net" / "model.onnx"), tmp_path / "net" / "test_data_set_0"
    for file, name, code in (
        ("output_1.pb", "m", 0),
        ("output_1.pb", "scaled", 1),
        ("input_0.pb", "cond", 2),
    ):
        kept = (data / file).read_bytes()
        (data / file).write_bytes(b"".join(encode_tensor(TensorMessage.of(name, stored(data / file)))))
        assert main([path, "-q"]) == code
        assert (f"by its file's number is {name!r} by its own name" in capsys.readouterr().out) == (code > 0)
        (data / file).write_bytes(kept)


def test_a_data_set_that_is_missing_between_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", "fixtures/nets/mlp.mge", str(tmp_path / "m.onnx"), "-q"]) == 0
    assert main([str(tmp_path / "m.onnx"), "-q"]) == 0
    shutil.rmtree(tmp_path / "m.test_data_set_1")
    assert main([str(tmp_path / "m.onnx"), "-q"]) == 3
    assert "m.test_data_set_1 is missing, while there are data sets up to 2" in capsys.readouterr().out
    assert main(["convert", str(tmp_path / "m.onnx"), str(tmp_path / "m.mge")]) == 3
    assert "m.test_data_set_1 is missing" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["convert", "pack"])
def test_a_data_set_that_fails_does_not_pass_in_another_format(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "convnet"
    shutil.copytree(MODELS / "convnet", folder)
    path = folder / "test_data_set_0" / "output_0.pb"
    value = stored(path).astype("f8")
    path.write_bytes(b"".join(encode_tensor(TensorMessage.of("y", value))))
    assert main([str(folder / "model.onnx"), "-q"]) == 1
    target = tmp_path / "m.mge"
    places = [str(target)] if command == "convert" else ["-o", str(target)]
    assert main([command, str(folder / "model.onnx"), *places]) == 2
    assert "holds double, but the model has float; repair" in capsys.readouterr().err
    assert not target.exists()
    assert main(["accept", str(folder / "model.onnx"), "--reason", "the type"]) == 0
    assert main([command, str(folder / "model.onnx"), *places]) == 0
    assert main([str(target), "-q"]) == 0


def test_data_replace_the_stored_value_of_an_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An initializer with an input's name is only its default (ONNX's IR, since version 4)."""

    def stored(name: str, *values: float) -> TensorMessage:
        return TensorMessage.of(name, np.array(values, "f4"))

    ends = {n: ValueMessage(n, ElemType.FLOAT, (2,)) for n in "xwy"}
    graph = GraphMessage(
        "g", [NodeMessage("Mul", ["x", "w"], ["y"])], [stored("w", 2, 3)], [ends["x"], ends["w"]], [ends["y"]]
    )
    model, folder = tmp_path / "m.onnx", tmp_path / "test_data_set_0"
    model.write_bytes(b"".join(encode(ModelMessage(graph, {"": 17}, 8))))
    folder.mkdir()

    def write(file: str, tensor: TensorMessage) -> None:
        (folder / file).write_bytes(b"".join(encode_tensor(tensor)))

    write("input_0.pb", stored("x", 1, 1))
    write("output_0.pb", stored("y", 2, 3))
    assert main([str(model)]) == 0
    write("input_1.pb", stored("w", 5, 7))
    assert main([str(model)]) == 1
    write("output_0.pb", stored("y", 5, 7))
    assert main([str(model)]) == 0
    changed = loadrun.load(model, constants={"w": [-1, 4]})
    np.testing.assert_array_equal(loadrun.Runner(changed).run({"x": np.ones(2, "f4")})["y"], [-1, 4])
    if importlib.util.find_spec("onnxruntime"):
        changed = loadrun.load(model, constants={"w": [-1, 4]}, native=True)
        result = loadrun.Runner(changed, engine="onnxruntime").run({"x": np.ones(2, "f4")})
        np.testing.assert_array_equal(result["y"], [-1, 4])
    # What no input takes is not passed over.
    write("input_2.pb", stored("z", 1, 1))
    write("output_0.pb", stored("y", 2, 3))
    capsys.readouterr()
    assert main([str(model)]) == 1
    assert "the model has no such input" in capsys.readouterr().out


def test_testcases_of_a_dump_are_compared_on_every_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """int64, which the dump holds as int32; a model that computes otherwise fails."""
    onnx = pytest.importorskip("onnx", reason="models are built with the package onnx")
    text = '<ir_version: 9, opset_import: ["" : 17]> g (int64[3] i, float[3] x) => (int64[3] j, float[3] y)'
    for name, sign in (("good", ""), ("bad", "Neg")):
        body = f"{{ j = Add(i, i) z = Exp(x) y = {sign or 'Identity'}(z) }}"
        model = onnx.parser.parse_model(f"{text} {body}")
        (tmp_path / f"{name}.onnx").write_bytes(model.SerializeToString())
    good, packed = str(tmp_path / "good.onnx"), str(tmp_path / "p.mge")
    data = ["-d", "i:[3,4,5];x:#rand(0,1)"]
    assert main(["pack", good, *data, "-o", packed, "-q"]) == 0
    assert main([good, "--input", packed]) == 0
    assert "2 checks: 2 passed" in capsys.readouterr().out
    assert main([str(tmp_path / "bad.onnx"), "--input", packed]) == 1
    assert "1 passed, 1 failed" in capsys.readouterr().out


def test_packing_onnx_writes_the_model_and_its_data_sets(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="what was written is read with the package onnx")
    source = Path("fixtures/onnx/convnet/model.onnx")
    target = tmp_path / "packed.onnx"
    assert main(["pack", str(source), "-d", "#rand(0,1)", "--maxerr", "1e-3", "-o", str(target), "-q"]) == 0
    was, now = onnx.load(source).graph, onnx.load(target).graph
    assert [n.op_type for n in was.node] == [n.op_type for n in now.node]
    found = loadrun.load(target)
    # The data set that lies beside the source, and the new one.
    assert [p.name for p in sorted(tmp_path.iterdir())] == [
        "packed.onnx",
        "packed.test_data_set_0",
        "packed.test_data_set_1",
    ]
    assert [c.maxerr for c in found.checks] == [pytest.approx(1e-3)]
    stored = onnx.numpy_helper.to_array(
        onnx.load_tensor(str(target.parent / "packed.test_data_set_1" / "output_0.pb"))
    )
    reference = pytest.importorskip("onnx.reference").ReferenceEvaluator(str(source))
    (want,) = reference.run(None, {"x": found.testcases[1].inputs["x"]})
    np.testing.assert_allclose(stored, want, 1e-4)
    assert main([str(target), "-q"]) == 0
