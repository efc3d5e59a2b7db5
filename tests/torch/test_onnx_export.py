"""`loadrun.onnx.export` of what torch makes, parameter by parameter of torch.onnx.export's documents.

Every model is run by ONNX Runtime, its inputs fed in the order of the file, and compared with torch.
"""

import io
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")
ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from torch import nn  # noqa: E402

import loadrun  # noqa: E402
import loadrun.torch  # noqa: E402
from loadrun.base.errors import LoadRunError, TraceWarning, UnsupportedError, UsageError  # noqa: E402
from loadrun.onnx import OperatorExportTypes, TrainingMode, export  # noqa: E402
from loadrun.proof import ProofError  # noqa: E402

pytree = torch.utils._pytree
ort.set_default_logger_severity(4)
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
X, Y, Z = (torch.arange(6.0).reshape(2, 3) + n for n in (1, 7, 20))


class Sum(nn.Module):
    def forward(self, x):
        return torch.sum(x, dim=1)


class Three(nn.Module):
    def forward(self, x, y=None, z=None):
        x = x * 2 if y is None else x * 2 - y
        return x if z is None else x + 3 * z


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.bn = nn.BatchNorm1d(3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(torch.relu(self.bn(self.fc(x))))


class Bessel(nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x) * x


def exported(model, args, **options):
    file = io.BytesIO()
    made = export(model, args, file, **options)
    return made, file.getvalue()


def graph_of(data):
    return onnx.load_from_string(data).graph


def sizes_of(value):
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


def check(data, model, args, feeds=None, level=None):
    """Run a model by position and compare with torch, shapes included."""
    options = ort.SessionOptions()
    if level is not None:
        options.graph_optimization_level = level
    session = ort.InferenceSession(data, options)
    values = [x for x in pytree.tree_leaves(args) if isinstance(x, torch.Tensor)] if feeds is None else feeds
    names = [i.name for i in session.get_inputs()]
    got = session.run(None, {n: v.detach().numpy() for n, v in zip(names, values, strict=False)})
    want = pytree.tree_leaves(model(*args))
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (tuple(b.shape), b.detach().numpy().dtype)
        np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-5, atol=1e-5)
    return names


# args and f


@pytest.mark.parametrize(
    ("args", "kwargs", "call", "names"),
    [
        ((X, Y, Z), None, (X, Y, Z), ["x", "y", "z"]),
        (X, None, (X,), ["x"]),
        ([X, Y], None, (X, Y), ["x", "y"]),
        ((X, {"y": Y, "z": Z}), None, (X, Y, Z), ["x", "y", "z"]),
        ((X, {"z": Z, "y": Y}), None, (X, Y, Z), ["x", "y", "z"]),
        ((X, {"z": Z}), None, (X, None, Z), ["x", "z"]),
        ((X, {}), None, (X,), ["x"]),
        ((X, None, Z), None, (X, None, Z), ["x", "z"]),
        ((X,), {"y": Y}, (X, Y), ["x", "y"]),
        ((), {"y": Y, "x": X}, (X, Y), ["x", "y"]),
    ],
)
def test_forms_of_args(args, kwargs, call, names):
    _, data = exported(Three(), args, kwargs=kwargs)
    assert check(data, Three(), call) == names


def test_an_empty_dict_protects_a_real_one_and_numbers_are_constants():
    class Takes(nn.Module):
        def forward(self, x, d, k=2.0):
            return x - d["a"] * k

    _, data = exported(Takes(), (X, {"a": Y}, {}))
    assert len(check(data, Takes(), (X, {"a": Y}))) == 2
    _, data = exported(Takes(), (X, {"a": Y}, 5.0))
    check(data, Takes(), (X, {"a": Y}, 5.0))


def test_a_model_without_a_name():
    with pytest.raises(UsageError, match="must be the path of a file, found ''"):
        export("", f="a.onnx")


