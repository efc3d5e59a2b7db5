"""`loadrun model.mge`: replay embedded testcases, or run a plain model on input data or random numbers."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TextIO

from ..base import __version__
from ..base.configuration import Configuration, find_configuration, read_configuration
from ..base.errors import clean
from ..base.files import opened
from ..base.registry import late
from ..base.writing import check_targets, text_file
from ..compare.policy import JudgeOptions, parse_all
from ..compare.results import exit_code
from ..replay.options import RunOptions
from ..replay.replaying import Replay, ReplayedDump
from ..report import text
from ..report.text import Style, style_for
from ..runner import FileResult, Result, Verdict
from .fields import add_options
from .groups import Parser, add_quiet_option, chosen_data, model_files, target, tolerances
from .models import (
    add_engine_option,
    add_model_options,
    add_observing_options,
    all_chosen,
    model_options,
    optimizations,
)
from .stream import FileProgress, clear_progress, show, show_line

with late(__name__):
    from ..report import json as json_report
    from ..verify import saved

_MANY = 5
"""From this number of files on, each gets a single line."""
_LISTED = 3
"""How many failing outputs of a file the list at the end names."""
_SHOWN = 20
"""How many differences from the digests are printed where nothing else is."""


_JUDGED = ("check", "maxerr", "allow_uncompared", "json", "quiet")
"""The options that apply to saved results."""


def parser() -> Parser:
    """Build the parser of `loadrun run`."""
    p = Parser(
        prog="loadrun",
        description="Replay the testcases embedded in models and check their outputs.",
        epilog="Exit codes (the first that applies): 70 a bug in loadrun; 5 the process running a file "
        "died; 4 a file took longer than --timeout; 2 a bad file, bad usage or a model that cannot be executed; "
        "1 a check failed; 3 the models ran but nothing was compared; 0 there was at least one check and all passed.",
    )
    p.add_argument(
        "files",
        nargs="+",
        metavar="MODEL",
        help="files, patterns, and folders, of which all .mge, .onnx and .pt2 files are run; or a file of "
        "--output FILE.zip, which is judged again by --check and --maxerr without running anything",
    )
    data = p.add_argument_group("data")
    sets = (
        "; of an ONNX model also a folder of test_data_set_N folders, or a .mge file that was packed from it"
    )
    add_options(data, RunOptions, input_data={"more": sets})
    add_options(data, RunOptions, "repeat", "resize_input", "input_transform", "seed")
    add_options(data, RunOptions, output={"metavar": "DIR|FILE.zip", "type": target})
    checks = p.add_argument_group("checks")
    add_options(checks, JudgeOptions, maxerr={"metavar": "[NAME=]X", "action": "append"})
    add_options(checks, RunOptions, "policies", "loosen", "allow_uncompared", "explain")
    chosen = p.add_argument_group("selection of files")
    add_options(
        chosen,
        RunOptions,
        keyword={"flags": ("-k",), "metavar": "WORDS"},
        testcases={"flags": ("--testcase",), "metavar": "0,3-5", "type": _numbers},
        last_failed={"metavar": "REPORT"},
    )
    add_options(chosen, RunOptions, configuration={"flags": ("--config",), "dest": "config"})
    running = p.add_argument_group("execution")
    add_options(running, RunOptions, "jobs", "timeout", "max_memory", "fail_fast", "iter")
    add_options(
        running,
        RunOptions,
        strict={"metavar": "weak,damage", "type": _strict, "default": (), "action": "store"},
    )
    add_engine_option(p, several=True)
    add_model_options(p)
    reports = p.add_argument_group("reports")
    add_options(reports, RunOptions, "junit", "html", json={"action": "append"})
    add_observing_options(p)
    shown = p.add_argument_group("output")
    add_quiet_option(shown)
    shown.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="print a table for each file, however many there are; -vv: all metrics of every output",
    )
    return p


def _configuration(file: str | None, engines: bool) -> Configuration | None:
    """Read the configuration; engines on the command line override configured ones."""
    if file == "none":
        return None
    configuration = find_configuration() if file is None else read_configuration(file)
    return configuration.without_engines() if configuration is not None and engines else configuration


def _strict(text: str) -> tuple[str, ...]:
    """Read what is rejected, separated by commas."""
    words = tuple(text.split(","))
    if unknown := [w for w in words if w not in ("weak", "damage")]:
        raise argparse.ArgumentTypeError(f"expected weak or damage, found {unknown[0]!r}")
    return words


def _numbers(text: str) -> tuple[int, ...]:
    """Read numbers and ranges.

    >>> _numbers("0,3-5")
    (0, 3, 4, 5)
    """
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = first, last if dash else first
        numbered = all(n.isascii() and n.isdigit() and len(n) < 9 for n in ends)
        if not numbered or int(ends[0]) > int(ends[1]):
            raise argparse.ArgumentTypeError(f"expected testcase numbers such as 0,3-5, found {text!r}")
        numbers += range(int(ends[0]), int(ends[1]) + 1)
    return tuple(dict.fromkeys(numbers))


def main(argv: list[str]) -> int:
    """Replay the files and return the exit code of the verdict."""
    p = parser()
    args = p.parse_args(argv)
    if any(map(_holds_results, args.files)):
        json, _ = _reports(p, args.json)
        p.only(vars(args), _JUDGED, "applies to models, not to saved results")
        if len(args.files) > 1:
            p.error("name one file of saved results, and no models beside it")
        check_targets({"--json": json}, args.files)
        judged = _judge(args.files[0], tolerances(args.maxerr), args.check or (), json, args.quiet)
        return exit_code(judged, allow_uncompared=args.allow_uncompared)
    if args.maxerr:
        p.error('--maxerr judges saved results; of a run, --check "maxerr<=X" asks for less')
    json, lines = _reports(p, args.json)
    data, sets = chosen_data(p, args.input_data, (".mge",))
    options = p.record(
        RunOptions,
        vars(args),
        input_data=data,
        test_data=sets,
        json=json,
        json_lines=lines,
        engines=all_chosen(args.engine),
        policies=parse_all(args.check or ()),
        optimize=optimizations(vars(args)),
        command=shlex.join(["loadrun", *argv]),
        configuration=_configuration(args.config, args.engine is not None),
        **model_options(args.input_shape, args.constant),
    )
    out = sys.stderr if options.json == "-" else sys.stdout
    with Replay(model_files(args.files, out), options) as run:
        display = _RunDisplay(run, out, style_for(out), args.quiet, args.verbose)
        for dump in run:
            display.dump(dump)
        display.end()
        wrong = run.observe(out)
        if wrong is not None:
            print(wrong, file=out)
    return run.exit_code


def _reports(p: Parser, names: Sequence[str] | None) -> tuple[str | None, str | None]:
    """Return the JSON report among some names, and that of lines."""
    kinds: tuple[list[str], list[str]] = ([], [])
    for name in names or ():
        kinds[name.lower().endswith(".jsonl")].append(name)
    if max(map(len, kinds)) > 1:
        p.error("--json takes one file, and one more that ends in .jsonl")
    json, lines = (kind[0] if kind else None for kind in kinds)
    return json, lines


def _holds_results(name: str) -> bool:
    """Return whether a file is one of --output FILE.zip: a zip file, as a .pt2 program is, too."""
    if name.lower().endswith((".mge", ".onnx", ".pt2")) or not os.path.isfile(name):
        return False
    with opened(name, "results") as file:
        return file.read(4) == b"PK\3\4"


def _judge(
    path: str, maxerr: float | Mapping[str, float] | None, check: Sequence[str], json: str | None, quiet: bool
) -> list[Verdict]:
    """Judge saved results, and return the verdicts on the files that were run."""
    out = sys.stderr if json == "-" else sys.stdout
    results: list[FileResult] = []
    with nullcontext() if json is None else text_file(json) as file:
        report = None if file is None else json_report.JsonWriter(file, __version__)
        for judged in saved.judge_results(path, JudgeOptions(maxerr=maxerr, policies=parse_all(check))):
            results.append(judged.file)
            if report is not None:
                report.begin(judged.file)
            each = judged if report is None else _added(judged, report)
            show(judged.file, each, None if quiet else out)
            if report is not None:
                report.end(judged.file)
            if not quiet:
                print(file=out)
        print(text.summary(results), file=out)
        verdicts = [f.verdict for f in results]
        if report is not None:
            report.close(exit_code(verdicts))
    return verdicts


def _added(results: Iterable[Result], report: json_report.JsonWriter) -> Iterator[Result]:
    """Put results into a report on their way."""
    for result in results:
        report.add(result)
        yield result


class _RunDisplay:
    """Print the results of a run as they come."""

    def __init__(self, run: Replay, out: TextIO, style: Style, quiet: bool, verbose: int) -> None:
        self.run = run
        self.out = out
        self.style = style
        self.quiet = quiet
        self.verbose = verbose
        self._many = len(run.paths) >= _MANY and not verbose
        self._failing: list[str] = []
        self._progress = FileProgress(len(run.paths))

    def dump(self, dump: ReplayedDump) -> None:
        """Show the results of one dump."""
        file = dump.file
        out = None if self.quiet else self.out
        spots: list[str] = []
        self._progress.file(self.run.done, len(self._failing))
        results = self._watched(dump, spots)
        if self._many:
            show_line(file, results, out, style=self.style)
        else:
            engines = [str(e) for e in self.run.options.engines]
            show(file, results, out, style=self.style, metrics=self.verbose > 1, engines=engines)
        if self.verbose and out is not None and not file.altered:
            for said in dump.packed:
                print(f"  {clean(said, 300)}", file=out)
        for timing in dump.timings if out is not None else ():
            print(f"  {text.timing_line(timing)}", file=out)
        if dump.explanation or out is not None:
            if self.quiet and dump.reason:
                print(clean(file.path, 200), file=self.out)
            for line in dump.reason:
                print(f"  {line}", file=out or self.out)
        if out is not None and not self._many:
            print(file=out)
        self._judge(dump, spots)

    def _watched(self, dump: ReplayedDump, spots: list[str]) -> Iterator[Result]:
        """Yield the results; note failures and show progress."""
        for result in dump:
            _note(result, spots)
            yield result
            self._progress.testcase(dump.file.counts.testcases, dump.total)

    def _judge(self, dump: ReplayedDump, spots: list[str]) -> None:
        """Note what the end of the output says about a dump."""
        file = dump.file
        told = [*dump.damage, *file.altered[:_SHOWN], *dump.weak]
        if self.quiet and told:
            print(clean(file.path, 200), *map(text.warning, told), sep="\n", file=self.out)
        if file.good:
            return
        said = [*spots[:_LISTED], *([f"{len(spots) - _LISTED} more"] if len(spots) > _LISTED else [])]
        if file.failure is not None:
            said.append(clean(" ".join(line.strip() for line in file.failure.message.splitlines()), 500))
        said += [*file.altered[:_LISTED], *file.missed, *file.unrun, *filter(None, [file.surprise])]
        if file.verdict is Verdict.NOT_COMPARED and not file.counts.passed:
            said.append("nothing was compared")
        word = self.style.verdict(file.verdict, file.verdict.value)
        self._failing.append(f"  {clean(file.path, 200)}: {word}: {'; '.join(said)}")
        if os.environ.get("GITHUB_ACTIONS") == "true":
            # Its workflow annotates the file.
            message = _escaped(f"{file.verdict.value}: {'; '.join(said)}")
            print(f"::error file={_escaped(file.path, properties=True)}::{message}", file=self.out)

    def end(self) -> None:
        """Print failures and the summary."""
        clear_progress()
        run = self.run
        alone = len(run.files) == 1 and not self.quiet
        if self._failing and not alone:
            print("not passed:", *self._failing, sep="\n", file=self.out)
        left = len(run.paths) - run.done
        if self._failing and run.options.fail_fast and left > 0:
            print(f"{left} more files were not run (--fail-fast)", file=self.out)
        for path, why in run.skipped.items():
            print(f"skipped: {clean(path, 200)}: {clean(why, 200)}", file=self.out)
        if run.skipped and not run.files:
            print("nothing was compared: the configuration skips every file", file=self.out)
        print(text.summary(run.files), file=self.out)


def _note(result: Result, spots: list[str]) -> None:
    """Note briefly where a result fails or was not compared."""
    case = "" if result.index is None else f"testcase {result.index}"
    if result.choice is not None:
        case = f"{case} {clean(result.choice, 60)}".lstrip()
    if result.verdict is Verdict.ERROR:
        spots.append(f"{case}: {clean(result.message or '', 200)}".lstrip(": "))
    for out in result.outputs:
        if out.verdict is Verdict.FAIL:
            error = "" if out.error is None else f" error {out.error:.4g}"
            maxerr = out.tolerance.maxerr
            error += "" if maxerr is None else f", tolerance {maxerr:.4g}"
            error += f": {clean(out.notes[0], 200)}" if out.notes else ""
            spots.append(f"{case} output {clean(out.name)}{error}".lstrip())
        elif out.verdict is Verdict.NOT_COMPARED and out.reason:
            said = f"{case} output {clean(out.name)} not compared: {clean(out.reason, 200)}"
            spots.append(said.lstrip())


def _escaped(text: str, properties: bool = False) -> str:
    """Escape text for a workflow command."""
    for char, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(char, code)
    return text.replace(":", "%3A").replace(",", "%2C") if properties else text
