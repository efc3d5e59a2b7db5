"""Accepting what a model computes now as what its file expects."""

from __future__ import annotations

import io
import json
import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun import AcceptOptions, Bundle, DumpOptions, Testcase, accept_files
from loadrun.base.errors import UsageError
from loadrun.cli import main
from loadrun.compare.record import header
from loadrun.dump.record import tensor_digest
from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import DType
from loadrun.graph.params import Elemwise, ElemwiseMode, Host2DeviceCopy
from loadrun.testcase import FileFacts
from loadrun.verify.accepting import accepted, author
from loadrun.verify.describe import describe

F32 = DType("Float32")
OLD, NEW = np.array([[2, 4, 6]], "f4"), np.array([[3, 6, 9]], "f4")


def scaled(factor: float) -> Graph:
    """``y = x * factor``, ``z = x + x``."""
    g = Graph()
    (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (1, 3), "x")], names=["x"])
    data = np.full(3, factor, "f4").view(np.uint8)
    (w,) = g.add("SharedDeviceTensor", tensors=[StoredTensor(F32, (1, 3), "w", data)])
    y = g.add("Elemwise", Elemwise(mode=ElemwiseMode.MUL), inputs=[x, w], names=["y"])
    z = g.add("Elemwise", Elemwise(mode=ElemwiseMode.ADD), inputs=[x, x], names=["z"])
    g.outputs = [*y, *z]
    return g


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """A file packed with a factor of 2 whose weights were then changed to 3; a policy and two testcases."""
    path = tmp_path / "m.mge"
    loadrun.save(scaled(2), tmp_path / "bare.mge")
    argv = ["pack", str(tmp_path / "bare.mge"), "-d", "[[1,2,3]]", "-d", "[[0,0,0]]", "-q"]
    assert main([*argv, "--check", "y: rtol=1e-3", "-o", str(path)]) == 0
    return changed_weights(path)


def changed_weights(path: Path) -> Path:
    bundle = loadrun.load(path, copy=True)
    (tensor,) = (t for o in bundle.graph.oprs if o.type == "SharedDeviceTensor" for t in o.tensors)
    tensor.data = np.full(3, 3, "f4").view(np.uint8)
    loadrun.save(bundle, path)
    return path


def test_new_values_are_written_with_who_and_why(changed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(changed), "-q"]) == 1
    # z and the testcase of zeros pass, so they are not touched. |6 - 9| / 6 = 0.5, relative to the smaller value.
    capsys.readouterr()
    assert main(["accept", str(changed), "--reason", "factor 3 is wanted", "--by", "ann@lab"]) == 0
    shown = capsys.readouterr().out
    assert "old error    new error" in shown
    row = next(line for line in shown.splitlines() if " y " in line)
    assert row.split()[:4] == ["0", "y", "0.5", "0"]
    assert "1 new value accepted in 1" in shown
    bundle = loadrun.load(changed)
    np.testing.assert_array_equal(bundle.testcases[0].expects["y"], NEW)
    np.testing.assert_array_equal(bundle.testcases[0].expects["z"], OLD)
    assert isinstance(bundle.record, memoryview)
    (event,) = header(bundle.record)["accepted"]
    assert (event["by"], event["reason"]) == ("ann@lab", "factor 3 is wanted")
    assert event["values"] == [[0, "y", tensor_digest(OLD), tensor_digest(NEW)]]
    assert event["time"].endswith("Z")
    assert len(event["model"]) == 2
    assert main([str(changed), "-q"]) == 0
    assert main([str(changed), "-q"]) == 0
    assert loadrun.Runner(changed).policies["y"].text == "rtol=1e-3"
    capsys.readouterr()
    assert main(["info", str(changed)]) == 0
    told = capsys.readouterr().out
    assert "by ann@lab: factor 3 is wanted (testcase 0 y " in told
    assert tensor_digest(NEW)[:8] in told


def test_what_passes_stays(changed: Path) -> None:
    before = changed.read_bytes()
    (found,) = accept_files([changed], AcceptOptions(reason="r", by="b"))
    assert (found.checks, [v.output for v in found.values], found.written) == (4, ["y"], True)
    after = changed.read_bytes()
    assert before != after
    (again,) = accept_files([changed], AcceptOptions(reason="r", by="b"))
    assert (again.values, again.written, accepted([again])) == ([], False, 0)
    assert changed.read_bytes() == after


def test_events_are_kept(changed: Path) -> None:
    accept_files([changed], AcceptOptions(reason="first"))
    bundle = loadrun.load(changed, copy=True)
    bundle.testcases = [
        Testcase({**c.arrays, "y:expect": c.arrays["y:expect"] + 1}) for c in bundle.testcases
    ]
    loadrun.save(bundle, changed)
    accept_files([changed], AcceptOptions(reason="second"))
    said = describe(loadrun.load(changed)).accepted
    assert [text.split(": ")[1].split(" (")[0] for text in said] == ["first", "second"]
    assert author() in said[0]


