"""How much of an output is rounding noise, the tolerance that follows, and other ones for checks that a file has."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from ...base.errors import LoadRunError, UsageError
from ...compare import errors
from ...compare.judging import policy_for
from ...compare.metrics import Formula
from ...compare.tolerances import MAXERR, default_maxerr, magnitude
from ...engines import make_engine
from ...engines.reference import ReferenceEngine
from ...engines.wide import WideEngine
from ...graph import Graph
from ...graph.dtypes import Array, DType, encode
from ...ops.numeric.parallel import set_threads, threads
from ...passes.checks import formula, set_tolerances
from ...passes.constants import bare, subgraph
from ...runner import fit_inputs
from ...testcase import Bundle, Check
from .capture import Warn, coarse_limits, tolerances
from .options import PackOptions

_RUNS = 3
_FACTOR = 10
_LEAST = 1e-6
WIDEST = 1e-2
_FLOAT64 = "float64 arithmetic"
_BITS = {"Float32": 24, "Float16": 11, "BFloat16": 8}
"""Bits of a number's significand."""


@dataclass(frozen=True)
class Suggestion:
    """A tolerance for one output.

    Attributes:
        maxerr: the tolerance.
        noise: MegEngine's error measure between runs that differ in rounding alone, by what differed.
        wide: how many operators the float64 run computed in float64.
        narrow: how many it computed in float32, by their type, since they have no float64 formula.
        least: the smallest tolerance that would have been suggested.
        usual: the tolerance that the output gets else.
    """

    maxerr: float
    noise: Mapping[str, float]
    wide: int = 0
    narrow: Mapping[str, int] = field(default_factory=dict)
    least: float = _LEAST
    usual: float = MAXERR

    @property
    def reason(self) -> str:
        """The measurement in words."""
        worst = max(self.noise, key=lambda k: self.noise[k])
        if not self.noise[worst]:
            return f"no difference was measured; {self.least:g} is the smallest suggestion"
        total = self.wide + sum(self.narrow.values())
        left = f" of {self.wide} of {total} operators, without {', '.join(sorted(self.narrow))}"
        what = worst + left if worst == _FLOAT64 and self.narrow else worst
        return f"{_FACTOR} times the noise of {self.noise[worst]:.2g} from {what}, rounded up"


def suggest(
    bundle: Bundle, inputs: Mapping[str, Array], engine: str = "reference", *, seed: int = 0
) -> dict[str, Suggestion]:
    """Measure what rounding does to a model's outputs and suggest tolerances.

    The model runs with one and with several threads; operator by operator instead of fused; in float64, as far as
    `loadrun.engines.wide` has formulas; and with each of its inputs and weights moved by one unit in the last place,
    up, down or not at all, at random, which shows how it amplifies rounding anywhere. The suggestion is ten times the
    largest error, rounded up to 1, 2 or 5 times a power of ten, and at least 1e-6 (of small outputs: of their scale).

    Args:
        bundle: the model; checks that it has do not matter.
        inputs: arrays by input name.
        engine: name of the engine.
        seed: seed of the model's random operators.

    Raises:
        InputError: an input is missing, unknown, or of another dtype.
        EngineError: an operator failed.

    >>> import loadrun
    >>> bundle = loadrun.load("fixtures/nets/mlp.mge")
    >>> 1e-6 <= suggest(bundle, bundle.testcases[0].inputs)["out"].maxerr <= 1e-4
    True
    """
    model = Bundle(bare(bundle))
    feeds = fit_inputs(model, inputs)
    outputs = model.outputs
    base = make_engine(engine, model.graph, list(outputs.values()), seed=seed)
    expect = [a.copy() for a in base.run(feeds)]
    noise: dict[str, dict[str, float]] = {n: {} for n in outputs}

    def note(what: str, values: list[Array]) -> None:
        for name, e, g in zip(outputs, expect, values, strict=True):
            same = e.shape == g.shape
            # In float64: the float32 measure does not see half a unit in the last place.
            error = float(errors(e, g).max()) if same and e.size and e.dtype.kind in "biuf" else 0.0
            # What is not finite has no error, and no tolerance would help it.
            noise[name][what] = max(noise[name].get(what, 0.0), error if math.isfinite(error) else 0.0)

    before = threads()
    try:
        for count in {1, max(2, before)}:
            set_threads(count)
            fresh = make_engine(engine, model.graph, list(outputs.values()), seed=seed)
            note("the number of threads", fresh.run(feeds))
    finally:
        set_threads(before)
    if isinstance(base, ReferenceEngine):
        note("executing operators one by one", base.run(feeds, observe=lambda opr, values: None))
    exact = WideEngine(model.graph, list(outputs.values()), seed=seed)
    note(_FLOAT64, exact.run(feeds))
    for i in range(_RUNS):
        rng = np.random.default_rng(i)
        moved, known = subgraph(model.graph, model.graph.outputs)
        for opr in moved.oprs:
            for tensor in opr.tensors:
                if tensor.data is not None and tensor.dtype.name in _BITS and opr.type != "Host2DeviceCopy":
                    tensor.data = encode(_move(tensor.value(), tensor.dtype, rng), tensor.dtype)
        dtypes = {v.name or "": v.owner.tensors[0].dtype for v in model.inputs}
        shaken = {n: _move(a, dtypes[n], rng) for n, a in feeds.items()}
        engine_ = make_engine(engine, moved, [known[v.id] for v in outputs.values()], seed=seed)
        note("rounding of inputs and weights", engine_.run(shaken))
    least = {n: default_maxerr(magnitude(e), _LEAST) for n, e in zip(outputs, expect, strict=True)}
    return {
        n: Suggestion(
            round_up(max(measured.values()), least[n]), measured, exact.wide, dict(exact.narrow), least[n]
        )
        for n, measured in noise.items()
    }


