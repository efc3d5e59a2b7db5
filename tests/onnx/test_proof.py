"""Faults planted in lowerings and writers are stopped where the file is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base import proving as base_proving
from loadrun.base.errors import UnsupportedError
from loadrun.base.proving import proving
from loadrun.cli import main
from loadrun.onnx import export, truth
from loadrun.onnx.traced import OPERATORS
from loadrun.onnx.truth import installed
from loadrun.onnx.writing import TRANSLATIONS
from loadrun.proof import ProofError
from tests.support.cases import slow_but

onnx = pytest.importorskip("onnx", reason="models are built with the package onnx")
parser = pytest.importorskip("onnx.parser")

F = np.float32


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine leaves out nothing."""
    monkeypatch.setattr(base_proving, "_QUICK", 600.0)


def model(nodes: str, shape: str = "2, 6", y: str = "float[a, b]") -> bytes:
    text = f'<ir_version: 9, opset_import: ["" : 20]>\ng (float[{shape}] x) => ({y} y) {{ {nodes} }}'
    made: bytes = parser.parse_model(text).SerializeToString()
    return made


def definition(name: str) -> Any:
    """What computes a node of that name, of one input."""
    bundle = loadrun.load(model(f"y = {name}(x)"))
    # What stands in place of definitions is known once something was lowered.
    bundle.lowered()
    return bundle.graph.outputs[0].owner.params[0].definition.function


FAULTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a sign": ("Relu", lambda x: -x),
    "an axis": ("Softmax", lambda x, axis=-1: np.exp(x) / np.exp(x).sum(0, keepdims=True)),
    "a bound": ("Relu", lambda x: np.minimum(np.maximum(x, 0), 2)),
    "small numbers are 0": ("Tanh", lambda x: np.where(np.abs(x) < 1e-3, 0 * x, np.tanh(x))),
    "zeros are 1": ("Exp", lambda x: np.where(x == 0, x + 2, np.exp(x))),
    "a tie": ("Round", lambda x: np.floor(x + 0.5)),
    "a dtype": ("Erf", lambda x: (x * 16).astype(np.int32).astype(F) / 16),
}


# What goes wrong in any function, of its result and the argument.
PLANTED: dict[str, Callable[[Any, Any], Any]] = {
    "a sign": lambda y, x: -y,
    "an axis": lambda y, x: y[::-1],
    "a dtype": lambda y, x: y.astype(np.int32).astype(F),
    "a size": lambda y, x: y * F(x.shape[1] / 3),
    "zeros": lambda y, x: np.where(x == 0, y + 1, y),
}
NODES = ("Sigmoid", "Atan", "Elu", "Softplus", "Softmax", "Gelu", "LogSoftmax", "HardSwish")


