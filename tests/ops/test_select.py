"""Ordering and choosing operators: hand-made values, Python's sorting, numbers recorded from real MegEngine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from loadrun.base.errors import EngineError
from loadrun.graph import params as P
from loadrun.testing import run_operator as run
from tests.support.arrays import ints

NAN, INF = math.nan, math.inf


def fails(name: str, params: Any, *inputs: Any, known: tuple[int, ...] = ()) -> str:
    with pytest.raises(EngineError) as e:
        run(name, params, *inputs, known=known)
    return str(e.value)


# Argmax and Argmin. The first four rows were compared with real MegEngine.


@pytest.mark.parametrize(
    ("row", "largest", "smallest"),
    [
        ([1, NAN, 3, NAN, 2], 3, 3),
        ([NAN, -INF, 5, 5, 0], 0, 0),
        ([-INF] * 5, 0, 0),
        ([-INF, -3.4028235e38, -INF, 1e9, 0], 3, 0),
        ([2, 7, 7, 1, 1], 1, 3),
        ([-INF, -3.4028235e38, -INF, -INF, -INF], 0, 0),
        ([INF, 3.4028235e38, INF, INF, INF], 0, 0),
    ],
)
def test_arg(row: list[float], largest: int, smallest: int) -> None:
    x = np.array([row], "f4")
    assert run("Argmax", P.Axis(axis=1), x)[0].tolist() == [[largest]]
    assert run("Argmin", P.Axis(axis=1), x)[0].tolist() == [[smallest]]


def test_arg_compares_as_float32() -> None:
    x = np.array([[2**24, 2**24 + 1, 5], [2**24 + 2, 5, 2**24 + 3]], "i4")
    assert run("Argmax", P.Axis(axis=1), x)[0].reshape(-1).tolist() == [0, 2]


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["f4", "f2", "i1", "u1", "i4"])
def test_arg_along_axes(axis: int, dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 5, (3, 4, 5)).astype(dtype)
    (found,) = run("Argmin", P.Axis(axis=axis), x)
    assert found.shape == tuple(1 if i == axis else n for i, n in enumerate(x.shape))
    for at in np.ndindex(*found.shape):
        line = x[tuple(slice(None) if i == axis else n for i, n in enumerate(at))].tolist()
        assert found[at] == line.index(min(line))


def test_arg_refuses() -> None:
    x = np.zeros((2, 0), "f4")
    assert "from 0 to 1" in fails("Argmax", P.Axis(axis=-1), x)
    assert "from 0 to 1" in fails("Argmax", P.Axis(axis=2), x)
    assert "no elements" in fails("Argmax", P.Axis(axis=1), x)
    assert run("Argmax", P.Axis(axis=0), x)[0].shape == (1, 0)


# Argsort


@pytest.mark.parametrize("dtype", ["f4", "f2", "i4", "u1"])
def test_argsort(dtype: str) -> None:
    x = np.random.default_rng(1).integers(0, 6, (3, 40)).astype(dtype)
    for order, backwards in ((P.ArgsortOrder.ASCENDING, False), (P.ArgsortOrder.DESCENDING, True)):
        values, at = run("Argsort", P.Argsort(order=order), x)
        for row, v, i in zip(x.tolist(), values.tolist(), at.tolist(), strict=True):
            pairs = sorted(zip(row, range(40), strict=True), reverse=backwards)
            assert list(zip(v, i, strict=True)) == pairs


def test_argsort_puts_nan_last() -> None:
    x = np.array([[1, NAN, -INF, NAN, 0]], "f4")
    values, at = run("Argsort", P.Argsort(), x)
    assert at.tolist() == [[2, 4, 0, 1, 3]]
    np.testing.assert_array_equal(values, [[-INF, 0, 1, NAN, NAN]])
    assert run("Argsort", P.Argsort(order=P.ArgsortOrder.DESCENDING), x)[1].tolist() == [[3, 1, 0, 4, 2]]


def test_argsort_refuses() -> None:
    assert "expected a matrix" in fails("Argsort", P.Argsort(), np.zeros(3, "f4"))
    assert [f.shape for f in run("Argsort", P.Argsort(), np.zeros((2, 0), "f4"))] == [(2, 0), (2, 0)]


# TopK

ROWS = np.array([[3, 1, 2, 3, 1, 0, 2, 3, 1, 5, 4, 0, 2], [7] * 13, range(12, -1, -1)], "f4")


@pytest.mark.parametrize(
    ("k", "want"),
    # Recorded from real MegEngine.
    [
        (5, [[1, 5, 11, 4, 8], [1, 0, 2, 3, 4], [10, 12, 11, 9, 8]]),
        (-5, [[10, 9, 7, 3, 0], [10, 12, 11, 9, 8], [1, 0, 2, 3, 4]]),
        (
            12,
            [
                [6, 1, 2, 11, 4, 5, 8, 0, 12, 7, 3, 10],
                [6, 1, 2, 3, 4, 5, 0, 10, 8, 9, 7, 11],
                [6, 12, 11, 10, 9, 8, 7, 3, 5, 4, 2, 1],
            ],
        ),
        (1, [[5], [0], [12]]),
    ],
)
def test_topk_in_the_order_of_nth_element(k: int, want: list[list[int]]) -> None:
    p = P.TopK(mode=P.TopKMode.VALUE_IDX_NOSORT)
    values, at = run("TopK", p, ROWS, ints(k), known=[1])
    assert at.tolist() == want
    assert values.tolist() == [[row[i] for i in w] for row, w in zip(ROWS.tolist(), want, strict=True)]


@pytest.mark.parametrize("n", [1, 3, 4, 50, 700])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0, 2.0])
def test_topk(n: int, share: float) -> None:
    x = np.random.default_rng(n).integers(0, n, (3, n)).astype("i4")
    take = max(1, int(share * n))
    for k in (take, -take):
        m = min(take, n)
        pairs = [sorted(zip(row, range(n), strict=True), reverse=k < 0)[:m] for row in x.tolist()]
        values, at = run("TopK", P.TopK(mode=P.TopKMode.VALUE_IDX_SORTED), x, ints(k), known=[1])
        assert [
            list(zip(*two, strict=True)) for two in zip(values.tolist(), at.tolist(), strict=True)
        ] == pairs
        values, at = run("TopK", P.TopK(mode=P.TopKMode.VALUE_IDX_NOSORT), x, ints(k), known=[1])
        assert [
            sorted(zip(*two, strict=True), reverse=k < 0)
            for two in zip(values.tolist(), at.tolist(), strict=True)
        ] == pairs
        (kth,) = run("TopK", P.TopK(mode=P.TopKMode.KTH_ONLY), x, ints(k), known=[1])
        assert kth.tolist() == [p[-1][0] for p in pairs]


def test_topk_refuses() -> None:
    assert "k must not be 0" in fails("TopK", P.TopK(), ROWS, ints(0), known=(1,))
    assert "expected a matrix" in fails("TopK", P.TopK(), ROWS[0], ints(1), known=(1,))
    assert "the k must be a scalar" in fails("TopK", P.TopK(), ROWS, ints(1, 2), known=(1,))
    assert "k must be Int32" in fails("TopK", P.TopK(), ROWS, np.ones(1, "f4"), known=(1,))
    assert "no elements" in fails("TopK", P.TopK(), ROWS[:, :0], ints(1), known=(1,))


# CondTake and NonZero. All of it was compared with real MegEngine.


@pytest.mark.parametrize(
    ("dtype", "mask", "value", "want"),
    [
        ("f4", [0, 1, 1.0000005, 0.99999, -1, NAN], 1.0, ("12", "0345", "034", "0134", "2", "12")),
        ("f2", [0, 1, 2, -1, NAN], 1.0, ("1", "0234", "03", "013", "2", "12")),
        ("i4", [0, 1, 2, -1, -2], -1.5, ("3", "0124", "4", "34", "012", "0123")),
        ("u1", [0, 1, 255, 3], -1.5, ("2", "013", "013", "0123", "", "2")),
        ("?", [False, True], 0.5, ("1", "0", "0", "01", "", "1")),
    ],
)
def test_cond_take(dtype: str, mask: list[float], value: float, want: tuple[str, ...]) -> None:
    flags = np.array(mask).astype(dtype)
    data = np.arange(len(mask), dtype="f4") * 10
    for mode, expected in zip(("EQ", "NEQ", "LT", "LEQ", "GT", "GEQ"), want, strict=True):
        p = P.CondTake(mode=P.CondTakeMode[mode], val=value)
        values, at = run("CondTake", p, data, flags, static=False)
        places = [int(c) for c in expected]
        assert at.tolist() == places, mode
        assert values.tolist() == [10.0 * i for i in places]


def test_cond_take_flattens() -> None:
    x = np.arange(6, dtype="i4").reshape(2, 3)
    values, at = run("CondTake", P.CondTake(val=1), x.T, x.T % 2 == 1, static=False)
    assert values.tolist() == [3, 1, 5]
    assert at.tolist() == [1, 2, 5]


def test_cond_take_refuses() -> None:
    x = np.zeros((2, 3), "f4")
    assert "the mask [3, 2]" in fails("CondTake", P.CondTake(), x, x.reshape(3, 2))
    assert "eps must be positive" in fails("CondTake", P.CondTake(eps=0), x, x)
    empty = np.zeros((0, 3), "f4")
    assert [f.shape for f in run("CondTake", P.CondTake(), empty, empty, static=False)] == [(0,), (0,)]


def test_non_zero() -> None:
    x = np.array([[0, 3, 5e-7], [NAN, 0, -1]], "f4")
    (found,) = run("NonZero", P.Empty(), x, static=False)
    assert found.dtype == np.int32
    assert found.tolist() == [[0, 1, 1], [1, 0, 2]]
    assert run("NonZero", P.Empty(), x[:0], static=False)[0].shape == (2, 0)
