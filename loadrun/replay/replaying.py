"""Replaying many files: in this process or in several, with results as they come."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import fields, replace
from itertools import chain, groupby
from operator import itemgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from ..base.configuration import FileRule
from ..base.errors import EXIT_ERROR, EXIT_FAULT, UsageError, Warnings, clean
from ..base.files import files_of
from ..base.limits import memory_limited
from ..base.registry import late
from ..compare import results
from ..compare.policy import parse_all
from ..engines import baseline_for, check_argument, check_engine
from ..graph.dtypes import Array
from ..ops.numeric.parallel import set_threads, threads
from .options import ReplayOptions, RunOptions, selected
from .reporting import Closed, Event, Explained, Opened, Replayed, Sinks, Task, Warned, sinks
from .serial import serial

with late(__name__):
    import shlex

    from . import observing, processes

if TYPE_CHECKING:
    from ..verify.bench import Timing

Events = Iterator[tuple[Task, Event]]


class ReplayedDump(results.CountedResults):
    """One dump of a file: what is known of it, and its results as they come.

    Attributes:
        path: the file.
        file: what its results come to, so far.
        total: how many results there will be.
        packed: who packed the file, and what another runtime computed then.
        damage: the file's warnings that tell of damage, which are said even where nothing else is.
        weak: those of checks that could not fail on the testcases, likewise.
        timings: the runs that were timed, by testcase, once all results were read.
        explanation: why the first testcase that fails does so, where that was requested.
        drawing: the operators to blame and those around them as SVG, likewise.
    """

    def __init__(self, path: str, opened: Opened, events: Iterator[Event], run: Replay) -> None:
        self.path = path
        self.total = opened.total
        self.packed = opened.packed
        self.damage = opened.damage
        self.weak: list[str] = []
        rule = run.rule(path)
        file = results.FileResult(
            opened.name,
            warnings=Warnings([*opened.warnings, *rule.notes]),
            missed=opened.missed,
            free=run.options.allow_uncompared,
            load_seconds=opened.load_seconds,
            rule=rule,
        )
        super().__init__(file, self._raw())
        self.timings: Sequence[Timing] = ()
        self.explanation: tuple[str, ...] = ()
        self.drawing = ""
        self._number = opened.dump
        self._events = events
        self._run = run
        self._last: Replayed | None = None

    def __iter__(self) -> Iterator[results.Result]:
        """Yield the results, with values only if `RunOptions.values` is set."""
        for bare in self._results:
            assert self._last is not None
            self._run.reports.add(self.path, self._last, bare)
            yield self._last.result if self._run.options.values else bare

    @property
    def command(self) -> str:
        """The command that finds the operator in which the first failing testcase diverges."""
        first = self.file.counts.first
        assert first is not None
        words = ["loadrun", "diff", clean(self.path, 500), "--testcase", str(first.index)]
        words += ["--dump", str(self._number + 1)] if self._number else []
        other = baseline_for(first.choice or ",".join(self._run.options.engines))
        other = "GOOD (another model, or float64)" if other == "float64" else shlex.quote(other)
        return f"{shlex.join(words)} --against {other}"

    @property
    def reason(self) -> tuple[str, ...]:
        """The report's lines on the first failing testcase: why it fails, or how to find out."""
        if self.file.counts.first is None:
            return self.explanation
        return self.explanation or (f"where it diverged: {self.command}",)

    def _expect(self) -> None:
        """Warn if the file did not do what was expected of it."""
        if self.file.excused:
            self.file.warnings.add(f"expected to fail: {self.file.rule.xfail}")
        elif self.file.surprise:
            self.file.warnings.add(self.file.surprise)

    def _raw(self) -> Iterator[results.Result]:
        """Yield its results, and note everything else."""
        for event in self._events:
            if isinstance(event, Warned):
                if event.altered:
                    self.file.altered.append(event.text)
                if event.weak and "weak" in self._run.options.strict:
                    self.file.missed = (*self.file.missed, event.text)
                    continue
                self.file.warnings.add(event.text)
                if event.weak:
                    self.weak.append(event.text)
            elif isinstance(event, Replayed):
                if event.feeds is not None and len(self._run.files) == 1:
                    self._run.fed.append(event.feeds)
                self._last = event
                yield event.result
            elif isinstance(event, Explained):
                self.explanation, self.drawing = event.lines, event.drawing
            elif isinstance(event, Closed):
                self.file.failure, self.timings = event.failure, event.timings
                self._expect()
                for name, seconds in event.turns.items():
                    self.file.entrants[name].seconds[:] = seconds
                return


