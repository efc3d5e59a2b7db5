"""`loadrun model.mge`: replay embedded testcases, or run a plain model on given or random inputs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from itertools import groupby
from typing import TYPE_CHECKING, TextIO

from ..base.failures import Warnings
from ..base.limits import memory_limited
from ..base.text import clean
from ..compare.policy import parse_all
from ..engines import Choice, held_against
from ..graph.dtypes import Array
from ..replay.events import Closed, Event, Explained, Opened, Replayed, Task, Warned
from ..replay.serial import serial
from ..report import text
from ..report.style import Style, style_for
from ..runner import FileResult, Result, Verdict
from .engines import add_engine_options, all_chosen
from .groups import (
    EXIT_ERROR,
    EXIT_FAIL,
    Parser,
    add_copy_option,
    add_limit_options,
    exit_code,
    model_files,
    seed,
    target,
    whole,
)
from .inputs import add_input_options, check_input_options
from .limits import add_policy_option
from .models import add_model_options, model_options
from .observe import add_observing_options, flags_of, observed, threaded
from .sinks import Sinks, add_report_options, annotate, sinks
from .stream import FileProgress, clear_progress, show, show_line

if TYPE_CHECKING:
    from ..verify.bench import Timing

__all__ = ["main"]

_MANY = 5
"""From that many files on each has one line."""
_LISTED = 3
"""Failing outputs of a file that the list at the end names."""


def parser() -> Parser:
    """The options of `loadrun run`."""
    p = Parser(
        prog="loadrun",
        description="Replay the testcases embedded in models and check their outputs.",
        epilog="Exit codes, of which the first that applies counts: 70 a bug in loadrun; 5 the process of a file "
        "died; 4 a file took longer than --timeout; 2 a bad file, bad usage or a model that cannot be executed; "
        "1 a check failed; 3 it ran but nothing was compared; 0 at least one check was made and all passed.",
    )
    p.add_argument(
        "files",
        nargs="+",
        metavar="MODEL",
        help="files, patterns, and folders, which stand for their .mge and .onnx",
    )
    data = p.add_argument_group("data")
    add_input_options(data, "--input")
    data.add_argument(
        "--seed", type=seed, default=0, help="seed of random inputs and random operators (default 0)"
    )
    data.add_argument(
        "--output", metavar="DIR", type=target, help="save every output as DIR/[FILE.]TESTCASE.OUTPUT.npy"
    )
    checks = p.add_argument_group("checks")
    add_policy_option(checks, "in addition to what the file itself asks")
    checks.add_argument(
        "--strict", action="store_true", help="a file with a damaged end is an error, not only a warning"
    )
    checks.add_argument(
        "--no-check", action="store_true", help="nothing to compare is wanted: exit with 0, not 3"
    )
    checks.add_argument(
        "--explain",
        action="store_true",
        help="run the first failing testcase beside float64, or an engine that fails beside the reference engine, and "
        "say where they part",
    )
    _add_running_options(p)
    add_engine_options(p, several=True)
    add_model_options(p)
    add_report_options(p)
    add_observing_options(p)
    shown = p.add_argument_group("what is shown")
    shown.add_argument("-q", "--quiet", action="store_true", help="print what fails and the summary only")
    shown.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="a table for every file, however many there are; -vv: all metrics of every output",
    )
    shown.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="colours; auto (the default): on a terminal, unless NO_COLOR is set",
    )
    return p


def _add_running_options(p: Parser) -> None:
    """Add what says how files are executed."""
    running = p.add_argument_group("running")
    running.add_argument(
        "-j",
        "--jobs",
        metavar="N",
        type=_count,
        help="share files and testcases among N processes (default: all in this one)",
    )
    running.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="share them among the workers of a Dask cluster: tcp://HOST:PORT or a file",
    )
    running.add_argument(
        "--dask-files",
        choices=("auto", "path", "send"),
        default="auto",
        help="workers open files by name, or files are sent along; auto (the default): by name where they are there",
    )
    add_limit_options(running, "end a file that takes longer, all its testcases together")
    running.add_argument(
        "--fail-fast", action="store_true", help="run no further file after the first that does not pass"
    )
    running.add_argument(
        "--iter", metavar="N", type=whole, default=0, help="time N further runs of the first testcase"
    )
    running.add_argument(
        "--warmup-iter", metavar="N", type=whole, default=1, help="untimed runs before them (default 1)"
    )
    add_copy_option(running)


def _count(value: str) -> int:
    number = whole(value)
    if not 1 <= number <= 1024:
        raise argparse.ArgumentTypeError(f"expected a number of processes from 1 to 1024, found {value!r}")
    return number


def main(argv: list[str]) -> int:
    """Replay the files; the exit code tells the verdict."""
    options = parser()
    args = options.parse_args(argv)
    check_input_options(options, args)
    to_stdout = [args.json == "-", args.json_lines == "-"]
    out = sys.stderr if any(to_stdout) else sys.stdout
    args.files = model_files(args.files, out)
    if args.iter and (args.jobs or 1) > 1:
        options.error("--iter times runs, which other processes would disturb; leave out -j")
    if args.dask is not None and (args.jobs is not None or args.iter):
        options.error("--dask takes the place of -j, and other work would disturb --iter; leave them out")
    if args.threads is not None and (args.jobs is not None or args.dask is not None):
        options.error("--threads is for this process alone; with -j and --dask threads are divided")
    engines = all_chosen(args)
    if len(engines) > 1 and (args.save_results is not None or observed(args)):
        options.error(
            f"--save-results and what looks at values and operators take a single --engine, found {len(engines)}"
        )
    args.engine = ",".join(e.spec for e in engines)
    tasks = _tasks(args, engines)
    read = list(args.files)
    if args.input:
        from ..inputs.lists import files_named  # for start-up

        read += files_named(args.input)
    with (
        memory_limited(args.max_memory),
        threaded(args.threads),
        sinks(args, len(tasks) > 1, read) as reports,
        _source(args, tasks) as events,
    ):
        run = _RunDisplay(args, reports, out, style_for(args.color, out), len(tasks))
        for (_, task), group in groupby(events, key=lambda pair: (id(pair[0]), pair[0])):
            for dump in _dumps(task.path, (event for _, event in group)):
                run.dump(dump)
            run.file_done()
            if run.bad and args.fail_fast:
                break
        code = run.end()
        wrong = None
        if observed(args) and run.found and run.found[0].complete:
            from .observing import observe  # for start-up

            wrong = observe(args, out, run.fed)
        if wrong is not None:
            print(wrong, file=out)
            code = code or EXIT_FAIL
        reports.close(code)
    return code


def _tasks(args: argparse.Namespace, engines: Sequence[Choice]) -> list[Task]:
    """What is asked for each file."""
    reports = [args.json, args.json_lines, args.junit, args.html]
    common = {
        "engine": engines[0],
        "others": tuple(engines[1:]),
        "seed": args.seed,
        "policies": parse_all(args.check or ()),
        "copy": args.copy,
        "read": model_options(args),
        "strict": args.strict,
        "specs": None if args.input is None else tuple(args.input),
        "repeat": args.repeat,
        "resize_input": args.resize_input,
        "input_transform": args.input_transform,
        "iterations": args.iter,
        "warmup": args.warmup_iter,
        "values": args.output is not None or args.save_results is not None,
        "facts": any(r is not None for r in reports),
        "pictures": args.html is not None,
        "explain": args.explain,
        "optimize": flags_of(args),
        "batch": args.batch_size,
    }
    # Of the first file alone operators are looked at, on what it was fed; data is not loaded a second time for that.
    looked = args.input is not None and observed(args)
    return [Task(path, **common, feeds=looked and i == 0) for i, path in enumerate(args.files)]


Events = Iterator[tuple[Task, Event]]


def _source(args: argparse.Namespace, tasks: list[Task]) -> AbstractContextManager[Events]:
    """What replays the tasks."""
    if args.dask is not None:
        from ..replay.dask import Cluster  # for start-up

        return Cluster(args.dask, args.timeout, args.dask_files).replaying(tasks)
    if (args.jobs or 1) == 1 and args.timeout is None:
        return closing(serial(tasks))  # type: ignore[type-var]
    from ..replay.processes import Pool  # for start-up

    return Pool(args.jobs or 1, args.timeout, len(tasks)).replaying(tasks)


class _Dump:
    """One dump of a file: what is known of it, and its results as they come."""

    def __init__(self, path: str, opened: Opened, events: Iterator[Event]) -> None:
        self.path = path
        self.opened = opened
        self.file = FileResult(
            opened.name,
            warnings=Warnings(opened.warnings),
            damage=opened.damage,
            missed=opened.missed,
            load_seconds=opened.load_seconds,
        )
        self.timing: Timing | None = None
        self.explanation: tuple[str, ...] = ()
        self._events = events

    def results(self) -> Iterator[Replayed]:
        """Its results; what else comes up is noted."""
        for event in self._events:
            if isinstance(event, Warned):
                assert isinstance(self.file.warnings, Warnings)
                self.file.warnings.add(event.text)
            elif isinstance(event, Replayed):
                yield event
            elif isinstance(event, Explained):
                # Every part of a file explains its own.
                self.explanation = self.explanation or event.lines
            elif isinstance(event, Closed):
                self.file.message, self.file.fault = event.message, event.fault
                self.file.ended, self.timing = event.ended, event.timing
                for name, seconds in event.turns.items():
                    self.file.entrants[name].seconds[:] = seconds
                return


def _dumps(path: str, events: Iterator[Event]) -> Iterator[_Dump]:
    for event in events:
        assert isinstance(event, Opened)
        yield _Dump(path, event, events)


class _RunDisplay:
    """What is shown and kept of a run as it goes on."""

    def __init__(
        self, args: argparse.Namespace, reports: Sinks, out: TextIO, style: Style, files: int
    ) -> None:
        self.args = args
        self.reports = reports
        self.out = out
        self.style = style
        self.found: list[FileResult] = []
        self.fed: list[Mapping[str, Array]] = []
        self.bad = self._last_bad = False
        self._files = files
        self._failing: list[str] = []
        self._progress = FileProgress(files)

    def dump(self, dump: _Dump) -> None:
        """Show and report the results of one dump."""
        args, file = self.args, dump.file
        file.free = args.no_check
        self.found.append(file)
        self.reports.begin(file, dump.opened.facts)
        out = None if args.quiet else self.out
        spots: list[str] = []
        current: list[Replayed] = []
        done = 0

        def results() -> Iterator[Result]:
            nonlocal done
            for found in dump.results():
                current[:] = [found]
                if found.feeds is not None and len(self.found) == 1:
                    self.fed.append(found.feeds)
                yield found.result
                done = self.found[-1].testcases
                self._progress.testcase(done, dump.opened.total)

        def seen(bare: Result) -> None:
            self.reports.add(dump.path, current[0], bare)
            _note(bare, spots)

        self._show()(file, results(), out, seen)
        if dump.timing is not None and out is not None:
            print(f"  {text.timing_line(dump.timing)}", file=out)
        explanation = list(self._where(dump, out)) if file.first is not None else []
        self.reports.end(file, dump.timing, explanation)
        if out is not None and not self._many:
            print(file=out)
        self._judge(file, spots)

    def file_done(self) -> None:
        """All dumps of a file were shown."""
        self._progress.file(self._last_bad)
        self._last_bad = False

    @property
    def _many(self) -> bool:
        return self._files >= _MANY and not self.args.verbose

    def _show(self) -> Callable[..., None]:
        """How a file is shown."""
        if self._many:
            return lambda *given: show_line(*given, style=self.style)
        return lambda *given: show(*given, style=self.style, metrics=self.args.verbose > 1)

    def _judge(self, file: FileResult, spots: list[str]) -> None:
        """Note what is told of a file at the end."""
        if self.args.quiet and file.damage:
            print(clean(file.path, 200), *map(text.warning, file.damage), sep="\n", file=self.out)
        if file.good:
            return
        self.bad = self._last_bad = True
        said = [*spots[:_LISTED], *([f"{len(spots) - _LISTED} more"] if len(spots) > _LISTED else [])]
        if file.message:
            said.append(clean(file.message.splitlines()[0], 300))
        said += file.missed
        if file.verdict is Verdict.NOT_COMPARED and not file.passed:
            said.append("nothing was compared")
        word = self.style.verdict(file.verdict, file.verdict.value)
        self._failing.append(f"  {clean(file.path, 200)}: {word}: {'; '.join(said)}")
        annotate(file, f"{file.verdict.value}: {'; '.join(said)}", self.out)

    def end(self) -> int:
        """Print what failed and the summary; the exit code."""
        clear_progress()
        alone = len(self.found) == 1 and not self.args.quiet
        if self._failing and not alone:
            print("not passed:", *self._failing, sep="\n", file=self.out)
        left = self._files - self._progress.done
        if self.bad and self.args.fail_fast and left > 0:
            print(f"{left} more files were not run (--fail-fast)", file=self.out)
        print(text.summary(self.found), file=self.out)
        if not self.found:
            return EXIT_ERROR
        fault = any(f.fault for f in self.found)
        return exit_code((f.verdict for f in self.found), no_check=self.args.no_check, fault=fault)

    def _where(self, dump: _Dump, out: TextIO | None) -> Iterator[str]:
        """Say how to find the operator that is to blame, or find it."""
        path, file = dump.path, dump.file
        if not dump.explanation:
            words = ["loadrun", "diff", clean(path, 500), "--testcase", str(file.first)]
            number = dump.opened.dump
            import shlex  # for start-up

            command = shlex.join([*words, *(["--dump", str(number + 1)] if number else [])])
            other = held_against(file.first_choice or self.args.engine)
            other = "GOOD (another model, or float64)" if other == "float64" else shlex.quote(other)
            line = f"  where it began: {command} --against {other}"
            if out is not None:
                print(line, file=out)
            yield line.strip()
            return
        for line in dump.explanation:
            print(f"  {line}", file=out or self.out)
            yield line


def _note(result: Result, spots: list[str]) -> None:
    """Where a result fails or was not compared, in few words."""
    case = "" if result.index is None else f"testcase {result.index}"
    if result.choice is not None:
        case = f"{case} {clean(result.choice, 60)}".lstrip()
    if result.verdict is Verdict.ERROR:
        spots.append(f"{case}: {clean(result.message or '', 200)}".lstrip(": "))
    for out in result.outputs:
        if out.verdict is Verdict.FAIL:
            error = "" if out.error is None else f" error {out.error:.4g}, tolerance {out.maxerr:.4g}"
            error += f": {clean(out.notes[0], 200)}" if out.notes else ""
            spots.append(f"{case} output {clean(out.name)}{error}".lstrip())
        elif out.verdict is Verdict.NOT_COMPARED and out.reason:
            said = f"{case} output {clean(out.name)} not compared: {clean(out.reason, 200)}"
            spots.append(said.lstrip())
