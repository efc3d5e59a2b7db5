"""On which device a value is said to be: what MegEngine 1.13.0 says in the same program."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.megengine.functional as F
import loadrun.megengine.module as M
from loadrun import Tensor
from loadrun.build.random import RNG
from loadrun.megengine.quantization.utils import LSQParams, QuantMode, create_qparams
from loadrun.megengine.serialization import load, save
from loadrun.tracing import trace


@pytest.fixture
def on_cpu0() -> Iterator[None]:
    loadrun.megengine.set_default_device("cpu0")
    yield
    loadrun.megengine.set_default_device("xpux")


def at(device: str | None, value: Any = (1.0, 2.0)) -> Tensor:
    return Tensor(np.asarray(value, np.float32), device=device)


@pytest.mark.parametrize(
    ("name", "physical"),
    [
        ("xpux:0", "cpu0:0"),
        ("xpu0:0", "cpu0:0"),
        ("cpux:0", "cpu0:0"),
        ("cpu1:0", "cpu1:0"),
        ("cpu:default", "cpu:default"),
        ("multithread2:0", "multithread2:0"),
    ],
)
def test_a_device_says_what_it_stands_for(name: str, physical: str) -> None:
    device = Tensor(1.0, device=name).device
    assert (str(device), device.logical_name, device.physical_name) == (name, name, physical)
    assert repr(device) == f'CompNode("{physical}" from "{name}")'
    assert type(device)(name.removesuffix(":0")) == device
    assert pickle.loads(pickle.dumps(device)) == device


def test_results_are_where_their_inputs_are() -> None:
    x = at("cpu1")
    results = [
        x + 1,
        1 + x,
        x + np.ones(2, np.float32),
        np.add(np.ones(2, np.float32), x),
        x > 0,
        x[0],
        x.sum(),
        x.reshape(1, 2),
        x.astype("int32"),
        x.detach(),
        Tensor(x),
        loadrun.Parameter(x),
        copy.copy(x),
        copy.deepcopy(x),
        F.exp(x),
        F.softmax(x),
        F.where(x > 1, x, x),
        F.zeros_like(x),
        F.split(x, 2)[1],
        F.topk(x, 1)[0],
        F.concat([x, x]),
        F.one_hot(x.astype("int32"), 3),
        F.matmul(x.reshape(1, 2), Tensor([[1.0], [2.0]])),
        F.copy(x),
    ]
    assert [str(y.device) for y in results] == ["cpu1:0"] * len(results)
    x[0] = 5
    x += 1
    assert str(x.device) == "cpu1:0"


def test_a_device_that_is_asked_for() -> None:
    x, y = at("cpu0"), at("cpu1")
    assert [str(F.concat([x, y], device=d).device) for d in ("cpu1", "xpu0")] == ["cpu1:0", "xpu0:0"]
    assert str(F.stack([x, y], device="cpux").device) == "cpux:0"
    assert str(F.copy(x, "cpu1").device) == str(x.to("cpu1").device) == "cpu1:0"
    made = [F.zeros, F.ones, F.eye]
    assert [str(f(2, device="cpu1").device) for f in made] == ["cpu1:0"] * 3
    assert (
        str(F.full((), 2.0, device="cpu1").device)
        == str(F.linspace(0, 1, 3, device="cpu1").device)
        == "cpu1:0"
    )
    assert str(F.arange(3, device="cpu0").device) == "cpu0:0"
    assert str(F.zeros(2).device) == "xpux:0"
    assert str(F.full(Tensor([2], device="cpu0"), 1.0).device) == "xpux:0"


def test_tensors_of_two_devices_do_not_meet() -> None:
    x, y, anywhere = at("cpu0"), at("cpu1"), at(None)
    for f in (
        lambda: x + y,
        lambda: anywhere * x,
        lambda: F.where(x > 0, x, y),
        lambda: F.equal(x, y),
        lambda: x[Tensor([0])],
    ):
        with pytest.raises(RuntimeError, match="takes inputs of one device, found"):
            f()
    for join in (F.concat, F.stack):
        with pytest.raises(ValueError, match="ambiguous device: cpu0:0 and cpu1:0"):
            join([x, y])
    linear = M.Linear(2, 3)
    with pytest.raises(RuntimeError, match=r"xpux:0; move one of them, x\.to"):
        linear(x)


def test_a_tensor_of_a_tensor_is_what_that_is() -> None:
    x = Tensor([1, 2], dtype="int32", device="xpu0:1", name="first")
    assert (Tensor(x).name, Tensor(x, name="second").name) == ("", "second")
    assert Tensor(x, dtype="int32", device="xpu0:1").device == "xpu0:1"
    with pytest.raises(RuntimeError, match=r"keeps its dtype, found dtype=float32 .*x\.astype"):
        Tensor(x, dtype="float32")
    with pytest.raises(RuntimeError, match=r"keeps its device, found device=xpu0:0 .*x\.to"):
        Tensor(x, device="xpu0")
    with pytest.raises(ValueError, match="invalid device name xpu"):
        x.to("xpu")


def test_the_default_device(on_cpu0: None) -> None:
    loadrun.megengine.set_default_device("xpux")
    before = Tensor(1.0)
    loadrun.megengine.set_default_device("cpu0")
    made = [Tensor(1.0), F.zeros(2), loadrun.build.random.uniform(size=(1,)), RNG(1).normal(size=(2,))]
    assert [str(x.device) for x in made] == ["cpu0:0"] * 4
    assert [str(x.device) for x in (before, before + 1, Tensor(1, device="xpux"))] == ["xpux:0"] * 3


def test_random_numbers() -> None:
    first, second = RNG(111, "xpu0"), RNG(111, "xpu1")
    a, b = first.uniform(size=(9,)), second.uniform(2, 3, size=(9,))
    assert (a.device, b.device) == ("xpu0", "xpu1")
    np.testing.assert_allclose(a.numpy() + 2, b.numpy(), rtol=1e-6)
    assert first.permutation(5).device == first.permutation(at("cpu0")).device == "xpu0"
    assert first.gamma(at("xpu0"), at("xpu0")).device == "xpu0"
    with pytest.raises(
        AssertionError, match="lam must be the same device as its source, found cpu0:0 and xpu1:0"
    ):
        second.poisson(at("cpu0"))
    # Without a seed the device is not heeded.
    assert RNG(device="cpu1").uniform(size=(1,)).device == "xpux"
    assert loadrun.build.random.beta(at("cpu1"), at("cpu1")).device == "cpu1"


@pytest.mark.parametrize("symbolic", [True, False])
def test_traces(symbolic: bool) -> None:
    @trace(symbolic=symbolic)
    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x + 1, x.reshape(-1), F.zeros(3), Tensor([1.0, 2.0]) * 2

    for _ in range(3):
        assert [str(y.device) for y in f(at("cpu1"))] == ["cpu1:0", "cpu1:0", "xpux:0", "xpux:0"]


def test_a_value_that_is_assigned() -> None:
    x = at("cpu1")
    x._reset(np.ones(2, np.float32))
    assert str(x.device) == "cpu1:0"
    x._reset(at(None))
    assert str(x.device) == "xpux:0"
    linear = M.Linear(2, 3)
    linear.weight = loadrun.Parameter(linear.weight.numpy(), device="cpu0")
    linear.load_state_dict({k: np.ones_like(v) for k, v in linear.state_dict().items()})
    M.init.zeros_(linear.weight)
    assert (str(linear.weight.device), str(linear.bias.device)) == ("cpu0:0", "xpux:0")


def stored(value: Any) -> io.BytesIO:
    f = io.BytesIO()
    save(value, f)
    f.seek(0)
    return f


def test_checkpoints_keep_devices() -> None:
    state = {n: at(n) for n in ("xpux", "cpu0", "cpu1", "xpu0", "cpu:default", "multithread2:0")}
    kept = ["xpux:0", "cpu0:0", "cpu1:0", "xpu0:0", "cpu:default", "multithread2:0"]
    assert [str(x.device) for x in load(stored(state)).values()] == kept
    for where in ("cpu1", lambda name: "cpu1" if name in kept else "cpu3"):
        assert {str(x.device) for x in load(stored(state), map_location=where).values()} == {"cpu1:0"}
    moved = load(stored(state), map_location={"cpu0": "cpu1", "xpux": "cpu0"})
    assert [str(x.device) for x in moved.values()] == ["cpu0:0", "cpu1:0", *kept[2:]]
    assert str(pickle.loads(pickle.dumps(at("cpu1"))).device) == "cpu1:0"


def test_checkpoints_of_a_gpu() -> None:
    saved = stored(at("gpu0"))
    assert str(load(saved).device) == "xpux:0"
    saved.seek(0)
    assert str(load(saved, map_location={"gpu0": "cpu0"}).device) == "cpu0:0"


def test_parameters_of_quantization_stay_with_a_value() -> None:
    x, y = at(None), at(None)
    x.qparams.update(create_qparams(QuantMode.ASYMMERTIC, "quint8", Tensor(0.5), Tensor(3.0)))
    y._qparams = LSQParams(QuantMode.SYMMERTIC, None, Tensor(0.25), None, 2.0)
    for found in (load(stored([x, y])), pickle.loads(pickle.dumps([x, y]))):
        first, second = (v.qparams for v in found)
        assert (first.mode, first.dtype_meta, second.dtype_meta) == (
            QuantMode.ASYMMERTIC,
            x.qparams.dtype_meta,
            None,
        )
        assert isinstance(first.scale, Tensor)
        assert (first.scale.item(), first.zero_point.item()) == (0.5, 3.0)
        assert type(second) is LSQParams
        assert (second.scale.item(), second.zero_point, second.grad_scale) == (0.25, None, 2.0)
    assert load(stored(at(None)))._qparams is None
