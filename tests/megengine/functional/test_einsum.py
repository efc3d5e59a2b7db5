"""Einstein summation against numpy, with the equations of MegEngine's own test."""

from __future__ import annotations

import numpy as np
import pytest

import loadrun
from loadrun.megengine import functional as F, tensor

CASES: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij->ji", [(2, 3)]),
    ("ij->", [(2, 3)]),
    ("kj, ji", [(4, 5), (5, 3)]),
    ("...ij->...ji", [(2, 3, 4, 5)]),
    ("ij->j", [(2, 3)]),
    ("ik, k->i", [(2, 3), (3,)]),
    ("i, i->", [(2,), (2,)]),
    ("ij, ij->", [(2, 3), (2, 3)]),
    ("i, j->ij", [(2,), (3,)]),
    ("ijk, ikl->ijl", [(2, 3, 4), (2, 4, 5)]),
    ("pqrs, tuqvr->pstuv", [(2, 3, 4, 5), (6, 7, 3, 8, 4)]),
    ("ik, jkl, il->ij", [(2, 3), (4, 3, 5), (2, 5)]),
    ("...i->...", [(2, 3, 4, 5)]),
    ("...ik, ...kj", [(2, 3, 4, 5), (2, 3, 5, 6)]),
    ("i...k, k...j", [(2, 3, 4, 5), (5, 3, 4, 6)]),
    ("ik..., kj...", [(2, 3, 4, 5), (3, 6, 4, 5)]),
    ("ii", [(8, 8)]),
    ("iijk", [(3, 3, 3, 3)]),
    ("ijji->ij", [(3, 4, 4, 3)]),
    ("i...i->i...", [(3, 7, 6, 3)]),
    ("ijij, jjkk->ik", [(3, 4, 3, 4), (4, 4, 5, 5)]),
    ("i...iq, pq->i...q", [(2, 3, 4, 3, 2, 5), (4, 5)]),
    ("iajbjci, jxjyizi->abcxyz", [(2, 3, 5, 4, 5, 6, 2), (5, 2, 5, 3, 2, 7, 2)]),
]


@pytest.mark.parametrize(("equation", "shapes"), CASES, ids=[c[0] for c in CASES])
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.integers(0, 100, shape).astype(np.float32) for shape in shapes]
    want = np.einsum(equation, *(a.astype(np.float64) for a in arrays))
    inputs = [tensor(a) for a in arrays]
    traced = loadrun.tracing.trace(symbolic=True, capture_as_const=True)(lambda *xs: F.einsum(equation, *xs))
    for function in (lambda *xs: F.einsum(equation, *xs), traced, traced):
        found = function(*inputs)
        assert tuple(found.shape) == want.shape
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-6)


def test_operands_that_do_not_fit() -> None:
    x, whole = tensor(np.ones((2, 2), np.float32)), tensor([[1, 2]])
    with pytest.raises(AssertionError, match="one dtype, found Float32, Int32"):
        F.einsum("ij,kj->", x, whole)
    with pytest.raises(AssertionError, match="found none"):
        F.einsum("ij->")
    with pytest.raises(ValueError, match="more operands"):
        F.einsum("ij", x, x)
