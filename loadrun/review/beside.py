"""Engines side by side: the same data through each, each judged alike, and what lies between them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..compare import Comparison, compare
from ..dtypes import Array, DType
from ..engines import About, Choice
from ..errors import LoadRunError
from ..runner import Runner
from ..testcase import Bundle
from ..verdicts.judging import Question, judge, policy_for
from ..verdicts.policy import Policy
from ..verdicts.results import OutputResult, Result, Verdict

__all__ = ["Beside", "Entrant", "Round"]

MAXERR = 1e-4
"""The tolerance between engines where no check gives one; integers must be equal."""


@dataclass(frozen=True)
class Round:
    """One testcase on every engine.

    Attributes:
        index: number of the testcase, None for data that was given.
        results: one for each engine, in order.
        apart: for each engine by output how far it is from the first one.
    """

    index: int | None
    results: tuple[Result, ...]
    apart: tuple[Mapping[str, Comparison], ...]


@dataclass(eq=False)
class Entrant:
    """An engine and what its results came to.

    Attributes:
        choice: its name, and how it is made.
        about: its version, provider and arithmetic; None while it did not run.
        verdicts: those of its results.
        seconds: wall times of the replays, and then of the runs that were asked for.
        error: by output the largest error from the first engine, by MegEngine's measure.
    """

    choice: Choice
    about: About | None = None
    verdicts: set[Verdict] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)
    error: dict[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """The worst of its results'."""
        return Verdict.worst(self.verdicts)


class Beside:
    """Replays a file on several engines.

    What no check compares is held against the first engine: MegEngine's measure at most 1e-4, integers equal, or what
    a policy says.

    Args:
        bundle: the file.
        engines: the engines; the first is what the others are compared with.
        seed: seed of random operators and random data.
        policies: what outputs must fulfil besides, by name.

    >>> import loadrun
    >>> beside = Beside(loadrun.load("fixtures/nets/mlp.mge"), [Choice("reference"), Choice("float64")])
    >>> [[r.verdict.value for r in found.results] for found in beside.rounds()][0]
    ['pass', 'pass']
    >>> beside.entrants[1].error["out"] < 1e-5
    True
    """

    def __init__(
        self,
        bundle: Bundle,
        engines: Sequence[Choice],
        *,
        seed: int = 0,
        policies: Mapping[str, Policy] | None = None,
    ) -> None:
        self.bundle = bundle
        self.entrants = [Entrant(choice) for choice in engines]
        self.policies = dict(policies or {})
        self._runners = [Runner(bundle, c, seed=seed, policies=policies) for c in engines]

    def rounds(self, cases: Iterable[Mapping[str, Array]] | None = None) -> Iterator[Round]:
        """Run every testcase, or the data that is given; a model without either runs once on random data."""
        if cases is not None:
            for i, case in enumerate(cases):
                yield self._round(i, case)
        elif len(self.bundle.testcases):
            for i in range(len(self.bundle.testcases)):
                yield self._round(i, None)
        else:
            yield self._round(None, {})

    def time(self, feeds: Mapping[str, Array], iterations: int, warmup: int) -> None:
        """Time further runs, the engines taking turns, so that what else the machine does disturbs all alike."""
        alive = [(e, r) for e, r in zip(self.entrants, self._runners, strict=True) if e.about is not None]
        for entrant, _ in alive:
            entrant.seconds.clear()
        for i in range(warmup + iterations):
            for entrant, runner in alive:
                start = time.perf_counter()
                runner.run(feeds)
                if i >= warmup:
                    entrant.seconds.append(time.perf_counter() - start)

    def _round(self, index: int | None, case: Mapping[str, Array] | None) -> Round:
        results: list[Result] = []
        for entrant, runner in zip(self.entrants, self._runners, strict=True):
            try:
                found = _result(runner, index, case)
            except (LoadRunError, OSError) as e:
                found = Result(index, (), Verdict.ERROR, message=str(e))
            if found.verdict is not Verdict.ERROR:
                entrant.about = runner.about
                entrant.seconds.append(found.seconds)
            results.append(found)
        first = {o.name: o for o in results[0].outputs}
        held = [results[0], *(self._held(r, first) for r in results[1:])]
        apart: list[dict[str, Comparison]] = []
        for entrant, result in zip(self.entrants, held, strict=True):
            entrant.verdicts.add(result.verdict)
            apart.append(_apart(result, first))
            for name, between in apart[-1].items():
                entrant.error[name] = _worse(entrant.error.get(name, 0.0), between.max_error)
        return Round(index, tuple(held), tuple(apart))

    def _held(self, result: Result, first: Mapping[str, OutputResult]) -> Result:
        """A result whose unchecked outputs are judged by the first engine's."""
        outs = tuple(self._judged(o, first.get(o.name)) for o in result.outputs)
        if not outs:
            return result
        return replace(result, outputs=outs, verdict=Verdict.worst(o.verdict for o in outs))

    def _judged(self, out: OutputResult, first: OutputResult | None) -> OutputResult:
        unchecked = out.maxerr is None and out.reason is None
        if not unchecked or first is None or first.value is None or out.value is None:
            return out
        exact = not out.dtype.is_quantized and out.dtype.np.kind in "iub"
        policy = policy_for(self.policies, out.name)
        question = Question(out.name, out.dtype, 0.0 if exact else MAXERR, policy=policy, loosen=True)
        return judge(question, _numbers(first.value, out.dtype), _numbers(out.value, out.dtype))


def _result(runner: Runner, index: int | None, case: Mapping[str, Array] | None) -> Result:
    if case is None:
        assert index is not None
        return runner.check(runner.bundle.testcases[index], index)
    return replace(runner.run(case or None), index=index)


def _apart(result: Result, first: Mapping[str, OutputResult]) -> dict[str, Comparison]:
    """How far outputs are from the first engine's."""
    found: dict[str, Comparison] = {}
    for out in result.outputs:
        other = first.get(out.name)
        if other is None or other.value is None or out.value is None or out.value.dtype.kind == "c":
            continue
        found[out.name] = compare(_numbers(other.value, out.dtype), _numbers(out.value, out.dtype))
    return found


def _worse(a: float, b: float) -> float:
    """The larger error; NaN is the largest."""
    return b if b > a or b != b else a


def _numbers(value: Array, dtype: DType) -> Array:
    """What stored values stand for."""
    if not dtype.is_quantized:
        return value
    return (value.astype("f4") - dtype.zero_point) * dtype.scale
