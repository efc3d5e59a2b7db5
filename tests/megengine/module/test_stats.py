"""Sizes and operations of a model, against the numbers that MegEngine 1.13.0 gives for it."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import loadrun.megengine.functional as F
import loadrun.megengine.module as M
from loadrun import LoadRunError, Tensor
from loadrun.megengine.tools.network_visualize import visualize
from loadrun.megengine.utils import module_stats as stats
from loadrun.megengine.utils.module_stats import module_stats


class Block(M.Module):
    def __init__(self, i: int, o: int, stride: int) -> None:
        super().__init__()
        self.conv1 = M.Conv2d(i, o, 3, stride, 1, bias=False)
        self.bn1 = M.BatchNorm2d(o)
        self.conv2 = M.Conv2d(o, o, 3, 1, 1, groups=2)
        self.bn2 = M.BatchNorm2d(o)
        other = i != o or stride != 1
        self.down = (
            M.Sequential(M.Conv2d(i, o, 1, stride, bias=False), M.BatchNorm2d(o)) if other else M.Identity()
        )

    def forward(self, x: Tensor) -> Any:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.down(x))


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = M.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn = M.BatchNorm2d(8)
        self.pool = M.MaxPool2d(3, 2, 1)
        self.l1, self.l2 = Block(8, 8, 1), Block(8, 16, 2)
        self.up = M.ConvTranspose2d(16, 8, 2, 2)
        self.avg, self.gn = M.AvgPool2d(2), M.GroupNorm(2, 8)
        self.ad, self.ln = M.AdaptiveAvgPool2d((1, 1)), M.LayerNorm(8)
        self.fc, self.lin = M.Linear(8, 5), M.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        x = self.l2(self.l1(self.pool(F.relu(self.bn(self.stem(x))))))
        x = self.ln(F.flatten(self.ad(self.gn(self.avg(self.up(x)))), 1))
        return self.fc(x) + self.fc(x), F.linear(x, self.lin.weight, self.lin.bias)


# Called from the top, in the order of the calls; MegEngine 1.13.0, two images of 64 x 48.
FLOPS = [
    1806336,
    86016,
    27648,
    221184,
    21504,
    113664,
    21504,
    110592,
    10752,
    112128,
    10752,
    12288,
    10752,
    52224,
]
FLOPS += [3072, 5376, 16, 112, 85, 85]


@pytest.fixture(autouse=True)
def quiet() -> Any:
    stats.logger.setLevel("ERROR")
    yield
    stats.logger.setLevel("INFO")


def test_numbers_are_those_of_megengine() -> None:
    found = module_stats(Net(), input_shapes=(2, 3, 64, 48))
    assert found is not None
    sums, rows = found
    assert tuple(sums) == (21056, 5264, 2626090, 215248, 53812)
    assert [r["flops_num"] for r in rows.flops[:-1]] == FLOPS
    assert rows.flops[-1] == {"name": "total", "flops": "2.626 MOPs", "output_shapes": 202}
    assert rows.params[-1] == {"name": "total", "param_dim": 5264, "size": "20.562 KiB"}
    assert rows.activations[-1] == {"name": "total", "act_dim": 53812, "size": "210.203 KiB"}
    assert [r["name"] for r in rows.params[:4]] == ["stem-w", "bn-w", "bn-b", "l1.conv1-w"]
    assert [r["name"] for r in rows.params[-4:-1]] == ["fc-b", "lin-w", "lin-b"]
    assert rows.flops[0]["flops_cum"] == "1.806 MOPs"
    assert (rows.flops[0]["percentage"], rows.flops[0]["bar"]) == ("68.78%", "#" * 20)
    assert rows.activations[0]["shape"] == (2, 8, 32, 24)


def test_what_is_not_asked_for_is_not_counted() -> None:
    one = (1, 3, 64, 64)
    with_flops = module_stats(Net(), input_shapes=[one], cal_params=False, bar_length_max=7)
    assert with_flops is not None
    assert tuple(with_flops[0]) == (0, 0, 1750682, 143464, 35866)
    assert with_flops[1].flops[0]["bar"] == "#######"
    params = module_stats(Net(), input_shapes=one, cal_flops=False, cal_activations=False)
    assert params is not None
    assert tuple(params[0]) == (21056, 5264, 0, 0, 0)
    assert module_stats(Net()) is None


def test_inputs_give_means() -> None:
    net = M.Linear(2, 2, bias=False)
    net.weight[...] = Tensor([[1.0, 0.0], [0.0, 3.0]])
    found = module_stats(net, inputs=np.float32([[1, 1]]))
    assert found is not None
    assert (found[1].activations[0]["mean"], found[1].activations[0]["std"]) == ("2", "1")
    assert (found[1].params[0]["mean"], found[1].params[0]["std"]) == ("1", "1.22")


Pair = namedtuple("Pair", ["n", "t"])


class Structured(M.Module):
    def forward(self, a: Any, b: Any, c: Any) -> Any:
        assert isinstance(a[0], Tensor)
        assert isinstance(b["1"], Tensor)
        assert isinstance(c, Pair)
        assert isinstance(c.t, Tensor)
        return a[0]


def test_inputs_in_containers() -> None:
    found = module_stats(Structured(), inputs=([1, 2], {"1": 3, "2": 4}, Pair(5, 6)))
    assert found is not None
    assert tuple(found[0]) == (0, 0, 0, 0, 0)


class Shared(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = M.Linear(3, 3), M.Linear(3, 3)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Any:
        return self.b(self.a(x))


def test_shared_parameters_count_once() -> None:
    found = module_stats(Shared(), input_shapes=(1, 3))
    assert found is not None
    assert found[0].param_dims == 9 + 3 + 3


class Doubled(M.Module):
    def forward(self, x: Tensor) -> Any:
        return x * 2


def test_classes_can_be_registered() -> None:
    stats.register_flops(Doubled)(lambda module, inputs, outputs: 11)
    stats.register_hook_module([Doubled])
    try:
        found = module_stats(Doubled(), input_shapes=(1, 3))
    finally:
        stats.hook_modules.remove(Doubled)
    assert found is not None
    assert found[0].flops == 11
    with pytest.raises(TypeError, match="class of modules"):
        stats.register_hook_module(int)


def test_a_dump() -> None:
    """The numbers of MegEngine's network_visualize for the same model without its checks."""
    sums, rows = visualize("fixtures/nets/mlp.mge")
    assert tuple(sums) == (8112, 2028, 2172, 10016, 2504)
    assert [r["flops_num"] for r in rows.flops[:6]] == [640, 32, 32, 32, 32, 768]
    sums, rows = visualize("fixtures/nets/resnet_basic.mge")
    assert tuple(sums) == (73656, 18414, 224906, 103204, 25801)
    fields = [r["receptive_field"] for r in rows.flops if r.get("receptive_field")]
    assert fields[-3:] == [(107, 107), (187, 187), (219, 219)]
    data = np.ones((1, 20), "float32")
    _, with_data = visualize("fixtures/nets/mlp.mge", input=data)
    assert all("mean" in r for r in with_data.activations[:-1])
    with pytest.raises(LoadRunError, match="TensorBoard"):
        visualize("fixtures/nets/mlp.mge", "log")
    with pytest.raises(LoadRunError, match="no value is given for data"):
        visualize("fixtures/nets/mlp.mge", inp_dict={"date": data})
