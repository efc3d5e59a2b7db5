"""Results of a replay: verdicts, the results of outputs, testcases and files, how they are counted, and exit codes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

import numpy as np

from ..base.about import About
from ..base.configuration import FileRule
from ..base.errors import EXIT_CRASH, EXIT_ERROR, EXIT_FAULT, EXIT_TIMEOUT, Failure, Warnings, failure
from ..graph.dtypes import Array, DType, dequantized
from . import Comparison
from .policy import Policy

_SHOWN = 8
"""Maximum outputs in the text of a result."""


class Verdict(str, Enum):
    """The verdict of a replay on an output, a testcase or a file; ordered from best to worst by `worst`."""

    PASS = "pass"
    NOT_COMPARED = "not compared"
    FAIL = "fail"
    ERROR = "error"
    TIMEOUT = "timeout"
    CRASH = "crash"

    @staticmethod
    def worst(verdicts: Iterable[Verdict]) -> Verdict:
        """Return the worst verdict: crash, timeout, error, fail, not compared, pass in this order.

        >>> Verdict.worst([Verdict.PASS, Verdict.NOT_COMPARED]).value
        'not compared'
        >>> Verdict.worst([]).value
        'not compared'
        """
        kinds = set(verdicts)
        for v in (Verdict.CRASH, Verdict.TIMEOUT, Verdict.ERROR, Verdict.FAIL, Verdict.NOT_COMPARED):
            if v in kinds:
                return v
        return Verdict.PASS if kinds else Verdict.NOT_COMPARED

    @staticmethod
    def of_outputs(outputs: Iterable[OutputResult]) -> Verdict:
        """Return the verdict of a testcase: the worst of its outputs', ignoring those without an expected value.

        >>> from dataclasses import replace
        >>> y, z = (OutputResult(n, (1,), DType("Float32"), Verdict.NOT_COMPARED) for n in "yz")
        >>> passed = replace(y, verdict=Verdict.PASS)
        >>> Verdict.of_outputs([passed, z]).value, Verdict.of_outputs([y, z]).value
        ('pass', 'not compared')
        >>> Verdict.of_outputs([passed, replace(z, reason="no check reads its expected value")]).value
        'not compared'
        """
        return Verdict.worst(o.verdict for o in outputs if not o.is_free)


class Tolerance(NamedTuple):
    """What an output was held to.

    Attributes:
        maxerr: the largest error that passes, None without a check.
        file: that of the file's own check.
        loosened: the file's own where a greater one was requested.
        by_file: whether the error is what the file's own operators measured.
        policy: what had to hold besides, or in place of the file's own check.
    """

    maxerr: float | None = None
    file: float | None = None
    loosened: float | None = None
    by_file: bool = False
    policy: Policy = Policy()


# Frozen classes of as many fields take five times as long to make, which a run of a small model would notice.
@dataclass(slots=True, eq=False)
class OutputResult:
    """One output of one run.

    Attributes:
        name: output name; for a checked output the one that its expected value carries.
        shape: shape of the value that was computed.
        dtype: its data type.
        verdict: pass or fail for checked outputs, else not compared.
        tolerance: what it was held to.
        error: MegEngine's error measure, None without a check.
        comparison: all other metrics of expected against computed value.
        value: the computed value (in storage dtype).
        expect: the expected value that it was compared with, None without a check.
        reason: why a check compared nothing, where there is one that did not.
        notes: what deserves a look beside the verdict: why a policy failed, integers that drifted within a tolerance.
        fault: why it fails whatever is computed, such as an expected value of another dtype.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    verdict: Verdict
    tolerance: Tolerance = field(default_factory=Tolerance)
    error: float | None = None
    comparison: Comparison | None = None
    value: Array | None = None
    expect: Array | None = None
    reason: str | None = None
    notes: tuple[str, ...] = ()
    fault: str | None = None

    def failing(self, fault: str) -> OutputResult:
        """Return the output as one that fails whatever was computed."""
        return replace(self, verdict=Verdict.FAIL, reason=None, notes=(fault, *self.notes), fault=fault)

    def __repr__(self) -> str:
        """Return a one-line summary; the values are in `value` and `expect`.

        >>> import loadrun
        >>> loadrun.run("fixtures/nets/mlp.mge")[0].outputs[0]
        OutputResult('out', float32 [1, 4], pass, error 2.98e-08 of 1e-05)
        """
        maxerr = self.tolerance.maxerr
        error = "" if self.error is None else f", error {self.error:.3g}"
        error += "" if maxerr is None or self.error is None else f" of {maxerr:g}"
        why = "" if self.reason is None else f": {self.reason}"
        return f"OutputResult({self.name!r}, {self.dtype.text} {list(self.shape)}, {self.verdict.value}{why}{error})"

    @property
    def is_free(self) -> bool:
        """True if it has no expected value, so that nothing could be compared."""
        return self.verdict is Verdict.NOT_COMPARED and self.reason is None

    @property
    def is_between(self) -> bool:
        """True if it has no expected value, and agrees with what another engine gives."""
        return self.is_free and self.comparison is not None

    @property
    def real(self) -> Array | None:
        """The value in numbers: dequantized for quantized types."""
        return None if self.value is None else dequantized(self.value, self.dtype, np.float32)


