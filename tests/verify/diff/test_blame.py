"""Planted faults are named in quantized nets, across formats, and where a fault stops the model further on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.cli import main
from loadrun.dump.options import DumpOptions
from loadrun.graph import Opr
from loadrun.graph.dtypes import DType, encode
from loadrun.graph.params import (
    Axis,
    AxisAddRemove,
    AxisDesc,
    Convolution,
    Dimshuffle,
    LayerNorm,
    MatrixMul,
    OptionalAxisV1,
    Reduce,
    ReduceMode,
    Softmax,
)
from loadrun.ops.catalog import TypeParam
from loadrun.passes.constants import bare
from loadrun.testing import GraphBuilder
from loadrun.verify.diff import between, match
from loadrun.verify.diff.blaming import SuspectVar, _told
from loadrun.verify.diff.files import DiffOptions, diff_files
from loadrun.verify.diff.measuring import distance
from loadrun.verify.diff.stored import StoredValues
from tests.onnx.wire_models import attribute, field, model, node, tensor, value

NETS = Path("fixtures/nets")


def planted(name: str, change: Callable[[Opr], bool], folder: Path) -> tuple[Path, str]:
    """A copy of a fixture in which the first operator that takes a change has it, and that operator's output."""
    bundle = loadrun.load(NETS / name)
    opr = next(o for o in bundle.graph.oprs if change(o))
    bad = folder / "bad.mge"
    loadrun.save(bundle, bad)
    return bad, opr.outputs[0].name or ""


def other_scale(opr: Opr) -> bool:
    if opr.type != "ConvBiasForwardV4" or "blocks.1" not in (opr.outputs[0].name or ""):
        return False
    assert opr.output_dtype is not None
    opr.output_dtype = replace(opr.output_dtype, scale=float(np.float32(opr.output_dtype.scale * 1.1)))
    return True


def other_bias(opr: Opr) -> bool:
    """Move one bias of the second block by two steps: the convolution's output moves by less than one."""
    if opr.type != "ConvBiasForwardV4" or "blocks.1" not in (opr.outputs[0].name or ""):
        return False
    owner = opr.inputs[2].owner
    value = owner.tensors[0].value().copy()
    value.reshape(-1)[:] += 40
    owner.tensors[0] = replace(owner.tensors[0], data=encode(value, owner.tensors[0].dtype))
    return True


