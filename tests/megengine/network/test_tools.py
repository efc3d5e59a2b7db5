"""Tools over graphs: walking, replacing, running; graphs that are built operator by operator."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.megengine.core.tensor.megbrain_graph as G
import loadrun.megengine.functional as F
import loadrun.megengine.module as M
import loadrun.megengine.utils.comp_graph_tools as cgtools
from loadrun import Tensor, trace
from loadrun.megengine.core._imperative_rt.core2 import apply
from loadrun.megengine.core.ops.builtin import Elemwise, RemoveAxis, TypeCvt
from loadrun.megengine.core.tensor.utils import astensor1d, subgraph_fn
from loadrun.megengine.utils.network import Network


def built() -> tuple[G.InputNode, G.VarNode, G.VarNode, G.VarNode]:
    """An input a, the constant 1.234, a + a, and (a + a) * constant + a."""
    g = G.Graph()
    g.options.async_exec_level = 0b100
    a = G.InputNode(device="xpux", dtype=np.float32, graph=g)
    const = g.make_const(1.234, device="xpux")
    add, mul = Elemwise(Elemwise.Mode.ADD), Elemwise(Elemwise.Mode.MUL)
    (twice,) = G.apply_normal_varnode(add, a.outputs[0], a.outputs[0])
    (product,) = G.apply_normal_varnode(mul, twice, const)
    (rest,) = G.apply_normal_varnode(add, product, a.outputs[0])
    return a, const, twice, rest


def run(a: G.InputNode, var: G.VarNode, value: float) -> list[float]:
    out = G.OutputNode(G.VarNode(var))
    func = G.Graph().compile(out.outputs[0])
    func.execute()
    a.set_value(Tensor(value))
    func.wait()
    found: list[float] = out.get_value().numpy().tolist()
    return found


def test_a_graph_is_built_and_run() -> None:
    a, _, _, rest = built()
    assert run(a, rest, 5.0) == pytest.approx([5 * 2 * 1.234 + 5])


def test_replace_vars_leaves_the_graph_as_it_is() -> None:
    a, const, twice, rest = built()
    (new,) = cgtools.replace_vars([rest._node], {const._node: twice._node})
    assert run(a, new, 5.0) == [105.0]
    assert run(a, rest, 5.0) == pytest.approx([5 * 2 * 1.234 + 5])


def test_replace_oprs_leaves_the_graph_as_it_is() -> None:
    a, _, twice, rest = built()
    (squared,) = G.apply_normal_varnode(Elemwise("mul"), a.outputs[0], a.outputs[0])
    (new,) = cgtools.replace_oprs([rest], {twice.op._node: squared.op._node})
    assert run(a, new, 3.0) == pytest.approx([9 * 1.234 + 3])


def test_other_outputs() -> None:
    a, _, twice, _ = built()
    a.set_value(np.float32([[1, 2]]))
    assert G.ValueOutputNode(twice).get_value().tolist() == [[2, 4]]
    found = G.AttrOutputNode(twice).get_value()
    assert (found.shape, found.dtype) == ((1, 2), np.float32)
    a.reset()
    with pytest.raises(loadrun.LoadRunError, match="set_value"):
        G.OutputNode(twice).get_value()


@pytest.fixture
def conv() -> bytes:
    net = M.Conv2d(3, 4, 3, 1, 1)

    @trace(symbolic=True, capture_as_const=True)
    def function(data: Tensor) -> Tensor:
        return net(data)

    function(Tensor(np.ones((1, 3, 8, 8), "float32")))
    file = io.BytesIO()
    function.dump(file, optimize_for_inference=False, arg_names=["data"], output_names=["o"])
    return file.getvalue()


def test_traversal(conv: bytes) -> None:
    _, names, outputs, about = G.load_graph(conv)
    assert (list(names), about.is_valid, about.user_info is not None) == (["o"], True, True)
    map_oprs, map_vars, var2oprs, opr2receivers, indegree2opr, opr2indegree = cgtools.graph_traversal(outputs)
    assert var2oprs[map_vars[1].id][0][1] in (0, 1)
    assert sorted(opr2indegree.values()) == [0, 0, 0, 2, 2]
    assert {len(indegree2opr[n]) for n in (0, 2)} == {2, 3}
    (out,) = outputs
    assert opr2receivers[out.owner.inputs[0].owner.id] == [out.owner.id]
    assert map_oprs[out.owner.id] is out.owner
    assert [o.class_name for o in cgtools.get_oprs_seq(outputs)] == [
        "Host2DeviceCopy",
        "ConvolutionForward",
        "Elemwise",
    ]
    assert len(cgtools.get_oprs_seq(outputs, prune_immtensor=False)) == 5
    assert cgtools.get_owner_opr_type(out) == cgtools.get_opr_type(out.owner) == "Elemwise"
    assert cgtools.get_owner_opr_inputs(out) == out.owner.inputs
    assert [v.name for v in cgtools.get_dep_vars(out, "Host2DeviceCopy")] == ["data"]
    with pytest.raises(AssertionError, match="VarNode"):
        cgtools.get_opr_type(out)


def test_shape_arithmetic_is_left_out() -> None:
    @trace(symbolic=True, capture_as_const=True)
    def function(x: Tensor) -> Tensor:
        return F.relu(F.flatten(x, 1))

    function(Tensor(np.ones((2, 3, 4), "float32")))
    file = io.BytesIO()
    function.dump(file, optimize_for_inference=False)
    outputs = G.load_graph(file.getvalue()).output_vars_list
    kinds = [o.type for o in cgtools.get_oprs_seq(outputs, prune_reshape=True)]
    assert kinds == ["Host2DeviceCopy", "Reshape", "Elemwise"]
    every = [o.type for o in cgtools.get_oprs_seq(outputs)]
    assert every == ["Host2DeviceCopy", "GetVarShape", "Concat", "Reshape", "Elemwise"]


def test_inputs_become_nodes_and_constants(conv: bytes) -> None:
    outputs = G.load_graph(conv).output_vars_list
    value = np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype("float32")
    want = cgtools.GraphInference(conv).run(value)["o"]
    made, inputs = cgtools.convert_inputs(outputs)
    targets, found = cgtools.convert_outputs(made)
    inputs["data"].set_value(Tensor(value))
    assert [v.name for v in targets] == ["o"]
    np.testing.assert_array_equal(found["o"].get_value().numpy(), want)
    (fixed,), given = cgtools.embed_inputs(outputs, [value])
    assert list(given) == ["data"]
    np.testing.assert_array_equal(fixed.numpy(), want)
    with pytest.raises(AssertionError, match="2 values are given for 1"):
        cgtools.embed_inputs(outputs, [value, value])


def test_graph_inference(conv: bytes) -> None:
    graph = cgtools.GraphInference(io.BytesIO(conv), outputs=["o"], optimize_for_inference=True)
    data = np.ones((1, 3, 8, 8), "float32")
    assert list(graph.run(inp_dict={"data": data})) == ["o"]
    with pytest.raises(AssertionError, match="1 inputs"):
        graph.run(data, data)
    with pytest.raises(AssertionError, match="gets inputs"):
        graph.run(inp_dict={"date": data})


def test_dump_graph(conv: bytes) -> None:
    outputs = G.load_graph(conv).output_vars_list
    optimized, bits = G.optimize_for_inference(outputs, enable_nchw44=True)
    assert G.deserialize_infer_option(bits) == {"enable_nchw44": True, "enable_fuse_grain": True}
    data, result = G.dump_graph({"renamed": optimized[0]}, keep_param_name=True)
    assert result.outputs == ["renamed"]
    assert loadrun.loads(data).graph.outputs[0].name == "renamed"


def test_operators_as_values() -> None:
    x = Tensor([[1.0, 2.0]])
    assert apply(Elemwise(mode="exp"), Tensor([0.0]))[0].tolist() == [1.0]
    assert apply(TypeCvt(dtype=np.int32), x)[0].tolist() == [[1, 2]]
    assert apply(RemoveAxis(axis=[0]), x)[0].tolist() == [1.0, 2.0]
    assert Elemwise("add").mode.name == "ADD"
    with pytest.raises(loadrun.LoadRunError, match="no parameter strange"):
        Elemwise(strange=1)
    with pytest.raises(loadrun.LoadRunError, match="mode is one of"):
        Elemwise("nothing")


def test_functions_give_and_take_values() -> None:
    graph, given, taken = G.Graph(), iter([Tensor([1.0, 2.0]), Tensor([3.0])]), []
    x, _ = G.input_callback(lambda: next(given), device="xpux", dtype="float32", graph=graph)
    (negative,) = G.apply_normal_varnode(Elemwise("negate"), x)
    run_it = graph.compile(G.output_callback(taken.append, negative), [G.output_callback(taken.append, x)])
    run_it()
    assert [v.tolist() for v in taken] == [[-1, -2], [1, 2]]
    run_it.execute()
    run_it.wait()
    run_it.wait()
    assert [v.tolist() for v in taken[2:]] == [[-3], [3]]
    assert (taken[0].comp_node, taken[0].dtype) == ("xpux", np.float32)


def test_a_value_is_asked_for_once_in_a_run() -> None:
    graph, calls = G.Graph(), []

    def value() -> Tensor:
        calls.append(1)
        return Tensor([float(len(calls))])

    x, _ = G.input_callback(value, dtype="float32", graph=graph)
    outs = [G.OutputNode(x), G.OutputNode(x * 10)]
    for i in (1, 2):
        graph.compile([o.var for o in outs]).execute()
        assert [o.get_value().tolist() for o in outs] == [[i], [10 * i]]
    assert len(calls) == 2


def test_an_error_of_a_function_reaches_the_one_who_asks() -> None:
    def fails() -> Tensor:
        raise RuntimeError("no camera")

    graph = G.Graph()
    x, _ = G.input_callback(fails, dtype="float32", graph=graph)
    out = G.OutputNode(x + 1)
    graph.compile(out.outputs).execute()
    with pytest.raises(RuntimeError, match="no camera"):
        out.get_value()
    graph.compile(G.output_callback(print, x)).execute()
    with pytest.raises(RuntimeError, match="no camera"):
        graph.wait()


def test_variables_know_their_graph(conv: bytes) -> None:
    graph = G.Graph()
    x = graph.make_input(dtype="float32")
    h2d = graph.make_h2d(dtype="float32", device="xpux", shape=(2,))
    made = (x * 2 + graph.make_const(1.0)).reshape(-1)
    out = G.OutputNode(made)
    assert all(v.graph is graph for v in (x, h2d, made, out, made.owner, 1 / h2d))
    assert out.inputs == [made]
    loaded = G.load_graph(conv)
    assert loaded.output_vars_list[0].graph is loaded.graph is not graph
    assert loaded.output_vars_list[0].owner.inputs[0].graph is loaded.graph


def test_a_network_is_run_by_the_graph_of_its_variables() -> None:
    net = Network()
    x = net.make_const([[1, 2], [3, 4]])
    y = F.concat([x, x * 10], axis=1)[1]
    out = G.OutputNode(y.var)
    out.graph.compile(out.outputs).execute()
    assert out.get_value().numpy().tolist() == [3, 4, 30, 40]
    assert y.graph is x.graph is net.make_input_node((1,), "float32").graph
    assert y.graph is not Network().make_const(1).graph


def test_each_run_draws_anew() -> None:
    """As in MegEngine the first run of every inference draws the same, and the next one draws on."""

    @trace(symbolic=True, capture_as_const=True)
    def function() -> Tensor:
        return loadrun.build.random.uniform(size=(4,))

    function()
    file = io.BytesIO()
    with pytest.warns(UserWarning, match="draws random numbers"):
        function.dump(file, output_names=["x"], optimize_for_inference=False)
    runs = [cgtools.GraphInference(file.getvalue()) for _ in range(2)]
    first, second = ([g.run()["x"].tolist() for _ in range(2)] for g in runs)
    assert first == second
    assert first[0] != first[1]


def test_sizes_and_tensors_as_one_tensor() -> None:
    assert astensor1d((1, Tensor([2, 3]))).tolist() == [1, 2, 3]
    assert astensor1d((1, Tensor(2.5))).tolist() == [1.0, 2.5]
    assert astensor1d((1, Tensor(2.5)), dtype="int32").tolist() == [1, 2]
    assert astensor1d(np.array([1, 2]), dtype="float32").dtype == np.float32
    assert astensor1d([], dtype="int32").shape == (0,)
    assert astensor1d((1, 2), device="cpu0:1").device == "cpu0:1"
    held = Tensor([1, 2])
    assert astensor1d(held, dtype="float32", device="cpu0") is held
    assert astensor1d(Tensor(3)).shape == ()
    for wide in (Tensor([[1, 2]]), np.zeros((2, 2))):
        with pytest.raises(ValueError, match="ndim != 1 or 0, get : 2"):
            astensor1d(wide)
    for other in (3, None, "ab"):
        with pytest.raises(TypeError, match="expected a tensor, an array or a sequence"):
            astensor1d(other)


def test_variables_as_one_variable() -> None:
    net = Network()
    v = net.make_const(np.float32([1, 2]))
    for x, options, expected in [
        ((1, 2), {}, np.int32([1, 2])),
        ((1, 2.5), {}, np.float32([1, 2.5])),
        ((1, 2.5), {"dtype": "int32"}, np.int32([1, 2])),
        (np.int32([1, 2]), {"dtype": "float32"}, np.float32([1, 2])),
        ((1, v[0]), {}, np.float32([1, 1])),
        ((Tensor(3), v), {}, np.float32([3, 1, 2])),
    ]:
        made = astensor1d(x, v, **options)
        assert isinstance(made, G.VarNode)
        assert made.numpy().tolist() == expected.tolist()
        assert made.dtype == expected.dtype
    assert isinstance(astensor1d((1, v)), G.VarNode)
    assert not isinstance(astensor1d((1, 2), Tensor(1), v), G.VarNode)
    target = astensor1d((net.make_const([2]), 1), v)
    assert v.reshape(target).numpy().tolist() == [[1.0], [2.0]]


def test_sizes_are_followed() -> None:
    @trace(symbolic=True, capture_as_const=True)
    def function(x: Tensor) -> Tensor:
        return F.full(astensor1d((x.shape[0], 2), x, dtype="int32"), 7.0)

    function(Tensor(np.zeros((3, 5), "float32")))
    file = io.BytesIO()
    function.dump(file, output_names=["y"])
    out = cgtools.GraphInference(file.getvalue()).run(np.zeros((4, 5), "float32"))
    assert out["y"].tolist() == [[7.0, 7.0]] * 4


def test_functions_written_operator_by_operator() -> None:
    calls = []

    def scaled(inputs: Any, f: Any, c: Any) -> Any:
        calls.append(1)
        x, y = inputs
        return (f("fma3", x, y, c(1)), f("[?:]", x, c(1, dtype="int32")), c([2, 3], dtype="int32")), (
            True,
        ) * 3

    x, y = Tensor([1.0, 2.0, 3.0]), Tensor([4.0, 5.0, 6.0])
    for interpret in (False, True):
        made = subgraph_fn("Scaled", "float32", "xpux", 2, gopt_level=2, interpret=interpret)(scaled)
        a, b, constant = made(x, y)
        assert (a.tolist(), b.tolist(), constant.tolist()) == ([5.0, 11.0, 19.0], [2.0, 3.0], [2, 3])
        assert constant.dtype == np.int32
        made(x, y)
    # Once when it was made, and once in each call that is interpreted.
    assert len(calls) == 1 + 2
    noted = subgraph_fn("Scaled", "float32", "xpux", 2)(scaled)
    with pytest.raises(RuntimeError, match="Scaled takes 2 inputs, found 1"):
        noted(x)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("-", [-1.0, -2.0, -3.0]),
        ("/", [0.4, 0.8, 1.2]),
        ("//", [0.0, 0.0, 1.0]),
        ("max", [2.5, 2.5, 3.0]),
        ("min", [1.0, 2.0, 2.5]),
        ("additive", [3.5, 4.5, 5.5]),
        ("switch_gt0", [2.5, 2.5, 2.5]),
        ("fma3", [5.0, 7.5, 10.0]),
        ("fma4", [8.75, 11.25, 13.75]),
        ("cond_leq_mov", [2.5, 2.5, 0.0]),
        ("**", [1.0, 5.656854, 15.588457]),
    ],
)
def test_names_of_operators_in_such_functions(name: str, expected: list[float]) -> None:
    """The results are MegEngine's."""
    n = {"-": 1, "fma3": 3, "fma4": 4, "cond_leq_mov": 3}.get(name, 2)

    @subgraph_fn("Named", "float32", "xpux", 1)
    def named(inputs: Any, f: Any, c: Any) -> Any:
        return (f(name, inputs[0], *[c(2.5)] * (n - 1)),), (True,)

    assert named(Tensor([1.0, 2.0, 3.0]))[0].tolist() == pytest.approx(expected)