def test_parameters_by_position_in_torchs_order(tmp_path):
    net, x = Perceptron().eval(), torch.rand(2, 4)
    path = str(tmp_path / "net.onnx")
    axes = {"i": {0: "b"}}
    export(
        net,
        (x,),
        path,
        True,
        False,
        TrainingMode.EVAL,
        ["i"],
        ["o"],
        None,
        13,
        None,
        True,
        None,
        None,
        axes,
        None,
    )
    model = onnx.load(path)
    assert model.opset_import[0].version == 13
    assert [model.graph.input[0].name, model.graph.output[0].name] == ["i", "o"]
    assert sizes_of(model.graph.input[0]) == ["b", 4]
    check(path, net, (torch.rand(5, 4),))
    verdicts = [r.verdict.value for r in loadrun.run(loadrun.load(path))]
    assert verdicts == ["pass"]


def test_scalars_have_no_axes():
    _, data = exported(lambda x, k: (x * k).sum(), (X, torch.tensor(3.0)))
    assert sizes_of(graph_of(data).output[0]) == []
    check(data, lambda x, k: (x * k).sum(), (X, torch.tensor(3.0)))


def test_whole_numbers_keep_64_bits():
    i = torch.tensor([[3, -7, 2**40], [5, 2**33, -(2**35)]])
    for f in (
        lambda a: a * 48271 % 65521,
        lambda a: a.sum(1) + a.max(),
        lambda a: (a < 2**63 - 1, a // 7, -a.abs()),
        lambda a: torch.where(a > 4, a, a - 1).cumsum(1),
        lambda a: (a.argmax(1), a.sort(1)[1]),
    ):
        check(exported(f, (i,))[1], f, (i,))
    d = torch.tensor([[1 + 1e-9, 1.0, 0.25, 0.75]], dtype=torch.float64)
    for f in (
        lambda a: (a + 1e9 - 1e9, a < 1 + 5e-10),
        lambda a: (a.argmax(1), a.sort(1)[1], a.topk(2)[0]),
    ):
        check(exported(f, (d,))[1], f, (d,))
    made, _ = exported(nn.Conv1d(1, 1, 2).double(), (d[None],))
    assert any("Conv: float64 is computed in float32" in text for text in made.approximated)


def test_data_sets_keep_64_bits(tmp_path):
    """What a data set expects is torch's result, not the closest that MegEngine's types hold."""
    args = torch.tensor([2**40 + 1, 3]), torch.tensor([1 + 1e-12, 700.0]).double()
    export(lambda a, b: (a * 3, b.exp()), args, str(tmp_path / "m.onnx"))
    values = []
    for i in (0, 1):
        file = tmp_path / "m.test_data_set_0" / f"output_{i}.pb"
        values.append(onnx.numpy_helper.to_array(onnx.load_tensor(file)))
    assert values[0].tolist() == [3 * 2**40 + 3, 9]
    assert values[1].tolist() == args[1].exp().tolist()
    (result,) = loadrun.run(tmp_path / "m.onnx")
    assert result.verdict.value == "pass"


def test_float64_stays_where_runtimes_lack_one_operator():
    """Exponentials and logarithms near 0 and 1, and HardSwish, are composed of operators of float64."""
    inf = float("inf")
    x = torch.tensor([-inf, -800, -2, -0.3, -1e-10, -1e-300, 0, 1e-17, 1e-10, 0.4, 2, 30, 700, inf]).double()
    for f in (
        *(torch.expm1, lambda a: torch.log1p(a.abs()), nn.functional.softplus, nn.functional.logsigmoid),
        *(nn.functional.elu, lambda a: nn.functional.celu(a, 0.7), nn.functional.mish),
        lambda a: nn.functional.hardswish(a.clamp(-900, 900)),
    ):
        made, path = exported(f, (x,))
        assert not made.approximated
        session = ort.InferenceSession(path)
        (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        np.testing.assert_allclose(y, f(x).numpy(), rtol=4e-15)
    made, path = exported(torch.atan2, (x[1:-1], x[1:-1].flip(0)))
    assert any("Atan: float64 is computed in float32" in text for text in made.approximated)


# Weights and names


@pytest.mark.parametrize("stored", [True, False])
def test_weights_as_inputs_in_the_order_of_the_state(stored):
    net, x = Perceptron().eval(), torch.rand(2, 4)
    options = {"keep_initializers_as_inputs": True} if stored else {"export_params": False}
    _, data = exported(net, (x,), **options)
    names = [i.name for i in graph_of(data).input]
    weights = ["fc.weight", "fc.bias", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"]
    assert names == ["x", *weights]
    assert bool({t.name for t in graph_of(data).initializer} & set(weights)) is stored
    check(data, net, (x,), [x, *(net.state_dict()[n] for n in weights)])
    assert len(graph_of(exported(net, (x,), opset_version=8)[1]).input) == 7
    if stored:
        assert len(graph_of(data).initializer) == len(weights)


def test_names_go_on_to_the_weights():
    net, x = (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)),
        torch.rand(2, 3, 6, 6),
    )
    names = ["actual_input_1", *(f"learned_{i}" for i in range(4))]
    _, data = exported(net, x, input_names=names, output_names=["output1"])
    assert {t.name for t in graph_of(data).initializer} >= set(names[1:])
    check(data, net, (x,))
    with pytest.raises(UsageError, match="input_names has 5 names more"):
        export(net, x, input_names=[*names, "another"])


def test_folding_and_verbose(capsys):
    class Folds(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.rand(3, 4))

        def forward(self, x):
            return x @ (self.w.t() * 2)

    net, x = Folds(), torch.rand(2, 4)
    kinds = []
    for folding in (True, False):
        _, data = exported(net, (x,), do_constant_folding=folding)
        check(data, net, (x,))
        kinds.append([n.op_type for n in graph_of(data).node])
    assert kinds[0] == ["MatMul"]
    assert "Mul" in kinds[1]
    assert not capsys.readouterr().out
    _, data = exported(net, (x,), verbose=True)
    assert "ONNX opset" in capsys.readouterr().out
    assert any("test_onnx_export.py:" in n.doc_string for n in graph_of(data).node)
    _, data = exported(net, (x,), strip_doc_string=False)
    assert any("test_onnx_export.py:" in n.doc_string for n in graph_of(data).node)
    assert not capsys.readouterr().out


# Training


def test_modes():
    net, x = Perceptron().train(), torch.rand(5, 4)
    net.drop.eval()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    _, data = exported(net, (x,), training=torch.onnx.TrainingMode.EVAL)
    assert (net.training, net.bn.training, net.drop.training) == (True, True, False)
    _, data = exported(net.train(), (x,), training=TrainingMode.PRESERVE)
    _, again = exported(net.eval(), (x,), training=torch.onnx.TrainingMode.TRAINING)
    for one in (data, again):
        nodes = {n.op_type: n for n in graph_of(one).node}
        assert [a.i for a in nodes["BatchNormalization"].attribute if a.name == "training_mode"] == [1]
        assert "Dropout" in nodes
        onnx.checker.check_model(onnx.load_from_string(one), full_check=True)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert not net.training
    with pytest.raises(UnsupportedError, match="needs opset 14"):
        exported(net, (x,), training=TrainingMode.TRAINING, opset_version=13)


def test_training_normalizes_by_the_batch():
    net, x = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), torch.rand(5, 4)
    _, data = exported(net.eval(), (x,), training=TrainingMode.TRAINING)
    # The runtime's optimizations fold the normalization as if in inference.
    check(data, net.train(), (x,), level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL)