def other_stride(opr: Opr) -> bool:
    if opr.type != "ConvBiasForwardV4" or "blocks.1.two" not in (opr.outputs[0].name or ""):
        return False
    opr.params = (opr.params[0].replace(stride_h=2, stride_w=2), *opr.params[1:])
    return True


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (other_scale, "QuantizedS8(scale=0.0"),
        (other_bias, "its inputs differ"),
        (other_stride, "stride (2, 2) against (1, 1)"),
    ],
    ids=["scale", "bias", "stride"],
)
@pytest.mark.parametrize("suffix", [".mge", ".onnx"])
def test_a_fault_in_a_quantized_net(
    change: Callable[[Opr], bool],
    said: str,
    suffix: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad, name = planted("quant_resnet_minmax.mge", change, tmp_path)
    good = NETS / "quant_resnet_minmax.mge"
    if suffix == ".onnx":
        good = tmp_path / "good.onnx"
        assert main(["convert", str(NETS / "quant_resnet_minmax.mge"), str(good), "-q"]) == 0
    alone = tmp_path / "alone.mge"
    assert main(["diff", str(bad), "--against", str(good), "--output", str(alone)]) == 1
    out = capsys.readouterr().out
    blamed = next(line for line in out.splitlines() if line.startswith("to blame"))
    assert f"'{name}'" in blamed
    if suffix == ".mge":
        assert said in blamed
    assert main([str(alone), "-q"]) == 1


def test_a_bias_of_one_step_is_not_hidden_by_the_tolerance_of_a_step(tmp_path: Path) -> None:
    bad, name = planted("quant_resnet_minmax.mge", other_bias, tmp_path)
    found = diff_files(bad, NETS / "quant_resnet_minmax.mge").differences
    assert found is not None
    root = found.roots[0]
    assert root.var.name == name
    assert root.distance is not None
    assert root.distance.absolute == pytest.approx(root.var.dtype.scale if root.var.dtype else None)


def conv_net(stride: int, skip: bool = True) -> loadrun.Graph:
    """y = conv(relu(conv(x, stride)), 1) + x by hand: a stride of two makes the sum impossible."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", 1, 2, 6, 6)
    w = b.const(rng.standard_normal((2, 2, 3, 3)).astype("f4"))
    how = Convolution(stride_h=stride, stride_w=stride, pad_h=1, pad_w=1)
    one = b.add("ConvolutionV2", how, inputs=[x, w], name="one")
    bent = b.elemwise("RELU", one, name="bent")
    return b.done(b.elemwise("ADD", bent, x, name="y") if skip else bent)


def test_a_stride_that_stops_the_model(tmp_path: Path) -> None:
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 2, 6, 6)).astype("f4")}
    for bad, good, said in ((2, 1, "stride (2, 2) against (1, 1)"), (1, 2, "stride (1, 1) against (2, 2)")):
        found = between(conv_net(bad), conv_net(good), feeds)
        assert [r.var.name for r in found.roots] == ["one"]
        assert found.roots[0].changes == (said,)
        assert len(found.stops[0 if bad == 2 else 1]) == 1
        assert not found.agree


def test_names_pair_values_across_formats(tmp_path: Path) -> None:
    target = tmp_path / "m.onnx"
    loadrun.convert_file(NETS / "resnet_basic.mge", target)
    a, b = bare(loadrun.load(NETS / "resnet_basic.mge")), bare(loadrun.load(target))
    found = match(a, b)
    # A convolution with a bias is one node there, whose value is that of the sum.
    named = [
        v for o in a.oprs if o.type in ("ConvolutionV2", "PoolingV1") for v in o.outputs if v.id in found.how
    ]
    assert {v.owner.type for v in named} == {"ConvolutionV2", "PoolingV1"}
    assert all(found.how[v.id] == "name" and found.pairs[v.id].name == v.name for v in named)


@pytest.mark.parametrize("name", ["cnn_default", "cnn_hwcd4", "deconv8_nchw4", "residual8_nchw88"])
def test_optimized_graphs_agree(name: str) -> None:
    folder = Path("fixtures/optimized")
    found = diff_files(folder / f"{name}.mge", folder / f"{name.partition('_')[0]}_plain.mge")
    assert found.agree
    assert found.differences is not None
    assert found.differences.outputs_agree


def test_values_without_counterpart_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "m.onnx")
    loadrun.convert_file(NETS / "gpt.mge", target)
    assert main(["diff", str(NETS / "gpt.mge"), "--against", target]) == 0
    assert "outputs agree; " in capsys.readouterr().out


def test_a_huge_value_does_not_hide_small_ones() -> None:
    expected = np.array([[1.0, -1e9, 2.0], [0.5, 1.5, -1e9]])
    actual = expected.copy()
    actual[1, 1] = 1.75
    found = distance(actual, expected, 1e-4)
    assert found is not None
    # 0.25 of 2, the largest value beside the huge ones.
    assert (found.relative, found.index, found.count, found.size) == (0.125, (1, 1), 1, 6)
    assert found.elementwise == pytest.approx(0.25 / 1.5)


def test_all_testcases_are_looked_at(tmp_path: Path) -> None:
    """A threshold that only the second testcase passes."""
    for name, limit in (("good.mge", 5.0), ("bad.mge", 6.0)):
        b = GraphBuilder()
        graph = b.done(b.elemwise("MIN", b.input("x", 2), b.const(limit), name="y"))
        loadrun.save(graph, tmp_path / f"plain-{name}", DumpOptions(keep_var_name=2))
        data = loadrun.PackOptions(input_data=["x:[1,2]", "x:[1,9]"])
        loadrun.pack_file(tmp_path / f"plain-{name}", tmp_path / name, data)
    found = diff_files(tmp_path / "bad.mge", tmp_path / "good.mge")
    assert not found.agree
    assert found.ran_on == "testcase 1"
    assert diff_files(tmp_path / "bad.mge", tmp_path / "good.mge", DiffOptions(testcase=0)).agree


def test_values_by_module_name(tmp_path: Path) -> None:
    """As PyTorch's forward hooks keep them: a module gives what its last operator computes."""
    b = GraphBuilder()
    x = b.input("x", 3)
    one = b.elemwise(
        "ADD", b.elemwise("MUL", x, b.const(2.0), name="net.0.MUL"), b.const(1.0), name="net.0.ADD"
    )
    graph = b.done(b.elemwise("TANH", one, name="net.1.TANH"))
    loadrun.save(graph, tmp_path / "m.mge", DumpOptions(keep_var_name=2))
    value = np.array([0.5, 1.0, -1.0], "f4")
    np.savez(tmp_path / "hooks.npz", **{"net.0": value * 2 + 1, "net.1": np.tanh(value * 2 + 1)})
    np.save(tmp_path / "x.npy", value)
    data = DiffOptions(input_data=[f"x:{tmp_path / 'x.npy'}"])
    found = diff_files(tmp_path / "m.mge", tmp_path / "hooks.npz", data).differences
    assert found is not None
    assert found.agree
    assert [(r.var.name, r.label) for r in found.rows] == [("net.0.ADD", "net.0"), ("net.1.TANH", "net.1")]
    # What follows may hide a difference, or not be known.
    for known, wrong in (
        ({"net.1": np.tanh(value * 2 + 1)}, np.array([2, 3, 7], "f4")),
        ({}, value * 2 + 1.5),
    ):
        np.savez(tmp_path / "hooks.npz", **{"net.0": wrong}, **known)
        found = diff_files(tmp_path / "m.mge", tmp_path / "hooks.npz", data).differences
        assert found is not None
        assert [r.label for r in found.roots] == ["net.0"]


def test_the_value_of_a_normalization_is_not_its_statistics() -> None:
    b = GraphBuilder()
    x = b.input("x", 2, 3)
    params = LayerNorm(affine=False, normalized_dim=1, normalized_size=3, eps=1e-5)
    names = [f"ln.LayerNorm:o{i}" for i in range(3)]
    results = b.graph.add("LayerNorm", params, inputs=[x], n_outputs=3, names=names)
    graph = b.done(b.elemwise("TANH", results[0], name="y"))
    value = np.array([[1, 2, 4], [0, 3, 5]], "f4")
    wide = value.astype("f8")
    normal = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    found = between(graph, StoredValues([("ln", normal), ("y", np.tanh(normal))]), {"x": value})
    assert found.agree
    assert [r.label for r in found.rows] == ["ln", "y"]


def test_a_broken_onnx_model_is_compared_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx = pytest.importorskip("onnx")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    rng = np.random.default_rng(0)
    for name, stride in (("bad", 2), ("good", 1)):
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["c"], "/block/conv", strides=[stride] * 2, pads=[1] * 4),
            helper.make_node("Relu", ["c"], ["r"], "/block/relu"),
            helper.make_node("Add", ["r", "x"], ["y"], "/block/add"),
        ]
        weight = numpy_helper.from_array(rng.standard_normal((2, 2, 3, 3)).astype("f4"), "w")
        kind = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", kind, [1, 2, 6, 6])],
            [helper.make_tensor_value_info("y", kind, None)],
            [weight],
        )
        rng = np.random.default_rng(0)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        onnx.save(model, tmp_path / f"{name}.onnx")
    bad, good = str(tmp_path / "bad.onnx"), str(tmp_path / "good.onnx")
    assert main(["diff", good, bad]) == 1
    assert main(["diff", good, bad, "--against", "float64"]) == 2
    said = capsys.readouterr()
    assert "is compared as far as it could be translated" in said.err
    assert "/block/conv" in next(line for line in said.out.splitlines() if line.startswith("to blame"))
    assert "strides [1, 1] against [2, 2]" in said.out


