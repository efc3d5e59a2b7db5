"""Names and order of operands in a loaded dump, as MegEngine 1.13.0 gives them for the same functions and files."""

from __future__ import annotations

import io

import numpy as np
import pytest

import loadrun.megengine.functional as F
from loadrun.megengine.core.tensor.megbrain_graph import load_graph
from loadrun.megengine.utils.comp_graph_tools import get_oprs_seq
from loadrun.megengine.utils.network import Network
from loadrun.tensors import Parameter, Tensor
from loadrun.tracing import trace

WEIGHT = Parameter(np.array([2.0, 3.0, 4.0], np.float32))


def dumped(function, keep):
    traced = trace(function, symbolic=True, capture_as_const=True)
    traced(Tensor(np.ones((2, 3), np.float32)))
    file = io.BytesIO()
    traced.dump(
        file,
        optimize_for_inference=False,
        arg_names=("x",),
        keep_opr_name=keep,
        keep_var_name=2 if keep else 1,
    )
    file.seek(0)
    return file


@pytest.mark.parametrize(
    ("function", "name", "operands"),
    [
        (lambda x: 2 * x, "MUL(x,const<2>[2])[4]", ["x", "const<2>[2]"]),
        (lambda x: WEIGHT * x, "MUL(x,const{3}[2])[4]", ["x", "const{3}[2]"]),
        (lambda x: F.maximum(WEIGHT, x), "MAX(x,const{3}[2])[4]", ["x", "const{3}[2]"]),
        (lambda x: x * WEIGHT, "MUL(x,const{3}[2])[4]", ["x", "const{3}[2]"]),
        # Subtraction is not commutative: what comes first stays there.
        (lambda x: WEIGHT - x, "SUB(const{3}[2],x)[4]", ["const{3}[2]", "x"]),
    ],
    ids=["number", "weight", "maximum", "sorted", "difference"],
)
def test_operators_are_named_as_when_megengine_loads_them(function, name, operands):
    last = get_oprs_seq(load_graph(dumped(function, keep=False)).output_vars_list)[-1]
    assert last.name == name
    assert [v.name for v in last.inputs] == operands


def test_operators_of_several_inputs_are_numbered_as_when_megengine_loads_them():
    traced = trace(lambda x, y: F.relu(y + x) + WEIGHT * (2 + y), symbolic=True, capture_as_const=True)
    traced(Tensor(np.ones((2, 3), np.float32)), Tensor(np.ones((2, 3), np.float32)))
    file = io.BytesIO()
    traced.dump(file, optimize_for_inference=False, keep_opr_name=False, keep_var_name=0)
    file.seek(0)
    names = [o.name for o in get_oprs_seq(load_graph(file).output_vars_list)]
    assert names[2:] == [
        "ADD(h2d[0],h2d[2])[4]",
        "RELU(ADD[4])[6]",
        "ADD(h2d[2],const{1}[10])[12]",
        "MUL(const{3}[8],ADD[12])[14]",
        "ADD(RELU[6],MUL[14])[16]",
    ]


def test_a_network_has_the_same_names():
    net = Network.load(dumped(lambda x: 2 * x, keep=False))
    assert {o.name for o in net.all_oprs} == {"x", "const<2>[2]", "MUL(x,const<2>[2])[4]"}


def test_names_in_the_file_are_kept():
    last = get_oprs_seq(load_graph(dumped(lambda x: 2 * x, keep=True)).output_vars_list)[-1]
    assert last.name == "MUL"
