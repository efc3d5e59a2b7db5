"""Engines side by side: the same data for each, the same criteria, and their differences."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..base.errors import LoadRunError
from ..compare import Comparison, compare
from ..compare.judging import Criteria, judge, policy_for
from ..compare.policy import Policy
from ..compare.results import OutputResult, Result, Verdict
from ..compare.tolerances import default_maxerr, magnitude
from ..engines import Choice, runs_file
from ..graph.dtypes import Array, dequantized
from ..runner import Runner
from ..testcase import Bundle, Testcase


class EngineComparison:
    """Replays a file on several engines.

    Where no check compares, the first engine is the baseline: MegEngine's measure at most 1e-4, of their
    scale where outputs are small, integers equal, or what a policy says. Beyond it an output fails; within it is not
    compared, as no value was expected, but for a policy, which says what it must fulfil.

    Args:
        bundle: the file.
        engines: the engines; the first is what the others are compared with.
        seed: seed of random operators.
        policies: what outputs must fulfil besides, by name.

    >>> import loadrun
    >>> bundle = loadrun.load("fixtures/nets/mlp.mge")
    >>> beside = EngineComparison(bundle, [Choice("reference"), Choice("float64")])
    >>> first, second = beside.check(bundle.testcases[0], 0)
    >>> first.verdict.value, second.verdict.value, second.choice
    ('pass', 'pass', 'float64')
    >>> second.apart["out"].max_error < 1e-5
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
        self.engines = list(engines)
        self.policies = dict(policies or {})
        self._runners = [Runner(bundle, c, seed=seed, policies=policies) for c in engines]
        self._ran: set[str] = set()

    def check(self, case: Testcase, index: int) -> tuple[Result, ...]:
        """Replay a testcase on every engine."""
        return self._round(index, lambda runner: runner.check(case, index))

    def run(self, feeds: Mapping[str, Array], index: int | None) -> tuple[Result, ...]:
        """Run every engine on given data, which is called by a number."""
        return self._round(index, lambda runner: replace(runner.run(feeds), index=index))

    def time(self, case: Testcase, iterations: int, warmup: int) -> dict[str, tuple[float, ...]]:
        """Time further runs, the engines taking turns, so that what else the machine does disturbs all alike.

        Returns:
            the seconds of each run by engine, without those engines that failed before.
        """
        pairs = zip(self.engines, self._runners, strict=True)
        alive = {c.spec: r for c, r in pairs if c.spec in self._ran}
        times: dict[str, list[float]] = {name: [] for name in alive}
        feeds = {name: runner.inputs_of(case) for name, runner in alive.items()}
        for i in range(warmup + iterations):
            for name, runner in alive.items():
                start = time.perf_counter()
                runner.run(feeds[name])
                if i >= warmup:
                    times[name].append(time.perf_counter() - start)
        return {name: tuple(seconds) for name, seconds in times.items()}

    def _round(self, index: int | None, run: Callable[[Runner], Result]) -> tuple[Result, ...]:
        results: list[Result] = []
        for choice, runner in zip(self.engines, self._runners, strict=True):
            try:
                result = run(runner)
                self._ran.add(choice.spec)
            except (LoadRunError, OSError) as e:
                # If only the file's own runtime can run it, that is not a fault of the other engines.
                apart = self.bundle.source.refusal is not None and not runs_file(choice)
                verdict = Verdict.NOT_COMPARED if apart else Verdict.ERROR
                result = Result(index, (), verdict, message=str(e))
            results.append(replace(result, choice=choice.spec))
        first = {o.name: o for o in results[0].outputs}
        return (replace(results[0], baseline=True), *(self._held(r, first) for r in results[1:]))

    def _held(self, result: Result, first: Mapping[str, OutputResult]) -> Result:
        """Compare a result with the first engine's, by which outputs without a check are judged."""
        outs = tuple(self._judged(o, first.get(o.name)) for o in result.outputs)
        if not outs:
            return result
        verdict = Verdict.of_outputs(outs)
        return replace(result, outputs=outs, verdict=verdict, apart=_apart(result, first))

    def _judged(self, out: OutputResult, first: OutputResult | None) -> OutputResult:
        unchecked = (
            out.maxerr is None and out.reason is None and not out.in_place and out.dtype.name != "String"
        )
        if not unchecked or first is None or first.value is None or out.value is None:
            return out
        exact = not out.dtype.is_quantized and out.dtype.np.kind in "iub"
        policy = policy_for(self.policies, out.name)
        expected = dequantized(first.value, out.dtype, np.float32)
        limit = 0.0 if exact else default_maxerr(magnitude(expected))
        criteria = Criteria(out.name, out.dtype, limit, policy=policy, loosen=True)
        judged = judge(criteria, expected, dequantized(out.value, out.dtype, np.float32))
        agrees_only = judged.verdict is Verdict.PASS and not policy.text
        return replace(judged, verdict=Verdict.NOT_COMPARED) if agrees_only else judged


def _apart(result: Result, first: Mapping[str, OutputResult]) -> dict[str, Comparison]:
    """Measure how far outputs are from the first engine's."""
    comparisons: dict[str, Comparison] = {}
    for out in result.outputs:
        other = first.get(out.name)
        if other is None or other.value is None or out.value is None or out.value.dtype.kind in "cU":
            continue
        expected, value = (dequantized(v, out.dtype, np.float32) for v in (other.value, out.value))
        comparisons[out.name] = compare(expected, value, out.dtype)
    return comparisons
