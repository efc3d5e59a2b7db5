"""Policies: criteria for outputs beyond the check in the file.

A policy is written as ``prob: cosine>=0.9999, top1=1``: the name of an output, a colon, and terms that all must hold.
Without a name it is for every output that has none of its own. Two terms let more through, within what they say, and
what passes by them is said: ``fraction`` (or ``ppm``) is the share of elements that may be beyond the tolerance,
``near_tie`` how far apart the elements may be that a ``top1`` or ``top5`` finds swapped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ..base.errors import UsageError
from ..graph.dtypes import Array
from . import Comparison, errors

_SUM = 1e-2
"""Tolerance for a sum of probabilities; float16 rounds thousands of them."""


class TopAgreement(NamedTuple):
    """Agreement of two arrays on the largest elements of their rows.

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
        divergences = np.maximum(terms.sum(-1), 0.0)
    return float(np.where(np.isnan(divergences), np.inf, divergences).max())


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
            this much below the k-th largest one; None if the elements must be the same.

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


_AT_MOST = ("max_abs", "max_rel", "mean_abs", "ulp", "off_by", "kl")
_AT_LEAST = ("cosine", "snr", "snr_db")
_SINGLE = ("rtol", "atol", "maxerr", "near_tie")
_SHARES = {"fraction": 1.0, "ppm": 1e6}
_TOP = r"top([1-9][0-9]{0,3})"
_TERM = r"(?a)\s*(\w+)\s*(>=|<=|=)\s*(\S+)\s*"
_KNOWN = (
    "exact, maxerr<=X, rtol=X, atol=X, nan=equal, fraction<=X, ppm<=N, cosine>=X, top1>=X, top5>=X (any number), "
    "near_tie<=X, snr_db>=X, kl<=X, max_abs<=X, max_rel<=X, mean_abs<=X, ulp<=N, off_by<=N"
)