def test_it_asks_on_a_terminal(
    changed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = changed.read_bytes()
    assert main(["accept", str(changed)]) == 2
    assert "pass the reason with --reason" in capsys.readouterr().err

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for answers, code in (("n\n", 1), ("", 1), ("y\n\n", 1), ("y\nwanted\n", 0)):
        monkeypatch.setattr("sys.stdin", Terminal(answers))
        assert changed.read_bytes() == before
        assert main(["accept", str(changed)]) == code
    assert changed.read_bytes() != before
    assert main(["accept", str(changed), "--reason", " "]) == 2


def test_without_a_reason_nothing_is_accepted(changed: Path) -> None:
    with pytest.raises(UsageError, match="requires a reason"):
        accept_files([changed])


def test_values_that_no_check_passes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """NaN is equal to nothing."""
    path = tmp_path / "m.mge"
    loadrun.save(scaled(2), tmp_path / "bare.mge")
    assert main(["pack", str(tmp_path / "bare.mge"), "-d", "[[1,2,3]]", "-o", str(path), "-q"]) == 0
    bundle = loadrun.load(path, copy=True)
    (tensor,) = (t for o in bundle.graph.oprs if o.type == "SharedDeviceTensor" for t in o.tensors)
    tensor.data = np.full(3, np.nan, "f4").view(np.uint8)
    loadrun.save(bundle, path)
    before = path.read_bytes()
    assert main(["accept", str(path), "--reason", "r"]) == 2
    assert "not even the value that the model computes" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_all_dumps_of_a_file_stay(changed: Path, tmp_path: Path) -> None:
    both = tmp_path / "both.mge"
    loadrun.save(loadrun.load("fixtures/nets/mlp.mge"), both)
    loadrun.save(loadrun.load(changed), both, DumpOptions(append=True))
    (found,) = accept_files([both], AcceptOptions(reason="r"))
    assert [(v.dump, v.testcase, v.output) for v in found.values] == [(1, 0, "y")]
    first, second = loadrun.load_all(both)
    assert [r.verdict.value for b in (first, second) for r in loadrun.run(b)] == ["pass"] * 5
    assert len(describe(second).accepted) == 1
    assert main([str(both), "-q", "--allow-uncompared"]) == 0


def test_quantized_outputs_are_written_as_they_are_stored(tmp_path: Path) -> None:
    """A dump of MegEngine's whose expected values were moved by some quanta gets its own again."""
    source = loadrun.load("fixtures/nets/quant_resnet_quint8_features.mge")
    true = [dict(c.arrays) for c in source.testcases]
    names = [f"{c.name}:expect" for c in source.checks]
    wrong = [
        Testcase(
            {n: (a ^ 1 if n in names and a.dtype.kind in "iu" else a + (n in names)) for n, a in c.items()}
        )
        for c in true
    ]
    loadrun.save(Bundle(source.graph, wrong, facts=FileFacts(is_container=True)), tmp_path / "m.mge")
    (found,) = accept_files([tmp_path / "m.mge"], AcceptOptions(reason="r"))
    assert found.written
    for case, arrays in zip(loadrun.load(tmp_path / "m.mge").testcases, true, strict=True):
        for name in names:
            np.testing.assert_allclose(
                case.arrays[name].astype("f8"), arrays[name].astype("f8"), rtol=1e-4, atol=1e-4
            )


def test_values_of_an_onnx_model_are_written_into_its_data_sets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong expected value gets back what ONNX Runtime had written there."""
    folder = tmp_path / "convnet"
    shutil.copytree("fixtures/onnx/convnet", folder)
    path = folder / "test_data_set_0" / "output_0.pb"
    true = path.read_bytes()
    path.write_bytes(true[:-4] + struct.pack("<f", 1000))
    model = str(folder / "model.onnx")
    before = Path(model).read_bytes()
    assert main([model, "-q"]) == 1
    assert main(["accept", model, "--reason", "wanted", "--by", "ann@lab"]) == 0
    assert main([model, "-q"]) == 0
    assert Path(model).read_bytes() == before
    old, new = (np.frombuffer(b[-16:], "<f4") for b in (true, path.read_bytes()))
    np.testing.assert_allclose(new, old, rtol=1e-4)
    (event,) = json.loads((folder / "model.accepted.json").read_text())
    assert (event["by"], event["reason"]) == ("ann@lab", "wanted")
    ((testcase, _, first, second),) = event["values"]
    assert testcase == 0
    assert first != second
    capsys.readouterr()
    assert main(["info", model, "--quiet"]) == 0
    assert "by ann@lab: wanted (testcase 0 " in capsys.readouterr().out
    unchanged = path.read_bytes()
    assert main(["accept", model, "--reason", "again"]) == 0
    assert path.read_bytes() == unchanged


def test_values_of_a_torch_program_are_written_into_its_file(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import loadrun.torch

    def function(x: object) -> object:
        return x * 2, (x * 2).argmax()  # type: ignore[attr-defined, operator]

    path = tmp_path / "m.pt2"
    loadrun.torch.save(function, path, (torch.tensor([[1.0, 3.0]]),), cases=[(torch.ones(1, 2),)])
    with zipfile.ZipFile(path) as archive:
        files = {n: archive.read(n) for n in archive.namelist()}
    (wrong,) = (n for n in files if n.endswith("loadrun/0.1.npy"))
    buffer = io.BytesIO()
    np.save(buffer, np.array([[5, 5]], "f4"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**files, wrong: buffer.getvalue()}.items():
            archive.writestr(name, data)
    assert main([str(path), "-q"]) == 1
    (one,) = accept_files([path], AcceptOptions(reason="twice", by="ann"))
    # |5 - 2| / 2 is more than |5 - 6| / 5.
    assert [(v.testcase, v.old_error, v.new_error) for v in one.values] == [(0, 1.5, 0)]
    assert main([str(path), "-q"]) == 0
    assert "by ann: twice (testcase 0 output_0 " in describe(loadrun.load(path)).accepted[0]
    with zipfile.ZipFile(path) as archive:
        rewritten = {n: archive.read(n) for n in archive.namelist()}
    assert {n: d for n, d in rewritten.items() if not n.endswith(".json") or "loadrun/" not in n} == {
        n: d for n, d in files.items() if not n.endswith(".json") or "loadrun/" not in n
    }


def test_nan_is_no_new_value_of_an_onnx_model(tmp_path: Path) -> None:
    """The rule of ONNX's backend tests takes NaN for equal to NaN."""
    pytest.importorskip("onnx", reason="onnx is not installed")
    from onnx import TensorProto, helper

    from tests.support.onnx_files import model, write

    ends = [(n, TensorProto.FLOAT, [2]) for n in ("x", "y")]
    root = model([helper.make_node("Sqrt", ["x"], ["y"])], ends[:1], ends[1:])
    path = write(tmp_path, root, ([np.array([4, -4], "f4")], [np.array([2, 2], "f4")]))
    before = (tmp_path / "test_data_set_0" / "output_0.pb").read_bytes()
    (one,) = accept_files([path], AcceptOptions(reason="r"))
    assert one.failure is not None
    assert "NaN or infinity for 'y'" in one.failure.message
    assert (tmp_path / "test_data_set_0" / "output_0.pb").read_bytes() == before


@pytest.mark.parametrize(
    ("kind", "values", "stored"),
    [
        ("FLOAT16", [1.5, -2, 0.1], "003e 00c0 662e"),
        ("BFLOAT16", [1.5, -2, 0.1], "c03f 00c0 cd3d"),
        ("FLOAT8E4M3FN", [1.5, -2, 448], "3c c0 7e"),
        ("FLOAT8E4M3FNUZ", [1.5, -2, -0.0], "44 c8 00"),
        ("FLOAT8E5M2", [1.5, -2, 2**-16], "3e c0 01"),
        ("FLOAT8E8M0", [1, 8, 0.25], "7f 82 7d"),
        ("FLOAT4E2M1", [1.5, -6, 0.5], "f3 01"),
        ("UINT4", [15, 2, 1], "2f 01"),
        ("INT4", [-8, 7, 1], "78 01"),
        ("UINT2", [3, 0, 1], "13"),
        ("INT2", [-2, 1, -1], "36"),
    ],
)
def test_small_types_are_accepted_in_data_sets(
    kind: str, values: list[float], stored: str, tmp_path: Path
) -> None:
    """The codes are worked out by hand: sign, exponent, mantissa; the first of several in a byte is its low bits."""
    pytest.importorskip("onnx", reason="onnx is not installed")
    from onnx import TensorProto, helper, load_tensor

    from tests.support.onnx_files import model, write

    x, elem = np.array(values, "f4"), getattr(TensorProto, kind)
    ends = [("x", TensorProto.FLOAT, [3])], [("y", elem, [3])]
    expected = helper.make_tensor("y", elem, [3], np.ones(3))
    path = write(
        tmp_path, model([helper.make_node("Cast", ["x"], ["y"], to=elem)], *ends, opset=25), ([x], [expected])
    )
    assert loadrun.run(path)[0].verdict.value == "fail"
    (one,) = accept_files([path], AcceptOptions(reason="r"))
    assert one.failure is None
    written = load_tensor(str(tmp_path / "test_data_set_0" / "output_0.pb"))
    assert (written.data_type, written.raw_data) == (elem, bytes.fromhex(stored))
    assert loadrun.run(path)[0].verdict.value == "pass"


def test_data_sets_without_a_value_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "control"
    shutil.copytree("fixtures/onnx/control", folder)
    outputs = sorted(folder.glob("test_data_set_0/output_*.pb"))
    assert len(outputs) > 1
    outputs[-1].unlink()
    (one,) = accept_files([folder / "model.onnx"], AcceptOptions(reason="r"))
    assert one.failure is not None
    assert f"has no {outputs[-1].name}" in one.failure.message
    assert accepted([one]) == 2


@pytest.mark.parametrize("engine", ["reference", "onnxruntime"])
@pytest.mark.parametrize(
    ("optional", "expected"),
    [
        (False, [[1.0, 2], [3.5]]),
        (False, [[1.0, 2]]),
        (False, [[1.0, 2], [3], [4]]),
        (False, []),
        (True, [[1.0, 2], [5]]),
        (True, None),
    ],
    ids=["wrong", "short", "long", "empty", "optional", "none"],
)
def test_sequences_are_accepted_whole(
    engine: str, optional: bool, expected: list[list[float]] | None, tmp_path: Path
) -> None:
    """``x = [1, 2, 3]`` is split into parts of two numbers."""
    pytest.importorskip(engine if engine != "reference" else "onnx", reason=f"{engine} is not installed")
    from onnx import OptionalProto, SequenceProto, TensorProto, helper, numpy_helper

    from tests.support.onnx_files import model, write

    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    nodes = [helper.make_node("SplitToSequence", ["x", "two"], ["s"])]
    if optional:
        kind = helper.make_optional_type_proto(kind)
        nodes.append(helper.make_node("Optional", ["s"], ["o"]))
    name = "o" if optional else "s"
    root = model(
        nodes,
        [("x", TensorProto.FLOAT, [3])],
        [helper.make_value_info(name, kind)],
        initializer=[numpy_helper.from_array(np.array(2), "two")],
    )
    path = write(tmp_path, root, ([np.array([1, 2, 3], "f4")], []))
    stored = tmp_path / "test_data_set_0" / "output_0.pb"
    arrays = None if expected is None else [np.array(v, "f4") for v in expected]
    if not optional:
        stored.write_bytes(numpy_helper.from_list(arrays or [], name).SerializeToString())
    elif arrays:
        stored.write_bytes(numpy_helper.from_optional(arrays, name).SerializeToString())
    else:
        stored.write_bytes(OptionalProto(name=name).SerializeToString())
    assert loadrun.run(path, engine=engine)[0].verdict.value == "fail"
    (one,) = accept_files([path], AcceptOptions(reason="r", engine=engine))
    assert one.failure is None
    assert [v.output for v in one.values] == [name]
    assert loadrun.run(path, engine=engine)[0].verdict.value == "pass"
    proto = OptionalProto if optional else SequenceProto
    written = proto.FromString(stored.read_bytes())
    sequence = written.sequence_value if optional else written
    np.testing.assert_array_equal(numpy_helper.to_array(sequence.tensor_values[0]), [1, 2])
    np.testing.assert_array_equal(numpy_helper.to_array(sequence.tensor_values[1]), [3])
    assert len(sequence.tensor_values) == 2


def test_a_model_of_nothing_but_an_empty_sequence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is judged: where a value is expected it fails, and accepted it passes; a .mge file cannot hold it."""
    pytest.importorskip("onnx", reason="onnx is not installed")
    from onnx import SequenceProto, TensorProto, helper

    from tests.support.onnx_files import model, write

    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    root = model([helper.make_node("SequenceEmpty", [], ["s"])], [], [helper.make_value_info("s", kind)])
    path = str(write(tmp_path, root, ([], [[np.ones(1, "f4")]])))
    assert main([path, "-q"]) == 1
    assert "the model returns no such value" in capsys.readouterr().out
    assert main(["accept", path, "--reason", "r"]) == 0
    assert main([path]) == 0
    assert "no-assert" not in capsys.readouterr().out
    stored = (tmp_path / "test_data_set_0" / "output_0.pb").read_bytes()
    assert not SequenceProto.FromString(stored).tensor_values
    assert main(["convert", path, str(tmp_path / "m.mge")]) == 2
    assert "none of its outputs is a tensor" in capsys.readouterr().err
