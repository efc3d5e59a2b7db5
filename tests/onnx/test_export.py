"""loadrun.onnx.export: every parameter, judged by onnx.checker and ONNX Runtime."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.megengine.functional as F
import loadrun.megengine.module as M
import loadrun.onnx
from loadrun import Bundle
from loadrun.base.errors import UnsupportedError, UsageError
from loadrun.base.proving import proving
from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import DType
from loadrun.graph.params import Host2DeviceCopy
from loadrun.onnx import Dim, Exported, OperatorExportTypes, TrainingMode, export
from loadrun.onnx.exported import available, check_model
from loadrun.ops.catalog import TypeParam
from loadrun.proof import ProofError

pytestmark = pytest.mark.skipif(not available(), reason="needs onnx and onnxruntime")

RNG = np.random.default_rng(3)


def run(made: Exported | bytes | str, **feeds: Any) -> list[np.ndarray[Any, Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    data = made.data if isinstance(made, Exported) else made
    if isinstance(data, bytes):
        check_model(data)
    return list(onnxruntime.InferenceSession(data, options).run(None, feeds))


def model_of(made: Exported) -> Any:
    import onnx

    return onnx.load_from_string(made.data)


class Net(M.Module):
    """A convolution, a normalization that differs between training and evaluation, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = M.Conv2d(3, 4, 3, padding=1)
        self.bn = M.BatchNorm2d(4)
        self.fc = M.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        y = F.relu(self.bn(self.conv(x)))
        return self.fc(F.mean(y, axis=(2, 3)))


IMAGES = RNG.standard_normal((2, 3, 8, 6)).astype("f4")


# args, kwargs, f


def minus(x: Any, y: Any = 1.0, *, z: Any = 0.0) -> Any:
    return x - y + z


@pytest.mark.parametrize(
    ("args", "kwargs", "feeds"),
    [
        ("x", None, ["x"]),
        (("x",), None, ["x"]),
        (("x", "y"), None, ["x", "y"]),
        (("x", {"y": "y"}), None, ["x", "y"]),
        (("x", {"y": "y", "z": "z"}), None, ["x", "y", "z"]),
        (("x",), {"y": "y", "z": "z"}, ["x", "y", "z"]),
        (("x", {"y": "y"}), {"z": "z"}, ["x", "y", "z"]),
        (("x", "y", {}), None, ["x", "y"]),
    ],
)
def test_forms_of_args(args: Any, kwargs: Any, feeds: list[str]) -> None:
    values = {n: RNG.standard_normal(4).astype("f4") for n in "xyz"}

    def fill(form: Any) -> Any:
        if isinstance(form, str):
            return values[form]
        if isinstance(form, tuple):
            return tuple(map(fill, form))
        return form if form is None else {k: fill(v) for k, v in form.items()}

    made = export(minus, fill(args), kwargs=fill(kwargs))
    assert made.input_names == feeds
    got = run(made, **{n: values[n] for n in feeds})[0]
    want = values["x"] - (values["y"] if "y" in feeds else 1) + (values["z"] if "z" in feeds else 0)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_keyword_given_twice() -> None:
    x = np.ones(2, "f4")
    with pytest.raises(UsageError, match="y are both in kwargs and in the dict"):
        export(minus, (x, {"y": x}), kwargs={"y": x})


def test_path_file_and_nothing(tmp_path: Path) -> None:
    x = np.ones(2, "f4")
    path, file = tmp_path / "m.onnx", io.BytesIO()
    data = {export(minus, x, f).data for f in (None, path, file, str(path))}
    assert data == {path.read_bytes()} == {file.getvalue()}


def test_a_traced_function() -> None:
    @loadrun.trace(symbolic=True, capture_as_const=True)
    def traced(x: Any) -> Any:
        return {"double": x * 2, "sum": x.sum()}

    traced(loadrun.tensor([1.0, 2.0, 3.0]))
    made = export(traced)
    assert made.output_names == ["double", "sum"]
    double, total = run(made, **{made.input_names[0]: np.array([4, 5, 6], "f4")})
    assert double.tolist() == [8, 10, 12]
    assert total.reshape(-1).tolist() == [15]