@pytest.mark.parametrize("node", slow_but(NODES[:2], NODES))
@pytest.mark.parametrize("kind", PLANTED)
def test_a_fault_planted_in_a_lowering_is_stopped(
    node: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = model(f"y = {node}(x)", "3, n" if kind == "a size" else "3, 5")
    right = definition(node)
    lowered = OPERATORS.get(right, right)

    def wrong(x: Any, *args: Any, **named: Any) -> Any:
        return PLANTED[kind](lowered(x, *args, **named), x)

    monkeypatch.setitem(OPERATORS, right, wrong)
    if kind != "a size":
        with pytest.raises(ProofError, match="gives other numbers than the model: output 'y'"):
            loadrun.save(loadrun.load(data), tmp_path / "m.mge")
        return
    # What does not hold at other sizes is written for one, which the file itself then keeps.
    loadrun.save(loadrun.load(data, input_shapes={"x": (3, 3)}), tmp_path / "m.mge")
    with pytest.raises(loadrun.base.errors.LoadRunError):
        loadrun.Runner(tmp_path / "m.mge").run({"x": np.ones((3, 4), F)})


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_lowering_is_stopped(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, fault = FAULTS[name]
    monkeypatch.setitem(OPERATORS, definition(node), fault)
    bundle = loadrun.load(model(f"y = {node}(x)"))
    with pytest.raises(ProofError, match=r"gives other numbers than the model: output 'y' is \S+ at \["):
        loadrun.save(bundle, tmp_path / "m.mge")
    assert not (tmp_path / "m.mge").exists()
    with proving("none"):
        loadrun.save(bundle, tmp_path / "m.mge")
    assert "not proven: it was written without a proof" in loadrun.load(tmp_path / "m.mge").warnings[0]


def test_infinities_of_a_lowering_alone_are_no_excuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As masks of attention are, inside one node."""
    masked = lambda x: np.maximum(x, 0) + np.exp(np.log(x * F(0))) + F(1)  # noqa: E731
    monkeypatch.setitem(OPERATORS, definition("Relu"), masked)
    with pytest.raises(ProofError, match="gives other numbers than the model: output 'y'"):
        loadrun.save(loadrun.load(model("y = Relu(x)")), tmp_path / "m.mge")


def test_a_size_taken_from_the_example_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPERATORS, definition("Relu"), lambda x: np.maximum(x, 0) * F(int(x.shape[0]) - 1))
    (tmp_path / "m.onnx").write_bytes(model("y = Relu(x)", "n, 3"))
    data = ["-d", "x:#rand(1,2,2,3)", "-d", "x:#rand(1,2,4,3)"]
    assert main(["pack", str(tmp_path / "m.onnx"), *data, "-o", str(tmp_path / "m.mge"), "-q"]) == 2
    assert not (tmp_path / "m.mge").exists()


def test_what_no_data_show_of_open_sizes_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong_beyond_ten(x: Any) -> Any:
        rows = np.sum(x[:, :1] * F(0) + F(1))
        return np.maximum(x, 0) + np.maximum(rows - F(10), 0)

    monkeypatch.setitem(OPERATORS, definition("Relu"), wrong_beyond_ten)
    (tmp_path / "m.onnx").write_bytes(model("y = Relu(x)", "n, 3"))
    data = ["-d", "x:#rand(1,2,2,3)", "-d", "x:#rand(1,2,4,3)"]
    assert main(["pack", str(tmp_path / "m.onnx"), *data, "-o", str(tmp_path / "m.mge"), "-q"]) == 2
    assert "(at sizes x [65, 3])" in capsys.readouterr().err


def test_the_command_says_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(OPERATORS, definition("Relu"), lambda x: -x)
    (tmp_path / "m.onnx").write_bytes(model("y = Relu(x)"))
    argv = ["pack", str(tmp_path / "m.onnx"), "-d", "x:#rand(1,2,2,6)", "-o", str(tmp_path / "m.mge"), "-q"]
    assert main(argv) == 2
    assert "prove=none (--prove none)" in capsys.readouterr().err
    assert main([*argv, "--prove", "none"]) == 0


WRITTEN: dict[str, Callable[[Any], Any]] = {
    "Elemwise": lambda x: np.sin(x),
    "ReduceV2": lambda x: x.sum(1, keepdims=True),
    "MatrixMulV2": lambda x: x @ np.arange(12, dtype=F).reshape(4, 3),
    "Dimshuffle": lambda x: x.T + np.zeros(1, F),
    "Concat": lambda x: np.concatenate([x, x * 2]),
    "Subtensor": lambda x: x[1:, ::2],
    "ReshapeV1": lambda x: x.reshape(-1, 2),
    "Broadcast": lambda x: np.broadcast_to(x, (2, 3, 4)),
    "CumsumV1": lambda x: np.cumsum(x, 1),
    "TypeCvtV2": lambda x: x.astype(np.int32),
}
IN_ONNX: dict[str, Callable[[Any, str], str]] = {
    "a sign": lambda w, y: w.op("Neg", y),
    "a number": lambda w, y: w.op("Add", y, y),
}


@pytest.mark.parametrize("node", slow_but(["Elemwise", "Concat"], [*WRITTEN]))
@pytest.mark.parametrize("kind", IN_ONNX)
def test_a_fault_planted_in_a_writer_is_stopped(
    node: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right: Any = TRANSLATIONS.get(node)
    monkeypatch.setitem(TRANSLATIONS, node, lambda w, opr: IN_ONNX[kind](w, right(w, opr)))
    x = np.linspace(-2, 9, 12, dtype=F).reshape(3, 4)
    with pytest.raises(ProofError, match="the ONNX model gives other numbers than the model"):
        export(WRITTEN[node], x)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("Elemwise", lambda w, opr: w.op("Sinh", w.name(opr.inputs[0]))),
        ("ReduceV2", lambda w, opr: w.reduce("ReduceSum", w.name(opr.inputs[0]), [0], 1)),
    ],
)
def test_a_wrong_writer_is_stopped(kind: str, fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def traced(x: Any) -> Any:
        if kind == "Elemwise":
            return np.sin(x)
        return x.sum(1, keepdims=True)

    monkeypatch.setitem(TRANSLATIONS, kind, fault)
    with pytest.raises(ProofError, match="the ONNX model gives other numbers than the model"):
        export(traced, np.arange(6, dtype=F).reshape(2, 3))


def test_what_is_no_model_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that nobody can read is not only one that was not proven."""

    def mixed(w: Any, opr: Any) -> str:
        name: str = w.op("Add", w.name(opr.inputs[0]), w.const(np.int64(1)))
        return name

    monkeypatch.setitem(TRANSLATIONS, "Elemwise", mixed)
    with pytest.raises(ProofError, match=r"the ONNX model cannot be read back: .*of the same type"):
        export(np.sin, np.ones(3, F))


def misdefined(name: str, wrong: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> loadrun.Bundle:
    """Read a node with a wrong definition, which is what is written of it as well."""
    bundle = loadrun.load(model(f"y = {name}(x)"))
    composite = bundle.graph.outputs[0].owner.params[0].definition
    monkeypatch.setitem(vars(composite), "function", wrong)
    monkeypatch.setitem(OPERATORS, wrong, wrong)
    return bundle


@pytest.mark.skipif(not installed("onnxruntime"), reason="onnxruntime is not installed")
def test_a_fault_of_the_definition_itself_is_found_by_the_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reader and lowering agree with each other; ONNX Runtime reads the file itself."""
    bundle = misdefined("Mish", lambda x: x * np.tanh(x), monkeypatch)
    with pytest.raises(ProofError, match=r"ONNX Runtime gives other numbers of the source: .*testcase 0"):
        loadrun.save(bundle, tmp_path / "m.mge")


@pytest.mark.skipif(not installed("onnxruntime"), reason="onnxruntime is not installed")
def test_what_only_drawn_data_show_of_a_definition_is_found_by_the_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example is positive."""
    bundle = misdefined("Celu", lambda x: x * F(1), monkeypatch)
    with pytest.raises(
        ProofError, match=r"ONNX Runtime gives other numbers of the source: .*(numbers|sizes)"
    ):
        loadrun.save(bundle, tmp_path / "m.mge")


@pytest.mark.skipif(not installed("onnxruntime"), reason="onnxruntime is not installed")
def test_a_runtime_that_ends_does_not_end_the_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truth, "_shared", [])
    monkeypatch.setattr(truth, "runtime", lambda *a, **k: pytest.fail("in this process"))
    export(lambda x: np.tanh(x), np.ones(3, F), tmp_path / "a.onnx")
    truth._shared[0].close()
    export(lambda x: np.tanh(x), np.ones(3, F), tmp_path / "b.onnx")
    assert not loadrun.load(tmp_path / "b.onnx").warnings


def test_rounding_and_ties_are_no_fault(tmp_path: Path) -> None:
    """Sums in another order, the place of one of equal numbers, and values that are not finite."""
    for node in ("ReduceSum", "Softmax", "LogSoftmax", "Log", "Reciprocal", "Sqrt"):
        loadrun.save(loadrun.load(model(f"y = {node}(x)")), tmp_path / f"{node}.mge")
    loadrun.save(loadrun.load(model("y = ArgMax(x)", y="int64[a, b]")), tmp_path / "m.mge")
    assert not loadrun.load(tmp_path / "m.mge").warnings


def test_random_numbers_are_not_compared(tmp_path: Path) -> None:
    loadrun.save(loadrun.load(model("r = RandomNormalLike(x)  y = Add(r, x)")), tmp_path / "m.mge")
    assert "not proven: it draws random numbers" in loadrun.load(tmp_path / "m.mge").warnings


def test_levels() -> None:
    with pytest.raises(loadrun.base.errors.UsageError, match="none, quick, full"), proving("some"):
        pass
    assert issubclass(ProofError, UnsupportedError)


def test_inputs_that_nothing_reads_are_no_fault(tmp_path: Path) -> None:
    head = '<ir_version: 9, opset_import: ["" : 20]>'
    text = f"{head} g (float[2] x, int32[2] like) => (int32[2] y) {{ y = CastLike(x, like) }}"
    (tmp_path / "m.onnx").write_bytes(parser.parse_model(text).SerializeToString())
    loadrun.save(loadrun.load(tmp_path / "m.onnx"), tmp_path / "m.mge")
    assert not loadrun.load(tmp_path / "m.mge").warnings


@pytest.mark.skipif(not installed("onnxruntime"), reason="onnxruntime is not installed")
def test_text_goes_to_the_runtime_as_it_is() -> None:
    text = '<ir_version: 9, opset_import: ["" : 20]> g (string[2] x) => (string[2] y) { y = Identity(x) }'
    found = truth.beside(parser.parse_model(text).SerializeToString())
    assert found is not None
    assert found[1]({"x": np.array(["a", "bc"], object)})["y"].tolist() == ["a", "bc"]


def test_a_range_whose_length_rounding_decides_holds_for_one_size(tmp_path: Path) -> None:
    """7 times 0.3 in float32, by 0.3, is a little more than 7, but not in float32."""
    data = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 20]>\ng (float[n] x) => (float[k] y) <float z = {0}, float s = {0.3}>'
        "{ h = Shape(x)  a = Squeeze(h)  b = Cast<to=1>(a)  c = Mul(b, s)  r = Range(z, c, s)"
        "  t = ReduceSum<keepdims=0>(x)  y = Add(r, t) }"
    ).SerializeToString()
    assert loadrun.Runner(loadrun.load(data)).run({"x": np.ones(7, F)}).outputs[0].shape == (8,)
    loadrun.save(loadrun.load(data), tmp_path / "m.mge")
    with pytest.raises(loadrun.base.errors.InputError, match="may give other values elsewhere"):
        loadrun.Runner(tmp_path / "m.mge").run({"x": np.ones(7, F)})