# Operators that ONNX does not have


def test_operators_in_other_domains():
    with pytest.raises(UnsupportedError, match=r"bessel_j0[\s\S]*test_onnx_export.py"):
        exported(Bessel(), (X,))
    with pytest.warns(TraceWarning, match="bessel_j0"):
        _, data = exported(Bessel(), (X,), operator_export_type=OperatorExportTypes.ONNX_FALLTHROUGH)
    kinds = [(n.domain, n.op_type) for n in graph_of(data).node]
    assert kinds == [("org.pytorch.aten", "special_bessel_j0"), ("", "Mul")]
    with pytest.warns(TraceWarning, match="bessel_j0"):
        _, data = exported(
            Bessel(), (X,), operator_export_type=torch.onnx.OperatorExportTypes.ONNX_ATEN_FALLBACK
        )
    (node, _) = graph_of(data).node
    assert (node.domain, node.op_type) == ("org.pytorch.aten", "ATen")
    assert {a.name: a.s for a in node.attribute}["operator"] == b"special_bessel_j0"
    onnx.checker.check_model(onnx.load_from_string(data))
    with pytest.warns(TraceWarning, match="linalg_lu"):
        _, data = exported(
            lambda x: torch.linalg.lu_factor(x)[0],
            (torch.eye(3),),
            operator_export_type=OperatorExportTypes.ONNX_FALLTHROUGH,
        )
    assert "org.pytorch.aten" in {n.domain for n in graph_of(data).node}
    with pytest.warns(TraceWarning, match="linalg_inv"):
        _, data = exported(
            torch.linalg.inv, (torch.eye(3),), operator_export_type=OperatorExportTypes.ONNX_FALLTHROUGH
        )


