"""A file's testcases against any function (a module of another framework, a session), and engines side by side."""

import inspect
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from ..base.errors import InputError, LoadRunError, UsageTypeError
from ..compare import Comparison, compare
from ..compare.judging import Criteria, judge, policy_for
from ..compare.policy import Policy, require_compared
from ..compare.record import packed_policies
from ..compare.results import OutputResult, Result, Tolerance, Verdict
from ..compare.tolerances import default_maxerr, magnitude
from ..dump import load
from ..engines import runs_file
from ..graph import Var
from ..graph.dtypes import Array, DType, dequantized, dtype_of
from ..passes.checks import compared
from ..runner import Runner, faulty
from ..testcase import Bundle, Check, Testcase
from .pack.capture import limits_of

_Call = Callable[[Mapping[str, Array]], dict[str, Array]]


def check(
    function: object,
    bundle: Bundle | str | os.PathLike[str],
    *,
    maxerr: Mapping[str, float] | float | None = None,
    policies: Mapping[str, Policy] | None = None,
) -> list[Result]:
    """Run a function on a file's testcases and judge what it returns by the file's checks.

    Args:
        function: takes the inputs by keyword where its parameters have their names, else in the order of
            `Bundle.inputs`. A torch module gets tensors, an ONNX Runtime session its feeds. It returns an array, a
            sequence in the order of `Bundle.outputs`, or a mapping by output name; whatever numpy makes an array of
            counts as one.
        bundle: a path, or what `loadrun.load` returned.
        maxerr: another tolerance, for all outputs or by name; one greater than the file's is reported as loosened.
        policies: what must hold besides, by output name; default is what the file was packed with.

    Returns:
        one `Result` per testcase, as `loadrun.run` gives; an exception of the function is the verdict error.

    Raises:
        InputError: the file holds no testcases.
        UsageError: a tolerance or a policy is for an output that has no check, or a tolerance is negative or
            not finite.

    >>> import loadrun
    >>> network = loadrun.Runner("fixtures/nets/mlp.mge")
    >>> def rewritten(data):
    ...     return network.run({"data": data})["out"]
    >>> [r.verdict.value for r in check(rewritten, "fixtures/nets/mlp.mge")]
    ['pass', 'pass', 'pass']
    """
    bundle = bundle if isinstance(bundle, Bundle) else load(bundle)
    if not len(bundle.testcases):
        raise InputError("the file has no testcases to run the function on")
    packed, loosened = packed_policies(bundle.record)
    limits = limits_of(maxerr, bundle.outputs)
    every = {**packed, **(policies or {})}
    require_compared([*(policies or {}), *limits], bundle.outputs, [c.name for c in bundle.checks])
    asked = []
    for assertion in bundle.checks:
        limit = limits.get(assertion.name, limits.get("", assertion.maxerr))
        policy = policy_for(every, assertion.name)
        asked.append(_Asked(assertion, limit, policy, loosened.get(assertion.name)))
    names = list(bundle.outputs)
    call = _caller(function, [v.name or "" for v in bundle.inputs], names)
    return [_result(i, bundle.testcases[i], call, asked, names) for i in range(len(bundle.testcases))]


class _Asked:
    """A check, and the graph input that holds its expected value."""

    def __init__(self, check: Check, limit: float, policy: Policy, loosened: float | None) -> None:
        self.name = check.name
        source: Var = compared(check)[0]
        while source.owner.type != "Host2DeviceCopy" and source.owner.inputs:
            source = source.owner.inputs[0]
        self.source = source.name or ""
        before = check.maxerr if limit > check.maxerr else loosened
        self.limit, self.policy, self.loosened = limit, policy, before


