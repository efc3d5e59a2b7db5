"""From two arrays to a verdict: the only place that decides whether an output passes, fails, or was not compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..base.errors import EngineError
from ..graph.dtypes import Array, DType, dequantized
from . import Comparison, assert_equal_error, compare, errors, passes
from .comparison import with_places
from .metrics import Formula
from .policy import Policy, sequence_of
from .results import OutputResult, Tolerance, Verdict

ABSURD = "its tolerance"
"""Prefix of reasons about a tolerance rather than the file's check itself."""
NARROW = {"Float16": 2.0**-10, "BFloat16": 2.0**-7}
"""Floats narrower than float32, and the machine epsilon of each."""
_LOOSER = 4
"""How much less than MegEngine's formula an error graph may measure and still count as comparing."""
_PLACES, _STRIDE = 8, 0x9E3779B1
"""Number of elements, besides the first and the last, whose change an error graph must detect."""


class Criteria(NamedTuple):
    """The criteria for one output.

    Attributes:
        name: its name.
        dtype: its data type.
        maxerr: tolerance of the file's check.
        formula: how the file computes the error.
        fault: why the file's check could not fail, as far as its structure tells.
        policy: what must hold besides.
        loosen: whether the policy's maxerr counts where it is greater than the file's.
        loosened: the tolerance that the file's check had before it was loosened.
        rounding: machine epsilon of a dtype narrower than float32 in which the file computes the error, else 0.
        terms: those by which the file judges single elements, as a policy has them, where it has a rule of its own.
        by_shape: whether a value without elements passes by its dtype and shape, which ONNX's rule compares; an
            AssertEqual has nothing to measure there.
    """

    name: str
    dtype: DType
    maxerr: float
    formula: Formula = Formula.REAL
    fault: str | None = None
    policy: Policy = Policy()
    loosen: bool = False
    loosened: float | None = None
    rounding: float = 0.0
    terms: str = ""
    by_shape: bool = False

    @property
    def tolerance(self) -> float:
        """The effective tolerance."""
        asked = self.policy.maxerr
        if asked is None:
            return self.maxerr
        return asked if self.loosen else min(asked, self.maxerr)

    @property
    def default(self) -> float:
        """The tolerance of new checks of values of this dtype."""
        return 0.0 if not self.dtype.is_quantized and self.dtype.np.kind in "iub" else 1e-4

    def in_place(self) -> Criteria:
        """Return the criteria in which the policy stands in place of the file's own check."""
        usual = max(0.0, self.maxerr) if math.isfinite(self.maxerr) else self.default
        return self._replace(
            maxerr=math.inf,
            formula=Formula.REAL,
            policy=self.policy.in_place(self.terms or f"maxerr<={usual:.9g}"),
            loosen=True,
            loosened=self.maxerr if self.loosened is None else self.loosened,
        )