@pytest.mark.parametrize("name", ["quant_mobilenet_minmax", "layout_quant_nchw44", "qat_mobilenet_quint8"])
def test_a_quantized_dump_passes_its_data_set_as_onnx(name: str, tmp_path: Path) -> None:
    assert main(["convert", f"fixtures/nets/{name}.mge", str(tmp_path / "m.onnx")]) == 0
    for engine in ("reference", "onnxruntime"):
        pytest.importorskip(engine if engine == "onnxruntime" else "numpy")
        results = loadrun.run(tmp_path / "m.onnx", engine=engine)
        assert results
        assert {r.verdict.value for r in results} == {"pass"}


@pytest.mark.parametrize("fixed", [False, True])
def test_an_exported_model_has_the_sizes_of_the_loaded_one(fixed: bool, tmp_path: Path) -> None:
    bundle = loadrun.load(model("y = Relu(x)", "n, 3", "float[n, 3]"), input_shapes={"x": (4, 3)})
    if fixed:
        loadrun.save(bundle, tmp_path / "m.mge")
        bundle = loadrun.load(tmp_path / "m.mge")
    (x,) = onnx.load_from_string(export(bundle).data).graph.input
    assert [d.dim_param or d.dim_value for d in x.type.tensor_type.shape.dim] == [4 if fixed else "n", 3]