@dataclass(slots=True, eq=False)
class Result:
    """One run: of a testcase, or of a model on given inputs.

    Attributes:
        index: number of the testcase in the file, None for a run on given inputs.
        outputs: one entry per output.
        verdict: the testcase's verdict.
        seconds: wall time of the execution alone, without loading and comparing.
        message: why it could not run, for the verdict error.
        engine: what executed it, None if nothing ran.
        choice: name of the engine where several run side by side, None if there is one.
        apart: by output how far it is from what the first of several engines gives.
        baseline: whether it is that of the first engine, with which the others are compared.
    """

    index: int | None
    outputs: tuple[OutputResult, ...]
    verdict: Verdict
    seconds: float = 0.0
    message: str | None = None
    engine: About | None = None
    choice: str | None = None
    apart: Mapping[str, Comparison] = field(default_factory=dict)
    baseline: bool = False

    def __repr__(self) -> str:
        """Return a line about the run and one for each output.

        >>> import loadrun
        >>> print(loadrun.run("fixtures/nets/mlp.mge")[0].__repr__().split("\\n")[0].split(",")[0])
        Result(testcase 0: pass
        """
        case = "run" if self.index is None else f"testcase {self.index}"
        why = "" if self.message is None else f": {self.message}"
        engine = "" if self.engine is None else f" on {self.choice or self.engine.engine}"
        head = f"{case}: {self.verdict.value}{why}, {self.seconds * 1e3:.2f} ms{engine}"
        outs = [f"  {out!r}" for out in self.outputs[:_SHOWN]]
        more = [f"  ... {len(self.outputs) - _SHOWN} more"] if len(self.outputs) > _SHOWN else []
        return "\n".join([f"Result({head}", *outs, *more]) + ")"

    @property
    def is_left_out(self) -> bool:
        """Return whether one of several engines cannot run the model, so that the others are judged alone."""
        return self.choice is not None and not self.outputs and self.verdict is Verdict.NOT_COMPARED

    def standing(self, out: OutputResult) -> Verdict | None:
        """Return an output's standing in a test report; None if something is expected of other outputs only.

        A testcase of which nothing is expected at all is no pass, so its outputs are not compared, one by one. What
        the first of several engines gives is what the others' outputs are compared with.
        """
        others = self.baseline or any(not o.is_free for o in self.outputs)
        return None if out.is_free and others else out.verdict

    def __getitem__(self, name: str) -> Array:
        """Return the value of an output by name."""
        for out in self.outputs:
            if out.name == name and out.value is not None:
                return out.value
        raise KeyError(
            f"no output {name!r}; the outputs are {', '.join(o.name for o in self.outputs) or 'none'}"
        )