def judge(
    criteria: Criteria,
    expect: Array,
    get: Array,
    check_error: Array | None = None,
    seen: Callable[[], str | None] = lambda: None,
) -> OutputResult:
    """Judge a computed value.

    Args:
        criteria: what the value must fulfil.
        expect, get: expected and computed value in storage dtype.
        check_error: the error that the file's operators computed, where they are not MegEngine's formula for real
            numbers.
        seen: says why the file's error graph does not compare; called where it would let the value pass.

    Raises:
        EngineError: the values are not real numbers.

    >>> from loadrun.graph.dtypes import DType
    >>> q = Criteria("ids", DType("Int32"), 1e-4)
    >>> found = judge(q, np.array([50000], "i4"), np.array([50004], "i4"))
    >>> found.verdict.value, found.notes
    ('pass', ("off by 4: the check's tolerance is relative, which lets integers drift",))
    """
    if "c" in (expect.dtype.kind, get.dtype.kind):
        raise EngineError(
            f"the check of {criteria.name!r} compares complex values, for which MegEngine has no formula"
        )
    comparison = compare(expect, get, criteria.dtype)
    file = criteria.maxerr
    if criteria.policy.loosens:
        criteria, check_error, seen = criteria.in_place(), None, lambda: None
    tolerance = criteria.tolerance
    looser = criteria.maxerr if tolerance > criteria.maxerr else criteria.loosened
    by_file = check_error is not None and criteria.formula in (Formula.NARROW, Formula.OTHER)
    held_to, shape = Tolerance(tolerance, file, looser, by_file, criteria.policy), comparison.got.shape
    shown = OutputResult(
        criteria.name, shape, criteria.dtype, Verdict.NOT_COMPARED, held_to, None, comparison, get, expect
    )
    if check_error is not None and check_error.size != 1:
        sizes = "x".join(map(str, check_error.shape))
        return replace(shown, reason=f"its error has shape {sizes}, but MegEngine requires a single number")
    related = criteria.formula is Formula.OTHER and check_error is not None and expect.size == get.size
    if expect.shape != get.shape and not related:
        return replace(shown, verdict=Verdict.FAIL, error=math.nan)
    if not get.size:
        return _without_elements(criteria, shown, check_error)
    error = _judged_error(criteria, comparison, expect, get, check_error if by_file else None)
    shared, beyond = _shared(criteria, by_file, comparison, expect, get)
    if not passes(error, tolerance) and (shared is None or by_file):
        notes = _wrapped(criteria, check_error, tolerance)
        if not by_file:
            shown = replace(shown, comparison=with_places(comparison, expect, get, tolerance))
        return replace(shown, verdict=Verdict.FAIL, error=error, notes=notes)
    notes = tuple(criteria.policy.violations(comparison, expect, get) if expect.shape == get.shape else ())
    if shared is False:
        notes = (beyond, *notes)
    if notes:
        return replace(shown, verdict=Verdict.FAIL, error=error, notes=notes)
    reason = _uncompared(criteria, by_file, comparison, expect, seen) or (
        _contradicted(criteria, error, comparison, expect, get) if by_file else None
    )
    if reason is not None:
        return replace(shown, error=error, reason=reason)
    around = criteria.policy.nan_equal and (comparison.expected.nan or comparison.expected.inf)
    if around or (shared and not passes(error, criteria.maxerr)):
        # MegEngine's check would fail there.
        looser = criteria.maxerr if looser is None else looser
        shown = replace(shown, tolerance=held_to._replace(loosened=looser))
    return replace(
        shown, verdict=Verdict.PASS, error=error, notes=_remarks(criteria, beyond, comparison, expect, get)
    )


def _uncompared(
    criteria: Criteria, by_file: bool, comparison: Comparison, expect: Array, seen: Callable[[], str | None]
) -> str | None:
    """Explain why a pass tells nothing; None if it does, be it by a policy that the check was loosened for."""
    loosened = criteria.loosened is not None and _absurd(criteria.tolerance, comparison, expect)
    if criteria.fault is not None or (loosened and _compares(criteria, by_file, expect)):
        return criteria.fault
    covering = criteria.policy.covering
    covered = min(criteria.tolerance, math.inf if covering is None else covering)
    return seen() or _absurd(covered, comparison, expect)


def _without_elements(criteria: Criteria, shown: OutputResult, check_error: Array | None) -> OutputResult:
    """Judge a value of the right shape and no elements."""
    if not criteria.by_shape:
        return replace(shown, error=0.0, reason="the value has no elements")
    error = 0.0 if check_error is None else float(check_error.reshape(-1)[0])
    if not passes(error, criteria.tolerance):
        return replace(shown, verdict=Verdict.FAIL, error=error)
    return replace(shown, verdict=Verdict.PASS, error=error, notes=("no elements; the shapes agree",))


def _remarks(
    criteria: Criteria, beyond: str, comparison: Comparison, expect: Array, get: Array
) -> tuple[str, ...]:
    """Add notes on passing outputs."""
    notes = [beyond] if beyond else []
    if comparison.partial:
        notes.append(f"NaN or infinities: measures other than the error are {comparison.partial}")
    off_by = comparison.measures.off_by
    if off_by and not beyond:
        notes.append(f"off by {off_by}: the check's tolerance is relative, which lets integers drift")
    return (*notes, *(criteria.policy.notes(expect, get) if comparison.same_shape else ()))