def test_numbers_that_the_format_lacks_are_refused_without_testcases(tmp_path: Path) -> None:
    text = f"c = Constant<value_int={2**40}>()  y = Add(x, c)"
    data = parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 20]>\ng (int64[2] x) => (int64[2] y) {{ {text} }}'
    ).SerializeToString()
    with pytest.raises(loadrun.base.errors.UsageError, match=r"holds 1099511627776 in int64 .*narrow=True"):
        loadrun.save(loadrun.load(data), tmp_path / "m.mge")
    options = loadrun.dump.options.DumpOptions(narrow=True)
    loadrun.save(loadrun.load(data), tmp_path / "m.mge", options)
    assert "narrowed on writing" in loadrun.load(tmp_path / "m.mge").warnings[0]


def test_rows_that_integers_hide_are_an_edge_case(tmp_path: Path) -> None:
    """The model has zeros where a softmax is of masked numbers alone; MegEngine's choice leaves the NaN in it."""
    text = """<ir_version: 9, opset_import: ["" : 20]>
    g (float[2, 3] x, int64[2, 1] n) => (float[2, 3] y) {
        zero = Constant <value_float = 0.0> ()
        one = Constant <value_float = -1.0> ()
        least = Div(one, zero)
        none = Constant <value_int = 0> ()
        seen = Greater(n, none)
        masked = Where(seen, x, least)
        weights = Softmax(masked)
        last = Constant <value_ints = [-1]> ()
        high = ReduceMax(masked, last)
        empty = Equal(high, least)
        y = Where(empty, zero, weights)
    }"""
    (tmp_path / "m.onnx").write_bytes(parser.parse_model(text).SerializeToString())
    bundle = loadrun.load(tmp_path / "m.onnx")
    x = {"x": np.ones((2, 3), F), "n": np.array([[1], [2]])}
    bundle.testcases = [loadrun.Testcase({**x, "y:expect": np.full((2, 3), 1 / 3, F)})]
    loadrun.save(bundle, tmp_path / "m.mge")
    hidden = loadrun.Runner(loadrun.load(tmp_path / "m.mge")).run({**x, "n": np.array([[0], [2]], np.int32)})
    assert np.isnan(hidden.outputs[0].value).tolist() == [[True] * 3, [False] * 3]


@pytest.mark.parametrize("name", ["quant_resnet_quint8", "quant_resnet_quint8_features"])
def test_a_step_of_quantization_beside_a_half_is_rounding(name: str, tmp_path: Path) -> None:
    """Sums of integers and of what they stand for differ in the last digits, which the inputs' own do not show."""
    loadrun.convert_file(f"fixtures/nets/{name}.mge", tmp_path / "m.onnx")
    assert {r.verdict.value for r in loadrun.run(tmp_path / "m.onnx")} == {"pass"}
