"""Names of outputs and DumpResult's counts of small functions' dumps, held against what MegEngine's ``dump`` returned.

`tests/oracle/list_dumps.py` makes the table under MegEngine 1.13.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.functional as F
import loadrun.module as M
from loadrun.dump.options import DumpResult
from loadrun.imperative import Tensor, quantized_dtypes
from loadrun.jit import trace

CASES = json.loads((Path(__file__).parents[1] / "data" / "dump_names.json").read_text())
KEPT_APART = {"x", "x.astype('float32')", "(lambda y:(y,y))(x+1)", "(x, F.ones((2,)))"}
"""What is an input, or an output already, becomes an output through an Identity, so that every output has its name."""
OTHER_FORMS = {
    "F.nn.pad(x,((1,1),(0,0)))": "MegEngine gives a running number",
    "x+F.zeros((2,4))": "MegEngine leaves the sum out already when it traces",
    "F.norm(x[0])": "the square is a power, too",
    "F.tile(x,(1,2))": "fewer steps",
    "F.gather(x,1,T(np.array([[0,1],[1,2]],'int32')))": "fewer steps",
}
COUNTED_OTHERWISE = {
    "F.clip(x,0,3)": "the bounds are checked against each other",
    "F.split(x,2,axis=1)": "the pieces follow the size",
    "F.split(x,2,axis=1)[1]": "the pieces follow the size",
    "F.flatten(x,1)": "fewer steps",
    "F.repeat(x,2,axis=1)": "other constants",
    "F.roll(x,1,1)": "fewer steps",
    "F.vision.interpolate(x,scale_factor=2)": "fewer steps",
    "F.one_hot(x.astype('int32'),8)": "fewer steps",
    "x+x.shape[0]": "sizes are taken from GetVarShape",
    "F.batch_norm(x,T(np.zeros((1,2,1,1),'float32')),T(np.ones((1,2,1,1),'float32')))": "equal constants stand apart",
}


def dumped(source: str, shape: list[int], **options: Any) -> DumpResult:
    names = {"F": F, "D": quantized_dtypes, "T": Tensor, "np": np}
    traced = trace(eval(f"lambda x: {source}", names), symbolic=True, capture_as_const=True)
    traced(Tensor((np.arange(np.prod(shape)).reshape(shape) % 7 + 1).astype(np.float32)))
    return traced.dump(io.BytesIO(), **options)


@pytest.mark.parametrize(
    "case", [c for c in CASES if c["source"] not in KEPT_APART], ids=lambda c: c["source"]
)
def test_outputs_are_called_as_megengine_calls_them(case: dict[str, Any]) -> None:
    plain = dumped(case["source"], case["shape"], optimize_for_inference=False)
    if case["source"] in OTHER_FORMS:
        assert plain.outputs != case["outputs"]
        return
    assert plain.outputs == case["outputs"]
    assert plain.inputs == ["arg_0"]
    counts = (plain.nr_opr, plain.tensor_value_bytes)
    same = counts == (case["operators"], case["tensor_value_bytes"])
    assert same != (case["source"] in COUNTED_OTHERWISE), counts
    if case["same"]:
        assert dumped(case["source"], case["shape"]).outputs == case["outputs"]


@pytest.mark.parametrize("case", [c for c in CASES if c["source"] in KEPT_APART], ids=lambda c: c["source"])
def test_outputs_that_are_inputs_or_outputs_already_have_names_of_their_own(case: dict[str, Any]) -> None:
    plain = dumped(case["source"], case["shape"], optimize_for_inference=False)
    assert len({*plain.outputs, "arg_0"}) == len(case["outputs"]) + 1


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
