"""Mutants of a model and its testcases: do the checks catch faults?"""

import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np

from ..base.errors import Failure, LoadRunError, failure
from ..base.files import files_of
from ..base.pipes import mapped
from ..base.stages import stage
from ..compare.results import EXIT_FAIL, EXIT_NOT_COMPARED, EXIT_PASS, Result, Verdict
from ..dump import load_all
from ..graph import Graph
from ..graph.dtypes import Array
from ..inputs.feeds import ModelOptions
from ..runner import Runner
from ..testcase import Bundle, Testcase
from .audit_mutants import (
    CASE_KINDS,
    ELEMENT,
    EXPECTED,
    Walk,
    Weight,
    case_mutants,
    drawn,
    equal_testcases,
    mutant,
    weights,
)

NO_CHECK = "no check"
"""The reason for an output without an expected value."""
_MOST_CASES = 16
"""Maximum testcases on which mutants are tried, evenly spaced."""
_Z = 1.959964
"""Standard deviations around the mean that contain 95 % of a normal distribution."""
Counts = dict[str, int]
T = TypeVar("T")


@dataclass
class Score:
    """The score of an output's check, or of all checks of a file.

    Attributes:
        output: name of the output, empty for the file.
        caught: mutants that failed, by what was changed.
        passed: those that changed the output and passed all the same.
        unmoved: those that changed nothing although they should have: weights that no testcase reaches, testcases that
            repeat another.
        reason: why the check compared nothing in the first place.
        elements: how many weight elements there are to draw from.
    """

    output: str
    caught: Counts = field(default_factory=dict)
    passed: Counts = field(default_factory=dict)
    unmoved: Counts = field(default_factory=dict)
    reason: str | None = None
    elements: int = 0

    @property
    def mutants(self) -> int:
        """The number of mutants."""
        return sum(sum(counts.values()) for counts in (self.caught, self.passed, self.unmoved))

    @property
    def value(self) -> float | None:
        """The share of wrong weight elements that is caught, times that of testcase mutants; None without mutants.

        None for a file, too, where there was no time for its weights.
        """
        if not self.output and self.elements and not self.caught_of((ELEMENT,))[1]:
            return None
        shares = [self.caught_of(kinds) for kinds in ((ELEMENT,), CASE_KINDS)]
        counted = [caught / drawn for caught, drawn in shares if drawn]
        return math.prod(counted) if counted else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of the score, since weight elements are a sample (Wilson's interval)."""
        caught, count = self.caught_of((ELEMENT,))
        value = self.value
        if value is None or not count or count >= self.elements:
            return None if value is None else (value, value)
        right, cases = self.caught_of(CASE_KINDS)
        low, high = _wilson(caught, count)
        rest = right / cases if cases else 1.0
        return low * rest, high * rest

    def caught_of(self, kinds: Sequence[str]) -> tuple[int, int]:
        """Count the mutants of some kinds that were caught, and all of them."""
        caught = sum(self.caught.get(k, 0) for k in kinds)
        return caught, caught + sum(counts.get(k, 0) for counts in (self.passed, self.unmoved) for k in kinds)

    def add(self, kind: str, outcome: bool | None) -> None:
        """Count a mutant: caught or not, None if it changed nothing."""
        counts = self.unmoved if outcome is None else self.caught if outcome else self.passed
        counts[kind] = counts.get(kind, 0) + 1


def _wilson(caught: int, count: int) -> tuple[float, float]:
    """Return the confidence interval of a share in a sample.

    >>> [round(x, 3) for x in _wilson(13, 60)]
    [0.131, 0.336]
    """
    middle = (caught + _Z * _Z / 2) / (count + _Z * _Z)
    half = _Z * math.sqrt(caught * (count - caught) / count + _Z * _Z / 4) / (count + _Z * _Z)
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass
class FileAudit:
    """The audit of one dump.

    Attributes:
        scores: one for every output; those without check caught nothing.
        whole: that of all checks together: a mutant is caught where one of them fails.
        findings: what lowers the score, a sentence each.
        testcases: how many testcases mutants were tried on.
        cut: whether the time budget ended before all mutants were tried.
    """

    scores: list[Score] = field(default_factory=list)
    whole: Score = field(default_factory=lambda: Score(""))
    findings: list[str] = field(default_factory=list)
    testcases: int = 0
    cut: bool = False


def audit(
    bundle: Bundle,
    *,
    mutants: int = 60,
    seed: int = 0,
    engine: str = "reference",
    budget: float | None = None,
) -> FileAudit:
    """Try mutants of a file on its own checks.

    Single elements of weights are made wrong, drawn from all elements alike; one that changes no output is missed as
    much as one that passes. In single testcases an element of every expected value is made wrong, numbers of inputs are
    moved by one, and the inputs of another testcase are fed.

    Args:
        bundle: a file with checks and testcases.
        mutants: how many weight elements, and testcases at most.
        seed: seed of the draw and of random operators.
        engine: name of the engine.
        budget: seconds after which no further mutant is tried.

    Returns:
        the score of the file and of every output, and what lowers it.

    >>> import loadrun
    >>> found = audit(loadrun.load("fixtures/nets/mlp.mge"), mutants=9)
    >>> [(s.output, s.value) for s in found.scores], found.whole.value
    ([('out', 1.0)], 1.0)
    """
    total = len(bundle.testcases)
    places = np.linspace(0, total - 1, min(total, _MOST_CASES, max(1, mutants))).astype(int)
    cases = [bundle.testcases[i] for i in places.tolist()] if total else []
    if not bundle.checks or not cases:
        why = "no output has a check" if cases else "there is no testcase"
        return FileAudit([Score(name, reason=NO_CHECK) for name in bundle.outputs], findings=[why])
    # A mutant is one graph: where a model has one for each set of sizes, it is run at those of the first testcase.
    bundle = bundle.for_data(cases[0].arrays)
    cases = [case for case in cases if bundle.for_data(case.arrays) is bundle]
    # Engines that run the file itself do not see the graph.
    bundle = replace(bundle, source=replace(bundle.source, file=None, sized=None))
    return _Trial(bundle, cases, engine, seed, budget).run(mutants)


class _Trial:
    """Runs mutants of one dump and counts their outcomes."""

    def __init__(
        self, bundle: Bundle, cases: list[Testcase], engine: str, seed: int, budget: float | None
    ) -> None:
        self.bundle, self.cases, self.engine, self.seed = bundle, cases, engine, seed
        self.started = time.monotonic()
        self.budget = budget
        self.runner = Runner(bundle, engine, seed=seed)
        self.truth = [self.runner.check(case) for case in cases]
        self.checked = {c.name for c in bundle.checks}
        self.scores = {name: Score(name) for name in bundle.outputs}
        self.result = FileAudit(list(self.scores.values()), testcases=len(cases))
        for result in self.truth:
            for out in result.outputs:
                if out.name in self.scores and out.verdict is not Verdict.PASS:
                    self.scores[out.name].reason = out.reason or (
                        out.verdict.value if out.name in self.checked else NO_CHECK
                    )

    def run(self, mutants: int) -> FileAudit:
        """Try mutants as long as time allows."""
        rng = np.random.default_rng(self.seed)
        tensors = weights(self.bundle)
        for score in (*self.result.scores, self.result.whole):
            score.elements = sum(w.size for w in tensors if not score.output or score.output in w.outputs)
        # Half of the time is reserved for the weights.
        for kind, index, case in self._timely(case_mutants(self.cases, rng), 0.5):
            self._testcase(kind, index, case)
        tried = []
        for weight, element in self._timely(drawn(tensors, mutants, rng), 1.0):
            graph = mutant(self.bundle.graph, weight, element)
            if graph is not None:
                tried.append((weight, element, self._weight(weight, graph)))
        self._findings(tried)
        return self.result

    def _timely(self, items: Iterable[T], share: float) -> Iterator[T]:
        """Yield items until the time is up."""
        for item in items:
            if self.budget is not None and time.monotonic() - self.started > share * self.budget:
                self.result.cut = True
                return
            yield item

    def _testcase(self, kind: str, index: int, case: Testcase | None) -> None:
        """Try the mutant of a testcase on all outputs."""
        if case is None:
            for score in (*self.result.scores, self.result.whole):
                score.add(kind, None)
            return
        changed = _changed(self.truth[index], self.runner, case)
        if changed is None:
            return
        for name, (moved, failed) in changed.items():
            if moved or kind == EXPECTED:
                self.scores[name].add(kind, failed)
        if kind == EXPECTED:
            for _, failed in changed.values():
                self.result.whole.add(kind, failed)
        elif any(moved for moved, _ in changed.values()):
            self.result.whole.add(kind, any(failed for _, failed in changed.values()))

    def _weight(self, weight: Weight, graph: Graph) -> bool:
        """Try a wrong weight on the testcases until all dependent outputs failed; return whether one changed."""
        bundle = copy(self.bundle)
        bundle.graph = graph
        runner = Runner(bundle, self.engine, seed=self.seed)
        ran = False
        outcomes: dict[str, bool | None] = dict.fromkeys(weight.outputs)
        for right, case in zip(self.truth, self.cases, strict=True):
            changed = _changed(right, runner, case) or {}
            ran |= bool(changed)
            for name in weight.outputs & changed.keys():
                moved, failed = changed[name]
                if moved:
                    outcomes[name] = outcomes[name] or failed
            if all(outcomes[n] for n in weight.outputs & self.checked):
                break
        if not ran:
            # It does not test a check.
            return True
        known = [x for x in outcomes.values() if x is not None]
        if known:
            for name, outcome in outcomes.items():
                self.scores[name].add(ELEMENT, outcome)
            self.result.whole.add(ELEMENT, any(known))
        return bool(known)

    def _findings(self, tried: list[tuple[Weight, int, bool]]) -> None:
        """Describe what lowers the scores, given the elements that were tried and whether they changed an output."""
        notes = self.result.findings
        drawn_of = Counter(w.label for w, _, _ in tried)
        silent = Counter(w.label for w, _, moved in tried if not moved)
        notes += [f"output {n!r} has no check" for n in self.scores if n not in self.checked]
        notes += equal_testcases(self.cases)
        notes += [
            f"{count} of {drawn_of[label]} elements drawn of {label} change no output in any testcase"
            for label, count in silent.most_common()
        ]
        try:
            walk = Walk(self.bundle, self._timely(self.cases, 1.0))
        except LoadRunError:
            # Models that only another engine runs have no values to inspect.
            walk = None
        outside = 0
        for weight, element, moved in tried:
            if moved:
                continue
            if walk is not None and walk.only_padding(weight, element):
                # At these sizes nothing could catch it.
                outside += 1
            else:
                # What changes no output is not caught.
                for name in weight.outputs:
                    self.scores[name].add(ELEMENT, None)
                self.result.whole.add(ELEMENT, None)
        if outside:
            notes.append(
                f"{outside} of {len(tried)} elements drawn only meet padding, unlike with larger inputs, "
                "and are not counted"
            )


def _changed(right: Result, runner: Runner, case: Testcase) -> dict[str, tuple[bool, bool]] | None:
    """Run a mutant: of every output whether it is another one than before, and whether its check fails.

    None for a mutant that does not run at all, which is no test of a check.
    """
    try:
        result = runner.check(case)
    except LoadRunError:
        return None
    before = {o.name: o.value for o in right.outputs}
    return {
        out.name: (not _same(before[out.name], out.value), out.verdict is Verdict.FAIL)
        for out in result.outputs
        if out.name in before
    }


def _same(old: Array | None, new: Array | None) -> bool:
    if old is None or new is None:
        return old is new
    return old.shape == new.shape and (np.array_equal(old, new) or old.tobytes() == new.tobytes())


@dataclass(frozen=True, kw_only=True)
class AuditOptions(ModelOptions):
    """Describe how files are audited; the options of `ModelOptions` are among these.

    Attributes:
        mutants: number of weight elements to corrupt.
        timeout: try no more mutants of a file after this time.
        seed: seed for everything that is drawn at random (default 0).
        engine: what executes the models.
        jobs: distribute the files over N processes (default: one).
    """

    mutants: int = 60
    timeout: float = 60.0
    seed: int = 0
    engine: str = "reference"
    jobs: int = 1


@dataclass
class Audit:
    """The mutants that the checks of files caught and missed.

    Attributes:
        files: pairs of a file and the audit of one of its dumps.
        failures: pairs of a file and why it could not be read or run.
    """

    files: list[tuple[str, FileAudit]] = field(default_factory=list)
    failures: list[tuple[str, Failure]] = field(default_factory=list)

    @property
    def scores(self) -> list[tuple[str, Score]]:
        """List pairs of a file and the score of one of its outputs."""
        return [(path, s) for path, result in self.files for s in result.scores]

    @property
    def exit_code(self) -> int:
        """Return the exit code of `loadrun audit`: 0 if every check passes and caught a mutant, and no score is 0."""
        if self.failures:
            return max(f.code for _, f in self.failures)
        checked = [s for _, s in self.scores if s.reason != NO_CHECK]
        if any(s.mutants and not s.caught for s in checked) or any(f.whole.value == 0 for _, f in self.files):
            return EXIT_FAIL
        silent = any(s.reason is not None for s in checked)
        scored = any(s.mutants for s in checked) and all(f.whole.value is not None for _, f in self.files)
        return EXIT_PASS if scored and not silent else EXIT_NOT_COMPARED


def audit_files(files: Iterable[str | os.PathLike[str]], options: AuditOptions | None = None) -> Audit:
    """Try mutants of files on their own checks; see `audit`.

    Args:
        files: names, patterns and folders.
        options: how many mutants, and how long.

    Raises:
        InputError: a file does not exist.

    >>> found = audit_files(["fixtures/nets/mlp.mge"], AuditOptions(mutants=9))
    >>> [(path, s.output, s.value) for path, s in found.scores], found.exit_code
    ([('fixtures/nets/mlp.mge', 'out', 1.0)], 0)
    """
    audits = Audit()
    for part in audits_of([*files_of([os.fspath(f) for f in files])], options):
        audits.files += part.files
        audits.failures += part.failures
    return audits


def audits_of(files: Sequence[str], options: AuditOptions | None = None) -> Iterator[Audit]:
    """Audit files in as many processes as the options ask for, and give what was found of each in their order.

    >>> [a.exit_code for a in audits_of(["fixtures/nets/mlp.mge"], AuditOptions(mutants=9))]
    [0]
    """
    options = options or AuditOptions()
    yield from mapped(partial(_audit_of, options=options), files, options.jobs)


def _audit_of(path: str, options: AuditOptions) -> Audit:
    audits = Audit()
    try:
        for bundle in load_all(path, **options.read):
            with stage(f"trying mutants of {path}"):
                done = audit(
                    bundle,
                    mutants=max(1, options.mutants),
                    seed=options.seed,
                    engine=options.engine,
                    budget=options.timeout,
                )
            audits.files.append((path, done))
    except Exception as e:
        audits.failures.append((path, failure(e)))
    return audits
