"""What published model code takes from MegEngine besides functions and modules; expectations are MegEngine's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun.megengine.module as M
from loadrun.dump.checkpoint import save_checkpoint
from loadrun.megengine import hub, tensor
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
