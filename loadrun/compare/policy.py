"""Policies: what an output must meet beyond the check that its file carries.

A policy is written as ``prob: cosine>=0.9999, top1=1``: the name of an output, a colon, and terms that all must hold.
Without a name it is for every output that has none of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..base.errors import UsageError
from ..graph.dtypes import Array
from . import Comparison

__all__ = ["Policy", "parse", "parse_all", "require_compared"]

_AT_MOST = ("max_abs", "max_rel", "mean_abs", "ulp", "off_by")
_AT_LEAST = ("cosine", "top1", "snr")
_TERM = re.compile(r"\s*(\w+)\s*(>=|<=|=)\s*(\S+)\s*", re.A)
_KNOWN = (
    "exact, maxerr<=X, rtol=X, atol=X, nan=equal, cosine>=X, top1>=X, snr>=X (dB), max_abs<=X, max_rel<=X, "
    "mean_abs<=X, ulp<=N, off_by<=N"
)


@dataclass(frozen=True)
class Policy:
    """The conditions that one output must meet.

    Attributes:
        text: the terms as they were written.
        exact: every element equals the expected one.
        maxerr: largest error by MegEngine's measure; may be greater than that of the file's check only where
            that was asked for.
        rtol, atol: ``|expected - got| <= atol + rtol * |expected|`` for every element; one alone has the other 0.
        nan_equal: NaN agrees with NaN, and an infinity with the same one.
        most: upper bounds of metrics of `Comparison`.
        least: lower bounds of its metrics.
    """

    text: str = ""
    exact: bool = False
    maxerr: float | None = None
    rtol: float | None = None
    atol: float | None = None
    nan_equal: bool = False
    most: Mapping[str, float] = field(default_factory=dict)
    least: Mapping[str, float] = field(default_factory=dict)

    @property
    def covering(self) -> float | None:
        """The least tolerance of MegEngine's measure that lets everything through that the policy does.

        None where the policy bounds no single element, so that nothing follows from it.

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

    def violations(self, found: Comparison, expect: Array, get: Array) -> list[str]:
        """List what does not hold, a sentence each; `maxerr` is left to the check.

        Args:
            found: the comparison of the two.
            expect, get: expected and computed values of one shape.

        >>> from loadrun.compare import compare
        >>> e, g = np.array([50000], "i4"), np.array([50004], "i4")
        >>> parse("off_by<=3").violations(compare(e, g), e, g)
        ['off_by<=3 does not hold: off_by is 4']
        """
        broken = []
        if self.exact and not (found.equal if self.nan_equal else found.mismatches == 0):
            broken.append(f"exact does not hold: {found.mismatches} of {found.size} values differ")
        if self.rtol is not None or self.atol is not None:
            outside = self._outside(expect, get)
            if outside:
                limits = ", ".join(
                    f"{n}={getattr(self, n):g}" for n in ("rtol", "atol") if getattr(self, n) is not None
                )
                broken.append(f"{limits} does not hold for {outside} of {found.size} values")
        for name, limit in self.most.items():
            broken += _bound(name, "<=", limit, getattr(found, name))
        for name, limit in self.least.items():
            broken += _bound(name, ">=", limit, found.snr_db if name == "snr" else getattr(found, name))
        return broken

    def _outside(self, expect: Array, get: Array) -> int:
        with np.errstate(all="ignore"):
            e, g = expect.astype(np.float64), get.astype(np.float64)
            within = np.abs(e - g) <= (self.atol or 0.0) + (self.rtol or 0.0) * np.abs(e)
            if self.nan_equal:
                within |= (e == g) | (np.isnan(e) & np.isnan(g))
        return int(within.size - np.count_nonzero(within))


def _bound(name: str, sign: str, limit: float, value: float | None) -> list[str]:
    if value is None:
        return [f"{name}{sign}{limit:g} does not hold: values of this dtype and shape have no {name}"]
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
        if term.strip() == "exact":
            exact = True
            continue
        found = _TERM.fullmatch(term)
        if found is None:
            raise UsageError(f"a policy consists of {_KNOWN}; found {term.strip()!r}")
        name, sign, value = found.groups()
        if (name, sign, value) == ("nan", "=", "equal"):
            nan_equal = True
        elif name in ("rtol", "atol", "maxerr") and sign != ">=":
            single[name] = _bound_of(term, value)
        elif name in _AT_MOST and sign != ">=":
            most[name] = _bound_of(term, value)
        elif name in _AT_LEAST and sign != "<=":
            least[name] = _bound_of(term, value)
        else:
            raise UsageError(f"a policy consists of {_KNOWN}; found {term.strip()!r}")
    return Policy(text.strip(), exact, nan_equal=nan_equal, most=most, least=least, **single)


def _bound_of(term: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (number < 0 and not term.strip().startswith(("snr", "cosine"))):
        raise UsageError(f"a policy's limit is a finite number, at least 0; found {term.strip()!r}")
    return number


def parse_all(texts: Iterable[str]) -> dict[str, Policy]:
    """Parse policies by output name, the one for all others under the empty name.

    Raises:
        UsageError: see `parse`; or an output has two.

    >>> sorted(parse_all(["ids: exact", "rtol=1e-3"]))
    ['', 'ids']
    """
    found: dict[str, Policy] = {}
    for text in texts:
        name, _, terms = text.rpartition(":")
        name = name.strip()
        if name in found:
            raise UsageError(
                f"there are two policies for {f'the output {name!r}' if name else 'all outputs'}"
            )
        found[name] = parse(terms)
    return found


def require_compared(policies: Iterable[str], outputs: Iterable[str], compared: Collection[str]) -> None:
    """Check that the policies of single outputs are for outputs that are compared with something.

    Args:
        policies: the names that policies are for; the empty one is for all.
        outputs: names of the outputs.
        compared: those of them that have an expected value.

    Raises:
        UsageError: one is for no output, or for one of which nothing is expected.
    """
    known = list(outputs)
    shown = ", ".join(map(repr, known)) or "none"
    for name in sorted(set(policies) - {""}):
        if name not in known:
            raise UsageError(f"a policy is for the output {name!r}; the outputs are {shown}")
        if name not in compared:
            raise UsageError(
                f"a policy is for the output {name!r}, but there is no expected value of it that a check reads; "
                f"there is one of {', '.join(map(repr, compared)) or 'no output'}"
            )