def _shared(
    criteria: Criteria, by_file: bool, comparison: Comparison, expect: Array, get: Array
) -> tuple[bool | None, str]:
    """Return whether few enough elements exceed the tolerances, and how many; None if none may."""
    share = criteria.policy.fraction
    if share is None or expect.shape != get.shape:
        return None, ""
    limit = _limit_of_elements(criteria, by_file, comparison, expect)
    beyond = criteria.policy.beyond(expect, get, limit)
    said = f"{beyond} of {get.size} values are beyond the tolerance; fraction<={share:g} is {beyond / get.size:.3g}"
    return beyond <= share * get.size, said if beyond else ""


def _limit_of_elements(criteria: Criteria, by_file: bool, comparison: Comparison, expect: Array) -> float:
    """Return the tolerance that a share of the elements may exceed."""
    # The file's own error graph computes one number for all elements.
    limit = math.inf if by_file else criteria.tolerance
    if not criteria.policy.leaves_elements or _absurd(criteria.tolerance, comparison, expect) is None:
        return limit
    # A tolerance that refuses nothing is there for the policy's sake.
    before = criteria.loosened
    if by_file or before is None or _absurd(before, comparison, expect):
        return criteria.default
    return before


def _compares(criteria: Criteria, by_file: bool, expect: Array) -> bool:
    """Return whether a policy alone refuses zeros and the opposite of what is expected."""
    if not criteria.policy.text:
        return False
    impostors = [np.zeros_like(expect)]
    if expect.dtype.kind in "fib":
        impostors.append(~expect if expect.dtype.kind == "b" else -expect)
    others = [x for x in impostors if not np.array_equal(x, expect)] or [np.ones_like(expect)]
    return not any(accepts(criteria, by_file, expect, x) for x in others)


def accepts(criteria: Criteria, by_file: bool, expect: Array, get: Array) -> bool:
    """Return whether a policy alone accepts a value of the expected shape."""
    comparison = compare(expect, get, criteria.dtype)
    shared, _ = _shared(criteria, by_file, comparison, expect, get)
    asked = criteria.policy.maxerr
    if asked is not None and shared is None and not passes(comparison.max_error, asked):
        return False
    return shared is not False and not criteria.policy.violations(comparison, expect, get)


def _judged_error(
    criteria: Criteria, comparison: Comparison, expect: Array, get: Array, check_error: Array | None
) -> float:
    """Return the error that is compared with the tolerance: `check_error` where it is the file's to judge."""
    try:
        if criteria.policy.nan_equal and comparison.same_shape and comparison.nonfinite_agree:
            finite = np.isfinite(expect) if expect.dtype.kind == "f" else np.ones(expect.shape, bool)
            return float(assert_equal_error(expect[finite], get[finite]))
        if check_error is not None:
            return float(check_error.reshape(-1)[0])
        return float(assert_equal_error(expect, get))
    except TypeError as e:
        raise EngineError(f"the check of {criteria.name!r} cannot be judged: {e}") from e


def _contradicted(
    criteria: Criteria, error: float, comparison: Comparison, expect: Array, get: Array
) -> str | None:
    """Explain why a pass of the file's own error graph does not count: MegEngine's formula fails at the same tolerance.

    What rounding does where the graph computes in a narrow dtype is allowed for.
    """
    allowed = criteria.tolerance * (1 + 1e-6 + 2 * criteria.rounding)
    if criteria.formula is Formula.OTHER:
        allowed += criteria.rounding
    if comparison.same_shape and not criteria.dtype.is_quantized and passes(comparison.max_error, allowed):
        return None
    measured = _measured(criteria.dtype, expect, get)
    if passes(measured, allowed):
        return None
    formula = f"MegEngine's formula gives {measured:g} for the same values"
    return f"its error graph gives {error:g} and lets it pass, but {formula}"


def _measured(dtype: DType, expect: Array, get: Array) -> float:
    """Evaluate MegEngine's formula on the real numbers of two values in float64; NaN agrees with NaN.

    Values in another layout are compared in the order of their numbers, which gives no more than their own order.
    """
    e, g = (dequantized(x, dtype).reshape(-1).astype(np.float64) for x in (expect, get))
    if expect.shape != get.shape:
        e, g = np.sort(e), np.sort(g)
    apart = ~((e == g) | (np.isnan(e) & np.isnan(g)))
    return float(errors(e[apart], g[apart]).max(initial=0.0))