@dataclass(frozen=True)
class Policy:
    """The criteria for one output.

    Attributes:
        text: the terms as they were written.
        exact: every element equals the expected one.
        maxerr: largest error by MegEngine's measure; may be greater than that of the file's check only where
            that was requested.
        rtol, atol: ``|expected - got| <= atol + rtol * |expected|`` for every element; one alone has the other 0.
        nan_equal: NaN agrees with NaN, and an infinity with the same one.
        most: upper bounds of `Measures`, and of ``kl``.
        least: lower bounds of these, and of the share of rows with the same k largest elements.
        fraction: share of the elements that may be beyond the tolerances of single elements.
        near_tie: how much smaller than expected the elements may be that come to be among the k largest.
        loosens: whether it stands in place of the file's own check, which was asked for, not beside it.
    """

    text: str = ""
    exact: bool = False
    maxerr: float | None = None
    rtol: float | None = None
    atol: float | None = None
    nan_equal: bool = False
    most: Mapping[str, float] = field(default_factory=dict)
    least: Mapping[str, float] = field(default_factory=dict)
    fraction: float | None = None
    near_tie: float | None = None
    loosens: bool = False

    @property
    def leaves_elements(self) -> bool:
        """True if what single elements must fulfil is left to the file's own check: `fraction`, `nan_equal` alone."""
        if self.exact or any(x is not None for x in (self.maxerr, self.rtol, self.atol)):
            return False
        return self.fraction is not None or not (self.most or self.least)

    def in_place(self, terms: str) -> Policy:
        """Return the policy in place of a file's check, which judges single elements by some terms.

        >>> parse("ppm<=500").in_place("rtol=0.001, atol=1e-07").text
        'ppm<=500, rtol=0.001, atol=1e-07'
        """
        policy = parse(f"{self.text}, {terms}") if self.leaves_elements else self
        return replace(policy, loosens=True)

    @property
    def covering(self) -> float | None:
        """The smallest tolerance of MegEngine's measure that lets everything through that the policy does.

        None if the policy bounds no single element, so that nothing follows from it.

        >>> round(parse("rtol=1e-3, atol=1e-6").covering, 6)
        0.001002
        """
        if self.maxerr is not None:
            return self.maxerr
        if self.exact:
            return 0.0
        if self.rtol is None and self.atol is None:
            return None
        # |e| above 1 counts relative to the smaller of two values, which is at least |e| (1 - rtol) - atol.
        both = (self.rtol or 0.0) + (self.atol or 0.0)
        return both / (1 - both) * (1 + 1e-6) if both < 1 else math.inf

    def is_weaker(self, other: Policy) -> bool:
        """Return whether this policy may accept values that another one rejects.

        >>> parse("rtol=1e-2, top1=1").is_weaker(parse("rtol=1e-3")), parse("exact, ulp<=1").is_weaker(parse("exact"))
        (True, False)
        """
        bounded = [(p.rtol, p.atol) != (None, None) for p in (self, other)]
        around = [(p.rtol or 0.0, p.atol or 0.0) for p in (self, other)]
        return (
            (other.exact and not self.exact)
            or (self.nan_equal and not other.nan_equal)
            or (bounded[1] and (not bounded[0] or any(a > b for a, b in zip(*around, strict=True))))
            or _or_infinite(self.maxerr) > _or_infinite(other.maxerr)
            or any(self.most.get(n, math.inf) > limit for n, limit in other.most.items())
            or any(self.least.get(n, -math.inf) < limit for n, limit in other.least.items())
            or (self.fraction or 0.0) > (other.fraction or 0.0)
            or (self.near_tie or 0.0) > (other.near_tie or 0.0)
        )

    def violations(self, comparison: Comparison, expect: Array, get: Array) -> list[str]:
        """List violated criteria, one sentence each; `maxerr` is left to the check.

        Args:
            found: the comparison of the two.
            expect, get: expected and computed values of one shape.

        >>> from loadrun.compare import compare
        >>> e, g = np.array([50000], "i4"), np.array([50004], "i4")
        >>> parse("off_by<=3").violations(compare(e, g), e, g)
        ['off_by<=3 does not hold: off_by is 4']
        """
        broken = []
        if self.fraction is None:
            if self.exact and not (comparison.equal if self.nan_equal else comparison.mismatches == 0):
                broken.append(
                    f"exact is violated: {comparison.mismatches} of {comparison.size} values differ"
                )
            outside = comparison.size - int(np.count_nonzero(self._within(expect, get)))
            if outside:
                limits = ", ".join(
                    f"{n}={getattr(self, n):g}" for n in ("rtol", "atol") if getattr(self, n) is not None
                )
                broken.append(f"{limits} is violated by {outside} of {comparison.size} values")
        bounds = []
        for name, limit in self.most.items():
            value = divergence(expect, get) if name == "kl" else getattr(comparison.measures, name)
            bounds += _bound(name, "<=", limit, value)
        for name, limit in self.least.items():
            top = self._top(name, expect, get)
            metric = getattr(comparison.measures, "snr_db" if name == "snr" else name, None)
            bounds += _bound(name, ">=", limit, metric if top is None else top.share)
        whose = f" {comparison.partial}" if comparison.partial else ""
        return broken + [b + whose for b in bounds]

    def beyond(self, expect: Array, get: Array, tolerance: float) -> int:
        """Count the elements that exceed a tolerance by MegEngine's measure, or one of the policy's for elements.

        >>> e, g = np.array([1.0, 2, 3, 4]), np.array([1.0, 2, 3.5, 4])
        >>> parse("fraction<=0.25").beyond(e, g, 1e-4)
        1
        """
        # The file's tolerance is rounded to float32.
        within = (errors(expect, get) <= tolerance * (1 + 1e-6)) | (self.nan_equal & _alike(expect, get))
        within &= self._within(expect, get)
        if self.exact:
            within &= (expect == get) | (self.nan_equal & _alike(expect, get))
        return int(within.size - np.count_nonzero(within))

    def notes(self, expect: Array, get: Array) -> list[str]:
        """List what passed by `near_tie`, a sentence for each term."""
        remarks = []
        for name in self.least:
            top = self._top(name, expect, get)
            if top is not None and top.swapped:
                tie = f"near_tie<={self.near_tie:g}"
                remarks.append(
                    f"{name}: {top.swapped} of {top.rows} rows swap elements that nearly tie ({tie})"
                )
        return remarks

    def _top(self, name: str, expect: Array, get: Array) -> TopAgreement | None:
        """Compare the largest elements of rows; None for other terms, and where there are no such rows."""
        k = re.fullmatch(_TOP, name)
        return None if k is None else top_agreement(expect, get, int(k[1]), self.near_tie)

    def _within(self, expect: Array, get: Array) -> Array:
        """Return for every element whether it is within `rtol` and `atol`; True if neither is set."""
        if self.rtol is None and self.atol is None:
            return np.ones(expect.shape, bool)
        with np.errstate(all="ignore"):
            e, g = expect.astype(np.float64), get.astype(np.float64)
            within: Array = np.abs(e - g) <= (self.atol or 0.0) + (self.rtol or 0.0) * np.abs(e)
        return within | _alike(expect, get) if self.nan_equal else within


def _or_infinite(limit: float | None) -> float:
    return math.inf if limit is None else limit


def _alike(expect: Array, get: Array) -> Array:
    """Return which elements are equal, including NaN and infinities."""
    with np.errstate(all="ignore"):
        same: Array = (expect == get) | ((expect != expect) & (get != get))
    return same


def _bound(name: str, sign: str, limit: float, value: float | None) -> list[str]:
    if value is None:
        return [f"{name}{sign}{limit:g} cannot be evaluated: values of this dtype and shape have no {name}"]
    holds = value <= limit if sign == "<=" else value >= limit
    return [] if holds else [f"{name}{sign}{limit:g} does not hold: {name} is {value:.6g}"]


