"""Operators as values: what they are made of, when they are equal, and what MegEngine takes apart before it runs them.

Parameters, defaults and enums are what the classes of MegEngine 1.13.0 say of themselves
(tests/data/operator_definitions.json); results were computed by it, or by hand.
"""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun import Tensor
from loadrun.megengine.core._imperative_rt import OpDef, OperatorNodeConfig
from loadrun.megengine.core._imperative_rt.core2 import apply
from loadrun.megengine.core.ops import builtin
from loadrun.megengine.core.ops.builtin import (
    CondTake,
    Convolution,
    Elemwise,
    NMSKeep,
    Pooling,
    Reduce,
    Reshape,
    Split,
    Subtensor,
    TypeCvt,
)

KNOWN = json.loads((Path(__file__).parents[2] / "data" / "operator_definitions.json").read_text())
SHARED = sorted(set(KNOWN) & set(vars(builtin)))
NONE = ("invalid", "")
"""A device that is not given: what MegEngine shows, and what is shown here."""


def definition(name: str) -> Any:
    return getattr(builtin, name)


ABSENT = """
AtlasRuntime Barrier Borrow CambriconRuntime CollectiveComm ExternOpr FastpathCopy Fill FillLike InplaceAdd LAMBUpdate
MagicMindRuntime MeshGrid NvOf ParamPackConcat ParamPackSplit PixelShuffle PixelShuffleBackward RemoteRecv RemoteSend
Stack TensorRTRuntime
"""
"""Definitions for training, for other machines, and those that MegEngine makes no operator of a dump."""


def test_most_operators_of_megengine_are_there() -> None:
    assert sorted(set(KNOWN) - set(SHARED)) == ABSENT.split()


@pytest.mark.parametrize("name", SHARED)
def test_a_definition_is_megengines(name: str) -> None:
    kind, known = definition(name), KNOWN[name]
    assert list(kind.parameters) == known["parameters"]
    held = kind()
    for parameter, default in known["defaults"].items():
        found = getattr(held, parameter)
        if (name, parameter) == ("TypeCvt", "dtype"):
            # Without a dtype MegEngine's converts to none, and fails when it is applied.
            continue
        if isinstance(default, float):
            assert found == pytest.approx(default)
        elif default == NONE[0]:
            assert found == NONE[1]
        elif isinstance(default, (int, list, type(None))):
            assert found == default
        else:
            assert str(found) == default
    for enum, members in known["enums"].items():
        assert sorted(n for n in vars(getattr(kind, enum)) if n[0].isupper()) == members


def test_equal_parameters_make_equal_operators() -> None:
    assert CondTake() == CondTake()
    assert NMSKeep(0.7, 100) == NMSKeep(iou_thresh=0.7, max_output=100)
    assert NMSKeep(0.7, 100) != NMSKeep(0.7, 200)
    assert NMSKeep(0.7, 100) != CondTake()
    assert Reduce("sum", 1) != Reduce("sum", 1, keepdim=False)
    assert TypeCvt(dtype="float32") == TypeCvt(dtype=np.float32)
    items = (0, True, True, False, False)
    assert Subtensor(items=[items]) == Subtensor(items=[list(items)])
    assert Elemwise("add") != "add"
    assert {Elemwise("add"), Elemwise("ADD"), Elemwise("sub")} == {Elemwise("add"), Elemwise("sub")}


def test_parameters_are_attributes() -> None:
    op = Elemwise("add")
    op.mode = "sub"
    assert op == Elemwise("sub")
    assert op.scope == ""
    op.scope = "block"
    assert op.scope == "block"
    with pytest.raises(AttributeError, match="no parameter other; it has mode"):
        op.other = 1
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = op.other
    assert builtin.AddAxis(axis=[1, 2]).axis == [1, 2]
    assert TypeCvt(dtype="int8").dtype == np.int8
    assert (str(op), str(Reduce())) == ("SUB", "Reduce")
    assert repr(Reduce("max", 1)) == "Reduce(mode=MAX, axis=1, data_type=DEFAULT, keepdim=True)"


def test_choices_are_their_names() -> None:
    mode = Elemwise.Mode.ADD
    assert mode == "ADD"
    assert mode == "add"
    assert mode in ("ADD",)
    assert mode != 16
    assert mode != Elemwise.Mode.SUB
    assert Convolution.Mode.CONVOLUTION != "MAX"
    assert (mode.name, mode.dump(), mode.value, repr(mode)) == ("ADD", "ADD", 16, "Elemwise.Mode.ADD")
    with pytest.raises(TypeError, match="unhashable"):
        hash(mode)
    assert Convolution.Mode is builtin.BatchConvBias.Mode
    assert Convolution.Mode.CONVOLUTION != Pooling.Mode.MAX
    both = Convolution.Strategy.HEURISTIC | Convolution.Strategy.PROFILE
    assert repr(both) == "BatchConvBias.Strategy.HEURISTIC + BatchConvBias.Strategy.PROFILE"
    assert Convolution(strategy=both).strategy == both
    with pytest.raises(TypeError):
        _ = mode | mode


def test_every_mode_is_found_by_its_name() -> None:
    from loadrun.megengine.functional.elemwise import Elemwise as of_functional

    assert of_functional is Elemwise
    modes = {n: m for n, m in vars(Elemwise.Mode).items() if isinstance(m, Elemwise.Mode)}
    assert len(modes) == len(KNOWN["Elemwise"]["enums"]["Mode"])
    assert all(name == mode and Elemwise(name) == Elemwise(mode) for name, mode in modes.items())


