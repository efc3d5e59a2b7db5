"""Names of outputs and DumpResult's counts of small functions' dumps, compared with what MegEngine's ``dump`` returned.

`tests/oracle/list_dumps.py` makes the table under MegEngine 1.13.
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.megengine.functional as F
import loadrun.megengine.module as M
from loadrun.dump.options import DumpResult
from loadrun.tensors import Tensor, quantized_dtypes
from loadrun.tracing import trace
from tests.support.cases import check_all, in_groups, some_of
from tests.support.output_names import agree

CASES = json.loads((Path(__file__).parents[1] / "data" / "dump_names.json").read_text())
POSITIONS = "positions that no input changes are one constant"
OTHER_FORMS = {
    "F.gather(x,1,T(np.array([[0,1],[1,2]],'int32')))": POSITIONS,
    "F.gather(x,0,T(np.array([[0,1,1]],'int32')))": POSITIONS,
}
"""What has other names, and why."""
COUNTED_OTHERWISE = {
    "what is an input, or an output already, is an output through an Identity": [
        "x",
        "x.astype('float32')",
        "(lambda y:(y,y))(x+1)",
        "(x, F.ones((2,)))",
        "F.squeeze(x,0)",
        "x**1",
        "F.log(F.exp(x))",
        "(lambda y:(y+0,y))(F.exp(x))",
        "(lambda y:(F.copy(y),F.copy(y)))(F.exp(x))",
    ],
    "sizes are taken from GetVarShape": [
        "x+x.shape[0]",
        "x.shape[0]+x",
        "(x.shape[0]*2)*x[0]",
        "x[:x.shape[1]-1]",
        "x.reshape(-1,x.shape[0])",
        "x.reshape(x.shape[1],x.shape[0])[0]",
        "F.full((x.shape[0],2),1.0)",
        "x[None,x>1]",
        "x[x>1,None]",
        "x[x[...,0]>1]",
        "F.matmul(x,T(np.ones((4,5),'float32')))",
        "F.matmul(x,T(np.ones((4,),'float32')))",
        "F.matmul(T(np.ones((5,3),'float32')),x)",
        "F.relu(F.matmul(x,T(np.ones((4,5),'float32'))).reshape(-1))",
        "F.vision.interpolate(x,5,mode='linear')",
    ],
    "fewer steps, or other constants": [
        *OTHER_FORMS,
        "F.flatten(x,1)",
        "F.repeat(x,2,axis=1)",
        "F.repeat(x,2,axis=0)",
        "F.tile(x,(1,2))",
        "F.tile(x,(2,3))",
        "F.roll(x,1,1)",
        "F.roll(x,1)",
        "F.roll(x,(1,2),(0,1))",
        "F.vision.interpolate(x,scale_factor=2)",
        "F.vision.interpolate(x,scale_factor=2,mode='linear')",
        "F.one_hot(x.astype('int32'),8)",
        "F.square(x)",
    ],
    "the pieces follow the size": [
        "F.split(x,2,axis=1)",
        "F.split(x,2,axis=1)[1]",
        "F.split(x,2,axis=1)[1].reshape(3,2)",
        "F.split(x,2,axis=1)[1]/1",
        "F.split(x,1,axis=0)",
    ],
    "nothing is repeated to the shape of what is not needed": [
        "x+F.zeros((2,4))",
        "abs(x)**0",
        "F.exp(x)*0",
        "F.exp(x)*F.ones((3,4))",
        "F.exp(x)+F.zeros((3,4))",
        "F.exp(x)+F.zeros((1,4))",
        "F.exp(x[0])+F.zeros((3,4))",
    ],
    "the bounds are checked against each other": ["F.clip(x,0,3)"],
    "equal constants stand apart": [
        "F.batch_norm(x,T(np.zeros((1,2,1,1),'float32')),T(np.ones((1,2,1,1),'float32')))",
        *(source for source in (c["source"] for c in CASES) if "F.batch_norm(F.conv2d(" in source),
    ],
    "the quotient is computed": ["F.exp(x)//1"],
}
OTHER_COUNTS = {source for sources in COUNTED_OTHERWISE.values() for source in sources}


def dumped(source: str, shape: list[int], **options: Any) -> DumpResult:
    names = {"F": F, "D": quantized_dtypes, "T": Tensor, "np": np}
    traced = trace(eval(f"lambda x: {source}", names), symbolic=True, capture_as_const=True)
    traced(Tensor((np.arange(np.prod(shape)).reshape(shape) % 7 + 1).astype(np.float32)))
    return traced.dump(io.BytesIO(), **options)


def title(case: dict[str, Any]) -> str:
    return f"{case['source']} of {case['shape']}"


def check(case: dict[str, Any]) -> None:
    plain = dumped(case["source"], case["shape"], optimize_for_inference=False)
    assert agree(case["outputs"], plain.outputs) != (case["source"] in OTHER_FORMS), plain.outputs
    assert plain.inputs == ["arg_0"]
    counts = (plain.nr_opr, plain.tensor_value_bytes)
    same = counts == (case["operators"], case["tensor_value_bytes"])
    assert same != (case["source"] in OTHER_COUNTS), counts
    optimized = dumped(case["source"], case["shape"])
    named = agree(case.get("optimized", case["outputs"]), optimized.outputs)
    assert named != (case["source"] in OTHER_FORMS), optimized.outputs


def kind(case: dict[str, Any]) -> tuple[str, ...]:
    """The functions that are called, and the source where its names or counts are other than MegEngine's."""
    source = case["source"]
    return (*re.findall(r"[\w.]+(?=\()", source), source if source in {*OTHER_FORMS, *OTHER_COUNTS} else "")


@pytest.mark.parametrize("cases", in_groups(some_of(CASES, 4, kind), lambda c: ""))
def test_outputs_are_called_as_megengine_calls_them(cases: list[dict[str, Any]]) -> None:
    check_all(cases, check, title)


def test_outputs_without_names_are_counted() -> None:
    assert dumped("(x + 1, x * 2)", [2, 4], keep_var_name=0).outputs == ["unnamed0", "unnamed1"]
    named = dumped("(x + 1, x * 2)", [2, 4], output_names=["a", "b"], keep_var_name=0)
    assert named.outputs == ["unnamed0", "unnamed1"]


def test_operators_keep_the_names_of_inputs_weights_and_constants() -> None:
    class Net(M.Module):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.fc = M.Linear(4, 3)
            self.bn = M.BatchNorm1d(3)

        def forward(self, x: Tensor) -> Tensor:
            return F.sum(self.bn(self.fc(x)))

    net = Net()
    net.eval()
    traced = trace(net, symbolic=True, capture_as_const=True)
    traced(Tensor(np.ones((2, 4), np.float32)))
    file = io.BytesIO()
    traced.dump(file, optimize_for_inference=False, keep_opr_name=True, keep_var_name=2)
    found = {o.name: o for o in loadrun.loads(file.getvalue()).graph.oprs}
    # As MegEngine 1.13 names them, but for mean and variance: equal to bias and weight, they are those there.
    assert set(found) - {"net.bn.running_mean", "net.bn.running_var"} == {
        *("arg_0", "net.fc.weight", "net.fc.bias", "net.bn.weight", "net.bn.bias"),
        *("net.fc.MatrixMul", "net.fc.ADD", "net.bn.AddAxis", "net.bn.BatchNorm", "net.bn.RemoveAxis"),
        *("net.Reduce[0]", "net.Reduce[1]"),
    }
    assert found["net.bn.BatchNorm"].outputs[-1].name == "net.bn.BatchNorm:o5"
