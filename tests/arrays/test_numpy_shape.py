"""Traced numpy functions on shapes, joining, cutting and padding against numpy's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from loadrun.arrays.array import TracedArray
from loadrun.base.errors import TraceError
from loadrun.tracing import trace
from tests.support.cases import fewer
from tests.support.numpy_cases import (
    Case,
    agree,
    cases,
    check,
    check_dumps,
    check_in_megengine,
    check_traced,
    names,
)

SHAPES = cases("""
f.reshape(12, 5)
f.reshape((4, -1))
f.reshape(-1)
f.reshape([5, 12])
np.reshape(f, (2, 6, 5))
np.reshape(f, (5, -1), order='F')
f.T.reshape(-1, 3)
f.T.reshape(-1)
z.reshape(1, 1)
g[:1, :1].reshape(())
f.ravel()
f.T.ravel()
f.ravel('F')
np.ravel(g)
f.flatten()
f.flatten('F')
f.T
f.transpose()
f.transpose(1, 0, 2)
f.transpose((2, 0, 1))
np.transpose(f, (0, -1, 1))
np.swapaxes(f, 0, -1)
f.swapaxes(1, 2)
np.moveaxis(f, 0, -1)
np.moveaxis(f, (0, 1), (1, 2))
np.expand_dims(f, 1)
np.expand_dims(f, (0, -1))
np.expand_dims(z, 0)
np.squeeze(f[:1])
np.squeeze(f[:1, :, :1], 0)
np.squeeze(z)
f[:, :1].squeeze(axis=(1,))
f[:1, :1, :1].squeeze()
np.atleast_1d(z)
np.atleast_2d(v)
np.atleast_2d(v, f)
np.atleast_3d(g)
np.atleast_3d(v)
np.broadcast_to(v, (4, 5))
np.broadcast_to(z, (2, 3))
np.broadcast_to(g, (3, 4, 5))
np.broadcast_arrays(v, g)
np.tile(v, 3)
np.tile(g, (2, 3))
np.tile(g, (2, 1, 1))
np.tile(f, 2)
np.tile(b, (1, 2))
np.repeat(g, 3)
np.repeat(g, 2, axis=0)
np.repeat(g, 2, 1)
np.repeat(g, [1, 0, 2, 3], axis=0)
f.repeat(2, -1)
np.repeat(z, 3)
np.flip(f)
np.flip(f, 1)
np.flip(f, (0, 2))
np.fliplr(g)
np.flipud(g)
np.rot90(g)
np.rot90(g, 2)
np.rot90(f, 3, (1, 2))
np.rot90(f, -1, (0, 2))
np.rot90(g, 0)
np.roll(g, 1)
np.roll(g, -2, 0)
np.roll(g, 2, axis=1)
np.roll(g, 7, axis=1)
np.roll(f, (1, -1), (0, 2))
np.roll(f, 1, (0, 1))
np.shape(f)
np.ndim(f)
np.size(f)
np.size(f, 1)
f.size
f.ndim
f.shape
f.nbytes
f.itemsize
len(f)
[row.sum() for row in g]
sum(g)
f.astype('i4')
f.astype(np.float64)
(f * 50).astype('i1')
i.astype(bool)
i.astype('f2')
u.astype('i1')
f.astype('f4', copy=False)
b.astype('f4')
f.copy()
np.copy(f.T)
f.flat[3]
""")

JOINING = cases("""
np.concatenate([f, f])
np.concatenate((f, i), axis=1)
np.concatenate([f, f], axis=None)
np.concatenate([s, u])
np.concatenate([b, g])
np.concatenate([f, f], dtype='f2')
np.concatenate(f)
np.stack([f, f])
np.stack([f, i], axis=-1)
np.stack([z, z])
np.stack([z, 1, 2.5])
np.stack([v, [1, 2, 3, 4, 5]])
np.vstack([g, v])
np.vstack([v, v])
np.hstack([g, g])
np.hstack([v, w])
np.hstack([z, v])
np.dstack([g, g])
np.dstack([v, v])
np.column_stack([v, v, g.T])
np.append(f, 7)
np.append(g, g, axis=1)
np.delete(v, 1)
np.delete(v, -1)
np.delete(v, 0)
np.delete(g, [0, 2], axis=0)
np.delete(g, slice(1, 3), axis=1)
np.split(f, 3)
np.split(f, 2, axis=1)
np.split(f, [1, 3], axis=2)
np.split(v, [2, 2, 9])
np.array_split(f, 2, axis=2)
np.array_split(v, 3)
np.hsplit(g, 5)
np.hsplit(v, [2])
np.vsplit(g, 2)
np.dsplit(f, [1])
np.pad(f, 1)
np.pad(g, (1, 2))
np.pad(g, ((1, 0), (2, 3)))
np.pad(g, ((1, 0), (2, 3)), constant_values=7)
np.pad(g, 1, constant_values=((1, 2), (3, 4)))
np.pad(i, 1, constant_values=3)
np.pad(u, 2, 'constant', constant_values=200)
np.pad(b, 1, constant_values=True)
np.pad(h, 1, constant_values=0.1)
np.pad(i, 1, constant_values=16777217)
np.pad(f, ((0, 0), (1, 1), (2, 0)), 'edge')
np.pad(g, 2, mode='reflect')
np.pad(i, 1, mode='reflect')
np.pad(g, ((1, 2), (0, 3)), mode='symmetric')
np.pad(g, ((1, 2), (3, 0)), mode='wrap')
np.pad(g, 0)
np.pad(s, 1, mode='edge')
np.pad(b, 1, mode='edge')
""")

CREATION = cases("""
np.zeros_like(f)
np.zeros_like(f, dtype='i4')
np.zeros_like(f, shape=(2, 2))
np.ones_like(i)
np.empty_like(f).shape
np.full_like(f, 2.5)
np.full_like(i, 2.5)
np.full_like(g, v)
np.zeros((2, 3), like=f)
np.zeros(3, 'i4', like=f)
np.ones((2, 3), like=f)
np.full((2, 2), 7, like=f)
np.full((4, 5), v, like=f)
np.eye(3, like=f)
np.eye(3, 4, 1, like=f)
np.eye(3, k=-1, dtype='i4', like=f)
np.arange(5, like=f)
np.arange(2, 9, 3, like=f)
np.arange(0, 1, 0.25, like=f)
np.array([[1, 2], [3, 4]], like=f)
np.array([v, v], like=f)
np.array([[z, 1], [2, z]], like=f)
np.asarray([v[0], v[1]], like=f)
np.linspace(z, 9, 5)
np.linspace(v, v + 1, 4)
np.linspace(v, 1, 4, axis=-1)
np.linspace(z, 9, 5, endpoint=False)
np.linspace(z, 9, 5, retstep=True)
np.linspace(i[0, 0], 9, 5, dtype='i4')
np.linspace(z, 3, 1)
np.meshgrid(v, w)
np.meshgrid(v, w, indexing='ij')
np.meshgrid(v, w, sparse=True)
np.meshgrid(v)
np.arange(f.shape[1], like=f)
np.zeros(f.shape[:2], like=f)
np.ones((f.shape[0], 2), like=f)
np.eye(f.shape[1], like=f)
np.arange(1, f.shape[2], 2, like=f)
""")

ALL = SHAPES + JOINING + CREATION
SIZES = ("np.shape", "np.ndim", "np.size", "f.size", "f.ndim", "f.shape", "f.nbytes", "f.itemsize", "len(")
TRACED = [c for c in ALL if not c[0].startswith(SIZES)]


@pytest.mark.parametrize("case", ALL, ids=names(ALL))
def test_as_numpy(case: Case) -> None:
    check(case)


def test_uninitialized_is_not_compared() -> None:
    assert np.empty_like(TracedArray(np.ones((2, 3)))).shape == (2, 3)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("case", TRACED[::6], ids=names(TRACED[::6]))
def test_traced(case: Case, symbolic: bool) -> None:
    check_traced(case, symbolic)


@settings(max_examples=fewer(50, 2), deadline=None)
@given(st.data())
def test_any_pad(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(2, 5), min_size=1, max_size=4))
    mode = data.draw(st.sampled_from(["constant", "edge", "reflect", "symmetric", "wrap"]))
    widths = [tuple(data.draw(st.integers(0, n - 1)) for _ in range(2)) for n in shape]
    x = np.random.default_rng(0).normal(size=shape).astype("f4")
    agree(np.pad(TracedArray(x), widths, mode), np.pad(x, widths, mode))


@pytest.mark.parametrize(
    "func",
    [
        lambda x: x.reshape(x.shape[0], -1) * 2,
        lambda x: x.reshape(x.shape[0] * x.shape[1], 3),
        lambda x: np.tile(x, (2, 1, 1)),
        lambda x: np.repeat(x, 2, axis=0),
        lambda x: np.roll(x, 1, 0),
        lambda x: np.concatenate([x, np.zeros_like(x)]),
        lambda x: np.broadcast_to(x[:, :1], (x.shape[0], 4, 3)),
        lambda x: np.pad(x, ((1, 1), (0, 0), (0, 0)), mode="symmetric"),
        lambda x: np.split(x, 2, axis=1),
        lambda x: np.array_split(x, 2),
        lambda x: x[:, None].transpose(1, 0, 3, 2).reshape(-1, 2),
        lambda x: np.arange(x.shape[0], like=x)[:, None, None] * x,
        lambda x: np.meshgrid(np.arange(x.shape[0], like=x), np.arange(2)),
        lambda x: np.flip(x).ravel(),
        lambda x: np.stack([x, x], 1).reshape(-1, 2, 3),
    ],
)
def test_sizes_of_another_call(func: Any) -> None:
    traced = trace(func, symbolic=True, capture_as_const=True)
    for n in (4, 4, 6, 2):
        x = np.random.default_rng(n).normal(size=(n, 2, 3)).astype("f4")
        agree(traced(x.copy()), func(x.copy()))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.reshape(7),
        lambda x: x.reshape(-1, -1),
        lambda x: np.transpose(x, (0, 0)),
        lambda x: np.squeeze(x, 0),
        lambda x: np.concatenate([x, x[:, :1]]),
        lambda x: np.stack([x, x[:1]]),
        lambda x: np.split(x, 2, axis=1),
        lambda x: np.broadcast_to(x, (3, 3)),
        lambda x: np.expand_dims(x, 4),
        lambda x: x + x[:, :2],
        lambda x: x @ x,
        lambda x: np.swapaxes(x, 0, 2),
        lambda x: x.astype("i4", casting="safe"),
        lambda x: np.pad(x, -1),
        lambda x: bool(x),
        lambda x: x[3],
        lambda x: x[0, 0, 0],
        lambda x: x[[5]],
        lambda x: x[1.5],
        lambda x: x["a"],
        lambda x: x.take(9),
        lambda x: len(x[0, 0]),
        lambda x: x.item(),
    ],
)
def test_errors_are_numpys(call: Any) -> None:
    x = np.zeros((2, 3), "f4")
    with pytest.raises(Exception) as expected:  # noqa: PT011
        call(x)
    with pytest.raises(type(expected.value)):
        call(TracedArray(x))


def test_wide_reflections_are_refused() -> None:
    x = np.zeros(3, "f4")
    with pytest.raises(TraceError, match="several steps"):
        trace(lambda x: np.pad(x, 3, mode="reflect"))(x)
    with pytest.raises(TraceError, match="use constant, edge"):
        trace(lambda x: np.pad(x, 3, mode="maximum"))(x)


@pytest.mark.filterwarnings("ignore")
def test_dumps_agree_with_numpy(tmp_path: Path) -> None:
    check_dumps(ALL, tmp_path)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_dumps_agree_with_numpy_in_megengine(tmp_path: Path) -> None:
    check_in_megengine(ALL, tmp_path)