def parse(text: str) -> Policy:
    """Parse the policy that some terms describe.

    Raises:
        UsageError: a term is not known, has no number, or contradicts itself.

    >>> parse("cosine>=0.9999, top1=1").least == {"cosine": 0.9999, "top1": 1.0}
    True
    """
    exact = nan_equal = False
    single: dict[str, float] = {}
    most: dict[str, float] = {}
    least: dict[str, float] = {}
    for term in text.split(","):
        match = re.fullmatch(_TERM, term)
        name, sign, value = match.groups() if match else (term.strip(), "", "")
        if name == "exact" and not sign:
            exact = True
        elif (name, sign, value) == ("nan", "=", "equal"):
            nan_equal = True
        elif name in _SHARES and sign in ("<=", "="):
            single["fraction"] = min(single.get("fraction", 1.0), _share(term, value, _SHARES[name]))
        elif name in _SINGLE and sign in ("<=", "="):
            single[name] = _bound_of(term, value)
        elif name in _AT_MOST and sign in ("<=", "="):
            most[name] = _bound_of(term, value)
        elif (name in _AT_LEAST or re.fullmatch(_TOP, name)) and sign in (">=", "="):
            least[name] = _bound_of(term, value)
            if least[name] > 1 and not name.startswith("snr"):
                raise UsageError(f"{term.strip()!r} never holds: {name} is at most 1")
            if (name == "cosine" and least[name] <= -1) or (re.fullmatch(_TOP, name) and least[name] <= 0):
                raise UsageError(f"{term.strip()!r} lets every value pass")
        else:
            raise UsageError(f"a policy consists of {_KNOWN}; found {term.strip()!r}")
    if "near_tie" in single and not any(re.fullmatch(_TOP, name) for name in least):
        raise UsageError(
            f"near_tie applies to the largest elements; add top1=1 or top5=1 to {text.strip()!r}"
        )
    policy = Policy(text.strip(), exact, nan_equal=nan_equal, most=most, least=least)
    return replace(policy, **single) if single else policy  # type: ignore[arg-type]


def _share(term: str, value: str, whole: float) -> float:
    """Read a share of the elements, given as a number out of a total."""
    share = _bound_of(term, value) / whole
    if share >= 1:
        raise UsageError(f"{term.strip()!r} lets every value pass; a share of elements is below 1")
    return share


def _bound_of(term: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (number < 0 and not term.strip().startswith(("snr", "cosine"))):
        raise UsageError(f"a policy's limit must be a finite number of at least 0, found {term.strip()!r}")
    return number


def parse_all(texts: Iterable[str]) -> dict[str, Policy]:
    """Parse policies by output name, the one for all others under the empty name.

    Raises:
        UsageError: see `parse`; or an output has two.

    >>> sorted(parse_all(["ids: exact", "rtol=1e-3"]))
    ['', 'ids']
    """
    policies: dict[str, Policy] = {}
    for text in texts:
        name, _, terms = text.rpartition(":")
        name = name.strip()
        if name in policies:
            raise UsageError(f"two policies name {f'the output {name!r}' if name else 'all outputs'}")
        policies[name] = parse(terms)
    return policies


def sequence_of(name: str) -> str:
    """Return the name of the sequence that an output is a value of by its name, "" if it is none.

    >>> sequence_of("boxes.12"), sequence_of("boxes")
    ('boxes', '')
    """
    output, _, number = name.rpartition(".")
    return output if number.isdigit() else ""


def require_compared(policies: Iterable[str], outputs: Iterable[str], compared: Collection[str]) -> None:
    """Check that the policies of single outputs are for outputs that are compared with something.

    Args:
        policies: the names that policies are for; the empty one is for all.
        outputs: names of the outputs.
        compared: those of them that have an expected value.

    Raises:
        UsageError: one is for no output, or for one of which nothing is expected.
    """
    known, compared = dict.fromkeys(outputs), dict.fromkeys(compared)
    sequences = {sequence_of(n) for n in compared}
    for name in sorted(set(policies) - {"", *sequences}):
        if name not in known and sequence_of(name) not in known:
            shown = ", ".join(map(repr, known)) or "none"
            raise UsageError(f"a policy names the output {name!r}; the outputs are {shown}")
        if name not in compared:
            raise UsageError(
                f"a policy is for the output {name!r}, but there is no expected value of it that a check reads; "
                f"there is one of {', '.join(map(repr, compared)) or 'no output'}"
            )


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """Say by what saved results are judged.

    Attributes:
        maxerr: tolerance for all outputs or for one, of saved results only; may be repeated (default: the file's). In
            Python, a number, or numbers by output name.
        policies: what must hold besides, by output name, all others under the empty name.
    """

    maxerr: float | Mapping[str, float] | None = None
    policies: Mapping[str, Policy] = field(default_factory=dict)
