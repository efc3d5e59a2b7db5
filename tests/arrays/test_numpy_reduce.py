"""Traced reductions, running sums and methods of ufuncs against numpy's own."""

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

REDUCTIONS = cases("""
np.sum(f)
np.sum(f, axis=0)
np.sum(f, (0, 2))
np.sum(f, (0, -1), keepdims=True)
np.sum(f, keepdims=True)
np.sum(f, axis=())
np.sum(h)
np.sum(s)
np.sum(u, 0)
np.sum(b)
np.sum(b, 1)
np.sum(f, dtype='f2')
np.sum(f, initial=3.5)
np.sum(f, 1, where=i > 0)
np.sum(z)
f.sum(1)
f.sum(axis=(1, 2))
f.sum(0, keepdims=True)
np.prod(p)
np.prod(p, 0)
np.prod(j // 4 + 1, 1)
np.prod(p, 1, initial=2, where=b)
np.mean(f)
np.mean(f, (0, 1), keepdims=True)
np.mean(i)
np.mean(b, 0)
np.mean(h)
np.mean(u, 1)
np.mean(f, 1, where=i > 0)
np.mean(f, dtype='f2', axis=0)
f.mean(-1)
np.var(f)
np.var(f, 1)
np.var(f, (0, 2), ddof=1, keepdims=True)
np.var(i, ddof=1)
np.std(f, 0)
np.std(f, ddof=1.5)
np.std(h)
f.std(axis=1, keepdims=True)
np.max(f)
np.max(f, (0, 1))
np.max(i, 1, keepdims=True)
np.max(b, 0)
np.max(q)
np.max(nan, 0)
np.max(f, 1, initial=2, where=i > 0)
np.amax(u, 1)
np.min(f)
np.min(f, -1)
np.min(b)
np.min(nan)
np.min(s, 0, initial=3)
f.max()
f.min(axis=0)
np.ptp(f)
np.ptp(i, 1)
np.ptp(f, 0, keepdims=True)
np.any(f > 5)
np.any(i, 1)
np.any(b, (0, 1), keepdims=True)
np.all(f, 0)
np.all(b)
np.all(b, 1, where=c)
np.any(b, 0, where=c)
np.any(nan, 0)
(f > 0).any(0)
(f > 0).all(axis=(0, 1))
np.argmax(f)
np.argmax(f, 1)
np.argmax(f, 1, keepdims=True)
np.argmax(f, keepdims=True)
np.argmax(b, 0)
np.argmax(i, -1)
np.argmax(q, 0)
np.argmax(i + 20000000, 1)
np.argmin(i - 20000000, 2)
np.argmin(f, 2)
np.argmin(u)
np.argmax(h, 0)
np.argmin(k, 0)
f.argmax(0)
np.count_nonzero(i)
np.count_nonzero(i, 1)
np.count_nonzero(b, axis=0, keepdims=True)
np.average(f, 0)
np.average(f, weights=abs(f))
np.average(f, 2, weights=v + 9)
np.average(f, 1, weights=abs(f), returned=True)
np.cumsum(f)
np.cumsum(f, 1)
np.cumsum(i, -1)
np.cumsum(s, 0)
np.cumsum(b, 1)
f.cumsum(0)
np.cumprod(p, 0)
np.cumprod(p, 1)
np.cumprod(j % 3 + 1)
f.cumprod(axis=0)
""")
if np.lib.NumpyVersion(np.__version__) >= "1.23.0":
    REDUCTIONS += cases("np.average(i, 0, keepdims=True)")

METHODS = cases("""
np.add.reduce(f)
np.add.reduce(f, 1, keepdims=True)
np.add.reduce(b, 0, dtype='i4')
np.multiply.reduce(p, (0, 1))
np.maximum.reduce(f, 1)
np.minimum.reduce(f, None)
np.logical_and.reduce(b, 0)
np.logical_or.reduce(b, 1)
np.add.accumulate(f, 1)
np.multiply.accumulate(p)
np.maximum.accumulate(f, 2)
np.minimum.accumulate(i, 1)
np.logical_or.accumulate(b, 1)
np.add.outer(v, w)
np.multiply.outer(g, v)
np.subtract.outer(v, 2)
np.less.outer(v, v)
np.maximum.outer(v, w)
x = f.copy(); np.add.at(x, ([0, 0, 2], [1, 1, 3]), 2); x
x = f.copy(); np.subtract.at(x, [0, 0], g); x
x = f.copy(); np.add.at(x, 1, g); x
x = f * 0; np.add(f, g, out=x); x
x = f * 1; np.add(f, g, out=x, where=f > 0); x
x = f * 1; np.sum(f, 0, out=x[1]); x
x = f * 1; np.maximum(x, 0, out=x); x
""")

