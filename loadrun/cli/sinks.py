"""Where the results of a run go besides the screen: reports of several forms, values, annotations."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import numpy as np

from ..base.files import FileNames, check_targets, growing, replacing
from ..base.version import __version__
from ..replay.events import Replayed
from ..runner import FileResult, Result
from .groups import target
from .stream import results_file, text_file

if TYPE_CHECKING:
    from pathlib import Path

    from ..report.html import HtmlWriter
    from ..report.json import LineWriter
    from ..verify.bench import Timing
    from ..verify.pictures import Picture
    from ..verify.saved import ResultWriter

__all__ = ["Sinks", "add_report_options", "annotate", "sinks"]


class ReportWriter(Protocol):
    """What a report is written with."""

    def begin(self, file: FileResult, facts: Mapping[str, Any] | None = None) -> None:
        """Begin a file."""

    def add(self, result: Result, extra: Mapping[str, Any] | None = None) -> None:
        """One result of the file."""

    def end(self, file: FileResult, timing: Timing | None = None, explanation: Sequence[str] = ()) -> None:
        """End a file."""

    def close(self, exit_code: int) -> None:
        """End the report."""


def add_report_options(p: argparse.ArgumentParser) -> None:
    """Add the options for reports (``args.json``, ``json_lines``, ``junit``, ``html``, ``save_results``)."""
    group = p.add_argument_group("reports")
    group.add_argument(
        "--json",
        metavar="FILE",
        help="write all results as JSON (- for standard output); as lines for a .jsonl",
    )
    group.add_argument(
        "--json-lines",
        metavar="FILE",
        help="write results as JSON lines as they come; an interrupted run leaves them",
    )
    group.add_argument(
        "--junit",
        metavar="FILE",
        type=target,
        help="write a JUnit report, as CI servers read it",
    )
    group.add_argument(
        "--html",
        metavar="FILE",
        type=target,
        help="write one HTML page with plots, to be opened in any browser",
    )
    group.add_argument(
        "--save-results", metavar="FILE", type=target, help="save values and verdicts for `loadrun judge`"
    )


class Sinks:
    """All reports of a run.

    Args:
        writers: the reports.
        drawing: the one that draws pictures.
        saved: where values go for `loadrun judge`.
        folder: where outputs are saved.
        several: whether there is more than one file, so that names of outputs begin with the file's.
    """

    def __init__(
        self,
        writers: Sequence[ReportWriter],
        drawing: HtmlWriter | None,
        saved: ResultWriter | None,
        folder: Path | None,
        several: bool,
    ) -> None:
        self._writers = writers
        self._drawing = drawing
        self._saved = saved
        self._folder = folder
        self._several = several
        self._names = FileNames()

    def begin(self, file: FileResult, facts: Mapping[str, Any]) -> None:
        """A file begins."""
        for w in self._writers:
            w.begin(file, facts)
        if self._saved is not None:
            self._saved.begin(file.path, file.missed)

    def add(self, path: str, found: Replayed, bare: Result) -> None:
        """A result of it: as it came, and without values."""
        if self._saved is not None:
            self._saved.add(found.result)
        if self._folder is not None:
            self._save(
                found.result,
                self._folder,
                f"{os.path.splitext(os.path.basename(path))[0]}." if self._several else "",
            )
        extra: dict[str, Any] = {"inputs": dict(found.inputs)}
        if found.digest is not None:
            extra["data_digest"] = found.digest
        for w in self._writers:
            w.add(bare, extra)
        if self._drawing is not None:
            self._draw(found.pictures)

    def _draw(self, pictures: Mapping[str, Picture]) -> None:
        assert self._drawing is not None
        for name, found in pictures.items():
            self._drawing.picture(name, found)

    def end(self, file: FileResult, timing: Timing | None, explanation: Sequence[str]) -> None:
        """The file ends."""
        for w in self._writers:
            w.end(file, timing, explanation)

    def close(self, exit_code: int) -> None:
        """The run ends."""
        for w in self._writers:
            w.close(exit_code)

    def _save(self, result: Result, folder: Path, lead: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        case = "" if result.index is None else f"{result.index}."
        for out in result.outputs:
            if out.value is not None:
                name = out.name if result.choice is None else f"{result.choice}.{out.name}"
                with replacing(folder / f"{self._names.file(name, lead + case)}.npy") as f:
                    np.save(f, out.value, allow_pickle=False)


@contextmanager
def sinks(args: argparse.Namespace, several: bool, read: Sequence[str] = ()) -> Iterator[Sinks]:
    """The reports that the options ask for; when this is left early, JSON lines say so and the others do not appear.

    Args:
        args: what the options say.
        several: whether there is more than one file.
        read: files that none of the reports may overwrite.

    Raises:
        UsageError: two reports, or a report and one of these files, are the same file.
    """
    names = ("json", "json_lines", "junit", "html", "save_results", "profile", "perfetto", "io_dump")
    check_targets({f"--{n.replace('_', '-')}": getattr(args, n) for n in names}, read)
    lines, whole = args.json_lines, args.json
    if whole is not None and whole.endswith(".jsonl"):
        whole, lines = None, lines or whole
    about: dict[str, Any] = {}
    if whole or lines or args.html or args.junit:
        from ..report.environment import environment  # for start-up

        about = {"environment": environment(), "engine": args.engine, "seed": args.seed}
    with ExitStack() as stack:
        writers: list[ReportWriter] = []
        drawing = None
        if whole is not None:
            from ..report.json import JsonWriter as JsonWriter  # for start-up

            file = sys.stdout if whole == "-" else stack.enter_context(text_file(whole))
            writers.append(JsonWriter(file, __version__, about))
        if lines is not None:
            writers.append(stack.enter_context(_lines(lines, about)))
        if args.junit is not None:
            from ..report.junit import JUnitWriter  # for start-up

            writers.append(JUnitWriter(stack.enter_context(text_file(args.junit, "utf-8")), about))
        if args.html is not None:
            from ..report.html import HtmlWriter  # for start-up

            drawing = HtmlWriter(stack.enter_context(text_file(args.html, "utf-8")), about)
            writers.append(drawing)
        saved = stack.enter_context(results_file(args.save_results))
        folder = None
        if args.output is not None:
            from pathlib import Path  # for start-up

            folder = Path(args.output)
        yield Sinks(writers, drawing, saved, folder, several)


@contextmanager
def _lines(target: str, about: Mapping[str, Any]) -> Iterator[LineWriter]:
    """A report of JSON lines that says when it was interrupted."""
    from ..report.json import LineWriter  # for start-up

    with ExitStack() as stack:
        if target == "-":
            file: Any = sys.stdout
        else:
            raw = stack.enter_context(growing(target))
            file = stack.enter_context(io.TextIOWrapper(raw, encoding="ascii", newline="\n"))
        writer = LineWriter(file, __version__, about)
        try:
            yield writer
        except BaseException as e:
            writer.interrupted("the run was ended by a signal" if _ended(e) else f"{type(e).__name__}: {e}")
            raise


def _ended(e: BaseException) -> bool:
    return isinstance(e, (KeyboardInterrupt, SystemExit, GeneratorExit))


def annotate(file: FileResult, message: str, out: TextIO) -> None:
    """Tell GitHub of a file that does not pass, when this runs there."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    print(f"::error file={_escaped(file.path, properties=True)}::{_escaped(message)}", file=out)


def _escaped(text: str, properties: bool = False) -> str:
    """Text as a workflow command takes it."""
    for found, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(found, code)
    return text.replace(":", "%3A").replace(",", "%2C") if properties else text