def test_all_operators_as_torchs():
    _, data = exported(Sum(), (X,), aten=True, dynamic_axes={"x": {0: "n"}})
    *constants, node = graph_of(data).node
    assert {n.op_type for n in constants} == {"Constant"}
    assert (node.domain, {a.name: a.s for a in node.attribute}["operator"]) == ("org.pytorch.aten", b"sum")
    assert sizes_of(graph_of(data).output[0]) == ["n"]


def test_versions_of_domains():
    _, data = exported(Sum(), (X,), custom_opsets={"my": 3})
    assert {o.domain: o.version for o in onnx.load_from_string(data).opset_import}["my"] == 3


def test_a_table_of_translations():
    op = pytest.importorskip("onnxscript", reason="onnxscript is not installed").opset18
    table = {torch.ops.aten.special_bessel_j0.default: lambda x: op.Mul(op.Cos(x), 2.0)}
    _, data = exported(Bessel(), (X,), custom_translation_table=table, opset_version=18)
    check(data, lambda x: torch.cos(x) * 2 * x, (X,))


# Opsets


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 17, 21, 24])
def test_opsets(opset):
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3), nn.Softmax(1)
    )
    x = torch.rand(1, 1, 6, 6)
    _, data = exported(net.eval(), (x,), opset_version=opset)
    assert onnx.load_from_string(data).opset_import[0].version == opset
    check(data, net, (x,))


# Scripts and programs


class Steps(nn.Module):
    def forward(self, x):
        y = x
        for i in range(int(x.sum())):
            y = y + i
        return y


class Doubles(nn.Module):
    def forward(self, x):
        while bool(x.sum() < 100):
            x = x * 2
        return x


class Branches(nn.Module):
    def forward(self, x):
        if bool(x.sum() > 2):
            y = x * 2
        else:
            y = x - 1
        return y


class Nested(nn.Module):
    def forward(self, x):
        k = x * 1
        for _ in range(int(x[0, 0])):
            if bool(k.sum() > 10):
                k = k - x
            else:
                k = k + 3
        return k, x


class Stopped(nn.Module):
    def forward(self, x):
        total = torch.zeros(1)
        for i in range(x.size(0)):
            if bool(x[i].sum() > 3):
                break
            total = total + x[i].sum()
        return total


class Counted(nn.Module):
    def forward(self, x, n: int):
        for i in range(n):
            x = x * 2 + i
        return x


@pytest.mark.parametrize(
    ("module", "kind", "factors"),
    [
        (Steps(), "Loop", (1.0, 2.0, 0.0)),
        (Doubles(), "Loop", (1.0, 3.0, 300.0)),
        (Branches(), "If", (1.0, -1.0)),
        (Nested(), "Loop", (1.0, 4.0, 0.0)),
    ],
)
def test_loops_and_branches_of_scripts(module, kind, factors):
    script, x = torch.jit.script(module), torch.ones(2, 3)
    _, data = exported(script, (x,), dynamic_axes={"x": {0: "n"}}, example_outputs=script(x))
    assert kind in [n.op_type for n in graph_of(data).node]
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    for factor in factors:
        check(data, script, (x * factor,))
    check(data, script, (torch.ones(4, 3),))


def folded(x):
    y = x[0]
    for i in range(1, x.size(0)):
        y = y * 0.5 + x[i]
    return y


def weighed(x):
    total = torch.zeros(())
    for i in range(x.size(0)):
        for j in range(x.shape[1] - 1, -1, -1):
            total = total + x[i, j] * (j + 1)
    return total