def _result(
    index: int,
    case: Testcase,
    call: _Call,
    asked: Sequence[_Asked],
    names: list[str],
) -> Result:
    start = time.perf_counter()
    try:
        values = call(case.inputs)
    except Exception as e:
        return Result(index, (), Verdict.ERROR, message=f"the function failed: {type(e).__name__}: {e}")
    seconds = time.perf_counter() - start
    outs = []
    for a in asked:
        stored = case.arrays.get(a.source)
        if a.name not in values or stored is None:
            what = (
                "the function returned no such output"
                if stored is not None
                else "the testcase has no expected value for it"
            )
            verdict = Verdict.FAIL if stored is not None else Verdict.NOT_COMPARED
            outs.append(
                OutputResult(a.name, (), DType("Float32"), verdict, Tolerance(a.limit), notes=(what,))
            )
            continue
        dtype = case.dtypes.get(a.source) or dtype_of(stored)
        got = values[a.name]
        expect = dequantized(stored, dtype, np.float32) if got.dtype.kind == "f" else stored
        criteria = Criteria(a.name, dtype_of(got), a.limit, policy=a.policy, loosened=a.loosened)
        outs.append(judge(criteria, expect, got))
    checked = {a.name for a in asked}
    for name in names:
        if name in values and name not in checked:
            got = values[name]
            outs.append(OutputResult(name, got.shape, dtype_of(got), Verdict.NOT_COMPARED, value=got))
    if case.faults:
        outs = faulty(outs, case.faults)
    return Result(index, tuple(outs), Verdict.of_outputs(outs), seconds)


def _caller(
    function: Any,  # noqa: ANN401 - a session, a module, or anything that can be called
    inputs: list[str],
    outputs: list[str],
) -> _Call:
    """Return a callable that passes inputs by name to a function and returns its outputs by name."""
    if not callable(function) and hasattr(function, "run") and hasattr(function, "get_inputs"):
        named = {v.name for v in function.get_inputs()}
        names = [v.name for v in function.get_outputs()]

        def session(feeds: Mapping[str, Array]) -> dict[str, Array]:
            values = function.run(None, {n: a for n, a in feeds.items() if n in named})
            known = names if set(outputs) <= set(names) else outputs
            return _by_output_name(dict(zip(known, values, strict=False)), outputs)

        return session
    if not callable(function):
        kind = type(function).__name__
        raise UsageTypeError(f"function of check() must be a function, a module or a session, found a {kind}")
    torch = sys.modules.get("torch")
    module = torch is not None and isinstance(function, torch.nn.Module)
    keywords = _keywords(function.forward if module else function, inputs)

    def call(feeds: Mapping[str, Array]) -> dict[str, Array]:
        values: dict[str, Any] = {n: np.array(feeds[n]) for n in inputs}
        with ExitStack() as stack:
            if torch is not None and module:
                values = {n: torch.from_numpy(v) for n, v in values.items()}
                stack.enter_context(torch.no_grad())
            return _by_output_name(function(**values) if keywords else function(*values.values()), outputs)

    return call


def _keywords(function: Callable[..., object], names: list[str]) -> bool:
    """Return whether every input is the name of a parameter."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return all(n in parameters and parameters[n].kind is not inspect.Parameter.POSITIONAL_ONLY for n in names)


def _by_output_name(values: object, outputs: list[str]) -> dict[str, Array]:
    """Return a function's results by output name."""
    if isinstance(values, Mapping):
        return {str(n): _array(v) for n, v in values.items()}
    if not isinstance(values, (tuple, list)):
        values = [values]
    if len(values) != len(outputs):
        raise InputError(f"the function returned {len(values)} values, the outputs are {', '.join(outputs)}")
    return {n: _array(v) for n, v in zip(outputs, values, strict=True)}


def _array(value: object) -> Array:
    """Convert a value to an array of a dtype that a graph has: 64 bits become 32 where that keeps integers."""
    value = value.detach().cpu() if hasattr(value, "detach") else value
    array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    if array.dtype == np.float64:
        return array.astype(np.float32)
    if array.dtype == np.int64 and np.array_equal(array.astype(np.int32), array):
        return array.astype(np.int32)
    return array


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
    >>> beside = EngineComparison(bundle, ["reference", "float64"])
    >>> first, second = beside.check(bundle.testcases[0], 0)
    >>> first.verdict.value, second.verdict.value, second.choice
    ('pass', 'pass', 'float64')
    >>> second.apart["out"].max_error < 1e-5
    True
    """

    def __init__(
        self,
        bundle: Bundle,
        engines: Sequence[str],
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
        alive = {c: r for c, r in pairs if c in self._ran}
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
                self._ran.add(choice)
            except (LoadRunError, OSError) as e:
                # If only the file's own runtime can run it, that is not a fault of the other engines.
                apart = self.bundle.source.refusal is not None and not runs_file(choice)
                verdict = Verdict.NOT_COMPARED if apart else Verdict.ERROR
                result = Result(index, (), verdict, message=str(e))
            results.append(replace(result, choice=choice))
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
        unchecked = out.tolerance.maxerr is None and out.reason is None and out.dtype.name != "String"
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