def test_where_definitions_are_found() -> None:
    module = "loadrun.megengine.core._imperative_rt.ops"
    assert (Elemwise.__module__, Elemwise.__qualname__) == (module, "Elemwise")
    assert (Elemwise.Mode.__module__, Elemwise.Mode.__qualname__) == (module, "Elemwise.Mode")
    assert issubclass(Elemwise, OpDef)
    names: dict[str, Any] = {}
    exec("from loadrun.megengine.core.ops.builtin import *", names)
    assert names["Elemwise"] is Elemwise


@pytest.mark.parametrize(
    "op", [Elemwise("add"), Subtensor(items=[(0, True, False, False, False)]), CondTake()]
)
def test_copies(op: Any) -> None:
    assert pickle.loads(pickle.dumps(op)) == copy.copy(op) == copy.deepcopy(op) == op
    assert pickle.loads(pickle.dumps(Elemwise.Mode.ADD)) == "ADD"


def test_what_is_refused() -> None:
    with pytest.raises(TypeError, match="no parameter strange; it has mode"):
        Elemwise(strange=1)
    with pytest.raises(TypeError, match="by place and by name"):
        Elemwise("add", mode="add")
    with pytest.raises(TypeError, match="1 parameters, found 2"):
        Elemwise("add", 3)
    with pytest.raises(RuntimeError, match=r"mode is one of RELU, .*, found 'nothing'"):
        Elemwise("nothing")
    with pytest.raises(RuntimeError, match="found 3"):
        Elemwise(3)
    with pytest.raises(
        TypeError, match=r"expected an operator of loadrun\.megengine\.core\.ops\.builtin, found str 'add'"
    ):
        apply("add", Tensor([1.0]))


X = np.arange(1, 5, dtype=np.int32)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (Split(axis=0, nsections=2), [[1, 2], [3, 4]]),
        (builtin.Broadcast(shape=[2, 4]), [[[1, 2, 3, 4], [1, 2, 3, 4]]]),
        (Reshape(shape=[2, 2]), [[[1, 2], [3, 4]]]),
        (Reshape(shape=[2, -1], axis=1), [[[1, 2], [3, 4]]]),
        (Subtensor(items=[(0, True, True, False, False)], slice_items=[(1, 3, 1, 0)]), [[2, 3]]),
        (Subtensor(items=[(0, True, True, False, False)], slice_items=[(1, 2**31 - 1, 1, 0)]), [[2, 3, 4]]),
        (Reduce("sum", -1, keepdim=False), [10]),
        (Reduce("sum", 0), [[10]]),
        (Reduce("sum"), [10]),
    ],
    ids=lambda v: repr(v) if isinstance(v, OpDef) else "",
)
def test_parameters_that_spare_an_input(op: OpDef, expected: list[Any]) -> None:
    found = apply(op, Tensor(X))
    assert [x.tolist() for x in found] == expected
    assert [x.shape for x in found] == [np.shape(e) for e in expected]


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("keepdim", [True, False])
def test_reduce_keeps_the_axis_or_not(axis: int, keepdim: bool) -> None:
    data = np.random.default_rng(1).random((2, 3, 4), np.float32)
    (found,) = apply(Reduce(mode="max", axis=axis, keepdim=keepdim), Tensor(data))
    np.testing.assert_array_equal(found.numpy(), data.max(axis=axis, keepdims=keepdim))


def test_inputs_take_the_place_of_held_numbers() -> None:
    items = [(0, True, True, False, False)]
    given = -(2**31)
    op = Subtensor(items=items, slice_items=[(given, given, given, given)])
    assert apply(op, Tensor(X), Tensor(1), Tensor(2))[0].tolist() == [2]
    assert apply(Split(axis=0), Tensor(X), Tensor(1), Tensor(3))[1].tolist() == [2, 3, 4]
    pooled = apply(builtin.AdaptivePooling(shape=[2, 2]), Tensor(np.arange(16.0).reshape(1, 1, 4, 4)))
    assert pooled[0].tolist() == [[[[5.0, 7.0], [13.0, 15.0]]]]
    one_hot = builtin.IndexingOneHot(axis=-1, ndim=2)
    assert apply(one_hot, Tensor([[3, 4], [4, 5]]), Tensor([1, 0]))[0].tolist() == [[4], [4]]
    with pytest.raises(loadrun.LoadRunError, match="4 elements along axis 0 do not make 3 equal sections"):
        apply(Split(axis=0, nsections=3), Tensor(X))
    with pytest.raises(loadrun.LoadRunError, match="1 items need as many slice_items, found 2"):
        apply(Subtensor(items=items, slice_items=[(0, 1, 1, 0)] * 2), Tensor(X))


def test_results_name_the_device_of_the_operator() -> None:
    (ones,) = apply(builtin.Eye(k=0, dtype="int32", comp_node="cpu1"), Tensor([2, 3]))
    assert (ones.tolist(), str(ones.device)) == ([[1, 0, 0], [0, 1, 0]], "cpu1:0")
    (joined,) = apply(builtin.Concat(axis=0, comp_node="cpu1"), Tensor(X), Tensor(X))
    assert (joined.shape, str(joined.device)) == ((8,), "cpu1:0")


def test_how_an_operator_is_configured() -> None:
    config = OperatorNodeConfig()
    assert (config.name, config.dtype, config.comp_node_arr) == (None, None, ())
    config.dtype = "float32"
    assert config.dtype == np.dtype("float32")
    config.dtype = None
    assert config.dtype is None
    config.comp_node = "cpu0"
    assert [str(d) for d in config.comp_node_arr] == ["cpu0:0"]
    config.comp_node_arr = ["xpux", "xpux:1"]
    assert repr(config.comp_node_arr[1]) == 'CompNode("cpu0:1" from "xpux:1")'
    with pytest.raises(ValueError, match=r"invalid number of comp_node: .* found 2"):
        _ = config.comp_node