def test_numpy_functions() -> None:
    x = RNG.standard_normal((3, 4)).astype("f4")
    made = export(lambda x: np.tanh(x) @ x.T + np.maximum(x, 0).sum(), x, verify=True)
    np.testing.assert_allclose(run(made, x=x)[0], np.tanh(x) @ x.T + np.maximum(x, 0).sum(), rtol=1e-5)


def test_a_product_whose_columns_are_taken_apart() -> None:
    points = np.random.default_rng(0).random((3, 4, 5), np.float32)
    matrices = np.random.default_rng(1).random((2, 3, 3), np.float32)
    made = export(lambda m: np.einsum("nij,jhw->nihw", m, points), (matrices,), input_names=["m"])
    (result,) = loadrun.run(loadrun.load(made.data), {"m": matrices})
    expected = np.einsum("nij,jhw->nihw", *(v.astype("f8") for v in (matrices, points)))
    np.testing.assert_allclose(np.asarray(result[made.output_names[0]]), expected, rtol=1e-6)


def test_a_bundle_takes_values_by_name_and_by_place() -> None:
    bundle = loadrun.load("fixtures/nets/mlp.mge")
    data = RNG.standard_normal((5, 20)).astype("f4")
    for args in (data, (data,), ({"data": data},)):
        made = export(bundle, args, dynamic_axes={})
        assert [d.dim_value for d in model_of(made).graph.input[0].type.tensor_type.shape.dim] == [5, 20]
    with pytest.raises(UsageError, match="no input other; its inputs are data"):
        export(bundle, ({"other": data},))
    with pytest.raises(UsageError, match="args has 2 values for 1 inputs"):
        export(bundle, (data, data))


def test_what_is_no_model() -> None:
    with pytest.raises(UsageError, match="found int"):
        export(3, np.ones(2))
    with pytest.raises(UsageError, match="args is empty"):
        export(minus)


# Names


def test_names() -> None:
    x = np.ones(3, "f4")
    made = export(minus, (x, x), input_names=["a"], output_names=["b"])
    assert (made.input_names, made.output_names) == (["a", "y"], ["b"])
    assert run(made, a=x * 3, y=x)[0].tolist() == [2, 2, 2]


def test_surplus_names_name_the_weights() -> None:
    made = export(Net(), IMAGES, input_names=["x", "kernel"])
    assert made.input_names == ["x"]
    assert "kernel" in {t.name for t in model_of(made).graph.initializer}
    with pytest.raises(UsageError, match=r"input_names has \d+ names more than the model's inputs \(x\)"):
        export(Net(), IMAGES, input_names=["x", *"abcdefghijkl"])
    with pytest.raises(UsageError, match="output_names has 2 names for 1 outputs"):
        export(Net(), IMAGES, output_names=["a", "b"])
    with pytest.raises(UsageError, match="two inputs cannot have the name 'a'"):
        export(minus, (IMAGES, IMAGES), input_names=["a", "a"])


def test_weights_keep_their_names() -> None:
    stored = {t.name for t in model_of(export(Net(), IMAGES, do_constant_folding=False)).graph.initializer}
    assert {"conv.weight", "fc.bias"} <= stored


# Dynamic sizes


def test_dynamic_axes_run_at_other_sizes() -> None:
    net = Net()
    axes = {"x": {0: "batch", 2: "height", 3: "width"}, "y": {0: "batch"}}
    given = {k: dict(v) for k, v in axes.items()}
    made = export(net, IMAGES, output_names=["y"], dynamic_axes=axes, verify=True)
    assert axes == given
    graph = model_of(made).graph
    dims = graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in dims] == ["batch", 3, "height", "width"]
    assert [d.dim_param or d.dim_value for d in graph.output[0].type.tensor_type.shape.dim] == ["batch", 5]
    net.eval()
    for shape in ((1, 3, 8, 6), (5, 3, 4, 9)):
        x = RNG.standard_normal(shape).astype("f4")
        np.testing.assert_allclose(run(made, x=x)[0], net(loadrun.tensor(x)).numpy(), rtol=1e-4, atol=1e-5)


