"""Graphs that are loaded, edited and written again; expected numbers are computed by hand."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.megengine.functional as F
import loadrun.megengine.module as M
import loadrun.megengine.utils.network_node as N
from loadrun import Tensor, trace
from loadrun.megengine.utils.comp_graph_tools import GraphInference
from loadrun.megengine.utils.network import Network, as_oprnode, as_varnode, set_symbolic_shape


def dumped(function: Callable[..., Any], *args: Any, **options: Any) -> io.BytesIO:
    """The dump of a traced function, without optimization."""
    traced = trace(function, symbolic=True, capture_as_const=True)
    traced(*args)
    file = io.BytesIO()
    traced.dump(file, optimize_for_inference=False, **options)
    file.seek(0)
    return file


def rewritten(net: Network, **options: Any) -> GraphInference:
    """What a network writes, to be run."""
    file = io.BytesIO()
    net.dump(file, **options)
    return GraphInference(file.getvalue())


def doubled_sum(a: Tensor, b: Tensor) -> Tensor:
    return (a + b) * 2


@pytest.fixture
def net() -> Network:
    names = {"arg_names": ["a", "b"], "output_names": "o"}
    return Network.load(dumped(doubled_sum, Tensor([1, 2]), Tensor([3, 4]), **names))


A, B = np.array([1, 2], "int32"), np.array([3, 4], "int32")


def test_a_graph_as_it_was(net: Network) -> None:
    assert [v.name for v in net.input_vars] == ["a", "b"]
    assert [v.name for v in net.output_vars] == ["o"]
    out = rewritten(net).run(A, B)
    assert out["o"].tolist() == [8, 12]
    assert out["o"].dtype == np.int32


def test_replace_vars(net: Network) -> None:
    a, b = net.get_var_by_name("a"), net.get_var_by_name("b")
    (add,) = net.opr_filter.has_input(a)
    net.replace_vars({add.outputs[0]: F.relu(F.mul(a, b))})
    assert rewritten(net).run(A, B)["o"].tolist() == [6, 16]


def test_a_variable_may_be_replaced_by_what_is_made_of_it(net: Network) -> None:
    a = net.get_var_by_name("a")
    net.replace_vars({a: a * 10})
    assert rewritten(net).run(inp_dict={"a": A, "b": B})["o"].tolist() == [26, 48]


def test_replace_oprs(net: Network) -> None:
    a, b = net.get_var_by_name("a"), net.get_var_by_name("b")
    out = F.relu(F.sub(a, b))
    (found,) = net.add_dep_oprs(out)
    net.replace_oprs({net.opr_filter.has_input(a).as_unique(): found.owner})
    assert rewritten(net).run(A, B)["o"].tolist() == [0, 0]
    with pytest.raises(AssertionError, match="outputs"):
        net.replace_oprs({a.owner: F.split(b, 2)[0].owner, b.owner: F.topk(b, 1)[0].owner})


def test_an_operator_that_gives_an_output_is_replaced_and_keeps_its_name(net: Network) -> None:
    (o,) = net.output_vars
    net.replace_oprs({o.owner: (o.owner.inputs[1] - 1).owner})
    assert rewritten(net).run(A, B)["o"].tolist() == [3, 5]


def test_two_networks_become_one() -> None:
    x = Tensor([1.0, 1.0])
    first = Network.load(dumped(doubled_sum, x, x, arg_names=["i0", "i1"], output_names=["o0"]))
    second = Network.load(dumped(lambda x: x * 2 - 1, x, arg_names=["j0"], output_names=["p0"]))
    first.add_output(*second.output_vars)
    first.replace_vars({first.get_var_by_name("i0"): second.get_var_by_name("p0")})
    assert {"i0", "i1", "j0"} & {v.name for v in first.all_vars} == {"i1", "j0"}
    out = rewritten(first, keep_var_name=2, optimize_for_inference=False).run(
        inp_dict={"i1": np.float32([1, 2]), "j0": np.float32([3, 4])}
    )
    assert {k: v.tolist() for k, v in out.items()} == {"o0": [12, 18], "p0": [5, 7]}


def test_constants_change(net: Network) -> None:
    const = net.params_filter.as_unique()
    assert const.numpy().tolist() == [2]
    const.set_value(3)
    assert const.shape == (1,)
    assert rewritten(net).run(A, B)["o"].tolist() == [12, 18]
    with pytest.raises(AssertionError, match="ndarray"):
        const.set_value("three")


def test_make_const(net: Network) -> None:
    made = net.make_const(np.array([0.0, 0.0]), name="b")
    assert made.dtype == np.float32
    assert made.name == "b"
    net.replace_vars({net.get_var_by_name("b"): made})
    assert rewritten(net).run(A)["o"].tolist() == [2, 4]


def test_make_input_node(net: Network) -> None:
    c = net.make_input_node((2,), np.int32, name="c")
    (o,) = net.output_vars
    out = F.add(o, c)
    out.name = "o1"
    net.remove_output(o)
    net.add_output(out)
    assert rewritten(net).run(A, B, A)["o1"].tolist() == [9, 14]


def test_outputs_come_and_go(net: Network, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("loadrun.megengine.network.network").addHandler(caplog.handler)
    a, b = net.get_var_by_name("a"), net.get_var_by_name("b")
    y1, y2 = (a + b) * 3, F.sigmoid((a + b).astype("float32"))
    y1.name, y2.name = "y1", "y2"
    net.remove_output(*net.output_vars)
    net.add_output(y1, y2, y1)
    out = rewritten(net).run(A, B)
    assert out["y1"].tolist() == [12, 18]
    np.testing.assert_allclose(out["y2"], 1 / (1 + np.exp([-4.0, -6.0])), rtol=1e-6)
    net.remove_output(a)
    assert "a is not an output" in caplog.text


def test_several_outputs() -> None:
    file = dumped(
        lambda a: F.cond_take(a > 1, a), Tensor([1.0, 2.0]), arg_names=["a"], output_names=["v", "i"]
    )
    net = Network.load(file)
    a = net.get_var_by_name("a")
    value, index = F.cond_take(a > 1, a)
    net.remove_output(*net.output_vars)
    value.name, index.name = "value", "index"
    net.add_output(value, index)
    out = rewritten(net).run(np.float32([3, 0, 5]))
    assert {k: v.tolist() for k, v in out.items()} == {"value": [3, 5], "index": [0, 2]}


class Convs(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = M.Conv2d(3, 8, 3)
        self.conv2 = M.Conv2d(8, 4, 3)

    def forward(self, data: Tensor) -> Any:
        return self.conv2(self.conv1(data))


@pytest.fixture
def convs() -> Network:
    data = Tensor(np.ones((1, 3, 9, 9), "float32"))
    names: dict[str, Any] = {
        "arg_names": ["data"],
        "output_names": "o",
        "keep_opr_name": True,
        "keep_var_name": 2,
    }
    return Network.load(dumped(Convs(), data, **names))


def test_filters(convs: Network) -> None:
    assert convs.data_providers_filter.as_count() == 1
    assert isinstance(convs.get_opr_by_type(N.Host2DeviceCopy), N.Host2DeviceCopy)
    assert convs.params_filter.as_count() == 4
    found = convs.opr_filter.type(N.ConvolutionForward)
    assert found.as_count() == found.as_count() == 2
    assert convs.opr_filter.not_type(N.ConvolutionForward).as_count() == len(convs.all_oprs) - 2
    data = convs.get_var_by_name("DATA")
    assert isinstance(data, N.VarNode)
    assert convs.var_filter.name("DATA", ignorecase=False).as_list() == []
    assert convs.opr_filter.has_input(data).as_unique() is convs.get_var_receive_oprs(data)[0]
    assert convs.opr_filter.name("data").as_unique() is data.owner
    assert convs.get_opr_by_name("conv1.Convolution") is data.users[0]
    assert len(convs.get_opr_by_name("*Convolution", unique=False)) == 2
    assert list(convs.all_oprs_dict) == [o.name for o in convs.all_oprs]
    assert convs.all_vars_dict["data"] is data
    assert [o.type for o in convs.get_dep_oprs(data)] == ["Host2DeviceCopy"]
    assert as_varnode(data.owner) is as_varnode([data]) is data
    assert as_oprnode((data,)) is data.owner
    with pytest.raises(AssertionError, match="4"):
        convs.get_opr_by_type(N.ConstOpBase)
    with pytest.raises(TypeError, match="should be ConvolutionForward"):
        convs.opr_filter.check_type(N.ConvolutionForward).as_list()
    with pytest.raises(ValueError, match="expected one node, found 2"):
        found.as_unique()


def test_what_an_operator_is(convs: Network) -> None:
    conv = convs.opr_filter.type(N.ConvolutionForward).as_list()[0]
    assert conv.type == "Convolution"
    assert conv.params["stride_h"] == 1
    assert conv.params["mode"] == "CROSS_CORRELATION"
    assert [v.shape for v in conv.inputs] == [(1, 3, 9, 9), (8, 3, 3, 3)]
    assert [v.shape for v in conv.outputs] == [(1, 8, 7, 7)]
    assert repr(conv) == "conv1.Convolution{Convolution}"


def test_parameters_change(convs: Network) -> None:
    conv = convs.opr_filter.type(N.ConvolutionForward).as_list()[-1]
    conv.params["stride_h"] = 2
    (o,) = rewritten(convs).run(np.ones((1, 3, 9, 9), "float32")).values()
    assert o.shape == (1, 4, 3, 5)
    conv.params["mode"] = "CROSS"
    with pytest.raises(loadrun.LoadRunError, match="mode is one of CROSS_CORRELATION, CONVOLUTION"):
        convs.dump(io.BytesIO())


def test_batch_size(convs: Network) -> None:
    convs.reset_batch_size(5)
    assert convs.output_vars[0].shape == (5, 4, 5, 5)
    file = io.BytesIO()
    convs.dump(file, optimize_for_inference=False)
    assert Network.load(file.getvalue()).data_providers_filter.as_unique().shape == (5, 3, 9, 9)
    with pytest.raises(AssertionError, match="no input whose first axis"):
        convs.reset_batch_size(1, blacklist=["data"])
    with pytest.raises(AssertionError, match="nobody"):
        convs.reset_batch_size(1, blacklist=["nobody"])


def test_names_of_operators(net: Network) -> None:
    net.modify_opr_names("net")
    net.modify_opr_names(lambda name: f"over.{name}")
    file = io.BytesIO()
    net.dump(file, optimize_for_inference=False, keep_opr_name=True)
    again = Network.load(file.getvalue())
    assert sorted(o.name for o in again.data_providers_filter) == ["over.net.a", "over.net.b"]


def test_metadata(net: Network) -> None:
    assert net.metadata == {"user_info": None, "graph_modified": False, "optimized_for_inference": False}
    file = io.BytesIO()
    info = {"str": "x", "numbers": [1, 2.5], "tensor": Tensor(0), "module": M.Module, "none": None}
    net.dump(file, user_info=info, enable_nchw4=True, enable_ioc16=True)
    assert Network.load(file.getvalue()).metadata == {
        "user_info": info,
        "graph_modified": True,
        "optimized_for_inference": True,
        "enable_ioc16": True,
        "enable_fuse_grain": True,
        "enable_nchw4": True,
    }
    file = io.BytesIO()
    net.dump(file, enable_metadata=False)
    assert Network.load(file.getvalue()).metadata is None


class Unknown:
    """What no reader of pickles may make."""


def test_user_info_that_would_need_code_stays_bytes(net: Network) -> None:
    file = io.BytesIO()
    net.dump(file, user_info=Unknown())
    found = Network.load(file.getvalue()).metadata
    assert found is not None
    assert isinstance(found["user_info"], bytes)


def test_optimized_variables(net: Network) -> None:
    made = net.optimize_for_inference(net.output_vars, enable_io16xc32=True)
    assert [v.dtype for v in made] == [np.int32]
    file = dumped(F.exp, Tensor([5.0]))
    out = io.BytesIO()
    Network.load(file).dump(out, enable_io16xc32=True)
    (o,) = Network.load(out.getvalue()).output_vars
    assert o.owner.inputs[0].dtype == np.float16


def test_symbolic_shapes() -> None:
    file = dumped(lambda a: F.relu(a * 2), Tensor([[1.0, 2.0]]), arg_names=["a"], output_names=["o"])
    net = Network.load(file)
    (a,) = net.input_vars
    assert a.shape == a.partial_shape == (1, 2)
    before = set_symbolic_shape(True)
    try:
        assert before is False
        assert isinstance(a.shape, N.VarNode)
        flat = F.reshape(a, (a.shape[0] * a.shape[1],))
    finally:
        set_symbolic_shape(before)
    flat.name = "flat"
    net.add_output(flat)
    out = rewritten(net).run(np.ones((3, 4), "float32"))
    assert out["flat"].shape == (12,)


def test_a_node_stands_for_no_number(net: Network) -> None:
    a = net.get_var_by_name("a")
    assert not a
    with pytest.raises(TypeError):
        int(a)
    with pytest.raises(RuntimeError, match="depends on the inputs of the graph"):
        a.numpy()
    assert net.params_filter.as_unique().outputs[0].numpy().tolist() == [2]
    assert a in {a: 1}
    assert repr(a) == "VarNode:a"


def test_assignment_makes_a_node_stand_for_the_changed_value(net: Network) -> None:
    (o,) = net.output_vars
    o[0] = 7
    assert rewritten(net).run(A, B)[o.name].tolist() == [7, 12]
    a = net.get_var_by_name("a")
    a += 1
    net.add_output(a)
    out = rewritten(net).run(A, B)
    assert [v.tolist() for v in out.values()] == [[7, 12], [2, 3]]


def test_parts_of_a_graph() -> None:
    bundle = loadrun.load("fixtures/nets/mlp.mge")
    net = Network.load("fixtures/nets/mlp.mge", outspec=["layers.0.ADD"])
    value = bundle.testcases[0].arrays["data"]
    w, b = (net.get_opr_by_name(f"layers.0.{n}").numpy() for n in ("weight", "bias"))
    wide = value.astype("float64") @ w.T.astype("float64") + b
    np.testing.assert_allclose(rewritten(net).run(value)["layers.0.ADD"], wide, rtol=1e-5, atol=1e-5)
    with pytest.raises(AssertionError, match="nowhere"):
        Network.load("fixtures/nets/mlp.mge", outspec=["nowhere"])


def test_testcases_in_what_is_written(net: Network) -> None:
    file = io.BytesIO()
    found = net.dump(file, input_data=["a:[1,2];b:[3,4]"])
    assert found.testcases == 1
    results = loadrun.run(loadrun.loads(file.getvalue()))
    assert [r.verdict.value for r in results] == ["pass"]
    assert [o.value.tolist() for o in results[0].outputs if o.value is not None] == [[8, 12]]


def test_a_replaced_operator_leaves_its_variables(net: Network) -> None:
    a, b = net.input_vars
    old = net.opr_filter.has_input(a).as_unique()
    (sum_of_both,) = old.outputs
    new = F.relu(a * b) + 2
    net.replace_oprs({old: new.owner})
    assert old.outputs == new.owner.outputs
    assert old.outputs[0] is sum_of_both
    assert sum_of_both.owner is new.owner
    assert rewritten(net).run(A, B)["o"].tolist() == [(3 + 2) * 2, (8 + 2) * 2]
    # The variable can be built on and replaced again, by both of its nodes.
    net.replace_vars({new: sum_of_both * 3})
    assert rewritten(net).run(A, B)["o"].tolist() == [30, 60]


def test_an_operator_is_replaced_by_what_is_made_of_it(net: Network) -> None:
    a, _ = net.input_vars
    old = net.opr_filter.has_input(a).as_unique()
    (before,) = old.outputs
    new = before * before
    net.replace_oprs({old: new.owner})
    assert before.owner is new.owner
    assert [v.owner for v in new.owner.inputs] == [old, old]
    assert rewritten(net).run(A, B)["o"].tolist() == [16 * 2, 36 * 2]


def selected() -> tuple[Network, Any]:
    """A network with an input, and the rows of it whose numbers are all positive: a shape that only data tells."""
    net = Network()
    x = net.make_input_node((3, 4), "float32", name="x")
    _, rows = F.cond_take(x.min(axis=1) > 0, x[:, 0])
    return net, x[rows]


ROWS = np.float32([[1, 2, 3, 4], [-1, 0, 0, 0], [5, 6, 7, 8]])


@pytest.mark.parametrize(
    "index",
    [
        0,
        -1,
        (0, 1),
        (slice(None), 1),
        (None, 0),
        (0, None),
        (0, None, slice(None), None),
        (slice(1, None), None, slice(None, None, 2)),
        ([0, 1], [1, 2]),
        (slice(None), [0, 2]),
        (None, np.array([0, 1])),
        (slice(-2, None), slice(None, -1)),
        (np.array([True, False]), 1),
        (slice(None), np.array([True, False, True, True]), None),
        slice(None),
    ],
    ids=str,
)
def test_indexing_where_only_data_tells_the_shape(index: Any) -> None:
    net, x = selected()
    assert x.shape is None
    net.add_output(x[index])
    found = rewritten(net, optimize_for_inference=False).run(ROWS)
    np.testing.assert_array_equal(next(iter(found.values())), ROWS[[0, 2]][index])


def test_masks_where_only_data_tells_the_shape() -> None:
    net, x = selected()
    part = x[x > 4]
    net.add_output(part, part[part > 6][0])
    found = rewritten(net, optimize_for_inference=False).run(ROWS)
    assert [v.tolist() for v in found.values()] == [[5, 6, 7, 8], [7]]


def test_an_ellipsis_needs_a_known_shape() -> None:
    """MegEngine refuses it as well, also where the value depends on no input."""
    net, x = selected()
    constant = net.make_const(ROWS)
    for unknown in (x, constant[constant > 4]):
        for index in (..., (..., 0), (..., unknown > 0)):
            with pytest.raises(IndexError, match="does not support Ellipsis when tensor's ndim is unknown"):
                unknown[index]
    assert constant[..., 0].numpy().tolist() == [1, -1, 5]
    with pytest.raises(ValueError, match="an index must be"):
        x["first"]


def test_the_number_of_axes_is_known_without_data() -> None:
    net, x = selected()
    assert (x.ndim, x[0].ndim, x[x > 0].ndim) == (2, 1, 1)
    net.add_output(x.sum(axis=-1), F.expand_dims(x.max(axis=0), 0))
    found = rewritten(net, optimize_for_inference=False).run(ROWS)
    assert [v.tolist() for v in found.values()] == [[10, 26], [[5, 6, 7, 8]]]


def test_a_value_whose_shape_only_data_tells_is_flattened() -> None:
    net, x = selected()
    net.add_output(
        F.flatten(x), x.flatten(), F.flatten(F.expand_dims(x, 0), 1), F.flatten(F.stack([x, x]), 0, 1)
    )
    found = rewritten(net, optimize_for_inference=False).run(ROWS)
    flat = [1, 2, 3, 4, 5, 6, 7, 8]
    assert [v.tolist() for v in found.values()] == [flat, flat, [flat], [flat[:4], flat[4:]] * 2]


def test_reshape_takes_sizes_that_only_data_tells() -> None:
    net, x = selected()
    net.add_output(F.reshape(x, (-1, 2, x.shapeof(0))))
    (found,) = rewritten(net, optimize_for_inference=False).run(ROWS).values()
    np.testing.assert_array_equal(found, np.arange(1, 9).reshape(2, 2, 2))


def test_a_size_that_only_data_tells_is_refused_by_name() -> None:
    net, x = selected()
    total = x * 2
    total.name = "doubled"
    for ask, what in (
        (lambda: total.size, "size"),
        (lambda: len(total), "length"),
        (lambda: list(total), "length"),
    ):
        with pytest.raises(
            loadrun.base.errors.UsageError, match=f"the {what} of doubled is not known: .*shapeof"
        ):
            ask()
    assert (net.make_const(ROWS).size, len(net.make_const(ROWS))) == (ROWS.size, len(ROWS))


def test_what_stands_for_the_same_variable(net: Network) -> None:
    (out,) = net.output_vars
    (a, _) = net.input_vars
    # What the variable is now, and a result of one number.
    whole, total = a.detach(), out.sum()
    assert isinstance(whole, N.VarNode)
    assert isinstance(total, N.VarNode)
    net.add_output(total)
    net.add_output(whole)
    assert net.output_vars[2] is a
    net.remove_output(whole)
    net.replace_vars({a.detach(): a * 10})
    total.name = "total"
    found = rewritten(net).run(inp_dict={"a": A, "b": B})
    assert (found["o"].tolist(), found["total"].tolist()) == ([26, 48], [74])
    a[:] = 1
    assert whole.owner.name == "a"


def test_a_number_of_axes_that_only_data_tells() -> None:
    net = Network()
    x = net.make_input_node((3,), "float32", name="x")
    first = x[x > 5][0]
    with pytest.raises(
        loadrun.LoadRunError, match=r"how many axes .* has depends on the inputs of the graph"
    ):
        _ = first.ndim
