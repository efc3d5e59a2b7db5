"""What published model code takes from MegEngine besides functions and modules; expectations are MegEngine's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.megengine.distributed as dist
import loadrun.megengine.functional as F
import loadrun.megengine.module as M
from loadrun.base.errors import UnsupportedError
from loadrun.dump.checkpoint import save_checkpoint
from loadrun.megengine import autodiff, hub, tensor
from loadrun.megengine.utils.tuple_function import _pair, _quadruple, _single, get_ndtuple

URL = "https://data.megengine.org.cn/models/weights/resnet50_fbaug_76254_4e14b7d1.pkl"


@hub.pretrained(URL)
def linear(width: int = 2) -> M.Module:
    """A line."""
    return M.Linear(width, 1)


def test_pretrained_weights_come_from_the_file_that_megengine_would_have_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MGE_HOME", str(tmp_path))
    # MegEngine says "download to or using cached MGE_HOME/serialized/928d77_..." for this URL.
    path = tmp_path / "serialized" / "928d77_resnet50_fbaug_76254_4e14b7d1.pkl"
    with pytest.raises(
        FileNotFoundError, match=r"928d77_resnet50_fbaug.*downloads nothing; put https://data"
    ):
        linear(pretrained=True)
    path.parent.mkdir()
    save_checkpoint({"weight": np.array([[2, 3]], np.float32), "bias": np.ones(1, np.float32)}, path)
    assert linear(pretrained=True)(tensor([[1.0, 10.0]])).tolist() == [[33.0]]
    assert linear(width=5).weight.shape == (1, 5)
    assert (linear.__name__, linear.__doc__) == ("linear", "A line.")


def test_one_process() -> None:
    from loadrun.megengine.device import get_device_count, is_cuda_available

    assert loadrun.megengine.device.get_device_count is get_device_count
    assert (get_device_count("gpu"), is_cuda_available()) == (0, False)
    assert (dist.get_rank(), dist.get_world_size(), dist.is_distributed()) == (0, 1, False)
    dist.group_barrier()
    assert dist.synchronized(lambda: 3)() == 3
    assert dist.helper.get_device_count_by_fork("gpu") == 0
    with pytest.raises(UnsupportedError, match="launcher: loadrun runs in one process"):
        dist.launcher(lambda: 3)


def test_a_function_with_its_own_gradient_is_computed() -> None:
    class Rounded(autodiff.Function):
        def forward(self, x: Any) -> Any:
            return F.round(x)

        def backward(self, dy: Any) -> Any:
            return dy

    traced = loadrun.tracing.trace(symbolic=True)(lambda x: Rounded()(x) + 1)
    for function in (traced, traced, lambda x: Rounded()(x) + 1):
        assert function(tensor([0.4, 1.6])).tolist() == [1.0, 3.0]
    with pytest.raises(TypeError, match="op Rounded expect type Tensor as inputs, found float"):
        Rounded()(0.4)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="GradManager: loadrun runs networks, it does not train them"):
        autodiff.GradManager()


def test_sizes_per_axis() -> None:
    assert (_single(3), _pair(3), _pair([1, 2]), _quadruple(1)) == ((3,), (3, 3), (1, 2), (1, 1, 1, 1))
    with pytest.raises(AssertionError, match="expected numbers from 1 on"):
        get_ndtuple(0, n=2, allow_zero=False)


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (5.5, "float32", ()),
        (np.ones(3, np.int32), "float32", (3,)),
        (tensor(np.ones(3, np.int32)), "int32", (3,)),
        (tensor(np.ones((4, 4), np.float32)), "float32", (4, 4)),
        ([1, 2], "float32", (2,)),
    ],
)
def test_assigning_to_the_whole_replaces_it(value: Any, dtype: str, shape: tuple[int, ...]) -> None:
    x = tensor(np.zeros((2, 3), np.float32))
    x[...] = value
    assert (x.shape, x.dtype) == (shape, np.dtype(dtype))
    assert x.tolist() == (value.tolist() if hasattr(value, "tolist") else value)