def beyond(
    bundle: Bundle, inputs: Mapping[str, Array], engine: str, *, seed: int = 0
) -> dict[str, Suggestion]:
    """Suggest tolerances for outputs that rounding alone brings near the usual one, by one run in double precision.

    MegEngine adds in another order than the reference engine, so its rounding is as large as what is measured here;
    such an output would fail there although nothing is wrong.

    Args:
        bundle, inputs, engine, seed: as in `suggest`.

    Returns:
        suggestions for outputs that are off by more than a quarter of their usual tolerance; none for a model that
        cannot be measured, nor beyond `WIDEST`, which no tolerance would cover.
    """
    model = Bundle(bare(bundle))
    outputs = {n: v for n, v in model.outputs.items() if v.dtype is not None and v.dtype.name == "Float32"}
    try:
        feeds = fit_inputs(model, inputs)
        expect = make_engine(engine, model.graph, list(outputs.values()), seed=seed).run(feeds)
        exact = WideEngine(model.graph, list(outputs.values()), seed=seed)
        values = exact.run(feeds)
    except LoadRunError:
        # What fails here fails again, and is reported, when the testcases are computed.
        return {}
    suggestions = {}
    # What is computed in few bits has their tolerance already.
    coarse = coarse_limits(outputs)
    for name, e, g in zip(outputs, expect, values, strict=True):
        error = float(errors(e, g).max()) if e.shape == g.shape and e.size else 0.0
        size = default_maxerr(magnitude(e)) / MAXERR
        usual = default_maxerr(magnitude(e), coarse.get(name, MAXERR))
        if usual / 4 < error <= WIDEST * size:
            least = _LEAST * size
            suggestions[name] = Suggestion(
                round_up(error, least), {_FLOAT64: error}, exact.wide, dict(exact.narrow), least, usual
            )
    return suggestions


def widened(
    bundle: Bundle, cases: Iterator[dict[str, Array]], options: PackOptions, warn: Warn
) -> tuple[Iterator[dict[str, Array]], PackOptions, dict[str, str]]:
    """Widen the usual tolerance where rounding alone, measured on the first testcase, comes near it.

    Returns:
        the testcases, the options with these tolerances, and the reasons by output.
    """
    first = next(cases, None)
    if first is None:
        return cases, options, {}
    wider = beyond(bundle, first, options.engine, seed=options.seed)
    for name, s in wider.items():
        warn(f"the tolerance of {name!r} is {s.maxerr:g} instead of {s.usual:g}: {s.reason}")
    if wider:
        options = replace(options, maxerr={n: s.maxerr for n, s in wider.items()})
    return chain([first], cases), options, {n: s.reason for n, s in wider.items()}


def _move(value: Array, dtype: DType, rng: np.random.Generator) -> Array:
    """Move every number but small integers, which rounding leaves alone, to a neighbour, or leave it.

    >>> _move(np.full(4, 0.1, "f4"), DType("Float32"), np.random.default_rng(0)).tolist()
    [0.10000000894069672, 0.10000000149011612, 0.10000000149011612, 0.09999999403953552]
    """
    bits = _BITS.get(dtype.name)
    if bits is None:
        return value
    wide = value.astype(np.float64)
    exact = (wide == np.rint(wide)) & (np.abs(wide) <= 256)
    with np.errstate(over="ignore", invalid="ignore"):
        step = np.ldexp(rng.integers(-1, 2, wide.shape).astype(np.float64), np.frexp(wide)[1] - bits)
        return np.where(exact, wide, wide + step).astype(dtype.np)


def round_up(noise: float, least: float = _LEAST) -> float:
    """Choose the tolerance for a noise.

    >>> round_up(3e-7), round_up(0.0), round_up(2.3e-4)
    (5e-06, 1e-06, 0.005)
    """
    wanted = max(noise * _FACTOR, least)
    power = math.floor(math.log10(wanted))
    for factor in (1, 2, 5, 10):
        tolerance = float(f"{factor}e{power}")
        if tolerance >= wanted * (1 - 1e-9):
            return tolerance
    return float(f"1e{power + 1}")


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