def test_dynamic_axes_as_lists() -> None:
    made = export(minus, np.ones((2, 3), "f4"), dynamic_axes={"x": [0, -1]})
    dims = model_of(made).graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param for d in dims] == ["x_dynamic_axes_1", "x_dynamic_axes_2"]
    assert run(made, x=np.ones((4, 5), "f4"))[0].shape == (4, 5)


def reshaped(x: Any) -> Any:
    n, c, h, w = x.shape
    y = x.reshape(n, c // 2, 2, h * w).transpose(0, 2, 1, 3)
    return F.concat([y[:, :, :, ::2], y[:, :, :, 1::2]], axis=3).sum(axis=3) / (h * w)


def test_arithmetic_on_sizes_follows_the_sizes() -> None:
    made = export(reshaped, np.ones((1, 4, 4, 4), "f4"), dynamic_axes={"x": [0, 1, 2, 3]}, verify=True)
    for shape in ((2, 6, 4, 2), (3, 2, 3, 4)):
        x = RNG.standard_normal(shape).astype("f4")
        n, c, h, w = shape
        want = x.reshape(n, c // 2, 2, h * w).transpose(0, 2, 1, 3).sum(axis=3) / (h * w)
        np.testing.assert_allclose(run(made, x=x)[0], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"data": {0: "n"}}, "names 'data', which is neither an input"),
        ({"x": {4: "n"}}, "'x' has 4 axes, dynamic_axes names axis 4"),
        ({"x": {0: 3}}, "the size of axis 0 of 'x' needs a name, found 3"),
        ({"x": "batch"}, "an axis of 'x' must be a number, found 'b'"),
        ({"x": {1: "channels"}}, "axis 1 of 'x'.*cannot be dynamic"),
        ({"x": {0: "n"}, "y": {1: "classes"}}, "axis 1 of output 'y' does not change"),
        ({"x": {0: "n", 2: "n"}}, "'n' names sizes that differ: 2 .* and 8"),
    ],
)
def test_dynamic_axes_that_make_no_sense(axes: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        export(Net(), IMAGES, output_names=["y"], dynamic_axes=axes)


@pytest.mark.parametrize(
    "shapes",
    [
        {"x": {0: Dim("batch")}},
        {"x": {0: "batch", 1: None}},
        ({0: Dim("batch")},),
        [[Dim("batch"), Dim.STATIC, None, None]],
    ],
)
def test_dynamic_shapes(shapes: Any) -> None:
    made = export(Net(), IMAGES, dynamic_shapes=shapes)
    dims = model_of(made).graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in dims] == ["batch", 3, 8, 6]
    assert run(made, x=IMAGES[:1])[0].shape == (1, 5)


def test_dynamic_shapes_that_make_no_sense() -> None:
    with pytest.raises(UsageError, match="not both"):
        export(Net(), IMAGES, dynamic_axes={"x": [0]}, dynamic_shapes={"x": {0: "n"}})
    with pytest.raises(UsageError, match="dynamic_shapes names 'y'; the inputs are x"):
        export(Net(), IMAGES, dynamic_shapes={"y": {0: "n"}})
    with pytest.raises(UsageError, match="2 entries for the 4 axes"):
        export(Net(), IMAGES, dynamic_shapes=[["n", None]])


def test_testcases_of_several_sizes_make_axes_dynamic() -> None:
    made = export("fixtures/nets/mlp.mge", verify=True)
    for case in made.source.testcases:
        got = run(made, data=case.inputs["data"])[0]
        np.testing.assert_allclose(got, case.expects["out"], rtol=1e-5, atol=1e-5)


