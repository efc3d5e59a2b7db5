"""Functions of nodes give what MegEngine answered for tensors: a tenth of the recorded calls, on constants."""

from __future__ import annotations

import numpy as np
import pytest

import loadrun
from fixtures.functional._case import Case, arrays
from loadrun.megengine.utils.network import Network
from loadrun.megengine.utils.network_node import VarNode
from tests.support.recorded import TRACED, check_values, name_of

# Constants of a graph have at least one axis, as in MegEngine.
SOME = [p for p in TRACED if all(x.ndim and x.dtype.kind in "fiub" for x in p[1].inputs)][::10]


@pytest.mark.parametrize(("family", "case"), SOME, ids=map(name_of, SOME))
def test_functions_of_nodes(family: str, case: Case) -> None:
    net = Network()
    nodes = [net.make_const(x) for x in case.inputs]
    assert all(isinstance(v, VarNode) for v in nodes)
    check_values(family, case, arrays(case.make(loadrun.megengine)(*nodes)))


def test_assignment_of_a_value_makes_a_constant() -> None:
    node = Network().make_const(np.float32([1, 2]))
    node[...] = np.float32([3, 4])
    assert (node + 1).numpy().tolist() == [4, 5]
    other = Network().make_const(np.float32([5, 6]))
    node[...] = other
    assert (node + other).numpy().tolist() == [10, 12]
