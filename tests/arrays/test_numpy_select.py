"""Traced picking, sorting, searching and sequences against numpy's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from loadrun.arrays.array import TracedArray
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

PICKING = cases("""
np.where(f > 0, f, 0)
np.where(f > 0, 0, f)
np.where(b, g, v)
np.where(b, 1, 0)
np.where(b, 1.5, 0)
np.where(b, c, True)
np.where(m[:, None], u, 7)
np.where(b, q, 3)
np.where(b, i, f)
np.where(i, f, -f)
np.where(np.isnan(nan), 0, nan)
np.where(b)
np.where(i > 3)
np.nonzero(i)
b.nonzero()
np.argwhere(i > 3)
np.flatnonzero(b)
np.select([f > 1, f < -1], [f, -f])
np.select([b, c], [g, 2], default=v)
np.take(f, 7)
np.take(f, [0, 2], axis=0)
np.take(f, idx, axis=2)
np.take(g, idx)
np.take(f, -1, axis=1)
np.take(g, idx * 5, axis=1, mode='wrap')
np.take(g, idx * 5, axis=1, mode='clip')
g.take([1, 1], 1)
np.take_along_axis(g, col, 1)
np.take_along_axis(g, np.argsort(g, 1), 1)
np.take_along_axis(f, np.argmax(f, 1, keepdims=True), 1)
np.take_along_axis(g, np.array([1, 2]), None)
np.compress(m, g, 0)
np.compress([True, False, True], f, axis=0)
np.compress(b.ravel(), g)
g.compress(m, axis=0)
np.diag(v)
np.diag(v, 2)
np.diag(sq)
np.diag(g, -1)
np.diagonal(sq)
np.diagonal(f, 1, 1, 2)
np.diagonal(f, -1, 2, 0)
np.diagonal(f)
np.trace(sq)
np.trace(f, 1, 1, 2)
np.trace(i)
sq.trace()
np.tril(g)
np.tril(g, -1)
np.triu(f, 1)
np.triu(g)
np.tril(v)
np.triu(i, -1)
np.tril(b)
np.ix_(m, [0, 2])
g[np.ix_([0, 2], [1, 3])]
np.unravel_index(i[0] + 20, (7, 9))
np.unravel_index(np.argmax(f), f.shape)
""")

WRITING = cases("""
x = f.copy(); np.copyto(x, g); x
x = f.copy(); np.copyto(x, 0, where=f < 0); x
x = g.copy(); np.put_along_axis(x, col, 9, 1); x
x = f.copy(); np.put_along_axis(x, np.argmax(f, 1, keepdims=True), -1, 1); x
x = nan.copy(); np.nan_to_num(x, copy=False); x
x = f.copy(); x.fill(3); x
x = f.copy(); x.sort(axis=0); x
x = f.copy(); x.partition(2); np.sort(x)
""")

SORTING = cases("""
np.sort(f)
np.sort(f, 0)
np.sort(f, axis=None)
np.sort(i, 1)
np.sort(s, 0)
np.sort(u)
np.sort(q)
np.sort(b)
np.sort(h)
np.sort(nan)
np.sort(v)
np.argsort(f)
np.argsort(f, 1)
np.argsort(f, axis=None)
np.argsort(i, kind='stable')
np.argsort(-i, 0, kind='stable')
np.argsort(u, kind='stable')
f.argsort(-1)
np.sort(np.partition(f, 2))
np.partition(f, 2)[..., 2]
np.take_along_axis(f, np.argpartition(f, 2), 2)[..., 2]
np.median(f)
np.median(f, 1)
np.median(f, (0, 2), keepdims=True)
np.median(i)
np.median(h, 0)
np.percentile(f, 30)
np.percentile(f, [10, 50, 90], axis=1)
np.percentile(f, 100, axis=(0, 1))
np.quantile(f, 0.25, keepdims=True)
np.quantile(f, 0.25, axis=0, method='lower')
np.quantile(f, 0.25, axis=0, method='higher')
np.quantile(f, 0.25, axis=2, method='nearest')
np.quantile(f, 0.3, axis=2, method='midpoint')
np.quantile(i, [[0.1, 0.2], [0.3, 0.9]], axis=2)
np.searchsorted(w, v)
np.searchsorted(w, f, side='right')
np.searchsorted(w, 0.1)
np.searchsorted(np.arange(5), i)
np.searchsorted(v, w, sorter=np.argsort(v))
w.searchsorted(v)
np.digitize(f, [-1, 0, 1.5])
np.digitize(i, [5, 2, 0], right=True)
""")

SEQUENCES = cases("""
np.diff(f)
np.diff(f, axis=0)
np.diff(f, 2, 1)
np.diff(b)
np.diff(u)
np.diff(v, prepend=0)
np.diff(g, axis=0, append=g[:1])
""")
ALL = PICKING + WRITING + SORTING + SEQUENCES


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ALL, ids=names(ALL))
def test_as_numpy(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("case", ALL[::5], ids=names(ALL[::5]))
def test_traced(case: Case, symbolic: bool) -> None:
    check_traced(case, symbolic)


@settings(max_examples=fewer(40, 2), deadline=None)
@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=12), st.floats(0, 1, width=16))
def test_any_quantile(values: list[float], share: float) -> None:
    x = np.array(values, "f4")
    agree(np.quantile(TracedArray(x), share), np.quantile(x.astype("f8"), share).astype("f4"), 1e-4, 1e-4)


@pytest.mark.parametrize(
    "func",
    [
        lambda x: x[x > 0],
        lambda x: np.where(x > 0),
        lambda x: np.argwhere(x > 0).shape[0] * x,
        lambda x: np.median(x, 0),
        lambda x: np.quantile(x, [0.2, 0.7], axis=0),
        lambda x: np.sort(x, 0)[-1],
        lambda x: np.take_along_axis(x, np.argsort(x, 0), 0),
        lambda x: np.tril(x),
        lambda x: np.diff(x, axis=0),
        lambda x: np.diagonal(x),
        lambda x: x[np.argmax(x, 0), np.arange(3)],
    ],
)
def test_sizes_of_another_call(func: Any) -> None:
    traced = trace(func, symbolic=True, capture_as_const=True)
    for n in (4, 4, 6, 9):
        x = np.random.default_rng(n).normal(size=(n, 3)).astype("f4")
        agree(traced(x.copy()), func(x.copy()))


@pytest.mark.filterwarnings("ignore")
def test_dumps_agree_with_numpy(tmp_path: Path) -> None:
    check_dumps(ALL, tmp_path)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_dumps_agree_with_numpy_in_megengine(tmp_path: Path) -> None:
    check_in_megengine(ALL, tmp_path)