def alternating(x):
    total, i = torch.zeros(3), 0
    while i < len(x):
        if bool(x[i].sum() > 1.5):
            total = total + x[i] * i
        i += 1
    return total


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 5)

    def forward(self, x):
        h = torch.zeros(1, 5)
        for row in x:
            h = self.cell(row.reshape(1, 3), h)
        return h


@pytest.mark.parametrize("function", [folded, weighed, alternating, Cells().eval()])
def test_loops_over_dynamic_sizes(function):
    script = torch.jit.script(function)
    _, data = exported(script, (torch.rand(4, 3),), dynamic_axes={"x": {0: "n"}})
    assert "Loop" in [n.op_type for n in graph_of(data).node]
    for n in (1, 2, 4, 7):
        check(data, script, (torch.rand(n, 3),))


def test_weights_in_loops_and_branches_of_scripts():
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.bn = nn.Linear(3, 3), nn.BatchNorm1d(3)

        def forward(self, x):
            for _ in range(int(x.sum())):
                x = torch.tanh(self.bn(self.fc(x)))
            if bool(x.sum() > 1):
                x = self.fc(x)
            return x

    script = torch.jit.script(Layers().eval())
    _, data = exported(script, (torch.ones(2, 3),))
    for factor in (1.0, 2.0, 0.0):
        check(data, script, (torch.ones(2, 3) * factor,))


def test_branches_in_branches():
    script, x = torch.jit.script(Stopped()), torch.arange(12.0).reshape(3, 4) / 7
    _, data = exported(script, (x,))
    for factor in (1.0, 3.0, -1.0):
        check(data, script, (x * factor,))


def test_scripts():
    script = torch.jit.script(Counted())
    check(exported(script, (X, 3))[1], script, (X, 3))
    net, x = Perceptron().eval(), torch.rand(2, 4)
    for made in (torch.jit.script(net), torch.jit.trace(net, x)):
        check(exported(made, (x,), example_outputs=made(x))[1], net, (x,))
    with pytest.raises(UsageError, match="example_outputs has the shapes"):
        exported(torch.jit.script(Sum()), (X,), example_outputs=torch.rand(7))

    @torch.jit.script
    def grows(x):
        ys = [x]
        for i in range(int(x.sum())):
            ys.append(x + i)
        return torch.stack(ys)

    with pytest.raises(LoadRunError, match=r"test_onnx_export.py:\d+: ys.append"):
        exported(grows, (X,))


def test_exported_programs(tmp_path):
    net, x = Perceptron().eval(), torch.rand(2, 4)
    program = torch.export.export(net, (x,), dynamic_shapes={"x": {0: torch.export.Dim("n")}})
    torch.export.save(program, tmp_path / "net.pt2")
    for source in (program, tmp_path / "net.pt2"):
        _, data = exported(source, ())
        check(data, net, (torch.rand(7, 4),))


# Sizes


@pytest.mark.parametrize(
    "axes",
    [
        {"x": {0: "n"}, "sum": [0]},
        {"x": [0], "sum": [0]},
        {"x": {0: "n", 1: "m"}, "sum": {0: "n"}},
    ],
)
def test_dynamic_axes(axes):
    kept = {k: v.copy() for k, v in axes.items()}
    _, data = exported(Sum(), (torch.ones(2, 2),), input_names=["x"], output_names=["sum"], dynamic_axes=axes)
    assert axes == kept
    source, result = graph_of(data).input[0], graph_of(data).output[0]
    assert sizes_of(source)[0] == ("n" if isinstance(axes["x"], dict) else "x_dynamic_axes_1")
    assert sizes_of(result)[0] == ("n" if isinstance(axes["sum"], dict) else "sum_dynamic_axes_1")
    check(data, Sum(), (torch.rand(5, 2),))


def test_without_dynamic_axes_sizes_are_fixed():
    graph = graph_of(exported(Sum(), (torch.ones(2, 2),))[1])
    assert (sizes_of(graph.input[0]), sizes_of(graph.output[0])) == ([2, 2], [2])


