"""Names of devices as MegEngine's ``CompNode`` and ``Device`` have them; MegEngine 1.13.0 gives these names."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import loadrun
import loadrun.megengine.functional as F
from loadrun import Tensor
from loadrun.megengine.core._imperative_rt import CompNode
from loadrun.megengine.core._wrap import Device, as_device
from loadrun.megengine.utils.network import Network


@pytest.mark.parametrize(
    ("name", "logical", "physical"),
    [
        ("cpu0:1", "cpu0:1", "cpu0:1"),
        ("xpux", "xpux:0", "cpu0:0"),
        ("xpu", "xpux:0", "cpu0:0"),
        ("xpu:3", "xpu0:3", "cpu0:3"),
        ("xpu1:2", "xpu1:2", "cpu1:2"),
        ("cpux", "cpux:0", "cpu0:0"),
        ("cpu:3", "cpu0:3", "cpu0:3"),
        ("cpu:default", "cpu:default", "cpu:default"),
        ("multithread2:0", "multithread2:0", "multithread2:0"),
        ("multithread:default:2", "multithread:default:2", "multithread:default:2"),
    ],
)
def test_names(name: str, logical: str, physical: str) -> None:
    device = CompNode(name)
    assert (str(device), device.logical_name, device.physical_name) == (logical, logical, physical)
    assert repr(device) == f'CompNode("{physical}" from "{logical}")'


def test_every_device_is_a_cpu() -> None:
    assert CompNode("gpu1:2").physical_name == "cpu1:2"


def test_equality() -> None:
    device = CompNode("cpu0")
    assert device == CompNode("cpu0:0") == "cpu0"
    assert device != "cpu0:1"
    assert device != 3
    assert CompNode("xpux") != CompNode("cpu0")
    assert hash(Device("cpu0")) == hash("cpu0:0")
    assert pickle.loads(pickle.dumps(device)) == copy.deepcopy(device) == device
    assert loadrun.megengine.device.CompNode is CompNode


def test_no_device() -> None:
    device = Device()
    assert (str(device), device.physical_name, repr(device)) == (
        "invalid",
        "invalid",
        'CompNode("invalid" from "invalid")',
    )
    assert device == "invalid"
    assert device != CompNode("cpu0")
    assert pickle.loads(pickle.dumps(device)) == device
    with pytest.raises(RuntimeError, match="invalid device name cuda0"):
        CompNode("cuda0")


def test_two_layers_are_one() -> None:
    assert as_device("cpu0").to_c() == "cpu0"
    assert as_device(as_device("cpu0")) == "cpu0:0"
    assert str(Tensor([1.0], device=CompNode("cpu0:1")).device) == "cpu0:1"
    assert F.linspace(3, 10, 3, device=Device("xpux").to_c()).tolist() == [3.0, 6.5, 10.0]
    value = Tensor([1.0], device="cpu0:1")._dev_tensor()
    assert (value.comp_node, value.tolist()) == ("cpu0:1", [1.0])


def test_nodes_name_the_device_of_their_inputs() -> None:
    net = Network()
    a, b = (net.make_const(np.ones((2, 2), "float32"), device=d) for d in ("cpu0", "cpu1"))
    free = net.make_const(np.ones((2, 2), "float32"))
    assert [str(x.device) for x in (a, a + 1, F.relu(a * free), free)] == ["cpu0:0"] * 3 + ["xpux:0"]
    assert a.owner.device == "cpu0"
    for join in (F.concat, F.stack):
        assert join([a, b], device="cpu1").device == "cpu1"
        assert join([a, a]).device == "cpu0"
        with pytest.raises(RuntimeError, match="on one device, found cpu0:0, cpu1:0"):
            join([a, b])
    assert (a.to("cpu1") + b).device == "cpu1"
    assert a.device == "cpu0"


def test_joined_tensors_name_the_device_that_is_asked_for() -> None:
    parts = [Tensor([1.0], device="cpu0"), Tensor([2.0], device="cpu1")]
    found = F.concat(parts, device="cpu1")
    assert (found.tolist(), found.device) == ([1.0, 2.0], "cpu1")
    assert F.stack(parts[:1], device="cpu1").device == "cpu1"
    assert [p.device for p in parts] == ["cpu0", "cpu1"]