def test_functions_that_say_their_gradients() -> None:
    @subgraph_fn("Softplus", "float32", "xpux", 1, custom_grad=True)
    def softplus(inputs: Any, f: Any, c: Any) -> Any:
        (x,) = inputs
        y = f("+", f("log1p", f("exp", f("-", f("abs", x)))), f("relu", x))
        yield (y,)
        raise AssertionError("gradients are not asked for")

    data = np.linspace(-3, 3, 7, dtype=np.float32)
    np.testing.assert_allclose(softplus(Tensor(data))[0].numpy(), np.log1p(np.exp(data)), rtol=1e-6)
    net = Network()
    assert softplus(net.make_const(data))[0].numpy() == pytest.approx(np.log1p(np.exp(data)), rel=1e-6)


def test_what_such_functions_are_refused() -> None:
    def written(op: Any, interpret: bool = False) -> Any:
        @subgraph_fn("Bad", "float32", "xpux", 1, interpret=interpret)
        def bad(inputs: Any, f: Any, c: Any) -> Any:
            return f(op, inputs[0], nr_out=2), (True, True)

        return bad(Tensor([1.0]))

    for interpret in (False, True):
        with pytest.raises(AssertionError, match="unknown operator 'sin' of 1 inputs"):
            written("sin", interpret)
        with pytest.raises(ValueError, match="gives 1 outputs, expected 2"):
            written(Elemwise("sin"), interpret)


def test_testcases_that_a_dump_leaves_out_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    net = Network.load("fixtures/nets/mlp.mge")
    with caplog.at_level("WARNING"):
        net.dump(tmp_path / "plain.mge")
    assert "3 testcases and 1 checks of fixtures/nets/mlp.mge are not written" in caplog.text
    caplog.clear()
    net.dump(tmp_path / "packed.mge", input_data=["#rand(0,1)"])
    assert not caplog.text
    assert [len(loadrun.load(tmp_path / f"{n}.mge").testcases) for n in ("plain", "packed")] == [0, 1]
