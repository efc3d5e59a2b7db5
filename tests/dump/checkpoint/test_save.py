"""What save_checkpoint writes is read by Python's own pickle with numpy alone, and by load_checkpoint."""

from __future__ import annotations

import io
import os
import pickle
import pickletools
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from loadrun.base.errors import UsageError
from loadrun.dump.checkpoint import load_checkpoint, save_checkpoint
from tests.support.cases import fewer


def saved(value: Any) -> bytes:
    f = io.BytesIO()
    save_checkpoint(value, f)
    return f.getvalue()


QINT8 = np.dtype("i1", metadata={"mgb_dtype": {"name": "QuantizedS8", "scale": 0.5}})
ARRAYS = [
    np.arange(6, dtype="f4").reshape(2, 3),
    np.asfortranarray(np.arange(6, dtype="f2").reshape(2, 3)),
    np.arange(12, dtype=">i4").reshape(3, 4)[::2, ::2],
    np.array(1.5),
    np.zeros((0, 3), "u1"),
    np.array([True, False]),
    np.arange(3, dtype="i1").view(QINT8),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype.str}{list(a.shape)}")
def test_arrays(array: np.ndarray[Any, Any]) -> None:
    for read in (pickle.loads, load_checkpoint):
        found = read(saved({"w": array}))["w"]
        np.testing.assert_array_equal(found, array)
        assert found.shape == array.shape
        assert found.dtype == array.dtype.newbyteorder("=") or read is pickle.loads
        assert dict(found.dtype.metadata or {}) == dict(array.dtype.metadata or {})


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | hnp.scalar_dtypes().filter(lambda d: d.kind in "iuf" and d.itemsize <= 8).map(lambda d: d.type(1)),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text(), inner)
        | st.dictionaries(st.text(), inner).map(OrderedDict)
    ),
    max_leaves=20,
)


@settings(max_examples=fewer(100))
@given(PLAIN)
def test_containers_and_values(value: Any) -> None:
    data = saved(value)
    for read in (pickle.loads, load_checkpoint):
        found = read(data)
        assert found == value
        assert type(found) is type(value)
    assert saved(load_checkpoint(data)) == data


def test_names_are_those_of_numpy_1() -> None:
    """MegEngine's numpy has no numpy._core."""
    names = [arg for op, arg, _ in pickletools.genops(saved({"w": ARRAYS[0]})) if op.name == "GLOBAL"]
    assert names == ["numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype"]


def test_shared_arrays_are_written_once() -> None:
    w = np.zeros(1000, "f4")
    assert len(saved({"a": w, "b": w})) < 5000
    found = load_checkpoint(saved({"a": w, "b": w}))
    assert found["a"] is found["b"]


def test_refused() -> None:
    with pytest.raises(UsageError, match="value of type object"):
        saved({"a": object()})
    with pytest.raises(UsageError, match="arrays of object"):
        saved({"a": np.array([None])})
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(UsageError, match="contains itself"):
        saved(endless)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "w.pkl"
    save_checkpoint({"a": 1}, path)
    with pytest.raises(UsageError):
        save_checkpoint({"a": object()}, path)
    assert load_checkpoint(path) == {"a": 1}
    assert os.listdir(tmp_path) == ["w.pkl"]