@dataclass(eq=False)
class EngineResults:
    """One of several engines that run side by side, with the summary of its results.

    Attributes:
        choice: its name.
        about: its version, provider and arithmetic; None while it did not run.
        verdicts: those of its results.
        seconds: wall times of the replays, or of the runs that were timed.
        error: by output the largest error from the first engine, by MegEngine's measure.
    """

    choice: str
    about: About | None = None
    verdicts: set[Verdict] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)
    error: dict[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of its results."""
        return Verdict.worst(self.verdicts)

    @property
    def unrun(self) -> bool:
        """True if it ran nothing, without an error: what only another engine can run is no fault of it."""
        return self.about is None and self.verdicts == {Verdict.NOT_COMPARED}

    def add(self, result: Result) -> None:
        """Count one of its results."""
        self.verdicts.add(result.verdict)
        if result.engine is not None:
            self.about = result.engine
            self.seconds.append(result.seconds)
        for name, between in result.apart.items():
            error = between.max_error
            # NaN is the largest.
            if error > self.error.setdefault(name, 0.0) or error != error:
                self.error[name] = error


@dataclass(eq=False)
class Counts:
    """How many results of a file there were of which kind.

    Attributes:
        testcases: results of testcases, not of a run on given inputs.
        passed, failed: checks that did.
        between: outputs without expected value that agree with what another engine gives.
        errors: results with the verdict error.
        first: the first result of a testcase that failed.
    """

    testcases: int = 0
    passed: int = 0
    failed: int = 0
    between: int = 0
    errors: int = 0
    first: Result | None = None

    def add(self, result: Result, *, again: bool) -> None:
        """Count a result; `again` if it is of a testcase that another engine ran before."""
        self.testcases += result.index is not None and not again
        self.errors += result.verdict is Verdict.ERROR
        self.passed += sum(o.verdict is Verdict.PASS for o in result.outputs)
        self.failed += sum(o.verdict is Verdict.FAIL for o in result.outputs)
        self.between += sum(o.is_between for o in result.outputs)
        if self.first is None and result.index is not None and result.verdict is Verdict.FAIL:
            self.first = result


@dataclass(eq=False)
class FileResult:
    """The summary of one file's results; it grows with their number only where several engines are timed.

    Attributes:
        path: the file.
        failure: why the file could not be read or executed to its end.
        warnings: what MegEngine would only warn of.
        missed: what the file holds to be compared and was not, besides what its results say.
        altered: what differs from the digests that the file carries; it fails then.
        free: whether it is wanted that nothing is compared.
        load_seconds: time to read the file.
        counts: how many results there were of which kind.
        rule: what is configured for it.
        engine: what executed the last result.
        entrants: the engines by name, where several run side by side.
        verdicts: those of results and of outputs that count.

    >>> import loadrun
    >>> found = FileResult("fixtures/nets/mlp.mge")
    >>> for result in loadrun.run(found.path):
    ...     found.add(result)
    >>> found.verdict.value, found.counts.testcases, found.counts.passed, found.counts.failed
    ('pass', 3, 3, 0)
    """

    path: str
    failure: Failure | None = None
    warnings: Warnings = field(default_factory=Warnings)
    missed: Sequence[str] = ()
    altered: list[str] = field(default_factory=list)
    free: bool = False
    load_seconds: float = 0.0
    counts: Counts = field(default_factory=Counts)
    rule: FileRule = field(default_factory=FileRule)
    engine: About | None = None
    entrants: dict[str, EngineResults] = field(default_factory=dict)
    verdicts: set[Verdict] = field(default_factory=set, repr=False)

    def add(self, result: Result) -> None:
        """Count a result."""
        again = False
        if result.choice is not None:
            entrant = self.entrants.setdefault(result.choice, EngineResults(result.choice))
            entrant.add(result)
            # Engines side by side run the same testcases.
            again = entrant is not next(iter(self.entrants.values()))
        self.counts.add(result, again=again)
        free = result.baseline and result.outputs and all(o.is_free for o in result.outputs)
        if not free and not result.is_left_out:
            self.verdicts.add(result.verdict)
            if result.verdict is Verdict.FAIL:
                # What a failure that is expected must not hide.
                self.verdicts |= {o.verdict for o in result.outputs if not o.is_free}
        self.engine = result.engine or self.engine

    @property
    def complete(self) -> bool:
        """True if all of the file was read and executed; single results may be errors."""
        return self.failure is None

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the results; fail if it was expected to and did not."""
        return Verdict.FAIL if self.surprise and self.rule.xfail_strict else self._worst(self.verdicts)

    @property
    def surprise(self) -> str:
        """A sentence on a pass of what was expected to fail, else empty."""
        if self.rule.xfail is None or self._worst(self.verdicts) is not Verdict.PASS:
            return ""
        return f"it passes, but was expected to fail: {self.rule.xfail}; remove its entry"

    def _worst(self, verdicts: Iterable[Verdict]) -> Verdict:
        """Return the worst of some verdicts; not compared if something in the file was not."""
        if self.failure is not None:
            return next((v for v, code in _CODES.items() if code == self.failure.code), Verdict.ERROR)
        worst = Verdict.worst([*verdicts, Verdict.FAIL] if self.altered else verdicts)
        return Verdict.worst([worst, Verdict.NOT_COMPARED]) if self.missed or self.unrun else worst

    @property
    def unrun(self) -> list[str]:
        """Sentences, one for each of several engines that ran nothing of the file."""
        return [f"not run by {e.choice}" for e in self.entrants.values() if e.unrun]

    @property
    def good(self) -> bool:
        """True if the file does not make the run fail."""
        return self.outcome is Verdict.PASS or (self.free and self.verdict is Verdict.NOT_COMPARED)

    @property
    def outcome(self) -> Verdict:
        """The verdict as it counts for a run: a failed check that was expected is a pass, and nothing else is.

        >>> rule = FileRule(xfail="rounds differently")
        >>> fails = FileResult("net.mge", rule=rule, verdicts={Verdict.FAIL}, counts=Counts(failed=1))
        >>> lost = FileResult("net.mge", rule=rule, failure=Failure("no such file"))
        >>> passes = FileResult("net.mge", rule=rule, verdicts={Verdict.PASS})
        >>> [f.outcome.value for f in (fails, lost, passes)]
        ['pass', 'error', 'fail']
        """
        if self.rule.xfail is None or not self.counts.failed:
            return self.verdict
        return self._worst({Verdict.PASS if v is Verdict.FAIL else v for v in self.verdicts})

    @property
    def excused(self) -> bool:
        """True if it fails checks, as is expected of it, and nothing else is amiss."""
        return self.verdict is Verdict.FAIL and self.outcome is Verdict.PASS


EXIT_PASS, EXIT_FAIL, EXIT_NOT_COMPARED = 0, 1, 3
_CODES = {
    Verdict.CRASH: EXIT_CRASH,
    Verdict.TIMEOUT: EXIT_TIMEOUT,
    Verdict.ERROR: EXIT_ERROR,
    Verdict.FAIL: EXIT_FAIL,
}
"""Exit codes of verdicts; the first one that occurs counts."""


def exit_code(verdicts: Iterable[Verdict], *, allow_uncompared: bool = False, fault: bool = False) -> int:
    """Return the exit code for the verdicts of all files.

    A bug in loadrun outweighs a crash, that a timeout, that an error, that a failed check, and that a file with
    nothing compared.

    >>> exit_code([Verdict.PASS, Verdict.FAIL])
    1
    >>> exit_code([Verdict.PASS, Verdict.NOT_COMPARED]), exit_code([Verdict.NOT_COMPARED], allow_uncompared=True)
    (3, 0)
    """
    kinds = set(verdicts)
    if fault:
        return EXIT_FAULT
    for verdict, code in _CODES.items():
        if verdict in kinds:
            return code
    if Verdict.NOT_COMPARED in kinds or not kinds:
        return EXIT_PASS if allow_uncompared else EXIT_NOT_COMPARED
    return EXIT_PASS


def counted(file: FileResult, results: Iterable[Result]) -> Iterator[Result]:
    """Count results into a file and pass them on without the values of their outputs.

    Args:
        file: what is known of the file; an error that ends the results becomes its failure.
        results: one after another.

    >>> import loadrun
    >>> file = FileResult("fixtures/nets/mlp.mge")
    >>> [r.outputs[0].value for r in counted(file, loadrun.run(file.path))], file.counts.passed
    ([None, None, None], 3)
    """
    source = iter(results)
    while True:
        try:
            result = next(source, None)
        except Exception as e:
            file.failure = failure(e, named=True)
            return
        if result is None:
            return
        bare = replace(result, outputs=tuple(replace(o, value=None, expect=None) for o in result.outputs))
        file.add(bare)
        yield bare


class CountedResults:
    """A file and its results, which are counted into it as they are read.

    Args:
        file: what is known of the file.
        results: one after another; an error that ends them becomes the file's failure.

    Attributes:
        file: what the results come to, so far.

    >>> import loadrun
    >>> found = CountedResults(FileResult("mlp.mge"), loadrun.run("fixtures/nets/mlp.mge"))
    >>> [r.verdict.value for r in found], found.file.verdict.value
    (['pass', 'pass', 'pass'], 'pass')
    """

    def __init__(self, file: FileResult, results: Iterable[Result] = ()) -> None:
        self.file = file
        self._results = counted(file, results)

    def __iter__(self) -> Iterator[Result]:
        """Iterate over the results, without the values of their outputs."""
        return self._results
