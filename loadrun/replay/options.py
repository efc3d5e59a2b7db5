"""Options of a replay as records, and the files that they select: names, earlier reports, shards."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..base import schema
from ..base.configuration import Configuration, FileRule
from ..base.errors import FormatError, InputError, UsageError
from ..compare.policy import Policy
from ..compare.results import Verdict
from ..engines import Choice
from ..inputs.feeds import DataOptions, ModelOptions

__all__ = ["ChosenFiles", "ProfileOptions", "ReplayOptions", "RunOptions", "selected"]

PathName = str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True, eq=False)
class ReplayOptions(ModelOptions, DataOptions):
    """Describe how a file is replayed; the options of `ModelOptions` and `DataOptions` are among these.

    Attributes:
        engines: what executes the model; several run side by side and are compared with the first.
        policies: what outputs must fulfil besides their checks, by name, all others under the empty name.
        strict: what is not only warned of: ``damage``, a damaged end of the file, is an error, ``weak``, a check that
            cannot fail on the testcases, counts as not compared.
        explain: whether the first testcase that fails is run again to find the operator that is to blame.
        iter: how often the first testcase is run again, timed, after one run that is not.
        optimize: optimizations of the graph before it is run: keywords of
            `loadrun.passes.inference.optimize_for_inference`, or ``optimize_for_inference`` for none of them.
        batch_size: items of axis 0 that testcases are repeated or cut to.
        values: whether results keep the values of their outputs.
        testcases: numbers of the testcases that are replayed, None for all.
        test_data: a folder with the test data of an ONNX model, or a .mge file that was packed from it, whose testcases
            and tolerances a runtime of ONNX files replays.
    """

    engines: tuple[str | Choice, ...] = ("reference",)
    policies: Mapping[str, Policy] = field(default_factory=dict)
    strict: tuple[str, ...] = ()
    explain: bool = False
    iter: int = 0
    optimize: tuple[str, ...] = ()
    batch_size: int | None = None
    values: bool = False
    testcases: tuple[int, ...] | None = None
    test_data: str | None = None

    @property
    def read(self) -> dict[str, Any]:
        """Keyword arguments of `loadrun.load`."""
        return {**super().read, **({} if self.test_data is None else {"test_data": self.test_data})}


@dataclass(frozen=True, kw_only=True, eq=False)
class ProfileOptions:
    """Profile single operators.

    Attributes:
        profile: a file for what each operator took, in the layout of MegEngine's profiler.
        perfetto: a file for a trace that Perfetto's viewer opens.
        top: how many of the most expensive groups of operators are shown.
        by: what makes a group: ``type``, ``name`` or ``prefix:DEPTH``.
        memory: whether the peak of memory is shown, with the values alive at it.
    """

    profile: str | None = None
    perfetto: str | None = None
    top: int | None = None
    by: str = "type"
    memory: bool = False

    @property
    def profiled(self) -> bool:
        """Return whether any of these options is set."""
        return bool(self.profile or self.perfetto or self.top or self.memory)


@dataclass(frozen=True, kw_only=True)
class RunOptions(ReplayOptions):
    """Describe how `loadrun.replay_files` replays files, and where its results go.

    The options of `ReplayOptions` are among these.

    Attributes:
        output: a folder in which every output is saved as ``[FILE.]TESTCASE.OUTPUT.npy``; or a file that ends in .zip
            or .npz for values and verdicts, which `loadrun.judge_results` reads.
        loosen: whether `policies` stand in place of what files themselves check of these outputs, not beside it.
        allow_uncompared: whether a file with nothing to compare is as good as one that passes.
        jobs: processes that files and testcases are shared among; None for this process alone.
        dask: address of a Dask scheduler, ``tcp://HOST:PORT`` or a file, whose workers do the work.
        timeout: seconds after which a file is ended, all its testcases together.
        max_memory: bytes that this process, and each that it starts, may take beyond what it has; None for what the
            machine can give (Linux).
        fail_fast: whether no further file is run after the first that does not pass.
        threads: how many threads this process uses; None for all processors.
        json, json_lines, junit, html: reports, files to write; ``-`` for JSON on standard output.
        io_dump: a text file for every variable of every testcase.
        range: the greatest absolute value that does not fail; NaN does. The operators are named where
            such values begin.
        top: how many of the most expensive groups of operators are shown.
        configuration: what a project says of its files; see `loadrun.base.configuration.find_configuration`. Its
            engines and time limits take the place of those here, its policies stand below them.
        keyword: words that names of files must have, as ``-k`` takes them.
        last_failed: a report; only files that did not pass there are replayed, or that its run did not reach.
        shard: number of this part of the files, from 1, and how many parts there are.
        retries: how many times a file that does not pass is replayed again.
        command: the command line, for reports.

    Raises:
        UsageError: options exclude each other.

    >>> RunOptions(iter=5, jobs=2)
    Traceback (most recent call last):
    ...
    loadrun.base.errors.UsageError: -j would disturb the times of --iter; leave one of them out
    """

    output: PathName | None = None
    loosen: bool = False
    allow_uncompared: bool = False
    jobs: int | None = None
    dask: str | None = None
    timeout: float | None = None
    max_memory: int | None = None
    fail_fast: bool = False
    threads: int | None = None
    json: str | None = None
    json_lines: str | None = None
    junit: PathName | None = None
    html: PathName | None = None
    io_dump: str | None = None
    range: float | None = None
    top: int | None = None
    configuration: Configuration | None = None
    keyword: str | None = None
    last_failed: PathName | None = None
    shard: tuple[int, int] | None = None
    retries: int = 0
    command: str | None = None

    def __post_init__(self) -> None:
        self.check_data()
        if self.shard is not None and not 1 <= self.shard[0] <= self.shard[1]:
            raise UsageError(f"--shard takes I/N, from 1/N to N/N; found {self.shard[0]}/{self.shard[1]}")
        if self.loosen and not self.policies:
            raise UsageError(
                "--loosen lets --check replace a file's own check; say what is to hold with --check"
            )
        if self.threads == 0:
            raise UsageError("--threads takes a number of at least 1, found 0")
        if self.iter and (self.jobs or 1) > 1:
            raise UsageError("-j would disturb the times of --iter; leave one of them out")
        if self.dask is not None and (self.jobs is not None or self.iter):
            raise UsageError("--dask replaces -j and would disturb the times of --iter; leave those out")
        if self.threads is not None and (self.jobs is not None or self.dask is not None):
            raise UsageError(
                "--threads applies to this process only; -j and --dask divide the threads themselves"
            )
        if len(self.engines) > 1 and (self.save_results is not None or self.observed):
            raise UsageError(
                "--output FILE.zip and the options for values and operators take a single --engine, found "
                f"{len(self.engines)}"
            )

    @property
    def watched(self) -> bool:
        """Return whether operators are watched while they run."""
        return self.io_dump is not None or self.range is not None

    @property
    def observed(self) -> bool:
        """Return whether any option requires more than the replay."""
        return self.watched or bool(self.top)

    @property
    def save_results(self) -> PathName | None:
        """The file for values and verdicts; None if there is none."""
        name = os.fspath(self.output or "")
        return self.output if name.lower().endswith((".zip", ".npz")) else None

    @property
    def reported(self) -> bool:
        """Return whether a report is written."""
        return any(x is not None for x in (self.json, self.json_lines, self.junit, self.html))


_FILE = schema.record(
    {"file": schema.text, "testcases": schema.items(schema.record({"verdict": schema.text}))},
    {"verdict": schema.text, "message": schema.either(schema.text)},
)
_REPORT = schema.record({"files": schema.items(_FILE)}, {"cut": schema.either(schema.text)})
_DUMP = r" \(dump \d+\)$"


@dataclass(eq=False)
class ChosenFiles:
    """The files of a run.

    Attributes:
        paths: those to replay.
        rules: what is configured for each.
        skipped: those that the configuration leaves out, with the reason.
        missed: sentences on patterns of the configuration that match no file.
    """

    paths: list[str] = field(default_factory=list)
    rules: dict[str, FileRule] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    missed: tuple[str, ...] = ()


def selected(paths: Iterable[str], options: RunOptions) -> ChosenFiles:
    """Choose files.

    Args:
        paths: all that were named.
        options: what is requested.

    Raises:
        InputError: none is left, though some were named.
        FormatError: the report that is read is none.
        UsageError: the words of ``-k`` make no sense.
    """
    files = list(paths)
    named = len(files)
    missed = () if options.configuration is None else tuple(options.configuration.unmatched(files))
    if options.keyword is not None:
        from .keywords import matches_words  # for start-up

        files = [p for p in files if matches_words(options.keyword, p)]
    if options.last_failed is not None:
        report = _report(options.last_failed)
        verdicts = [(re.sub(_DUMP, "", e["file"]), e.get("verdict")) for e in report["files"]]
        failed = {name for name, verdict in verdicts if verdict != Verdict.PASS.value}
        if report.get("cut"):
            # The run did not come to the files that its report does not name.
            failed |= set(files).difference(name for name, _ in verdicts)
        files = [p for p in files if p in failed]
        if not files and not failed:
            raise InputError(f"{os.fspath(options.last_failed)} has no file that did not pass")
    if named and not files:
        raise InputError(f"none of the {named} file{'s' * (named > 1)} is selected by {_choices(options)}")
    if options.shard is not None:
        number, count = options.shard
        files = files[number - 1 :: count]
    chosen = ChosenFiles(missed=missed)
    for path in files:
        rule = FileRule() if options.configuration is None else options.configuration.of(path)
        if rule.skip is not None:
            chosen.skipped[path] = rule.skip
        else:
            chosen.paths.append(path)
            chosen.rules[path] = rule
    return chosen


def _choices(options: RunOptions) -> str:
    said = {"-k": options.keyword, "--last-failed": options.last_failed}
    return ", ".join(f"{name} {os.fspath(value)}" for name, value in said.items() if value is not None)


def _report(path: str | os.PathLike[str]) -> dict[str, Any]:
    from ..report.reading import load_report  # for start-up

    try:
        report: dict[str, Any] = _REPORT(load_report(path), "the report")
    except FormatError as e:
        raise FormatError(
            f"this is not a report of `loadrun --json`: {e.message}", path=os.fspath(path)
        ) from None
    return report