def test_numbers_are_those_of_the_file() -> None:
    bundle = loadrun.load(NETS / "mlp.mge")
    known = {o.outputs[0].name: o.id for o in bundle.graph.oprs if o.outputs}
    assert all(o.number == known[o.outputs[0].name] for o in bare(bundle).oprs if o.outputs[0].name in known)


@pytest.mark.parametrize("model_is", [".mge", ".onnx"])
def test_another_scale_of_a_weight_that_stops_the_net_further_on(model_is: str, tmp_path: Path) -> None:
    """ONNX has integers where MegEngine has quantized values: their scale stands in the product behind them."""

    def scaled(opr: Opr) -> bool:
        if (opr.outputs[0].name or "") != "two.MatrixMul":
            return False
        owner = opr.inputs[1].owner
        dtype = owner.tensors[0].dtype
        scale = float(np.float32(dtype.scale * 1.25))
        owner.tensors[0] = replace(owner.tensors[0], dtype=replace(dtype, scale=scale))
        return True

    bad, name = planted("quant_mlp_minmax.mge", scaled, tmp_path)
    good = tmp_path / "good.onnx"
    assert main(["convert", str(NETS / "quant_mlp_minmax.mge"), str(good), "-q"]) == 0
    pair = (bad, good) if model_is == ".mge" else (good, bad)
    root = diff_files(*pair).differences.roots[0]
    assert root.var.name == name
    assert root.distance is not None
    # 1.25 times as much, of the good one's largest value or of the bad one's.
    assert root.distance.relative == pytest.approx(0.25 if model_is == ".mge" else 0.2, rel=1e-5)


def test_a_quantized_net_that_onnxruntime_fused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ort = pytest.importorskip("onnxruntime")
    plain, fused = str(tmp_path / "plain.onnx"), str(tmp_path / "fused.onnx")
    assert main(["convert", str(NETS / "quant_mobilenet_quint8.mge"), plain, "-q"]) == 0
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = fused
    options.log_severity_level = 4
    ort.InferenceSession(plain, options, providers=["CPUExecutionProvider"])
    for one, other in ((plain, fused), (fused, plain)):
        capsys.readouterr()
        assert main(["diff", one, "--against", other]) == 0
        assert "outputs agree; " in capsys.readouterr().out


def test_a_batch_norm_that_onnxruntime_folded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ort = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from tests.support.onnx_files import batchnorm_model

    plain = batchnorm_model(tmp_path)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 4
    ort.InferenceSession(str(plain), options, providers=["CPUExecutionProvider"])
    assert main(["diff", str(tmp_path / "optimized.onnx"), "--against", str(plain)]) == 0
    out = capsys.readouterr().out
    assert "1 weight multiplied by a factor per channel: batch norm is folded" in out