class Replay:
    """Files replayed one after another; a context manager that gives their dumps.

    Leaving the block writes the reports and ends whatever processes were started.

    Args:
        files: names, patterns, and folders, which stand for the models in them.
        options: how they are replayed.

    Attributes:
        options: how they are replayed.
        paths: the files that are replayed.
        skipped: those that the configuration leaves out, with the reason.
        files: what was found of each dump, in order.
        done: how many files were replayed.
        fed: what the first dump ran on, where operators are looked at and data was given.
        wrong: what `observe` found of values that are not finite or out of range.

    Raises:
        InputError: a file does not exist.
        UsageError: an engine is not installed.

    >>> with Replay(["fixtures/nets/mlp.mge"], RunOptions(values=True)) as replay:
    ...     for dump in replay:
    ...         shapes = [result["out"].shape for result in dump]
    >>> shapes, replay.files[0].verdict.value, replay.exit_code
    ([(1, 4), (5, 4), (2, 4)], 'pass', 0)
    """

    reports: Sinks

    def __init__(self, files: Iterable[str | os.PathLike[str]], options: RunOptions | None = None) -> None:
        self.options = (options or RunOptions()).without_pipes()
        if self.options.loosen:
            asked = {name: replace(p, loosens=True) for name, p in self.options.policies.items()}
            self.options = replace(self.options, policies=asked)
        if isinstance(files, (str, os.PathLike)):
            raise UsageError(
                f"the files must be a collection of names, found the single name {os.fspath(files)!r}"
            )
        self._selection = selected(files_of([os.fspath(f) for f in files]), self.options)
        self.paths = tuple(self._selection.paths)
        self.skipped = self._selection.skipped
        self.files: list[results.FileResult] = []
        self.done = 0
        self.fed: list[Mapping[str, Array]] = []
        self.wrong: str | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Replay:
        # A wrong option of an engine is refused once, not for each file.
        rules = [self._selection.rules[path].engines or () for path in self.paths]
        for spec in dict.fromkeys((*self.options.engines, *chain.from_iterable(rules))):
            check_argument(spec)
        with ExitStack() as stack:
            stack.enter_context(memory_limited(self.options.max_memory))
            if self.options.threads is not None:
                stack.callback(set_threads, threads())
                set_threads(self.options.threads)
            self.reports = stack.enter_context(sinks(self.options, self.paths, self._selection))
            tasks, jobs = list(self._tasks()), self.options.jobs or 1
            if jobs == 1 and all(t.timeout is None for t in tasks):
                self._events: Events = stack.enter_context(closing(serial(tasks)))
            else:
                self._events = stack.enter_context(processes.Pool(jobs)).replay(tasks)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._stack.__exit__(kind, error, trace)
            return
        with self._stack:
            self.reports.close(self.exit_code)

    def __iter__(self) -> Iterator[ReplayedDump]:
        """Yield the dumps; unread results of one are read when the next is requested."""
        events = chain(self._events, self._unmatched())
        for task, group in groupby(events, key=itemgetter(0)):
            passed = True
            of_file = (event for _, event in group)
            for event in of_file:
                assert isinstance(event, Opened)
                dump = ReplayedDump(task.path, event, of_file, self)
                self.files.append(dump.file)
                self.reports.begin(dump.file, event.facts)
                yield dump
                for _ in dump:
                    continue
                self.reports.end(dump.file, dump.timings, dump.reason, dump.drawing)
                passed &= dump.file.good
            self.done += 1
            if self.options.fail_fast and not passed:
                return

    def rule(self, path: str) -> FileRule:
        """Return what is configured for a file."""
        return self._selection.rules.get(path, FileRule())

    @property
    def exit_code(self) -> int:
        """The exit code of `loadrun`: 0 if there was at least one check and all passed."""
        if not self.files and not self.skipped:
            return EXIT_ERROR
        fault = any(f.failure is not None and f.failure.code == EXIT_FAULT for f in self.files)
        code = results.exit_code(
            (f.outcome for f in self.files), allow_uncompared=self.options.allow_uncompared, fault=fault
        )
        wrong = self.wrong is not None and code in (results.EXIT_PASS, results.EXIT_NOT_COMPARED)
        return results.EXIT_FAIL if wrong else code

    def observe(self, out: TextIO) -> str | None:
        """Observe the operators of the first file, if requested and the file ran.

        Args:
            out: where tables go.

        Returns:
            what is to be said of values that are not finite or out of range, None when all is well.
        """
        if self.options.observed and self.files and self.files[0].complete:
            self.wrong = observing.observe(self.paths[0], self.options, out, self.fed)
        return self.wrong

    def _unmatched(self) -> Events:
        """Yield the events that stand for the configuration, where a pattern of it matches no file."""
        missed, configuration = self._selection.missed, self.options.configuration
        if missed and configuration is not None:
            task = Task(configuration.path)
            yield task, Opened(configuration.path, warnings=missed, missed=missed)
            yield task, Closed()

    def _tasks(self) -> Iterator[Task]:
        """Yield the task of each file."""
        options = self.options
        common = {f.name: getattr(options, f.name) for f in fields(ReplayOptions)}
        common["values"] |= options.output is not None
        # Operators are observed only in the first file, on the data it was fed, so that data is loaded once.
        looked = options.input_data is not None and options.observed
        for i, path in enumerate(self.paths):
            rule = self._selection.rules[path]
            special: dict[str, Any] = {}
            if rule.engines:
                special["engines"] = tuple(map(check_engine, rule.engines))
            if rule.check:
                special["policies"] = {**parse_all(rule.check), **options.policies}
            yield Task(
                path,
                **{**common, **special},
                timeout=options.timeout if rule.timeout is None else rule.timeout,
                facts=options.reported,
                pictures=options.html is not None,
                feeds=looked and i == 0,
            )


def replay_files(
    files: Iterable[str | os.PathLike[str]], options: RunOptions | None = None, out: TextIO | None = None
) -> Replay:
    """Replay files as ``loadrun FILES`` does, and write the reports that are requested.

    Args:
        files: names, patterns, and folders, which stand for the models in them.
        options: how they are replayed.
        out: where tables about operators go, default standard output.

    Returns:
        the finished run: `Replay.files` has a `loadrun.compare.results.FileResult` for every dump, `Replay.exit_code`
        is that of the command. With `Replay` as a context manager results can be had one by one.

    Raises:
        InputError: a file does not exist.
        UsageError: options exclude each other, an engine is not installed.

    >>> run = replay_files(["fixtures/nets/mlp.mge", "fixtures/nets/lstm_2_both.mge"], RunOptions(jobs=2))
    >>> [(f.path, f.verdict.value, f.counts.testcases) for f in run.files]
    [('fixtures/nets/mlp.mge', 'pass', 3), ('fixtures/nets/lstm_2_both.mge', 'pass', 2)]
    >>> run.exit_code
    0
    """
    with Replay(files, options) as run:
        for _ in run:
            continue
        run.observe(out or sys.stdout)
    return run
