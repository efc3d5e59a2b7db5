"""Random tensors: the distributions' moments, seeds, and fresh numbers in every call of a traced function."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import loadrun
import loadrun.megengine.functional as F
import loadrun.megengine.module as M
from loadrun import Tensor
from loadrun.layers import random as rand

N = (100, 100)
# Distribution, its mean and standard deviation by the textbook.
MOMENTS: list[tuple[str, Callable[[rand.RNG], Tensor], float, float]] = [
    ("uniform", lambda r: r.uniform(-1, 3, N), 1.0, 4 / math.sqrt(12)),
    ("normal", lambda r: r.normal(5, 2, N), 5.0, 2.0),
    ("gamma", lambda r: r.gamma(2, 3, N), 6.0, 3 * math.sqrt(2)),
    ("beta", lambda r: r.beta(2, 3, N), 0.4, 0.2),
    ("poisson", lambda r: r.poisson(4, N), 4.0, 2.0),
]
IDS = [m[0] for m in MOMENTS]


@pytest.mark.parametrize(("name", "draw", "mean", "std"), MOMENTS, ids=IDS)
def test_moments(name: str, draw: Callable[[rand.RNG], Tensor], mean: float, std: float) -> None:
    x = draw(rand.RNG(seed=11)).numpy().astype(np.float64)
    assert abs(x.mean() - mean) < 5 * std / 100
    assert abs(x.std() - std) < 0.1 * std


@pytest.mark.parametrize(("name", "draw", "mean", "std"), MOMENTS, ids=IDS)
def test_seeds(name: str, draw: Callable[[rand.RNG], Tensor], mean: float, std: float) -> None:
    a, b, c = rand.RNG(seed=1), rand.RNG(seed=1), rand.RNG(seed=2)
    first = draw(a).numpy()
    assert np.array_equal(first, draw(b).numpy())
    assert not np.array_equal(first, draw(c).numpy())
    assert not np.array_equal(first, draw(a).numpy())


def test_global_seed() -> None:
    rand.seed(10)
    first, second = (rand.uniform(size=[10]).numpy() for _ in range(2))
    rand.seed(10)
    assert np.array_equal(rand.uniform(size=[10]).numpy(), first)
    rand.seed(11)
    assert not np.array_equal(rand.uniform(size=[10]).numpy(), first)
    assert not np.array_equal(first, second)


def test_parameters_of_each_element() -> None:
    shape, scale = Tensor([[2.0, 3.0, 4.0], [9.0, 10.0, 11.0]]), Tensor([0.5, 1.0, 1.5])
    x = rand.RNG(seed=3).gamma(shape, scale, size=(60, 60)).numpy()
    assert x.shape == (60, 60, 2, 3)
    np.testing.assert_allclose(x.mean((0, 1)), (shape * scale).numpy(), rtol=0.05)


def test_permutation_and_shuffle() -> None:
    rng = rand.RNG(seed=4)
    order = rng.permutation(1000).numpy()
    assert (order == np.arange(1000)).sum() < 100
    assert np.array_equal(np.sort(order), np.arange(1000))
    rows = Tensor(np.arange(3000).reshape(1000, 3))
    copy = rng.permutation(rows).numpy()
    assert np.array_equal(copy[:, 0] + 1, copy[:, 1])
    assert rows.numpy()[0, 0] == 0
    rng.shuffle(rows)
    assert np.array_equal(np.sort(rows.numpy()[:, 0]), np.arange(0, 3000, 3))
    assert not np.array_equal(rows.numpy()[:, 0], np.arange(0, 3000, 3))


@pytest.mark.parametrize("symbolic", [False, True])
def test_a_traced_function_draws_anew_and_repeats_for_a_seed(symbolic: bool) -> None:
    traced = loadrun.tracing.trace(symbolic=symbolic)(
        lambda: rand.normal(size=(5,)) + rand.uniform(size=(5,))
    )
    runs = []
    for seed in (1, 2, 1):
        rand.seed(seed)
        runs.append([traced().numpy() for _ in range(2)])
    for first, second in runs:
        assert not np.array_equal(first, second)
    # The first call was the one that recorded; runs of the compiled graph repeat for a seed.
    rand.seed(2)
    assert np.array_equal(traced().numpy(), runs[1][0])
    assert not np.array_equal(runs[1][0], runs[2][0])


@pytest.mark.parametrize("symbolic", [False, True])
def test_sources_of_a_traced_function(symbolic: bool) -> None:
    outside = rand.RNG(seed=8)
    drawn = loadrun.tracing.trace(symbolic=symbolic)(lambda: outside.uniform(size=(4,)))
    eager = rand.RNG(seed=8)
    for _ in range(3):
        assert np.array_equal(drawn().numpy(), eager.uniform(size=(4,)).numpy())
    function = lambda: [r.uniform(size=(4,)) for r in [rand.RNG(seed=9)] for _ in range(2)]  # noqa: E731
    inside = loadrun.tracing.trace(symbolic=symbolic)(function)
    want = [x.numpy() for x in function()]
    for _ in range(3):
        assert np.array_equal([x.numpy() for x in inside()], want)


def test_numbers_of_megengine() -> None:
    """MegEngine 1.13.0 gave these on a CPU; each kind of operator has a sequence of its own."""
    r = rand.RNG(seed=2024)
    a, b, mean = map(Tensor, ([0.3, 2.5, 40, 0.3], [0.5, 0.7, 3, 2], [0.5, 9.5, 12, 700]))
    drawn = [
        (r.uniform(size=(3,)), [0.280003, 0.638583, 0.286752]),
        (r.uniform(2, 4, size=(4,)), [3.555478, 2.280667, 2.446869, 3.845366]),
        (r.normal(1, 2, size=(5,)), [-1.055947, -1.440642, 1.548177, -2.113296, 1.658517]),
        (r.normal(size=(2,)), [0.100405, 0.388405]),
        (r.permutation(7), [0, 5, 3, 4, 6, 1, 2]),
        (r.permutation(loadrun.tensor([0.0, 1, 2, 3, 4])), [1, 4, 2, 3, 0]),
        (r.uniform(size=(1000,))[997:], [0.251979, 0.307279, 0.371104]),
        (r.normal(size=(1001,))[998:], [0.188639, -1.395337, -0.893031]),
        (r.permutation(4), [2, 1, 0, 3]),
        (r.gamma(a, b), [0.057819, 1.88185, 155.270905, 1.015729]),
        (r.gamma(a, b), [0.00013, 1.403692, 105.45035, 0.008979]),
        (r.beta(a, b), [0.03402, 0.397716, 0.94849, 0.125965]),
        (r.beta(b, a), [0.145657, 0.145319, 0.065312, 0.951402]),
        (r.poisson(mean), [0, 9, 15, 715]),
        (r.poisson(mean), [2, 10, 16, 690]),
    ]
    for got, want in drawn:
        np.testing.assert_allclose(got.numpy(), want, atol=5e-6)


def test_a_dump_has_the_seed_and_draws_from_it(tmp_path: Path) -> None:
    """What MegEngine 1.13.0 gives for the seed 7, in the traced call and in a dump."""
    uniform, normal = [0.593382, 0.701636], [-0.305710, -0.974872]
    function = loadrun.tracing.trace(symbolic=True, capture_as_const=True)(
        lambda: (rand.uniform(size=(2,)), rand.normal(size=(2,)), rand.uniform(size=(2,)))
    )
    rand.seed(7)
    first = function()
    np.testing.assert_allclose(first[0].numpy(), uniform, atol=1e-6)
    with pytest.warns(UserWarning, match="seeds in the file"):
        function.dump(tmp_path / "f.mge", optimize_for_inference=False)
    bundle = loadrun.load(tmp_path / "f.mge")
    for _ in range(2):
        drawn = loadrun.Runner(bundle).run({}).outputs
        for output, want in zip(drawn, (uniform, normal, uniform), strict=True):
            np.testing.assert_allclose(output.value, want, atol=1e-6)
    others = loadrun.Runner(bundle, seed=1).run({}).outputs
    assert not np.array_equal(others[0].value, drawn[0].value)


def test_a_seed_gives_the_weights_of_megengine() -> None:
    rand.seed(2024)
    np.testing.assert_allclose(rand.uniform(size=(2,)).numpy(), [0.280003, 0.638583], atol=1e-6)
    assert F.dropout(loadrun.tensor(np.ones(8, np.float32)), 0.5).tolist() == [0, 2, 0, 2, 0, 0, 2, 0]
    weight = M.Linear(2, 2).weight.numpy()
    np.testing.assert_allclose(weight, [[-0.726887, -0.862897], [0.19381, -1.100716]], atol=1e-6)
