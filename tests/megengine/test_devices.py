"""Names of devices are checked as MegEngine 1.13.0 does, and make no difference."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pytest

import loadrun.megengine.functional as F
from loadrun import Tensor
from loadrun.layers.random import RNG
from loadrun.megengine.quantization.fake_quant import LSQParams, QuantMode, create_qparams
from loadrun.megengine.serialization import load, save


def test_names_of_devices_make_no_difference() -> None:
    x, y = Tensor([1.0, 2.0], device="cpu0"), Tensor([3.0, 4.0], device="cpu1")
    results = [
        x + y,
        F.concat([x, y], device="cpu1"),
        x.to("cpu1"),
        F.copy(x, "cpu1"),
        F.zeros(2, device="cpu1"),
    ]
    assert {str(v.device) for v in (x, y, *results)} == {"xpux"}
    assert RNG(1, "xpu0").uniform(size=(2,)).tolist() == RNG(1, "xpu1").uniform(size=(2,)).tolist()
    state = {"w": x}
    for where in (None, "cpu1", lambda name: "cpu1", {"gpu0": "cpu0"}):
        assert load(stored(state), map_location=where)["w"].tolist() == [1, 2]
    for make in (
        lambda: x.to("xpu"),
        lambda: F.zeros(2, device="tpu"),
        lambda: load(stored(state), map_location="tpu"),
    ):
        with pytest.raises(RuntimeError, match="invalid device name"):
            make()


def test_a_tensor_of_a_tensor_is_what_that_is() -> None:
    x = Tensor([1, 2], dtype="int32", name="first")
    assert (Tensor(x).name, Tensor(x, name="second").name) == ("", "second")
    with pytest.raises(RuntimeError, match=r"keeps its dtype, found dtype=float32 .*x\.astype"):
        Tensor(x, dtype="float32")


def test_there_is_one_memory_format() -> None:
    assert Tensor([1.0], format="default").tolist() == [1]
    with pytest.raises(RuntimeError, match="one memory format: leave out format='nhwc'"):
        Tensor(np.ones((1, 2, 3, 4), np.float32), format="nhwc")


def stored(value: Any) -> io.BytesIO:
    f = io.BytesIO()
    save(value, f)
    f.seek(0)
    return f


def test_parameters_of_quantization_stay_with_a_value() -> None:
    x, y = Tensor([1.0, 2.0]), Tensor([1.0, 2.0])
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
    assert load(stored(Tensor([1.0, 2.0])))._qparams is None
