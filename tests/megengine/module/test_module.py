"""What `Module` finds, names, prints and loads; expectations are MegEngine's, as its own tests state them."""

from __future__ import annotations

import copy
import logging
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun.megengine.functional as F
import loadrun.megengine.module as M
from loadrun import Parameter, Tensor
from loadrun.dump.checkpoint import load_checkpoint, save_checkpoint
from loadrun.megengine.module.state import access

FOLDER = Path(__file__).resolve().parents[3] / "fixtures/checkpoints"


class Block(M.Module):
    """The network of fixtures/make/checkpoints.py."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = M.Conv2d(2, 4, 3, padding=1, groups=2)
        self.bn = M.BatchNorm2d(4)
        self.branches = [M.Linear(4, 3), M.Sequential(M.Linear(4, 3, bias=False), M.ReLU())]
        self.named = {"a": M.LayerNorm((4, 4)), "b": M.GroupNorm(2, 4)}
        self.register = Tensor(np.arange(3, dtype=np.int32))

    def forward(self, x: Any) -> Any:
        x = F.relu(self.bn(self.conv(x)))
        x = self.named["b"](self.named["a"](x)).mean(axis=(2, 3))
        return self.branches[0](x) + self.branches[1](x)


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.cell = M.LSTMCell(3, 2)

    def forward(self, x: Any) -> Any:
        return self.cell(self.block(x))[0]


NAMES = [
    "block.register",
    "block.bn.bias",
    "block.bn.running_mean",
    "block.bn.running_var",
    "block.bn.weight",
    "block.branches.0.bias",
    "block.branches.0.weight",
    "block.branches.1.0.weight",
    "block.conv.bias",
    "block.conv.weight",
    "block.named.a.bias",
    "block.named.a.weight",
    "block.named.b.bias",
    "block.named.b.weight",
    "cell.bias_hh",
    "cell.bias_ih",
    "cell.weight_hh",
    "cell.weight_ih",
]


def test_state_dict_is_that_of_megengine() -> None:
    expected = load_checkpoint(FOLDER / "state_dict.pkl")
    assert list(expected) == NAMES
    state = Net().state_dict()
    assert [(k, v.shape, v.dtype) for k, v in state.items()] == [
        (k, v.shape, v.dtype) for k, v in expected.items()
    ]


@pytest.mark.parametrize("name", ["state_dict.pkl", "module.pkl", "module_protocol_2.pkl"])
def test_checkpoint_is_loaded(name: str) -> None:
    net = Net()
    net.load_state_dict(str(FOLDER / name))
    expected = load_checkpoint(FOLDER / "state_dict.pkl")
    for key, value in net.state_dict().items():
        np.testing.assert_array_equal(value, expected[key])
    assert net.block.bn.weight._tuple_shape == (1, 4, 1, 1)
    assert net.block.named["a"].weight._tuple_shape == (4, 4)


def test_saved_and_loaded(tmp_path: Path) -> None:
    a, b = Net(), Net()
    a.eval()
    b.eval()
    save_checkpoint(a, tmp_path / "net.pkl")
    b.load_state_dict(tmp_path / "net.pkl")
    x = np.random.RandomState(1).rand(2, 2, 4, 4).astype("f4")
    np.testing.assert_array_equal(a(Tensor(x)).numpy(), b(Tensor(x)).numpy())


def test_tensors_of_a_checkpoint() -> None:
    found = load_checkpoint(FOLDER / "tensors.pkl", tensors=True)
    assert type(found["parameter"]) is Parameter
    assert found["parameter"].shape == ()
    assert type(found["tensor"]) is Tensor
    assert found["qint8"].dtype.metadata["mgb_dtype"]["name"] == "QuantizedS8"
    assert found["bfloat16"]._dtype.name == "BFloat16"
    net = M.Module.__new__(M.Linear)
    M.Module.__init__(net)
    net.weight = found["tensor"]
    assert list(net.state_dict()) == ["weight"]


def test_partly_and_by_function(caplog: pytest.LogCaptureFixture) -> None:
    net = M.Linear(2, 2)
    weight = np.ones((2, 2), np.float32)
    with pytest.raises(KeyError, match="missing parameters: bias"):
        net.load_state_dict({"weight": weight})
    with pytest.raises(KeyError, match="unused parameters: more"):
        net.load_state_dict({"weight": weight, "bias": weight[0], "more": weight})
    with caplog.at_level(logging.WARNING):
        net.load_state_dict({"weight": weight * 2, "more": weight}, strict=False)
    assert "unused parameters: more" in caplog.text
    assert "missing parameters: bias" in caplog.text
    assert net.weight.tolist() == [[2, 2], [2, 2]]
    seen = []

    def look_up(name: str, tensor: Any) -> Any:
        seen.append((name, type(tensor)))
        return np.zeros(tensor.shape, np.float16)

    net.load_state_dict(look_up)
    assert seen == [("bias", Parameter), ("weight", Parameter)]
    assert net.weight.dtype == np.float16
    with pytest.raises(ValueError, match=r"param `bias` is \[2\], the given value's \[3\]"):
        net.load_state_dict(lambda name, tensor: np.zeros(3, "f4"))


class Inner(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bn = M.BatchNorm2d(4)

    def forward(self, x: Any) -> Any:
        return self.bn(x)


class Outer(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.i = Inner()
        self.bn = M.BatchNorm2d(4)
        self.param = Parameter(np.ones(1, np.float32))
        self.buff = Tensor(np.ones(1, np.float32))

    def forward(self, x: Any) -> Any:
        return self.bn(self.i(x))


def test_what_is_found() -> None:
    m = Outer()
    assert list(m.children()) == [m.bn, m.i]
    assert list(m.named_modules(prefix="x")) == [("x", m), ("x.bn", m.bn), ("x.i", m.i), ("x.i.bn", m.i.bn)]
    assert [k for k, _ in m.named_parameters()] == [
        "bn.bias",
        "bn.weight",
        "i.bn.bias",
        "i.bn.weight",
        "param",
    ]
    assert [k for k, _ in m.named_buffers()] == [
        "bn.running_mean",
        "bn.running_var",
        "buff",
        "i.bn.running_mean",
        "i.bn.running_var",
    ]
    assert list(m.buffers(recursive=False)) == [m.buff]
    assert len(list(m.tensors())) == 10
    assert list(m.modules(with_parent=True)) == [(m, None), (m.bn, m), (m.i, m), (m.i.bn, m.i)]
    m.h = m.i
    assert [k for k, _ in m.named_modules()] == ["", "bn", "h", "h.bn"]


def test_modes() -> None:
    m = Outer()
    m.eval()
    m.i.train()
    assert [x.training for x in m.modules()] == [False, False, True, True]
    m.disable_quantize()
    assert all(x.quantize_disabled for x in m.modules())


def test_hooks() -> None:
    m = Outer()
    m.eval()
    calls: list[str] = []
    x = Tensor(np.ones((1, 4, 1, 1), np.float32))
    plain = m(x).numpy()
    before = m.register_forward_pre_hook(lambda module, inputs: calls.append("pre") or inputs[0] * 0)
    after = m.i.register_forward_hook(lambda module, inputs, outputs: calls.append("post") or outputs + 1)
    np.testing.assert_allclose(m(x).numpy(), 1, atol=1e-4)
    assert calls == ["pre", "post"]
    before.remove()
    after.remove()
    before.remove()
    np.testing.assert_array_equal(m(x).numpy(), plain)


class Nested(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = [M.ReLU(), {"x": M.ReLU(), "y": [Inner()], "z": 0}, (M.Sigmoid(),)]

    def forward(self, x: Any) -> Any:
        return x


def test_paths() -> None:
    m = Nested()
    names = ["a.0", "a.1.x", "a.1.y.0", "a.1.y.0.bn", "a.2.0"]
    assert [k for k, _ in m.named_modules()][1:] == names
    for name, found in list(m.named_modules())[1:]:
        assert access(m, name) is found
        assert access(m, name, lambda parent, key, value: (value, type(parent)))[0] is found


def test_keys_must_be_strings() -> None:
    m = Nested()
    with pytest.raises(AssertionError, match="keys for Tensor and Module must be str, error key: True"):
        m.wrong = {True: Tensor([1.0]), False: 0}
    m.right = {True: 1, False: 0}


def test_attributes_are_those_that_pickles_of_megengine_have() -> None:
    assert set(vars(M.ReLU())) == {
        "_modules",
        "name",
        "training",
        "quantize_disabled",
        "_forward_pre_hooks",
        "_forward_hooks",
        "_name",
        "_short_name",
    }


def test_assignment_before_init() -> None:
    class Early(M.Module):
        def __init__(self) -> None:
            self.layer = M.ReLU()
            super().__init__()

        def forward(self, x: Any) -> Any:
            return x

    with pytest.raises(AttributeError, match="cannot assign module before"):
        Early()


def test_printed() -> None:
    class Model(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = M.Conv2d(3, 128, 3, padding=1, bias=False)
            self.bn1 = M.BatchNorm1d(128)
            self.pooling = M.MaxPool2d(kernel_size=2, padding=0)
            self.inner = M.Sequential(OrderedDict(depthwise=M.Conv2d(256, 256, 3, 1, 0, groups=256)))
            self.list1 = [M.Dropout(drop_prob=0.1), [M.Softmax(axis=100)]]
            self.gone = M.ReLU()
            self.again = self.conv1
            self.reset = M.ReLU()

        def forward(self, x: Any) -> Any:
            return x

    net = Model()
    del net.gone
    net.reset = None
    assert repr(net) == (
        "Model(\n"
        "  (conv1): Conv2d(3, 128, kernel_size=(3, 3), padding=(1, 1), bias=False)\n"
        "  (bn1): BatchNorm1d(128, eps=1e-05, momentum=0.9, affine=True, track_running_stats=True)\n"
        "  (pooling): MaxPool2d(kernel_size=2, stride=2, padding=0)\n"
        "  (inner): Sequential(\n"
        "    (depthwise): Conv2d(256, 256, kernel_size=(3, 3), groups=256)\n"
        "  )\n"
        "  (list1.0): Dropout(drop_prob=0.1)\n"
        "  (list1.1.0): Softmax(axis=100)\n"
        "  (again): Conv2d(3, 128, kernel_size=(3, 3), padding=(1, 1), bias=False)\n"
        ")"
    )
    assert repr(M.Conv1d(2, 4, 3, stride=2)) == "Conv1d(2, 4, kernel_size=3, stride=2)"


def test_sequential() -> None:
    net = M.Sequential(M.Linear(4, 3), M.ReLU(), M.Linear(3, 2))
    assert [type(m).__name__ for m in net] == ["Linear", "ReLU", "Linear"]
    assert net[-1].out_features == 2
    assert [type(m).__name__ for m in net[:2]] == ["Linear", "ReLU"]
    assert net[1:].layer_keys == ["1", "2"]
    net[1] = M.Sigmoid()
    del net[0:1]
    assert net.layer_keys == ["1", "2"]
    assert repr(net[0]) == "Sigmoid()"
    del net[-1]
    assert len(net) == 1
    assert [k for k, _ in net.named_children()] == ["1"]


def test_shared_parameters() -> None:
    net = M.Sequential(M.Conv2d(1, 1, 3, bias=False), M.Conv2d(1, 1, 3, bias=False))
    net[1].weight = net[0].weight
    assert [k for k, _ in net.named_parameters()] == ["0.weight"]
    assert list(net.state_dict()) == ["0.weight", "1.weight"]
    for made in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert made[0].weight is made[1].weight
        np.testing.assert_array_equal(made[0].weight.numpy(), net[0].weight.numpy())
        assert made[0].weight is not net[0].weight


def test_paths_of_parameters() -> None:
    net = M.Sequential(OrderedDict(fc=M.Linear(2, 2), own=M.PReLU()))
    assert net.fc.weight._path == "fc.weight"
    top = M.Sequential(net, name="top")
    assert net.fc.weight._path == "top.0.fc.weight"
    assert net._name == "top.0"
    top.other = net
    assert net.fc.weight._path == "top.0.fc.weight"
    assert net.fc.weight.name == ""


def test_initial_values() -> None:
    import loadrun.layers.random

    loadrun.layers.random.seed(3)
    first = M.Linear(400, 300)
    loadrun.layers.random.seed(3)
    second = M.Linear(400, 300)
    np.testing.assert_array_equal(first.weight.numpy(), second.weight.numpy())
    weight = first.weight.numpy()
    assert abs(weight.std() * 20 - 1) < 0.02
    assert abs(weight.mean()) < 0.001
    assert not first.bias.numpy().any()
    M.init.msra_uniform_(first.weight, a=1.0)
    bound = np.sqrt(3 / 400)
    assert abs(np.abs(first.weight.numpy()).max() / bound - 1) < 0.01
    M.init.xavier_normal_(first.weight, gain=2.0)
    assert abs(first.weight.numpy().std() / np.sqrt(4 * 2 / 700) - 1) < 0.02
    M.init.msra_normal_(first.weight, mode="fan_out", nonlinearity="relu")
    assert abs(first.weight.numpy().std() / np.sqrt(2 / 300) - 1) < 0.02
    M.init.xavier_uniform_(first.weight)
    assert abs(np.abs(first.weight.numpy()).max() / np.sqrt(6 / 700) - 1) < 0.01
    assert (np.abs(M.LSTM(3, 4)._flatten_weights.numpy()) <= 0.5).all()


@pytest.mark.parametrize("affine", [False, True])
def test_general_norm_of_one_axis_given_as_a_number(affine: bool) -> None:
    layer = M.GeneralNorm(2, 1, eps=0.0, affine=affine)
    y = layer(Tensor(np.array([[1, 5], [4, 2]], np.float32)))
    assert y.numpy().tolist() == [[-1, 1], [1, -1]]
