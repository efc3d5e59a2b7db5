"""Traced counting, histograms, correlation and quantiles without NaN against numpy's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loadrun.arrays.array import TracedArray
from loadrun.base.errors import TraceError
from loadrun.tracing import trace
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

ALL = cases("""
np.bincount(u.ravel(), minlength=256)
np.bincount(u[0], minlength=300)
np.bincount(u[0], weights=v, minlength=256)
np.histogram(f)[0]
np.histogram(f)
np.histogram(f, 4, (-2.5, 2.5))
np.histogram(f, [-3, -1, 0, 2.5])
np.histogram(f, 5, weights=abs(f))
np.histogram(f, 5, (-1, 1), density=True)
np.histogram(u, 16, (0, 256))
np.histogram(z * 0 + v * 0, 3)
np.isin(i, [1, 2, -3])
np.isin(i, [1, 2], invert=True)
np.isin(f, f[0, 0])
np.isin([1, 2], i)
np.isin(b, [True])
np.cov(g)
np.cov(g, bias=True)
np.cov(g, rowvar=False)
np.cov(v)
np.cov(v, v * 2)
np.cov(g, ddof=2)
np.corrcoef(g)
np.corrcoef(v, v ** 2)
np.polyval([1, -2, 0.5], f)
np.polyval(v, f)
np.polyval([1, 2], i)
np.lexsort((i[0, 0], i[1, 0]))
np.lexsort((i, -i, i % 2))
np.lexsort((i[0], i[1]), axis=0)
np.nanmedian(nan)
np.nanmedian(nan, 1)
np.nanmedian(nan[:, 1], keepdims=True)
np.nanmedian(f, (0, 2))
np.nanquantile(nan[2:], 0.3)
np.nanquantile(nan[:, :2], [0.25, 0.75], axis=1)
np.nanpercentile(nan[:, :2], 40, axis=0, keepdims=True)
np.ravel_multi_index((i[0] % 4, j % 5), (4, 5))
""")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ALL, ids=names(ALL))
def test_as_numpy(case: Case) -> None:
    check(case, 1e-4, 1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("case", ALL[::4], ids=names(ALL[::4]))
def test_traced(case: Case, symbolic: bool) -> None:
    check_traced(case, symbolic, 1e-4, 1e-4)


def test_refused() -> None:
    for func in (
        lambda x: np.bincount(x.astype("i4")),
        lambda x: np.bincount(x.astype("u1")),
        lambda x: np.histogram(x, "auto"),
        lambda x: np.nanquantile(x, 0.5, method="lower"),
        lambda x: np.cov(x, aweights=x),
    ):
        with pytest.raises(TraceError, match="test_numpy_statistics"):
            trace(func)(np.ones(3, "f4"))


def test_histogram_of_all_bytes() -> None:
    x = np.random.default_rng(0).integers(0, 256, (40, 50)).astype("u1")
    agree(np.bincount(TracedArray(x).ravel(), minlength=256), np.bincount(x.ravel(), minlength=256))
    cdf = np.cumsum(np.bincount(TracedArray(x).ravel(), minlength=256)) / x.size
    agree(np.take(cdf, TracedArray(x)), (np.cumsum(np.bincount(x.ravel(), minlength=256)) / x.size)[x])


@pytest.mark.filterwarnings("ignore")
def test_dumps_agree_with_numpy(tmp_path: Path) -> None:
    check_dumps(ALL, tmp_path)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_dumps_agree_with_numpy_in_megengine(tmp_path: Path) -> None:
    check_in_megengine(ALL, tmp_path)