def test_axes_of_size_one_and_results_of_one_element():
    net = nn.Conv2d(1, 1, 3)
    for size in (3, 6):
        _, data = exported(
            net, (torch.rand(1, 1, size, size),), input_names=["a"], dynamic_axes={"a": [0, 2, 3]}
        )
        check(data, net, (torch.rand(4, 1, 7, 9),))


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(
    ("layers", "both", "batch_first"), [(1, False, False), (2, True, True), (2, False, True)]
)
def test_a_gru_of_any_number_of_steps(layers, both, batch_first, biased):
    net = nn.GRU(3, 4, layers, biased, batch_first, bidirectional=both).eval()
    x, y = torch.rand(5, 2, 3), torch.rand(3, 7, 3)
    h, k = (torch.rand(layers * (1 + both), s.shape[not batch_first], 4) for s in (x, y))
    _, data = exported(net, (x,), input_names=["x"], dynamic_axes={"x": [0, 1]})
    check(data, net, (y,))
    _, data = exported(net, (x, h), input_names=["x", "h"], dynamic_axes={"x": [0, 1], "h": [1]})
    check(data, net, (y, k))
    assert [n.op_type for n in graph_of(data).node].count("GRU") == layers


def test_a_branch_on_a_size_is_checked_in_the_model():
    def function(x):
        return x.sum(0) if x.shape[0] <= 50 else x.mean(0)

    with pytest.warns(TraceWarning, match=r"x.size\(\)\[0\] <= 50"):
        _, data = exported(function, (torch.rand(10, 3),), dynamic_axes={"x": [0]})
    check(data, function, (torch.rand(50, 3),))
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.Fail, match="Reshape"):
        check(data, function, (torch.rand(51, 3),))


def test_sizes_are_outputs_of_64_bits_and_numbers_are_none():
    def function(x):
        return x.shape[0], x * 2, 2.5, None, x.shape[1] + 1

    with pytest.warns(TraceWarning, match=r"no outputs of the model: 2\.5, 4"):
        _, data = exported(function, (X,), dynamic_axes={"x": [0]})
    got = ort.InferenceSession(data).run(None, {"x": np.ones((5, 3), np.float32)})
    assert [(a.dtype, a.shape) for a in got] == [(np.int64, ()), (np.float32, (5, 3))]
    assert got[0] == 5


def test_bits_of_64():
    ends = torch.tensor([-(2**63), 2**63 - 1, -1, 0, 2**62 + 1, -(2**40) - 3, 12345])

    def function(x, y):
        return x & y, x | y, x ^ y, x & (x - 1), x >> 63, x >> 62, x << 63

    args = ends.repeat(7), ends.repeat_interleave(7)
    _, data = exported(function, args)
    check(data, function, args)


def test_names_of_equal_sizes_may_differ():
    _, data = exported(Three(), (X, Y), dynamic_axes={"x": [0], "y": [0]})
    check(data, Three(), (torch.rand(5, 3), torch.rand(5, 3)))


@pytest.mark.parametrize(
    "shapes",
    [
        {"x": {0: torch.export.Dim("n")}},
        ({0: torch.export.Dim.DYNAMIC},),
        {"x": {0: "n"}},
        [{0: "n", 1: None}],
    ],
)
def test_dynamic_shapes(shapes):
    _, data = exported(Sum(), (X,), input_names=["q"], dynamic_shapes=shapes)
    check(data, Sum(), (torch.rand(6, 3),))


def test_dynamic_shapes_of_nested_arguments():
    class Nests(nn.Module):
        def forward(self, d, k):
            return d["a"] + d["b"][0] * k

    args = ({"a": X, "b": [Y]}, Z)
    shapes = {"d": {"a": {0: "n"}, "b": [{0: "n"}]}, "k": {0: "n"}}
    _, data = exported(Nests(), args, dynamic_shapes=shapes)
    check(data, Nests(), ({"a": torch.rand(4, 3), "b": [torch.rand(4, 3)]}, torch.rand(4, 3)))


def test_what_torch_took_for_fixed_is_not_dynamic():
    with pytest.raises(UsageError, match="axis 1 of 'x' cannot be dynamic"):
        exported(lambda x: x + torch.arange(3.0), (X,), dynamic_axes={"x": [1]})