def _wrapped(criteria: Criteria, check_error: Array | None, tolerance: float) -> tuple[str, ...]:
    """Note an integer error that MegEngine itself would accept."""
    if (
        criteria.formula is not Formula.INTEGER
        or check_error is None
        or not passes(float(check_error.reshape(-1)[0]), tolerance)
    ):
        return ()
    return (
        f"the file's own operators divide whole numbers, give {float(check_error.reshape(-1)[0]):g} and pass it; "
        "here the error is that of real numbers",
    )


def _absurd(tolerance: float, comparison: Comparison, expect: Array) -> str | None:
    """Explain why a tolerance accepts everything: the negated value has an error of at most 2."""
    if not math.isfinite(tolerance):
        return f"{ABSURD} is {tolerance:g}"
    if tolerance < 2:
        return None
    with np.errstate(all="ignore"):
        largest = float(np.abs(expect.astype(np.float64)).max())
    if largest > tolerance:
        return None
    return f"{ABSURD} of {tolerance:g} lets zeros and the negated values pass"


def blind(errors: Callable[[Array], Array], expect: Array, dtype: DType, maxerr: float) -> str | None:
    """Test whether an error graph detects changes of the expected value.

    Args:
        errors: gives the error for an expected value.
        expect: the expected value, with which the check passes.
        dtype: its data type.
        maxerr: the check's tolerance.

    Returns:
        why the graph does not compare, None if it saw every change.
    """
    for place, value in _changed(expect, dtype, maxerr):
        try:
            output = errors(value)
        except EngineError:
            continue
        measured = float(output.reshape(-1)[0]) if output.size == 1 else math.nan
        if passes(measured, maxerr):
            was, now = expect.reshape(-1)[place].item(), value.reshape(-1)[place].item()
            at = [int(i) for i in np.unravel_index(place, expect.shape)]
            return (
                f"its error graph does not compare: with {now:g} for {was:g} expected at {at} "
                f"the error is {measured:g}"
            )
    return None


def _changed(expect: Array, dtype: DType, maxerr: float) -> Iterator[tuple[int, Array]]:
    """Change one element of the expected value by far more than the tolerance allows."""
    flat = expect.reshape(-1)
    places = {0, flat.size - 1, *(i * _STRIDE % flat.size for i in range(1, _PLACES))}
    for place in sorted(places):
        old = float(flat[place])
        if not math.isfinite(old):
            continue
        for sign in (1, -1):
            new = _shifted_value(old, sign, maxerr, dtype, expect.dtype)
            if new is None:
                continue
            value = expect.copy()
            value.reshape(-1)[place] = np.asarray(new).astype(expect.dtype)
            yield place, value


def _shifted_value(old: float, sign: int, maxerr: float, dtype: DType, kind: np.dtype[Any]) -> float | None:
    """Return a number whose error against `old` is several times the tolerance; None if the dtype has none."""
    scale = dtype.scale if dtype.is_quantized else 1.0
    real = (old - (dtype.zero_point if dtype.is_quantized else 0)) * scale
    # A smaller change would vanish where the error is computed in float16.
    wanted = _LOOSER * max(maxerr, 2e-4)
    # The error is relative to the smaller value, so a move towards zero is measured from where it ends.
    away = sign * real >= 0
    step = wanted * max(1.0, abs(real)) if away else max(wanted, abs(real) * wanted / (1 + wanted))
    new = old + sign * step / scale
    if kind.kind in "iub":
        new = math.ceil(new) if sign > 0 else math.floor(new)
        low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
        new = min(max(new, low), high)
        far = abs(new - old) * scale / max(1.0, min(abs(real), abs(real + (new - old) * scale)))
        return float(new) if far > _LOOSER * maxerr else None
    with np.errstate(all="ignore"):
        return new if np.isfinite(np.asarray(new).astype(kind)) else None


def judge_empty(name: str) -> OutputResult:
    """Judge a sequence without values, or an optional value without an element, where that is what is expected."""
    nothing = np.zeros(0, np.float32)
    return judge(Criteria(name, DType("Float32"), 0.0, by_shape=True), nothing, nothing)


def policy_for(policies: Mapping[str, Policy], name: str) -> Policy:
    """Return the policy of an output: its own, else that of the sequence it is a value of, else that for all."""
    return policies.get(name) or policies.get(sequence_of(name)) or policies.get("") or Policy()