# Opsets


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 17, 18, 20, 22])
def test_the_opset_is_the_one_asked_for(opset: int) -> None:
    net = Net()
    made = export(net, IMAGES, opset_version=opset, verify=True)
    model = model_of(made)
    assert {o.domain: o.version for o in model.opset_import} == {"": opset}
    assert model.ir_version <= 10
    net.eval()
    np.testing.assert_allclose(
        run(made, x=IMAGES)[0], net(loadrun.tensor(IMAGES)).numpy(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("opset", [0, 6, 27, 99])
def test_opsets_that_are_not_written(opset: int) -> None:
    with pytest.raises(UsageError, match=f"opset_version must be from 7 to 26, found {opset}"):
        export(minus, np.ones(2, "f4"), opset_version=opset)


def sinh_and_erf(x: Any) -> Any:
    return F.sinh(x) + F.gelu(x)


def test_an_opset_without_the_operators_names_them() -> None:
    with pytest.raises(UnsupportedError) as e:
        export(sinh_and_erf, np.ones(2, "f4"), opset_version=8)
    text = str(e.value)
    assert text.startswith("2 operators cannot be written as ONNX:")
    assert "ONNX's Sinh needs opset 9, but 8 is requested" in text
    assert "GELU" not in text.split("\n")[0]
    assert "ONNX's Erf needs opset 9" in text


def test_gelu_of_the_largest_number_is_finite() -> None:
    x = np.array([np.finfo("f4").max, np.inf, -40, 1], "f4")
    made = export(F.gelu, x, input_names=["x"], opset_version=18)
    (y,) = run(made, x=x)
    np.testing.assert_allclose(y, [x[0], np.inf, 0, 0.8413447], rtol=1e-6)


def test_no_opset_takes_the_first_that_has_all_operators() -> None:
    x, w = np.ones((1, 2, 5, 5), "f4"), np.ones((3, 2, 3, 3), "f4")
    offset, mask = np.zeros((1, 18, 3, 3), "f4"), np.ones((1, 9, 3, 3), "f4")
    made = export(F.deformable_conv2d, (x, w, offset, mask), kwargs={"conv_mode": "cross_correlation"})
    assert made.opset_version == 19
    assert run(made, **dict(zip(made.input_names, (x, w, offset, mask), strict=True)))[0].tolist() == (
        np.full((1, 3, 3, 3), 18.0).tolist()
    )


# Weights


def test_without_parameters_weights_are_inputs() -> None:
    net = Net()
    made = export(net, IMAGES, export_params=False, verify=True)
    graph = model_of(made).graph
    names = [i.name for i in graph.input]
    assert names[0] == "x"
    assert "fc.bias" in names
    assert not {"fc.bias", "conv.weight"} & {t.name for t in graph.initializer}


def test_initializers_may_be_inputs_too() -> None:
    made = export(Net(), IMAGES, keep_initializers_as_inputs=True)
    graph = model_of(made).graph
    assert "fc.bias" in {i.name for i in graph.input} & {t.name for t in graph.initializer}
    plain = run(made, x=IMAGES)[0]
    changed = run(
        made, x=IMAGES, **{"fc.bias": np.full((1, 5), 7, "f4").reshape(shape_of(graph, "fc.bias"))}
    )[0]
    assert np.abs(changed - plain).min() > 1


def shape_of(graph: Any, name: str) -> list[int]:
    return next(list(t.dims) for t in graph.initializer if t.name == name)


def test_external_data(tmp_path: Path) -> None:
    import onnx

    path = tmp_path / "net.onnx"
    made = export(lambda x: F.matmul(x, WIDE), np.ones((2, 64), "f4"), path, external_data=True, verify=True)
    stored = onnx.load(path, load_external_data=False).graph.initializer
    outside = [t for t in stored if t.data_location == 1]
    assert len(outside) == 1
    entries = {e.key: e.value for e in outside[0].external_data}
    assert entries["location"] == "net.onnx.data"
    assert int(entries["offset"]) % 4096 == 0
    assert path.stat().st_size < 1000 < (tmp_path / "net.onnx.data").stat().st_size
    want = np.ones((2, 64), "f4") @ WIDE
    np.testing.assert_allclose(run(str(path), x=np.ones((2, 64), "f4"))[0], want, rtol=1e-5)
    assert made.data.count(WIDE.tobytes()) == 1
    with pytest.raises(UsageError, match="needs a path"):
        export(minus, np.ones(2, "f4"), io.BytesIO(), external_data=True)


WIDE = RNG.standard_normal((64, 32)).astype("f4")


def test_constants_are_folded_unless_told_otherwise() -> None:
    weight = loadrun.tensor(np.arange(4096, dtype="f4"))

    def scaled(x: Any) -> Any:
        return x * F.exp(weight * 0.001)

    x = np.ones(4096, "f4")
    folded, plain = (export(scaled, x, do_constant_folding=on) for on in (True, False))
    counts = [sum(n.op_type == "Exp" for n in model_of(m).graph.node) for m in (folded, plain)]
    assert counts == [0, 1]
    for made in (folded, plain):
        np.testing.assert_allclose(run(made, x=x)[0], np.exp(np.arange(4096) * 0.001), rtol=1e-5)


# Modes


def test_training_modes() -> None:
    net = Net()
    net.train()
    made = export(net, IMAGES)
    assert net.training
    assert net.bn.training
    net.eval()
    np.testing.assert_allclose(
        run(made, x=IMAGES)[0], net(loadrun.tensor(IMAGES)).numpy(), rtol=1e-4, atol=1e-5
    )
    assert export(net, IMAGES, training=TrainingMode.PRESERVE).input_names == ["x"]
    with pytest.raises(UsageError, match="apply to torch modules"):
        export(net, IMAGES, training=TrainingMode.TRAINING)


def test_options_that_mean_nothing_here() -> None:
    x = np.ones(2, "f4")
    export(minus, x, operator_export_type=OperatorExportTypes.ONNX, export_modules_as_functions=False)
    with pytest.raises(UsageError, match="apply to torch modules"):
        export(minus, x, operator_export_type=OperatorExportTypes.ONNX_FALLTHROUGH)
    with pytest.raises(UsageError, match="graphs have no modules"):
        export(minus, x, export_modules_as_functions=True)
    with pytest.raises(UsageError, match="opset_version"):
        export(minus, x, custom_opsets={"": 3})
    model = model_of(export(minus, x, custom_opsets={"my.domain": 2}))
    assert {o.domain: o.version for o in model.opset_import} == {"": 18, "my.domain": 2}


def test_report_and_verbose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = export(Net(), IMAGES, tmp_path / "net.onnx", report=True, verbose=True, verify=True)
    text = (tmp_path / "net.md").read_text()
    assert text.rstrip("\n") == made.report == capsys.readouterr().out.rstrip("\n")
    assert "ConvolutionV2" in text
    assert "verified" in text
    docs = [n.doc_string for n in model_of(made).graph.node]
    assert any("ConvolutionV2" in d for d in docs)
    with pytest.raises(UsageError, match="needs a path"):
        export(minus, np.ones(2, "f4"), report=True)


# Judging


def test_verification_finds_a_wrong_translation(monkeypatch: pytest.MonkeyPatch) -> None:
    from loadrun.onnx.writing import TRANSLATIONS

    monkeypatch.setitem(TRANSLATIONS, "Elemwise", lambda w, opr: w.op("Neg", w.name(opr.inputs[0])))
    x = np.ones(3, "f4")
    with pytest.raises(ProofError, match=r"output 'EXP' is -1.0 at \[0\], in the model 2.718"):
        export(F.exp, x)
    with (
        proving("none"),
        pytest.raises(ProofError, match=r"output 'EXP' is -1.0 at \[0\], in the model 2.718"),
    ):
        export(F.exp, x, verify=True)


def test_everything_that_cannot_be_written_is_named() -> None:
    def both(x: Any) -> Any:
        u, s, v = F.svd(x)
        return F.matinv(x) + u, s, v

    with pytest.raises(UnsupportedError) as e:
        export(both, np.eye(3, dtype="f4"))
    lines = str(e.value).splitlines()
    assert lines[0] == "2 operators cannot be written as ONNX:"
    assert {line.split(": ", 1)[1] for line in lines[1:]} == {
        "ONNX has no singular value decomposition",
        "ONNX has no inverse of a matrix",
    }


def test_random_outputs_are_not_compared() -> None:
    with pytest.warns(UserWarning, match="draws random numbers"):
        made = export(lambda x: F.dropout(x, 0.5, training=True) * 1, np.ones((40, 50), "f4"), verify=True)
    kept = run(made, **{made.input_names[0]: np.ones((40, 50), "f4")})[0]
    assert set(np.unique(kept)) == {0.0, 2.0}
    assert 0.4 < (kept > 0).mean() < 0.6


def test_quantized_graphs_are_qdq() -> None:
    made = export("fixtures/nets/quant_resnet_minmax.mge", verify=True)
    kinds = {n.op_type for n in model_of(made).graph.node}
    assert {"QuantizeLinear", "DequantizeLinear", "Conv"} <= kinds


# torch.onnx.export's documented examples, with only the imports changed


class SumModule(M.Module):
    def forward(self, x: Any) -> Any:
        return F.sum(x, axis=1)


def test_documented_example_of_dynamic_axes(tmp_path: Path) -> None:
    path = str(tmp_path / "onnx.pb")
    loadrun.onnx.export(
        SumModule(),
        (F.ones((2, 2)),),
        path,
        input_names=["x"],
        output_names=["sum"],
        dynamic_axes={"x": [0, 1], "sum": [0]},
    )
    x = RNG.standard_normal((3, 5)).astype("f4")
    np.testing.assert_allclose(run(path, x=x)[0], x.sum(axis=1), rtol=1e-5, atol=1e-6)


class Optional(M.Module):
    def forward(self, k: Any, x: Any = None) -> Any:
        return k if x is None else k * x


def test_documented_example_of_keyword_arguments() -> None:
    k, x = F.ones((2, 3)), F.full((2, 3), 4.0)
    assert loadrun.onnx.export(Optional(), (k, {})).input_names == ["k"]
    assert loadrun.onnx.export(Optional(), (k, {"x": x})).input_names == ["k", "x"]
    assert loadrun.onnx.export(Optional(), (k,), kwargs={"x": x}).input_names == ["k", "x"]


def test_one_bit_is_written() -> None:
    """What MegEngine 1.13's TypeCvt gives for QuantizedS1 of scale 0.5, at and beside 0.25, and beyond the range."""
    graph, one_bit, real = Graph(), DType("QuantizedS1", 0.5), DType("Float32")
    held = StoredTensor(real, (8,), "x")
    (x,) = graph.add("Host2DeviceCopy", Host2DeviceCopy(), names=["x"], tensors=[held])
    (q,) = graph.add("TypeCvtV2", TypeParam(dtype=one_bit), inputs=[x], output_dtype=one_bit)
    graph.outputs = graph.add("TypeCvtV2", TypeParam(dtype=real), inputs=[q], names=["y"], output_dtype=real)
    (got,) = run(export(Bundle(graph)), x=np.float32([-1, 0, 0.2, 0.25, 0.3, 0.5, 0.76, 9]))
    assert got.tolist() == [0, 0, 0, 0.5, 0.5, 0.5, 0.5, 0.5]


@pytest.mark.filterwarnings("ignore:testcase 0")
def test_nan_that_onnx_runtime_loses_is_warned_of(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Its ReduceMax passes over a NaN that does not come first."""
    x = np.array([[1, np.nan, 3]], np.float32)
    for f, lost in ((lambda x: np.max(x, -1), True), (lambda x: x + 1, False)):
        recwarn.clear()
        t = loadrun.trace(f, capture_as_const=True)
        t(x)
        t.dump(tmp_path / "m.mge", arg_names=["x"], input_data=[{"x": x}])
        exported = export(loadrun.load(tmp_path / "m.mge"), f=tmp_path / "m.onnx")
        assert np.isnan(run(exported, x=x)[0]).any() != lost
        assert any("hold NaN, of which ONNX Runtime's ReduceMax" in str(w.message) for w in recwarn) == lost
