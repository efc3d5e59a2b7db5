"""Random operators: shapes, dtypes and moments of their distributions, at fixed seeds.

A tolerance of five standard errors, from the textbook moments of each distribution.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from loadrun.base.errors import EngineError
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import params as P
from loadrun.testing import operator_graph as graph_of, run_operator as run
from tests.support.arrays import ints

N = 40_000
SHAPE = ints(100, N // 100)


def fails(name: str, params: Any, *inputs: Any, known: tuple[int, ...] = ()) -> str:
    with pytest.raises(EngineError) as e:
        run(name, params, *inputs, known=known)
    return str(e.value)


def check(x: Any, mean: float, variance: float, kurtosis: float) -> None:
    """Check mean and variance of samples; `kurtosis` is the fourth central moment over the squared variance."""
    x = x.astype("f8")
    n = x.size
    assert abs(x.mean() - mean) < 5 * math.sqrt(variance / n)
    assert abs(x.var() - variance) < 5 * variance * math.sqrt((kurtosis - 1) / n)


def full(value: float, dtype: str = "f4") -> Any:
    return np.full((100, N // 100), value, dtype)


@pytest.mark.parametrize("dtype", ["Float32", "Float16", "BFloat16"])
def test_uniform(dtype: str) -> None:
    (x,) = run("UniformRNGV1", P.UniformRNG(dtype=P.DTypeEnum[dtype]), SHAPE, known=[0])
    assert x.shape == (100, 400)
    check(x, 0.5, 1 / 12, 1.8)
    assert x.min() > 0
    assert x.max() <= 1
    # A quarter of the numbers in every quarter of the range.
    counts = np.histogram(x.astype("f8"), 4, (0, 1))[0] if dtype == "Float32" else None
    if counts is not None:
        assert np.abs(counts - N / 4).max() < 5 * math.sqrt(N * 3 / 16)


def test_gaussian() -> None:
    (x,) = run("GaussianRNGV1", P.GaussianRNG(mean=2, std=3), SHAPE, known=[0])
    check(x, 2, 9, 3)
    inside = float((np.abs(x - 2) < 3).mean())
    assert abs(inside - math.erf(1 / math.sqrt(2))) < 0.012


def test_gamma() -> None:
    a, scale = 2.5, 0.5
    (x,) = run("GammaRNG", P.GammaRNG(), full(a), full(scale))
    check(x, a * scale, a * scale**2, 3 + 6 / a)
    (x,) = run("GammaRNG", P.GammaRNG(), full(0.3), full(2))
    check(x, 0.6, 1.2, 3 + 6 / 0.3)
    (x,) = run("GammaRNG", P.GammaRNG(), np.array([-1, 0], "f4"), np.ones(2, "f4"))
    assert x.tolist() == [0, 0]


@pytest.mark.parametrize(("a", "b"), [(2.5, 0.5), (0.5, 0.5), (3, 4)])
def test_beta(a: float, b: float) -> None:
    (x,) = run("BetaRNG", P.BetaRNG(), full(a), full(b))
    excess = 6 * ((a - b) ** 2 * (a + b + 1) - a * b * (a + b + 2)) / (a * b * (a + b + 2) * (a + b + 3))
    check(x, a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1)), 3 + excess)


def test_beta_at_the_edges() -> None:
    (x,) = run("BetaRNG", P.BetaRNG(), np.array([0, 1, 0], "f4"), np.array([1, 0, 0], "f4"))
    np.testing.assert_array_equal(x, [0, 1, np.nan])


@pytest.mark.parametrize("mean", [0.5, 4.5, 200])
def test_poisson(mean: float) -> None:
    (x,) = run("PoissonRNG", P.PoissonRNG(), full(mean))
    check(x, mean, mean, 3 + 1 / mean)
    np.testing.assert_array_equal(x, np.rint(x))
    none = float((x == 0).mean())
    assert abs(none - math.exp(-mean)) < 5 * math.sqrt(math.exp(-mean) / N) + 1e-9


def test_poisson_at_the_edges() -> None:
    (x,) = run("PoissonRNG", P.PoissonRNG(), np.array([0, -3, np.nan, np.inf], "f4"))
    assert x[:3].tolist() == [0, 0, 0]
    assert x[3] > 1e18


def test_exponential() -> None:
    (x,) = run("ExponentialRNG", P.ExponentialRNG(), full(4, "f2"))
    assert x.dtype == np.float16
    check(x, 0.25, 1 / 16, 9)


@pytest.mark.parametrize("dtype", ["Int32", "Float32", "Int16"])
def test_permutation(dtype: str) -> None:
    p = P.PermutationRNG(dtype=P.DTypeEnum[dtype])
    (x,) = run("PermutationRNG", p, ints(3000), known=[0])
    assert sorted(x.tolist()) == list(range(3000))
    assert abs(np.corrcoef(x, np.arange(3000))[0, 1]) < 0.1
    assert "do not fit" in fails(
        "PermutationRNG", P.PermutationRNG(dtype=P.DTypeEnum.Int16), ints(40000), known=(0,)
    )
    assert "not Int8" in fails(
        "PermutationRNG", P.PermutationRNG(dtype=P.DTypeEnum.Int8), ints(4), known=(0,)
    )


def test_shuffle() -> None:
    x = np.arange(600, dtype="i4").reshape(100, 3, 2)
    y, at = run("ShuffleRNG", P.ShuffleRNG(), x)
    assert sorted(at.tolist()) == list(range(100))
    assert at.tolist() != list(range(100))
    for i, source in enumerate(at):
        assert y[i].tolist() == x[source].tolist()


def test_multinomial() -> None:
    probs = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0]], "f4")
    (x,) = run("MultinomialRNG", P.MultinomialRNG(num_samples=N, replacement=True), probs)
    assert x.shape == (2, N)
    for row, p in zip(x, probs, strict=True):
        share = np.bincount(row, minlength=3) / N
        assert np.all(np.abs(share - p) <= 5 * np.sqrt(p * (1 - p) / N))
    (x,) = run("MultinomialRNG", P.MultinomialRNG(num_samples=2), np.tile(probs[:1], (N, 1)))
    assert (x[:, 0] != x[:, 1]).all()
    share = np.bincount(x[:, 0], minlength=3) / N
    assert np.all(np.abs(share - probs[0]) <= 5 * np.sqrt(probs[0] / N))


def test_multinomial_refuses() -> None:
    probs = np.ones((2, 3), "f4")
    assert "cannot draw 4 of 3" in fails("MultinomialRNG", P.MultinomialRNG(num_samples=4), probs)
    assert "must be a matrix" in fails("MultinomialRNG", P.MultinomialRNG(), probs[0])
    many = P.MultinomialRNG(num_samples=2**63, replacement=True)
    assert "GiB" in fails("MultinomialRNG", many, probs)


@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_dropout(dtype: str) -> None:
    x = np.full((200, 200), 3, dtype)
    y, mask = run("Dropout", P.Dropout(drop_prob=0.25), x)
    assert mask.shape == (40_000,)
    assert mask.dtype == np.uint8
    assert abs(mask.mean() - 0.75) < 5 * math.sqrt(0.75 * 0.25 / N)
    np.testing.assert_array_equal(y.reshape(-1), np.where(mask, np.array(4, dtype), np.array(0, dtype)))


def test_dropout_of_nothing_and_everything() -> None:
    x = np.arange(100, dtype="f4")
    y, mask = run("Dropout", P.Dropout(drop_prob=0), x)
    np.testing.assert_array_equal(y, x)
    assert mask.all()
    y, mask = run("Dropout", P.Dropout(drop_prob=1), x)
    assert not y.any()
    assert not mask.any()


def test_seed_decides() -> None:
    g = graph_of("UniformRNGV1", P.UniformRNG(seed=7), [ints(5)], known=[0])
    engine = ReferenceEngine(g, seed=1)
    first, again = engine.run({})[0], engine.run({})[0]
    other = ReferenceEngine(g, seed=2).run({})[0]
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


def test_refusals() -> None:
    assert "must be floating-point" in fails(
        "UniformRNGV1", P.UniformRNG(dtype=P.DTypeEnum.Int32), ints(2), known=(0,)
    )
    assert "one dtype, Float32 or" in fails("GammaRNG", P.GammaRNG(), full(1), full(1, "f2"))
    assert "equal numbers of elements" in fails("GammaRNG", P.GammaRNG(), full(1), np.ones(3, "f4"))
    assert "floating-point" in fails("Dropout", P.Dropout(), ints(1))
    assert "negative" in fails("GaussianRNGV1", P.GaussianRNG(), ints(-1), known=(0,))
