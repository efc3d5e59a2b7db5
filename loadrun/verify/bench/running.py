"""Models measured: load, first run and steady state apart, several in turns.

A runtime's threads wait actively after a run for the next one, and would take the processors from another engine that
is measured meanwhile: in one process that made engines 4 to 5 times slower than they are. So subjects of different
runtimes have processes of their own, rounds take turns, and a round ends when the threads of its process sleep.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple, cast

from ...base.errors import EngineError, LoadRunError, UsageError
from ...base.pipes import Child, receive, send, serve
from ...base.stages import tell
from ...dump import load
from ...engines import runs_file
from ...engines.liveness import PeakMeter
from ...engines.reference import ReferenceEngine
from ...engines.registry import known_elsewhere
from ...graph.dtypes import Array, nbytes
from ...inputs.feeds import random_inputs, repeated_to
from ...ops.infer import infer_dtypes, infer_shapes
from ...ops.numeric.parallel import set_threads, thread_environment, threads
from ...runner import Runner, Verdict
from ...testcase import Bundle, Testcase
from .timing import Measurement, Round, Subject, uncollected

_QUIET, _AWAKE = 0.005, 0.1
_LONGEST = 1.0


class Preparation(NamedTuple):
    """How a subject is made ready.

    Attributes:
        threads: how many threads it uses.
        testcase: the only testcase to run, default all.
        seed: seed of random inputs.
        read: options of `loadrun.load` for ONNX models: input_shapes, constants.
    """

    threads: int
    testcase: int | None
    seed: int
    read: Mapping[str, Any]


class ReadySubject:
    """A subject that can be run.

    Args:
        subject: what is measured.
        plan: how.

    Raises:
        LoadRunError: it cannot be read or run.
    """

    def __init__(self, subject: Subject, plan: Preparation) -> None:
        self._threads = plan.threads
        set_threads(self._threads)
        start = time.perf_counter()
        bundle = load(subject.path, native=runs_file(subject.engine), **plan.read)
        took = time.perf_counter() - start
        if subject.batch is not None and bundle.at_all_sizes:
            # Another batch is asked for, whatever the file declares.
            bundle.source.refuses = None
        self._runner = runner = Runner(bundle, subject.engine, seed=plan.seed)
        cases, verdict = _cases(bundle, subject, plan)
        self._fed = [runner.inputs_of(case) for case in cases]
        start = time.perf_counter()
        runner.run(self._fed[0])
        first = time.perf_counter() - start
        self._pass()
        memory, feeds = None, [c.inputs for c in cases]
        if subject.engine == "reference":
            memory = max(peak_memory(bundle.for_data(f), f, plan.seed).peak for f in feeds)
        flops, weights = _costs(bundle, feeds)
        about = runner.about.text
        mean = None if flops is None else flops / len(cases)
        self.measured = Measurement(subject, took, first, len(cases), mean, memory, weights, verdict, about)

    def _pass(self) -> list[float]:
        return [self._runner.run(fed).seconds for fed in self._fed]

    def round(self, seconds: float) -> Round:
        """Run passes for some time, at least one."""
        set_threads(self._threads)
        if seconds > self.measured.first:
            # The first pass after a pause finds cold caches and sleeping threads.
            self._pass()
        each: list[list[float]] = []
        with uncollected():
            processor, began = time.process_time_ns(), time.perf_counter()
            while not each or time.perf_counter() - began < seconds:
                each.append(self._pass())
            span = time.perf_counter() - began
            return Round(each, (time.process_time_ns() - processor) * 1e-9, span)

    def settle(self) -> None:
        """Wait until the engine's threads sleep: those of a runtime spin for some time after its last run."""
        until = time.perf_counter() + _LONGEST
        while time.perf_counter() < until:
            before = time.process_time()
            time.sleep(_QUIET)
            if time.process_time() - before < _AWAKE * _QUIET:
                return


def _cases(bundle: Bundle, subject: Subject, plan: Preparation) -> tuple[list[Testcase], Verdict]:
    """Return the data to run on, and what the checks say about it."""
    count = len(bundle.testcases)
    if plan.testcase is not None and not 0 <= plan.testcase < count:
        raise UsageError(
            f"{subject.path}: there is no testcase {plan.testcase}; the file has {count}, counted from 0"
        )
    chosen = range(count) if plan.testcase is None else (plan.testcase,)
    cases = [bundle.testcases[i] for i in chosen] or [Testcase(random_inputs(bundle, plan.seed))]
    if subject.batch is not None:
        # One batch is one testcase: others would be the same shape once more.
        inputs = {n: repeated_to(a, subject.batch) for n, a in cases[0].inputs.items()}
        return [Testcase(inputs)], Verdict.NOT_COMPARED
    if not count:
        return cases, Verdict.NOT_COMPARED
    fresh = Runner(bundle, subject.engine, seed=plan.seed)
    return cases, Verdict.worst(fresh.replay_one(i).verdict for i in chosen)


