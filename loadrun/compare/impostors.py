"""Checks that cannot fail: what would pass them beside the model's own outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..graph.dtypes import Array, DType, array_dtype
from . import assert_equal_error, passes
from .judging import Criteria, accepts, policy_for
from .policy import Policy
from .results import Result, Verdict

_SAMPLE = 64


_ZEROS, _MEAN, _OTHER = "zeros", "the mean everywhere", "another testcase's output"


class ImpostorWatch:
    """Watches expected values and reports which checks could not have failed on them.

    An impostor counts when every testcase would let it pass; an output is no longer looked at once there is none.

    Args:
        maxerr: tolerance by output name.
        policies: what must hold besides, by output name.
        errors: of checks that do not measure by MegEngine's formula, what gives the error of an expected and a
            computed value; None for such that cannot be asked, which are not looked at.

    >>> watch = ImpostorWatch({"y": 0.1})
    >>> for values in ([0.01, 0.02], [0.03, -0.04]):
    ...     watch.add("y", np.array(values, "f4"))
    >>> print(*watch.warnings())  # doctest: +ELLIPSIS
    the check of 'y' cannot fail on these testcases: zeros, the mean everywhere and another testcase's output ...
    """

    def __init__(
        self,
        maxerr: Mapping[str, float],
        policies: Mapping[str, Policy] | None = None,
        errors: Mapping[str, Callable[[Array, Array], float] | None] | None = None,
    ) -> None:
        self.maxerr = dict(maxerr)
        self.errors = dict(errors or {})
        self.policies = dict(policies or {})
        self._dtypes: dict[str, DType] = {}
        self._left: dict[str, set[str]] = {}
        self._last: dict[str, Array] = {}
        self._met_other: set[str] = set()
        self._seen: set[str] = set()

    def results(self, result: Result) -> None:
        """Add the values that a replay compared."""
        for out in result.outputs:
            name = out.name
            if out.tolerance.policy.loosens:
                self.policies[name] = out.tolerance.policy
            if out.verdict is Verdict.PASS and out.expect is not None and self._left.get(name) != set():
                self.maxerr.setdefault(name, out.tolerance.maxerr or 0.0)
                self._dtypes.setdefault(name, out.dtype)
                self.add(name, out.expect)

    def add(self, name: str, expect: Array) -> None:
        """Add the expected value of an output in another testcase."""
        left = self._left.setdefault(name, {_ZEROS, _MEAN, _OTHER})
        asked = self.errors.get(name, assert_equal_error)
        if (
            name not in self.maxerr
            or asked is None
            or not left
            or not expect.size
            or expect.dtype.kind not in "iubf"
        ):
            return
        self._seen.add(name)
        if _ZEROS in left and not self._lets(name, expect, np.zeros((), expect.dtype)):
            left.discard(_ZEROS)
        # The mean of equal numbers is the number itself, so it is not an impostor.
        if _MEAN in left and (expect.min() == expect.max() or not self._lets(name, expect, _mean(expect))):
            left.discard(_MEAN)
        before = self._last.get(name)
        if _OTHER in left:
            if before is not None and before.shape == expect.shape:
                self._met_other.add(name)
                if not self._lets(name, expect, before):
                    left.discard(_OTHER)
            self._last[name] = expect
        if _OTHER not in left:
            self._last.pop(name, None)

    def _lets(self, name: str, expect: Array, impostor: Array) -> bool:
        """Return whether an output's check would accept another value; usually a few elements suffice to reject it."""
        whole = np.broadcast_to(impostor, expect.shape)
        check_error, policy, limit = self.errors.get(name), policy_for(self.policies, name), self.maxerr[name]
        if check_error is not None and not policy.loosens:
            if not passes(check_error(expect, whole), limit):
                return False
        elif policy.fraction is None and not policy.loosens:
            if expect.size > _SAMPLE:
                places = np.linspace(0, expect.size - 1, _SAMPLE).astype(np.intp)
                at = np.unravel_index(places, expect.shape)
                if not passes(float(assert_equal_error(expect[at], whole[at])), limit):
                    return False
            if not passes(float(assert_equal_error(expect, whole)), limit):
                return False
        dtype = self._dtypes.get(name) or array_dtype(expect)
        return accepts(Criteria(name, dtype, limit, policy=policy), check_error is not None, expect, whole)

    def warnings(self) -> list[str]:
        """Return a sentence for every check that an impostor passes in all testcases."""
        said = []
        for name, impostors in self.impostors().items():
            text = impostors[0] if len(impostors) == 1 else f"{', '.join(impostors[:-1])} and {impostors[-1]}"
            said.append(
                f"the check of {name!r} cannot fail on these testcases: {text} would pass as well "
                f"(tolerance {self.maxerr[name]:g})"
            )
        return said

    def impostors(self) -> dict[str, list[str]]:
        """Return the impostors that pass in all testcases, by the output's name."""
        impostors: dict[str, list[str]] = {}
        for name in sorted(self._seen):
            left = self._left[name] - (set() if name in self._met_other else {_OTHER})
            if left:
                impostors[name] = [x for x in (_ZEROS, _MEAN, _OTHER) if x in left]
        return impostors


def _mean(expect: Array) -> Array:
    with np.errstate(all="ignore"):
        mean = expect.astype(np.float64).mean()
        whole = (
            np.rint(mean) if expect.dtype.kind in "iu" else mean > 0.5 if expect.dtype.kind == "b" else mean
        )
        return np.asarray(whole).astype(expect.dtype)
