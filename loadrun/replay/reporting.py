"""Where the results of a run go besides the screen: reports of several forms, values, annotations."""

from __future__ import annotations

import io
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base import __version__
from ..base.errors import Failure, UsageError
from ..base.registry import late
from ..base.writing import FileNames, check_targets, growing, replacing, text_file
from ..compare.results import Result
from ..graph.dtypes import Array
from ..runner import FileResult
from .options import ChosenFiles, PathName, ReplayOptions, RunOptions

with late(__name__):
    from ..inputs import lists
    from ..report import html as html_report, json as json_report, junit as junit_report
    from ..verify import saved as saved_results
    from ..verify.bench import environment

if TYPE_CHECKING:
    from ..verify.bench import Timing
    from ..verify.pictures import Picture

    ReportWriter = (
        json_report.JsonWriter | json_report.LineWriter | junit_report.JUnitWriter | html_report.HtmlWriter
    )


@dataclass(frozen=True, eq=False)
class Task(ReplayOptions):
    """One file to replay, and how.

    Attributes:
        path: the file.
        facts: whether digests and environment of the file are requested.
        pictures: whether failing outputs are drawn.
        feeds: whether results come with what was fed.
        timeout: seconds that the file may take, None for no limit.
    """

    path: str
    facts: bool = field(default=False, kw_only=True)
    pictures: bool = field(default=False, kw_only=True)
    feeds: bool = field(default=False, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(eq=False)
class Opened:
    """A dump of the file was opened; its results follow.

    Attributes:
        name: how the dump is called.
        dump: its number in the file.
        total: how many testcases there are of it, or data in their place.
        warnings: what there is to say of the file.
        damage: those of them that tell of damage.
        missed: those that tell of what the file holds to be compared and is not.
        packed: who packed the file, and what another runtime computed then, to be said if all digests agree.
        load_seconds: how long reading took.
        facts: digest of the model, its inputs, the size of the file.
    """

    name: str
    dump: int = 0
    total: int = 0
    warnings: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    packed: tuple[str, ...] = ()
    load_seconds: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Replayed:
    """A result.

    Attributes:
        result: it, with the values of its outputs only if the task keeps them.
        inputs: shapes of what was fed, by input name.
        digests: digests of what was fed, with and without expected values, where facts are requested.
        pictures: of its failing outputs, by name.
        feeds: what was fed, only if the task asks for it.
    """

    result: Result
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    feeds: Mapping[str, Array] | None = None


@dataclass(eq=False)
class Warned:
    """Something deserves a look.

    Attributes:
        text: a sentence.
        weak: whether it says of a check that it could not fail on the testcases.
        altered: whether it says what differs from the digests that the file carries.
    """

    text: str
    weak: bool = False
    altered: bool = False


@dataclass(eq=False)
class Explained:
    """Where the first testcase that fails begins to differ.

    Attributes:
        lines: what is said of it.
        drawing: the operators around those to blame, as an image; empty if there are none.
    """

    lines: tuple[str, ...]
    drawing: str = ""


@dataclass
class Closed:
    """The dump came to its end.

    Attributes:
        failure: why it ended early.
        timings: further runs that were timed, by testcase.
        turns: seconds of such runs by engine, where several run side by side.
    """

    failure: Failure | None = None
    timings: tuple[Timing, ...] = ()
    turns: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


Event = Opened | Replayed | Warned | Explained | Closed


class Sinks:
    """All reports of a run.

    Args:
        writers: the reports.
        drawing: the one that draws images.
        saved: where values go, to be judged again.
        folder: where outputs are saved.
        several: whether there is more than one file, so that names of outputs begin with the file's.
    """

    def __init__(
        self,
        writers: Sequence[ReportWriter],
        drawing: html_report.HtmlWriter | None,
        saved: saved_results.ResultWriter | None,
        folder: PathName | None,
        several: bool,
    ) -> None:
        self._writers = writers
        self._drawing = drawing
        self._saved = saved
        self._folder = folder
        self._several = several
        self._names = FileNames()

    def begin(self, file: FileResult, facts: Mapping[str, Any]) -> None:
        """Begin a file."""
        for w in self._writers:
            w.begin(file, facts)
        if self._saved is not None:
            self._saved.begin(file.path, file.missed)

    def add(self, path: str, replayed: Replayed, bare: Result) -> None:
        """Take a result of the file: as it came, and without values."""
        if self._saved is not None:
            self._saved.add(replayed.result)
        if self._folder is not None:
            self._save(
                replayed.result,
                self._folder,
                f"{os.path.splitext(os.path.basename(path))[0]}." if self._several else "",
            )
        extra: dict[str, Any] = {"inputs": dict(replayed.inputs), **replayed.digests}
        for w in self._writers:
            w.add(bare, extra)
        if self._drawing is not None:
            for name, picture in replayed.pictures.items():
                self._drawing.picture(name, picture)

    def end(
        self, file: FileResult, timings: Sequence[Timing], explanation: Sequence[str], drawing: str = ""
    ) -> None:
        """End the file; `drawing` shows the operators to blame."""
        if self._drawing is not None:
            self._drawing.graph(drawing)
        for w in self._writers:
            w.end(file, timings, explanation)

    def close(self, exit_code: int) -> None:
        """End the run."""
        for w in self._writers:
            w.close(exit_code)

    def _save(self, result: Result, folder: PathName, lead: str) -> None:
        os.makedirs(folder, exist_ok=True)
        case = "" if result.index is None else f"{result.index}."
        for out in result.outputs:
            if out.value is not None:
                name = out.name if result.choice is None else f"{result.choice}.{out.name}"
                with replacing(os.path.join(folder, f"{self._names.file(name, lead + case)}.npy")) as f:
                    np.save(f, out.value, allow_pickle=False)


@contextmanager
def sinks(options: RunOptions, files: Sequence[str], chosen: ChosenFiles) -> Iterator[Sinks]:
    """Open the reports that the options ask for; left early, JSON lines say so and the others do not appear.

    Args:
        options: what is requested.
        files: the models.
        chosen: what the configuration leaves out.

    Raises:
        UsageError: two reports, or a report and a file that is read, are the same file; outputs would go to a file.
    """
    saved, folder = options.save_results, None if options.save_results is not None else options.output
    if folder is not None and os.path.exists(folder) and not os.path.isdir(folder):
        raise UsageError(
            f"--output takes a folder for the outputs, or a file that ends in .zip, found {os.fspath(folder)}"
        )
    read = list(files)
    if options.input_data:
        read += lists.files_named(options.input_data)
    names = ("json", "json_lines", "junit", "html", "io_dump")
    written = {f"--{n.replace('_', '-')}": getattr(options, n) for n in names}
    check_targets({**written, "--output": saved}, read)
    lines, whole = options.json_lines, options.json
    if whole is not None and whole.endswith(".jsonl"):
        whole, lines = None, lines or whole
    about: dict[str, Any] = {}
    if options.reported:
        about = {
            "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "host": platform.node(),
            **({"command": options.command} if options.command is not None else {}),
            "environment": environment.environment(),
            "engine": ",".join(map(str, options.engines)),
            "seed": options.seed,
            **({"skipped": chosen.skipped} if chosen.skipped else {}),
        }
    with ExitStack() as stack:
        writers: list[ReportWriter] = []
        drawing = None
        if whole is not None:
            writers.append(json_report.JsonWriter(stack.enter_context(text_file(whole)), __version__, about))
        if lines is not None:
            writers.append(stack.enter_context(_lines(lines, about)))
        if options.junit is not None:
            file = stack.enter_context(text_file(options.junit, "utf-8"))
            writers.append(junit_report.JUnitWriter(file, about))
        if options.html is not None:
            drawing = html_report.HtmlWriter(stack.enter_context(text_file(options.html, "utf-8")), about)
            writers.append(drawing)
        results = stack.enter_context(_results_file(saved))
        yield Sinks(writers, drawing, results, folder, len(files) > 1)


@contextmanager
def _lines(target: str, about: Mapping[str, Any]) -> Iterator[json_report.LineWriter]:
    """Open a report of JSON lines that says when it was interrupted."""
    with ExitStack() as stack:
        if target == "-":
            file: Any = sys.stdout
        else:
            raw = stack.enter_context(growing(target))
            file = stack.enter_context(io.TextIOWrapper(raw, encoding="ascii", newline="\n"))
        writer = json_report.LineWriter(file, __version__, about)
        try:
            yield writer
        except BaseException as e:
            ended = isinstance(e, (KeyboardInterrupt, SystemExit, GeneratorExit))
            writer.interrupted("the run was ended by a signal" if ended else f"{type(e).__name__}: {e}")
            raise


@contextmanager
def _results_file(target: PathName | None) -> Iterator[saved_results.ResultWriter | None]:
    """Results with their values to write, to a file that appears when it is complete."""
    if target is None:
        yield None
        return

    if os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target):
        raise UsageError(
            f"--output {os.fspath(target)}: expected a regular file for the archive, found a device or a pipe"
        )
    with replacing(target) as raw:
        writer = saved_results.ResultWriter(raw)
        try:
            yield writer
        except BaseException:
            writer.abandon()
            raise
        writer.close()