def test_axes_for_which_a_trace_does_not_hold_are_not_dynamic():
    def halves(x):
        return x + nn.functional.one_hot(x.argmax(1).clamp(max=x.shape[0] // 2 - 1), x.shape[0] // 2).sum()

    x, axes = torch.rand(10, 4), {"x": [0]}
    trace = loadrun.torch.trace(halves, x, dynamic_shapes=True)
    for model, args in ((halves, (x,)), (trace, (x,))):
        with pytest.raises(UsageError, match=r"axis 0 of 'x' .*cannot be dynamic.*\s.*// 2 == 5"):
            exported(model, args, dynamic_axes=axes)

    def quarters(x):
        return x.reshape(4, -1).sum(1) if x.shape[0] % 4 == 0 else x.sum(1)

    _, data = exported(quarters, (torch.rand(8, 3),), dynamic_axes=axes)
    check(data, quarters, (torch.rand(20, 3),))


def test_a_size_that_is_the_sum_of_others():
    def attended(x, mask, cache):
        keys = torch.cat((cache, x), 1)
        # A view: torch knows that its memory is larger.
        scores = (x @ keys.mT).masked_fill(mask[:, None, :] == 0, -1e9)
        return scores.softmax(-1) @ keys, keys

    def args(b, t, p):
        return torch.rand(b, t, 4), (torch.rand(b, t + p + 1) > 0.3)[:, 1:].long(), torch.rand(b, p, 4)

    small, large = args(2, 3, 5), args(3, 7, 4)
    trace = loadrun.torch.trace(attended, small, dynamic_shapes=True)
    axes = {"x": {0: "b", 1: "t"}, "mask": {0: "b", 1: "all"}, "cache": {0: "b", 1: "past"}}
    for model in (attended, trace):
        check(exported(model, small, dynamic_axes=axes)[1], attended, large)
    check(exported(trace, ())[1], attended, large)


def test_traces_keep_their_sizes():
    trace = loadrun.torch.trace(Sum(), X, dynamic_shapes=True)
    check(exported(trace, ())[1], Sum(), (torch.rand(9, 4),))
    net = nn.Conv2d(1, 1, 3)
    net.added = lambda x: net(x) + 1
    for methods in (["forward"], ["added", "forward"]):
        made = loadrun.trace_module(net, dict.fromkeys(methods, torch.rand(1, 1, 6, 6)))
        check(exported(made, ())[1], net, (torch.rand(1, 1, 8, 9),))


# Files


def test_files_of_an_export(tmp_path):
    net, x = nn.Linear(64, 64), torch.rand(2, 64)
    made = export(
        *(net, (x,), tmp_path / "net.onnx"),
        use_external_data_format=True,
        enable_onnx_checker=True,
        report=True,
        profile=True,
        dump_exported_program=True,
        artifacts_dir=tmp_path / "more" / "files",
        training=None,
        verify=True,
    )
    names = {p.name for p in tmp_path.rglob("*")}
    assert names >= {
        "net.onnx",
        "net.onnx.data",
        "net.md",
        "net.pt2",
        "net.profile.txt",
        "net.test_data_set_0",
    }
    assert (tmp_path / "more" / "files" / "net.md").read_text().strip() == made.report.strip()
    check(str(tmp_path / "net.onnx"), net, (x,))


def test_a_model_of_more_than_two_gib_goes_to_two_files(tmp_path, monkeypatch):
    monkeypatch.setattr("loadrun.onnx.exported._LIMIT", (1 << 24) + 1000)
    with pytest.warns(UserWarning, match="more than 2 GiB"):
        export(nn.Linear(64, 64), (torch.rand(2, 64),), tmp_path / "net.onnx")
    assert (tmp_path / "net.onnx.data").stat().st_size >= 64 * 64 * 4


@pytest.mark.parametrize(
    ("args", "options"),
    [
        ((X, Y), {}),
        (("x",), {}),
        ((), {}),
        (X, {"f": 3}),
        (X, {"training": "x"}),
        (X, {"opset_version": "a"}),
        (X, {"opset_version": 99}),
        (X, {"operator_export_type": 9}),
        (X, {"kwargs": 3}),
        (X, {"dynamic_axes": {"q": [0]}}),
        (X, {"dynamic_axes": 3}),
        (X, {"dynamic_shapes": 3}),
        (X, {"use_external_data_format": True}),
        (X, {"input_names": ["a", "b"]}),
        (X, {"input_names": 3}),
    ],
)
def test_misuse_is_a_loadrun_error(args, options):
    with pytest.raises(LoadRunError):
        export(Sum(), args, **options)


def test_verification_runs_what_stands_beside_the_graph(monkeypatch):
    script, x = torch.jit.script(Doubles()), torch.ones(2, 3)
    export(script, (x,), verify=True)
    monkeypatch.setattr(loadrun.torch.onnx_source._Reader, "_called", lambda self: [np.zeros((2, 3), "f4")])
    with pytest.raises(ProofError, match="ONNX Runtime gives other numbers of the ONNX model"):
        export(script, (x,), verify=True)


def test_dropout_outside_of_training_is_compared_with_torch():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made, _ = exported(Perceptron().eval(), (torch.rand(2, 4),))
    assert len(made.source.testcases) == 1


def test_sizes_that_are_only_open_together():
    def attended(q, k):
        return nn.functional.scaled_dot_product_attention(q, k, k)

    small, large = ((torch.rand(b, q, 4), torch.rand(b, k, 4)) for b, q, k in ((2, 3, 5), (6, 4, 7)))
    trace = loadrun.torch.trace(attended, small, dynamic_shapes=True)
    file = io.BytesIO()
    loadrun.onnx.export(trace, (), file)
    names = [sizes_of(i) for i in graph_of(file.getvalue()).input]
    assert names == [["q_dim_0", "q_dim_1", "q_dim_2"], ["q_dim_0", "k_dim_1", "q_dim_2"]]
    check(file.getvalue(), attended, large)


@pytest.mark.parametrize("window", [2, 4])
def test_the_batch_stays_open_where_other_sizes_may_change_by_few_steps_only(window):
    features = 2 * (8 // window) ** 2
    module = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(window), nn.Flatten(), nn.Linear(features, 3)
    ).eval()
    _, data = exported(loadrun.torch.trace(module, torch.rand(2, 1, 8, 8), dynamic_shapes=True), ())
    assert sizes_of(graph_of(data).input[0]) == ["input_dim_0", 1, 8, 8]
    check(data, module, (torch.rand(5, 1, 8, 8),))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_tolerances_of_few_bits_hold_in_onnx_runtime(dtype, tmp_path):
    torch.manual_seed(0)
    module, x = nn.LSTM(8, 16, num_layers=2).to(dtype).eval(), torch.randn(5, 3, 8).to(dtype)
    export(module, (x,), tmp_path / "m.onnx")
    (result,) = loadrun.run(tmp_path / "m.onnx", engine="onnxruntime")
    assert result.verdict.value == "pass"
    assert all(o.tolerance.maxerr < 0.05 for o in result.outputs)


def test_a_trace_is_exported_in_the_mode_in_which_it_was_traced(tmp_path):
    norm = torch.nn.BatchNorm1d(4)
    with pytest.warns(TraceWarning, match="changes its buffers"):
        traced = loadrun.torch.trace(norm, torch.rand(3, 4), dynamic_shapes=True)
    export(traced, f=tmp_path / "m.onnx")
    assert [r.verdict.value for r in loadrun.run(tmp_path / "m.onnx")] == ["pass"]
    other = torch.rand(5, 4)
    (got,) = ort.InferenceSession(tmp_path / "m.onnx").run(None, {"input": other.numpy()})
    want = (other - other.mean(0)) / (other.var(0, unbiased=False) + norm.eps).sqrt()
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-5)


AXES = {0: "n"}


@pytest.mark.parametrize("last", [7.0, -1.0])
def test_what_data_choose_may_be_nothing(last):
    def function(x):
        rows = x[x[:, 0] > 0]
        wider = torch.nn.functional.conv_transpose1d(
            torch.cat([x, rows]).T[None], torch.ones(3, 2, 3), stride=2
        )
        return rows.mean(0), rows.mean(), x[:0].mean(1), wider

    _, data = exported(function, (X,))
    check(data, function, (X - 6 + torch.tensor([last, 0, 0]),))
