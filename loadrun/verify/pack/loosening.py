"""Tolerances of the checks that a file already has, where others are requested."""

from collections.abc import Callable, Mapping, Sequence

from ...base.errors import UsageError
from ...compare.judging import policy_for
from ...compare.metrics import Formula
from ...graph import Graph
from ...passes.checks import formula, set_tolerances
from ...testcase import Bundle, Check
from .capture import tolerances
from .options import PackOptions

_ALL = 1e30
"""A tolerance that MegEngine's check lets everything pass by."""


class ToleranceChange:
    """Gives the checks of a model the tolerances that are requested.

    Args:
        model: the graph, which is changed.
        options: what is requested.
        loosened: original tolerances of loosened checks by output name, which grows.
        warn: called with every check that is loosened.
    """

    def __init__(
        self, model: Graph, options: PackOptions, loosened: dict[str, float], warn: Callable[[str], None]
    ) -> None:
        self._model = model
        self._options = options
        self._loosened = loosened
        self._warn = warn

    def apply(self) -> None:
        """Set the tolerances of the model's checks.

        Raises:
            UsageError: one is greater than before, and that was not allowed.
        """
        checks = Bundle(self._model).checks
        maxerr, silent = self._options.maxerr, self._options.silent
        if self._options.loosen:
            self._admit(checks)
        if maxerr is not None:
            limits = tolerances(maxerr, [c.name for c in checks])
            if isinstance(maxerr, Mapping) and "" not in maxerr:
                limits = {n: v for n, v in limits.items() if n in maxerr}
            requested = {c.opr.id: limits[c.name] for c in checks if c.name in limits}
            for check in checks:
                self._loosens(check, limits.get(check.name, check.maxerr))
            set_tolerances(self._model, requested, None if silent is None else not silent)
        elif silent is not None:
            set_tolerances(self._model, {}, not silent)

    def _admit(self, checks: Sequence[Check]) -> None:
        """Let the file's own checks pass whatever a policy does that is requested in their place."""
        maxerr, admitted = self._options.maxerr, {}
        for check in checks:
            policy = policy_for(self._options.policies, check.name)
            named = maxerr is not None and (not isinstance(maxerr, Mapping) or {check.name, ""} & set(maxerr))
            if named or not policy.text:
                continue
            other_formula = formula(check) is Formula.OTHER
            if policy.leaves_elements and not other_formula:
                continue
            limit = _ALL if other_formula or policy.covering is None else min(policy.covering, _ALL)
            if limit > check.maxerr:
                self._loosens(check, limit)
                admitted[check.opr.id] = limit
        set_tolerances(self._model, admitted, None)

    def _loosens(self, check: Check, limit: float) -> None:
        """Note a tolerance that is greater than before, or refuse it."""
        if limit <= check.maxerr * (1 + 1e-6):
            return
        if not self._options.loosen:
            raise UsageError(
                f"the check of {check.name!r} has a tolerance of {check.maxerr:g}, and {limit:g} would let more "
                "through; pass --loosen if that is intended"
            )
        self._loosened.setdefault(check.name, check.maxerr)
        self._warn(f"LOOSENED: the tolerance of {check.name!r} was {check.maxerr:g} and is {limit:g}")