def _costs(bundle: Bundle, feeds: Iterable[Mapping[str, Array]]) -> tuple[int | None, int]:
    """Operations of a pass, None if one is unknown, and bytes of constants."""
    total, weights = 0, 0
    costs: dict[tuple[object, ...], int] = {}
    for f in feeds:
        sized = bundle.for_data(f)
        key = (id(sized.graph), *((n, a.shape) for n, a in f.items()))
        if key in costs:
            total += costs[key]
            continue
        oprs = sized.graph.needed(sized.outputs.values())
        infer_dtypes(oprs)
        weights = sum(
            nbytes(t.shape or (), t.dtype) for o in oprs if o.type != "Host2DeviceCopy" for t in o.tensors
        )
        try:
            known = infer_shapes(sized.graph, oprs, {n: a.shape for n, a in f.items()})
        except LoadRunError:
            return None, weights
        if any(o.id not in known.flops for o in oprs if o.type != "Host2DeviceCopy"):
            return None, weights
        costs[key] = sum(known.flops.values())
        total += costs[key]
    return total, weights


def peak_memory(bundle: Bundle, feeds: Mapping[str, Array], seed: int = 0) -> PeakMeter:
    """Measure peak memory of intermediate values in one run on the reference engine, and which they are."""
    engine = ReferenceEngine(bundle.graph, list(bundle.outputs.values()), seed=seed)
    engine.run(feeds)
    meter = PeakMeter(feeds.values())
    engine.run(feeds, memory=meter)
    return meter


class SubjectProcess:
    """A `ReadySubject` in a process that ends with the block.

    Attributes:
        measured: what was measured so far.

    Args:
        subject: what is measured.
        plan: how.

    Raises:
        LoadRunError: it cannot be read or run, or the process died of it.
    """

    def __init__(self, subject: Subject, plan: Preparation) -> None:
        self._name = f"{subject.path} on {subject.engine}"
        self._child = Child(__name__, thread_environment(plan.threads))
        try:
            self.measured = cast("Measurement", self._ask((subject, plan)))
        except BaseException:
            self._child.end()
            raise

    def __enter__(self) -> SubjectProcess:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._child.end()

    def round(self, seconds: float) -> Round:
        """Make passes for some time; see `ReadySubject.round`. Its threads sleep again when this returns."""
        return cast("Round", self._ask(seconds))

    def settle(self) -> None:
        """Do nothing: the process answers when its threads sleep."""

    def _ask(self, message: object) -> object:
        try:
            self._child.send(message)
            answer, _ = self._child.receive()
        except (EOFError, OSError):
            raise EngineError(f"{self._name}: {self._child.died_of()}") from None
        if isinstance(answer, (LoadRunError, OSError)):
            raise answer
        return answer


def main() -> None:
    """Make a subject ready, then answer with rounds until the parent closes the pipe, or is gone."""
    source, answers = serve()
    try:
        (subject, plan), _ = receive(source)
        ready = ReadySubject(subject, plan)
        send(answers, ready.measured)
        while True:
            seconds, _ = receive(source)
            times = ready.round(seconds)
            ready.settle()
            send(answers, times)
    except (EOFError, BrokenPipeError):
        return
    except (LoadRunError, OSError) as e:
        send(answers, e)


_LEAST = 5
_MOST = 100_000
_ROUNDS = 10
"""Rounds that the least time is divided into, where subjects have processes of their own."""
_SLEEPING = ("reference", "float64", "numba")
"""Engines whose threads sleep when idle."""


def run_subjects(
    subjects: Sequence[Subject],
    *,
    seconds: float = 3.0,
    passes: int = _LEAST,
    testcase: int | None = None,
    seed: int = 0,
    read: Mapping[str, Any] | None = None,
    failed: Callable[[Subject, LoadRunError | OSError], None] | None = None,
) -> list[Measurement]:
    """Measure subjects in turns, so that what changes meanwhile changes all of them.

    Args:
        subjects: what to measure.
        seconds: the least time for each of them.
        passes: the minimum number of passes for each of them.
        testcase: the only testcase to run, default all.
        seed: seed of random inputs, and of the order within rounds.
        read: options of `loadrun.load` for ONNX models: input_shapes, constants.
        failed: told of a subject that cannot be read or run; the others are measured. None raises the error.

    Returns:
        what was measured.

    Raises:
        LoadRunError: a file cannot be read or run.
    """
    before = threads()
    with ExitStack() as stack:
        stack.callback(set_threads, before)
        ready: list[ReadySubject | SubjectProcess] = []
        apart = len(subjects) > 1 and any(s.engine not in _SLEEPING for s in subjects)
        for s in subjects:
            plan = Preparation(s.threads or before, testcase, seed, read or {})
            try:
                if apart and known_elsewhere(s.engine):
                    ready.append(stack.enter_context(SubjectProcess(s, plan)))
                else:
                    ready.append(ReadySubject(s, plan))
            except (LoadRunError, OSError) as e:
                if failed is None:
                    raise
                failed(s, e)
        length = seconds / _ROUNDS if apart else 0.0
        order = random.Random(seed)
        made, spans = [0] * len(ready), [0.0] * len(ready)
        while any(n < _MOST and (n < passes or s < seconds) for n, s in zip(made, spans, strict=True)):
            for i in order.sample(range(len(ready)), len(ready)):
                done = ready[i].round(length)
                ready[i].measured.rounds.append(done)
                made[i] += len(done.each)
                spans[i] += done.span
                if apart:
                    ready[i].settle()
            tell(f"measuring {min(*spans, seconds) / seconds if seconds else 1.0:.0%}")
    return [r.measured for r in ready]