NAN = cases("""
""")

ALL = REDUCTIONS + METHODS + NAN


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ALL, ids=names(ALL))
def test_as_numpy(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("case", ALL[::6], ids=names(ALL[::6]))
def test_traced(case: Case, symbolic: bool) -> None:
    check_traced(case, symbolic)


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@st.composite
def reductions(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], Any, bool]:
    shape = draw(SHAPES)
    kind = draw(st.sampled_from(["f4", "i4", "u1", "?", "f2"]))
    axis = draw(
        st.none()
        | st.integers(-len(shape), len(shape) - 1)
        | st.lists(st.integers(0, len(shape) - 1), unique=True, max_size=3).map(tuple)
    )
    seed = draw(st.integers(0, 999))
    return (np.random.default_rng(seed).normal(size=shape) * 3).astype(kind), axis, draw(st.booleans())


@settings(max_examples=fewer(60, 2), deadline=None)
@given(reductions(), st.sampled_from(["sum", "prod", "mean", "max", "min", "any", "all", "var"]))
def test_any_axes(drawn: tuple[np.ndarray[Any, Any], Any, bool], name: str) -> None:
    x, axis, keepdims = drawn
    func = getattr(np, name)
    tolerance = 5e-3 if x.dtype == np.float16 else 1e-4
    agree(
        func(TracedArray(x), axis=axis, keepdims=keepdims),
        func(x, axis=axis, keepdims=keepdims),
        tolerance,
        tolerance,
    )


def test_errors_are_numpys() -> None:
    x = TracedArray(np.zeros((2, 3), "f4"))
    for call in (lambda a: np.sum(a, 2), lambda a: np.argmax(a, -3), lambda a: np.sum(a, (0, 0))):
        with pytest.raises(Exception) as expected:  # noqa: PT011
            call(np.zeros((2, 3), "f4"))
        with pytest.raises(type(expected.value)):
            call(x)
    with pytest.raises(ValueError, match="zero-size"):
        np.max(TracedArray(np.zeros((0, 3), "f4")), 0)
    with pytest.raises(ValueError, match="empty"):
        np.argmax(TracedArray(np.zeros((0, 3), "f4")))
    with pytest.raises(TypeError, match="same_kind"):
        np.add(x, 0.5, out=TracedArray(np.zeros((2, 3), "i4")))


def test_sums_of_unsigned_integers_are_stored_in_such() -> None:
    """numpy sums uint8 as uint64, which it casts to uint8 by the rule same_kind, modulo 256."""

    def func(x: np.ndarray[Any, Any]) -> Any:
        x *= np.trace(x)
        return x

    x = np.arange(6, dtype=np.uint8).reshape(2, 3) * 11
    agree(trace(func)(x.copy()), func(x.copy()))


def test_sizes_of_another_call() -> None:
    """Means, variances and positions of a batch of another size."""

    def func(x: np.ndarray[Any, Any]) -> Any:
        return (
            np.var(x, 0, ddof=1),
            x.mean(),
            np.average(x, 0, returned=True)[1],
            x / x.shape[0],
            x.sum(0) / x.size,
        )

    traced = trace(func, symbolic=True, capture_as_const=True)
    for n in (4, 4, 7):
        x = np.random.default_rng(n).normal(size=(n, 3)).astype("f4")
        agree(traced(x), func(x))


@pytest.mark.filterwarnings("ignore")
def test_dumps_agree_with_numpy(tmp_path: Path) -> None:
    check_dumps(ALL, tmp_path)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_dumps_agree_with_numpy_in_megengine(tmp_path: Path) -> None:
    check_in_megengine(ALL, tmp_path)