def test_what_cannot_be_expressed_does_not_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All values before the broken node agree, and the outputs were never compared."""
    pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    from tests.support.onnx_files import model, write

    for name, rows in (("good", 3), ("bad", 4)):
        weight = numpy_helper.from_array(np.ones((rows, 2), "f4"), "w")
        nodes = [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("MatMul", ["r", "w"], ["y"], "/product"),
        ]
        ends = [("x", TensorProto.FLOAT, [2, 3])], [("y", TensorProto.FLOAT, None)]
        write(tmp_path, model(nodes, *ends, initializer=[weight]), name=f"{name}.onnx")
    assert main(["diff", str(tmp_path / "bad.onnx"), "--against", str(tmp_path / "good.onnx")]) == 1
    said = capsys.readouterr()
    assert "/product" in said.err
    assert "to blame: MatMul '/product' (operator 3): constant 'w' of shape [4, 2] against [3, 2]" in said.out
    assert "outputs agree" not in said.out


@pytest.mark.slow
def test_a_conversion_and_its_weights_that_are_transposed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fault is named although the other file holds matrices transposed, which are no difference."""
    good = tmp_path / "good.onnx"
    loadrun.convert_file(NETS / "gpt.mge", good)

    def gelu(opr: Opr) -> bool:
        if opr.outputs[0].name != "blocks.1.GELU" or not opr.params:
            return False
        opr.params = (opr.param.replace(mode=type(opr.param.mode)["TANH"]),)
        return True

    bad, name = planted("gpt.mge", gelu, tmp_path)
    assert main(["diff", str(bad), "--against", str(good)]) == 1
    blamed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("to blame")]
    assert f"'{name}'" in blamed[0]
    assert main(["diff", str(NETS / "gpt.mge"), "--against", str(good)]) == 0
    assert "constant" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "node", "field", "value"),
    [
        ("quant_resnet_minmax", "Conv_11", "strides", [2, 2]),
        ("quant_resnet_minmax", "Conv_46", "dilations", [2, 2]),
        ("mobilenet_v3", "ReduceMean_6", "keepdims", 0),
    ],
)
def test_a_fault_in_a_node_of_a_conversion(
    name: str, node: str, field: str, value: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reference is the dump; the node is named, also where the fault stops the model further on."""
    onnx = pytest.importorskip("onnx")
    target = tmp_path / "m.onnx"
    loadrun.convert_file(NETS / f"{name}.mge", target)
    model = onnx.load(target)
    wrong = next(n for n in model.graph.node if n.name == node)
    kept = [a for a in wrong.attribute if a.name != field]
    del wrong.attribute[:]
    wrong.attribute.extend([*kept, onnx.helper.make_attribute(field, value)])
    onnx.save(model, target)
    assert main(["diff", str(target), "--against", str(NETS / f"{name}.mge")]) == 1
    blamed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("to blame")]
    assert f"'{node}'" in blamed[0]


def unnamed_net(stride: int, axis: int) -> loadrun.Graph:
    """Two convolutions beside each other, joined and added to the input's channels; no inner value has a name."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", 1, 2, 6, 6)
    ws = [b.const(rng.standard_normal((2, 2, 3, 3)).astype("f4")) for _ in range(3)]
    first = Convolution(pad_h=1, pad_w=1)
    one = b.elemwise("RELU", b.add("ConvolutionV2", first, inputs=[x, ws[0]]))
    two = b.elemwise(
        "TANH", b.add("ConvolutionV2", first.replace(stride_h=stride, stride_w=stride), inputs=[x, ws[1]])
    )
    both = b.add("Concat", Axis(axis=axis), inputs=[one, two])
    return b.done(b.elemwise("SIGMOID", both, name="y"))


@pytest.mark.parametrize(
    ("stride", "axis", "said"),
    [(1, 0, "axis 0 against 1"), (2, 1, "strides [2, 2] against its default")],
    ids=["other shape", "stops"],
)
def test_a_dump_without_names_beside_a_conversion(stride: int, axis: int, said: str, tmp_path: Path) -> None:
    """The operator itself is named, also where the model cannot run to its end."""
    good, bad = tmp_path / "good.mge", tmp_path / "bad.mge"
    loadrun.save(unnamed_net(1, 1), good, DumpOptions(keep_var_name=0))
    loadrun.save(unnamed_net(stride, axis), bad, DumpOptions(keep_var_name=0))
    target = tmp_path / "good.onnx"
    loadrun.convert_file(good, target)
    found = diff_files(bad, target).differences
    assert found is not None
    root = found.roots[0]
    assert root.changes == (said,)
    assert root.opr.type == ("Concat" if axis == 0 else "ConvolutionV2")


def test_an_axis_of_one_element_that_is_moved(tmp_path: Path) -> None:
    """A transposition that leaves the numbers in their order is named, not what computes other numbers from them."""
    for name, axes in (("good.onnx", [2, 1, 0]), ("bad.onnx", [2, 0, 1])):
        nodes = (
            node("Transpose", ["x"], ["turned"], attribute("perm", axes)),
            node("Tanh", ["turned"], ["bent"]),
            node("ReduceSum", ["bent", "axis"], ["total"]),
        )
        axis = field(5, tensor(np.array([1]), "axis"))
        x, total = field(11, value("x", 1, (1, 3, 1))), field(12, value("total", 1, (1, 1, 1)))
        (tmp_path / name).write_bytes(model(*nodes, axis, x, total))
    found = diff_files(tmp_path / "bad.onnx", tmp_path / "good.onnx").differences
    assert found is not None
    assert found.roots[0].var.name == "turned"


@pytest.mark.parametrize(("wrong", "mode"), [(False, "ADD"), (True, "ADD"), (False, "SUB")])
def test_a_bias_that_another_operator_adds(wrong: bool, mode: str, tmp_path: Path) -> None:
    """A module's value holds its bias, which the dump adds under the name of the model's output."""
    b = GraphBuilder()
    weight = np.array([[1.0, 2.0], [3.0, 4.0 + wrong]], "f4")
    product = b.add(
        "MatrixMulV2", MatrixMul(), inputs=[b.input("x", 1, 2), b.const(weight)], name="fc.MatrixMul"
    )
    bias = b.const([0.5, -0.5])
    bias.name = "fc.bias"
    graph = b.done(b.elemwise(mode, product, bias, name="y"))
    loadrun.save(graph, tmp_path / "m.mge", DumpOptions(keep_var_name=2))
    # [1, 2] times [[1, 2], [3, 4]] and the bias.
    np.savez(tmp_path / "hooks.npz", fc=np.array([[7.5, 9.5]], "f4"))
    found = diff_files(tmp_path / "m.mge", tmp_path / "hooks.npz", DiffOptions(input_data=["x:[1,2]"]))
    assert found.agree == (not wrong and mode == "ADD")
    assert found.blamed is None or found.blamed.name == "fc.MatrixMul"


def test_the_data_of_the_reference(tmp_path: Path) -> None:
    """Random numbers from 0 to 1 do not reach a limit that the reference's testcase passes."""
    for name, limit in (("good.mge", 5.0), ("bad.mge", 6.0)):
        b = GraphBuilder()
        graph = b.done(b.elemwise("MIN", b.input("x", 2), b.const(limit), name="y"))
        loadrun.save(graph, tmp_path / name, DumpOptions(keep_var_name=2))
    loadrun.pack_file(
        tmp_path / "good.mge", tmp_path / "packed.mge", loadrun.PackOptions(input_data=["x:[1,9]"])
    )
    assert diff_files(tmp_path / "bad.mge", tmp_path / "good.mge").agree
    found = diff_files(tmp_path / "bad.mge", tmp_path / "packed.mge")
    assert (found.agree, found.ran_on) == (False, "testcase 0 of the reference")


def attention(scaled: str, fault: str = "") -> loadrun.Graph:
    """Attention of 6 tokens of 4 numbers; its scale stands at the scores, the queries, or at queries and keys."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", 6, 4)
    weights = rng.standard_normal((3, 4, 4)).astype("f4")
    if fault == "weight":
        weights[1, 2, 3] += 2
    q, k, v = (b.add("MatrixMulV2", MatrixMul(transposeB=True), inputs=[x, b.const(w)]) for w in weights)
    if scaled != "scores":
        q = b.elemwise("MUL", q, b.const(0.5 if scaled == "queries" else 0.25))
    if scaled == "both":
        k = b.elemwise("MUL", k, b.const(2.0))
    if fault == "minus":
        k = b.elemwise("SUB", b.const(0.0), k)
    if scaled == "scores":
        # The same by another operator.
        k = b.add("Dimshuffle", Dimshuffle(pattern=(1, 0), ndim=2), inputs=[k])
        scores = b.elemwise("MUL", b.add("MatrixMulV2", MatrixMul(), inputs=[q, k]), b.const(0.5))
    else:
        scores = b.add("MatrixMulV2", MatrixMul(transposeB=True), inputs=[q, k])
    shares = b.add("Softmax", Softmax(axis=0 if fault == "axis" else 1), inputs=[scores])
    y = b.add("MatrixMulV2", MatrixMul(), inputs=[shares, v])
    if fault == "order":
        y = b.add("ReshapeV1", OptionalAxisV1(), inputs=[y, b.const(np.array([4, 6], "i4"))])
        y = b.add("Dimshuffle", Dimshuffle(pattern=(1, 0), ndim=2), inputs=[y])
    return b.done(b.elemwise("TANH", y, name="y"))


@pytest.mark.parametrize("scaled", ["scores", "both"])
def test_a_factor_that_is_at_another_operand_is_no_fault(scaled: str) -> None:
    feeds = {"x": np.random.default_rng(1).standard_normal((6, 4)).astype("f4")}
    for one, other in ((scaled, "queries"), ("queries", scaled)):
        assert not between(attention(one), attention(other), feeds).roots


@pytest.mark.parametrize("scaled", ["scores", "queries"])
@pytest.mark.parametrize(
    ("fault", "title", "number"),
    [("weight", "MatrixMulV2", 1), ("minus", "SUB", 0), ("axis", "Softmax", 0), ("order", "Dimshuffle", -1)],
)
def test_a_fault_is_located_by_its_effect(fault: str, title: str, number: int, scaled: str) -> None:
    """The two have no names in common, other operators and their scales at other places."""
    feeds = {"x": np.random.default_rng(1).standard_normal((6, 4)).astype("f4")}
    bad, good = attention(scaled, fault), attention("queries")
    good.header.magic = "ONNX"
    (root, *_) = between(bad, good, feeds).roots
    assert root.opr is [o for o in bad.oprs if o.title == title][number]


def masked(least: float, *, inverted: bool) -> loadrun.Graph:
    """Softmax of two rows of three numbers, of which a mask leaves the first two and the last two."""
    b = GraphBuilder()
    x = b.input("x", 2, 3)
    mask = np.array([[0, 0, 1], [1, 0, 0]], bool)
    chosen = b.add(
        "TypeCvtV2",
        inputs=[b.const(~mask if inverted else mask, DType("Bool"))],
        output_dtype=DType("Float32"),
    )
    half = b.const(0.5)
    compared = (chosen, half) if inverted else (half, chosen)
    added = b.elemwise("COND_LT_MOV", *compared, b.const(least))
    scores = b.elemwise("ADD", x, added)
    return b.done(b.add("Softmax", Softmax(axis=1), inputs=[scores], name="y"))


def test_masks_with_other_numbers_and_inverted_masks_are_no_fault() -> None:
    feeds = {"x": np.random.default_rng(1).standard_normal((2, 3)).astype("f4")}
    graphs = [masked(n, inverted=i) for n, i in ((-np.inf, False), (-1e9, False), (-3.4028235e38, True))]
    for one in graphs:
        for other in graphs:
            found = between(one, other, feeds)
            assert found.agree, [r.opr.title for r in found.roots]
            assert found.outputs_agree


def two_inputs(folder: Path, names: tuple[str, str], second: str, factor: float) -> str:
    """A file of x * factor - y, in which the inputs have given names and the second one a dtype."""
    b = GraphBuilder()
    x, y = b.input(names[0], 2, 3), b.input(names[1], 2, 3, dtype=DType(second))
    scaled = b.elemwise("MUL", x, b.const(factor))
    graph = b.done(b.elemwise("SUB", scaled, b.add("TypeCvtV2", inputs=[y], output_dtype=DType("Float32"))))
    given = {names[0]: np.arange(6, dtype="f4").reshape(2, 3), names[1]: np.full((2, 3), 4, DType(second).np)}
    path = folder / f"{'_'.join(names)}_{factor}.mge"
    loadrun.save(loadrun.Bundle(graph, testcases=[loadrun.Testcase(given)]), path)
    return str(path)


@pytest.mark.parametrize("second", ["Float32", "Int32"])
def test_inputs_of_other_names_are_paired_by_order(
    second: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The names are in another order than the inputs; numbers of another type stand for none of the others.
    names = ("z", "a") if second == "Float32" else ("a", "z")
    one, same = two_inputs(tmp_path, ("x", "y"), second, 2), two_inputs(tmp_path, names, second, 2)
    other = two_inputs(tmp_path, names, second, 3)
    assert main(["diff", one, "--against", same]) == 1
    told = capsys.readouterr()
    assert f"'{names[0]}' stands for 'x', '{names[1]}' stands for 'y'" in told.err
    assert f"input 'x' is called '{names[0]}' in the reference" in told.out
    assert "all of them agree\n" in told.out
    assert main(["diff", other, "--against", one]) == 1
    assert "to blame: Elemwise 'MUL" in capsys.readouterr().out
    small = tmp_path / "small.mge"
    assert main(["reduce", other, "--against", one, "-o", str(small)]) == 0
    assert [o.title for o in loadrun.load(small).graph.oprs if o.title == "MUL"] == ["MUL"]
    assert main(["diff", "fixtures/nets/mlp.mge", "--against", one]) == 1
    assert "the models have other inputs: none of 'data' stands for 'x'" in capsys.readouterr().err


def test_other_numbers_with_the_same_moments_are_no_counterpart() -> None:
    """[-5, 5, 0, 3, 3] and [-5, 5, 1, 1, 4] have one minimum, maximum, mean, mean magnitude and deviation."""
    x = np.arange(1, 6, dtype="f4")
    shift = np.array([0, 0, 7, 0, -2], "f4")
    graphs = []
    for numbers, multiplied in (([-5, 5, 0, 3, 3], True), ([-5, 5, 1, 1, 4], False)):
        first = np.array(numbers, "f4") - shift
        b = GraphBuilder()
        v = b.input("x", 5)
        if multiplied:
            v = b.elemwise("ADD", b.elemwise("MUL", v, b.const(first / x), name="first"), b.const(shift))
        else:
            # The same numbers by operators of which none is at the place of another one.
            twice = b.elemwise("ADD", b.elemwise("RELU", v), b.elemwise("ABS", v))
            v = b.elemwise("SUB", b.elemwise("SUB", twice, b.const(2 * x - first)), b.const(-shift))
        y = b.elemwise("SIGMOID", v, name="y" if multiplied else None)
        graphs.append(
            b.done(y if multiplied else b.add("ReshapeV1", OptionalAxisV1(), inputs=[y, b.ints(5)], name="y"))
        )
    graphs[1].header.magic = "ONNX"
    found = between(*graphs, {"x": x})
    assert found.roots[0].var.name == "first"
    assert [r.var.name for r in found.rows if r.how != "place"] == ["y"]


def test_inputs_are_not_told_of_what_was_matched_by_its_effect() -> None:
    a, b = (loadrun.load("fixtures/nets/mlp.mge").graph for _ in range(2))
    matching = match(a, b)
    one = next(o for o in a.needed() if o.type == "Elemwise")
    (partner,) = (matching.pairs[v.id] for v in one.outputs)
    partner.owner.inputs[0] = partner.owner.inputs[1]
    told = {
        how: _told(SuspectVar(one.outputs[0], partner.label, how, None, False, ()), matching, set())
        for how in ("structure", "effect")
    }
    assert [len(t.changes) for t in told.values()] == [1, 0]
    assert all(t.is_changed for t in told.values())


@pytest.mark.parametrize("pattern", [(1, 2, 0), (0, 1, 2), (2, 1, 0)])
def test_a_value_that_the_reference_has_in_this_order_is_not_one_in_another_order(
    pattern: tuple[int, ...],
) -> None:
    def net(pattern: tuple[int, ...], detour: bool) -> loadrun.Graph:
        b = GraphBuilder()
        y = b.elemwise("SIN", b.input("x", 4, 2, 3))
        if detour:
            y = b.add("AxisAddRemove", AxisAddRemove(desc=(AxisDesc(0, 1),)), inputs=[y])
            y = b.add("AxisAddRemove", AxisAddRemove(desc=(AxisDesc(1, 1),)), inputs=[y])
        return b.done(b.add("Dimshuffle", Dimshuffle(pattern=pattern, ndim=3), inputs=[y], name=f"y{detour}"))

    feeds = {"x": np.arange(24, dtype=np.float32).reshape(4, 2, 3)}
    # The end of a model that goes on, but not with this pattern.
    found = between(net(pattern, True), net((1, 0, 2), False), feeds, whole=(False, True))
    assert [r.opr.type for r in found.roots] == ["Dimshuffle"]


@pytest.mark.parametrize("name", ["float16_native.mge", "float16_ioc16.mge"])
def test_roundings_of_float16_are_no_difference(name: str, tmp_path: Path) -> None:
    onnx = tmp_path / "m.onnx"
    loadrun.convert_file(NETS / name, onnx)
    assert diff_files(onnx, NETS / name).agree
    # One unit in the last place of the largest value is 2**-10 of it at most.
    assert not diff_files(onnx, NETS / name, DiffOptions(tolerance=1e-5)).agree
    bad, where = planted(name, other_weight, tmp_path)
    blamed = diff_files(bad, onnx).blamed
    assert blamed is not None
    assert blamed.name == where


def other_weight(opr: Opr) -> bool:
    if opr.type != "ConvolutionV2":
        return False
    owner = opr.inputs[1].owner
    while not owner.tensors:
        owner = owner.inputs[0].owner
    value = owner.tensors[0].value().copy()
    value.reshape(-1)[:3] += 0.5
    owner.tensors[0] = replace(owner.tensors[0], data=encode(value, owner.tensors[0].dtype))
    return True


def test_a_scale_that_the_reference_cannot_take_over(tmp_path: Path) -> None:
    def change(opr: Opr) -> bool:
        if opr.outputs[0].name != "blocks.1.short.ConvBias":
            return False
        assert opr.output_dtype is not None
        opr.output_dtype = replace(opr.output_dtype, scale=float(np.float32(opr.output_dtype.scale * 1.15)))
        return True

    name = "quant_resnet_histogram.mge"
    bad, where = planted(name, change, tmp_path)
    loadrun.convert_file(NETS / name, tmp_path / "good.onnx")
    for good in (NETS / name, tmp_path / "good.onnx"):
        blamed = diff_files(bad, good).blamed
        assert blamed is not None
        assert blamed.name == where


def test_a_value_of_another_size_is_not_taken_over() -> None:
    def net(axis: int) -> loadrun.Graph:
        b = GraphBuilder()
        x = b.elemwise("SIN", b.input("x", 2, 5))
        total = b.elemwise("EXP", b.add("ReduceV2", Reduce(mode="SUM", axis=axis), inputs=[x]))
        total = b.elemwise("SIN", b.elemwise("ABS", total)) if axis else b.elemwise("TANH", total)
        return b.done(b.elemwise("ADD", x, total, name="y"))

    feeds = {"x": np.arange(10, dtype=np.float32).reshape(2, 5)}
    (root, *_) = between(net(1), net(0), feeds).roots
    assert root.opr.type == "ReduceV2"


def test_a_transposition_that_moves_nothing_and_stops_the_model(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="the model is edited with the package onnx")
    good, bad = tmp_path / "good.mge", tmp_path / "bad.onnx"
    b = GraphBuilder()
    x, y = b.elemwise("SIN", b.input("x", 2, 3, 4), name="sine"), b.input("y", 3, 2, 4)
    moved = b.add("Dimshuffle", Dimshuffle(pattern=(1, 0, 2), ndim=3), inputs=[x], name="moved")
    total = b.elemwise("ADD", moved, y, name="total")
    loadrun.save(loadrun.Bundle(b.done(b.elemwise("TANH", total, name="end"))), good)
    loadrun.convert_file(good, bad)
    model = onnx.load(bad)
    (node,) = (n for n in model.graph.node if n.op_type == "Transpose")
    node.attribute[0].ints[:] = [0, 1, 2]
    onnx.save(model, bad)
    for pair in ((bad, good), (good, bad)):
        with pytest.warns(UserWarning, match="as far as it could be translated"):
            found = diff_files(*pair)
        assert found.blamed is not None
        assert found.blamed.name == "moved"


def stepped(most: float, factor: float | None = None) -> loadrun.Graph:
    """Give min(floor(x * factor), most), or min(floor(x / 0.1), most)."""
    b = GraphBuilder()
    x = b.input("x", 3)
    scaled = b.elemwise("MUL", x, b.const(factor)) if factor else b.elemwise("TRUE_DIV", x, b.const(0.1))
    return b.done(b.elemwise("MIN", b.elemwise("FLOOR", scaled), b.const(most), name="y"))


def test_a_rounding_before_a_step_counts_where_it_reaches_an_output() -> None:
    feeds = {"x": np.array([1.3, 2.05, 3.05], "f4")}
    # In float32, floor(1.3 / 0.1) is 12, and floor(1.3 * 10) is 13.
    hidden = between(stepped(5), stepped(5, 10), feeds)
    assert hidden.agree
    assert hidden.outputs_agree
    shown = between(stepped(50), stepped(50, 10), feeds)
    assert [(r.opr.title, r.distance and r.distance.count) for r in shown.rows if not r.agrees] == [
        ("FLOOR", 1),
        ("MIN", 1),
    ]
    # Another factor is a fault, though what comes behind hides it.
    wrong = between(stepped(5, 12), stepped(5, 10), feeds)
    assert [r.opr.title for r in wrong.roots] == ["MUL"]


def other_index(opr: Opr) -> bool:
    """Ask for a size of an axis that there is none of."""
    if not opr.outputs or opr.outputs[0].name != "const<1>[64]":
        return False
    value = np.array([1 << 20], np.int32)
    opr.tensors[0] = replace(opr.tensors[0], data=encode(value, opr.tensors[0].dtype))
    return True


@pytest.mark.parametrize("onnx_first", [True, False])
def test_a_dump_that_stops_beside_onnx(
    onnx_first: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it computed before is compared, though only sizes are left of it in the end."""
    bad, _ = planted("shufflenet_v2.mge", other_index, tmp_path)
    good = tmp_path / "good.onnx"
    assert main(["convert", str(NETS / "shufflenet_v2.mge"), str(good), "-q"]) == 0
    capsys.readouterr()
    assert main(["diff", *map(str, (good, bad) if onnx_first else (bad, good))]) == 1
    said = capsys.readouterr().out
    assert "stops: Subtensor 'body.2.Subtensor[1]' (operator 32) failed: index 1048576 is out" in said
    assert "body.1.Pooling" in said
    if not onnx_first:
        assert "to blame: Subtensor 'body.2.Subtensor[1]' (operator 32): it cannot run" in said


def slightly_other_weight(opr: Opr) -> bool:
    if "first.bias" not in [v.name for v in opr.outputs]:
        return False
    value = opr.tensors[0].value().copy()
    value.reshape(-1)[0] += 1e-5
    opr.tensors[0] = replace(opr.tensors[0], data=encode(value, opr.tensors[0].dtype))
    return True


def half_output(opr: Opr) -> bool:
    if opr.type != "TypeCvtV2" or opr.outputs[0].name != "out":
        return False
    opr.params = (TypeParam(dtype=DType("Float16")),)
    return True


@pytest.mark.parametrize(
    ("net", "change", "said"),
    [
        (
            "layout_float_default.mge",
            slightly_other_weight,
            "constant 'first.bias' differs in 1 of 8 elements",
        ),
        (
            "quant_resnet_quint8_features.mge",
            half_output,
            "'out' (operator 34): dtype Float16 against Float32",
        ),
    ],
)
def test_what_differs_within_the_tolerance_is_told(
    net: str, change: Callable[[Opr], bool], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file's own checks may be stricter than the comparison."""
    bad, _ = planted(net, change, tmp_path)
    # What callers get has another type, whatever the values are.
    assert main(["diff", str(bad), str(NETS / net)]) == (change is half_output)
    told = capsys.readouterr().out
    assert "all of them agree\nthese differences have an effect within the tolerance, " in told
    assert said in told


def test_the_same_fault_in_every_turn_of_a_loop() -> None:
    """No single value makes the reference's outputs the model's, unless it is one behind them all."""

    def turns(mode: ReduceMode) -> loadrun.Graph:
        b = GraphBuilder()
        x = b.input("x", 16, 1)
        parts = []
        for i in range(3):
            x = b.elemwise("TANH", b.elemwise("ADD", x, b.const(0.1 * (i + 1))), name="turn")
            parts.append(b.add("ReduceV2", Reduce(mode=mode, axis=0), inputs=[x], name="part"))
        joined = b.add("Concat", Axis(axis=0), inputs=parts, name="joined")
        return b.done(b.elemwise("EXP", joined, name="y"), b.elemwise("SIGMOID", x, name="z"))

    feeds = {"x": np.random.default_rng(0).standard_normal((16, 1)).astype("f4")}
    found = between(turns(ReduceMode.MEAN), turns(ReduceMode.MAX), feeds)
    assert [r.changes for r in found.roots[:3]] == [("mode MEAN against MAX",)] * 3
