"""Rows along the last axis: distributions, and which of their elements are the largest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..graph.dtypes import Array

__all__ = ["TopAgreement", "divergence", "top_agreement"]

_SUM = 1e-2
"""How far the sum of probabilities may be from 1; float16 rounds thousands of them."""


class TopAgreement(NamedTuple):
    """How two arrays agree on the largest elements of their rows.

    Attributes:
        share: share of rows that agree.
        swapped: rows among these that agree only because elements which changed places are nearly equal.
        rows: how many rows there are.
    """

    share: float
    swapped: int
    rows: int


def divergence(expect: Array, get: Array) -> float | None:
    """Compute the Kullback-Leibler divergence of a computed from an expected distribution, the largest of all rows.

    A row is a distribution where all expected rows are (no negative number, a sum of 1); any other row is taken as
    logits, whose softmax is compared.

    Args:
        expect, get: real arrays of one shape.

    Returns:
        ``sum p log(p / q)`` in nats, infinite where the computed row gives no probability to what is expected; None
        for arrays without rows of 2 elements.

    >>> round(divergence(np.array([0.5, 0.5]), np.array([0.25, 0.75])), 6)
    0.143841
    """
    if not expect.size or expect.ndim == 0 or expect.shape[-1] < 2:
        return None
    p, q = expect.astype(np.float64), get.astype(np.float64)
    with np.errstate(all="ignore"):
        if bool((p >= 0).all() and (np.abs(p.sum(-1) - 1) <= _SUM).all()):
            p, q = (x / x.sum(-1, keepdims=True) for x in (p, q))
            log_p, log_q = np.log(p), np.log(q)
        else:
            log_p, log_q = (_log_softmax(x) for x in (p, q))
            p = np.exp(log_p)
        terms = np.where(p > 0, p * (log_p - log_q), 0.0)
        # Rounding makes the sum of equal rows a little negative.
        found = np.maximum(terms.sum(-1), 0.0)
    return float(np.where(np.isnan(found), np.inf, found).max())


def _log_softmax(x: Array) -> Array:
    moved = x - x.max(-1, keepdims=True)
    result: Array = moved - np.log(np.exp(moved).sum(-1, keepdims=True))
    return result


def top_agreement(expect: Array, get: Array, k: int, margin: float | None = None) -> TopAgreement | None:
    """Compare which k elements of every row are the largest.

    Args:
        expect, get: real arrays of one shape.
        k: how many.
        margin: rows agree as well where every element that is among the k largest of `get` is expected to be at most
            this much below the k-th largest one; None where the elements must be the same.

    Returns:
        the agreement, None for arrays whose rows have fewer than k + 1 elements.

    >>> top_agreement(np.array([[0.5, 0.4999, 0.1]]), np.array([[0.4, 0.6, 0.1]]), 1, 0.001)
    TopAgreement(share=1.0, swapped=1, rows=1)
    """
    if not expect.size or expect.ndim == 0 or expect.shape[-1] <= k:
        return None
    e, g = (x.reshape(-1, x.shape[-1]) for x in (expect, get))
    ours, theirs = (np.sort(_largest(x, k), axis=1) for x in (e, g))
    same = (ours == theirs).all(1)
    near = same
    if margin is not None:
        values = e.astype(np.float64)
        least = np.take_along_axis(values, ours, 1).min(1)
        # The margin is a decimal number, the values are rounded to their type.
        slack = np.finfo(e.dtype).eps * np.abs(least) if e.dtype.kind == "f" else 0.0
        near = same | (np.take_along_axis(values, theirs, 1).min(1) >= least - margin - slack)
    return TopAgreement(float(near.mean()), int(np.count_nonzero(near & ~same)), len(same))


def _largest(x: Array, k: int) -> Array:
    """Return the places of the k largest elements of every row, the first ones of equals."""
    if k == 1:
        first: Array = x.argmax(1)[:, None]
        return first
    wide = x.astype(np.int64 if x.dtype.kind in "iub" else np.float64)
    return np.argsort(-wide, axis=1, kind="stable")[:, :k]
