"""Options of a replay as records, and the files that they select: words in names and earlier reports."""

import ast
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..base.configuration import Configuration, FileRule
from ..base.errors import InputError, UsageError, clean
from ..base.registry import late
from ..compare.policy import Policy
from ..compare.results import Verdict
from ..inputs.feeds import DataOptions, ModelOptions

with late(__name__):
    from ..report import reading

PathName = str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True, eq=False)
class ReplayOptions(ModelOptions, DataOptions):
    """Describe how a file is replayed; the options of `ModelOptions` and `DataOptions` are among these.

    Attributes:
        engines: reference, float64, onnxruntime, openvino, torch, megengine, load_and_run, or an engine from an
            installed package. An argument follows a colon where the engine takes one. Several engines run side by side
            and are compared with the first.
        policies: criteria for outputs besides the tolerance, such as "prob: cosine>=0.9999, top1=1", "ids: exact" or
            "x: rtol=1e-3, atol=1e-6", added to what the file requires; may be repeated. In Python, policies by name,
            those of all other outputs under the empty name.
        strict: reject weak: checks that cannot fail on the testcases, because zeros would pass as well (exit code 3);
            damage: files with a damaged end.
        explain: find the operator where the first failing testcase diverges from float64, or a failing engine from the
            reference engine.
        iter: time N more runs of each testcase, after one that is not timed.
        optimize: optimizations of the graph before it is run: keywords of
            `loadrun.passes.inference.optimize_for_inference`, or ``optimize_for_inference`` for none of them.
        batch_size: repeat or cut testcases along axis 0 to N items.
        values: keep the values of outputs in the results.
        testcases: use only these testcases.
        test_data: a folder with the test data of an ONNX model, or a .mge file that was packed from it, whose testcases
            and tolerances a runtime of ONNX files replays.
    """

    engines: tuple[str, ...] = ("reference",)
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
        profile: write the time of each operator, in the format of MegEngine's profiler.
        perfetto: write a trace for the Perfetto viewer.
        top: show the N most expensive groups of operators.
        by: group them by type, name or prefix:DEPTH.
        memory: show peak memory and the values that were alive at the peak.
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
        output: save every output as DIR/[FILE.]TESTCASE.OUTPUT.npy; or all values and verdicts in a file that ends in
            .zip or .npz, which `loadrun FILE.zip` judges again by --maxerr and --check.
        loosen: let what --check says of an output replace the file's own check of it, which reports show.
        allow_uncompared: exit with 0 instead of 3 when nothing was compared.
        jobs: distribute files over N processes (default: one).
        timeout: stop a file whose testcases take longer in total.
        max_memory: memory limit for models, such as 4G or 500M (default: what the machine has available; Linux only).
            It holds for this process and each that it starts.
        fail_fast: stop after the first file that does not pass.
        threads: number of threads (default: all processors).
        json: write the results as JSON (- for standard output); if FILE ends in .jsonl, as lines, which an interrupted
            run keeps; may be given for both.
        json_lines: the file for lines, where both are wanted.
        junit: write a JUnit report for CI servers.
        html: write a self-contained HTML report.
        io_dump: write every variable of every testcase as text.
        range: fail on NaN and on absolute values above LIMIT (inf: on NaN and infinity), and name the operators where
            they first appear.
        top: show the N most expensive groups of operators.
        configuration: project configuration, or none (default: loadrun.toml, or tool.loadrun in pyproject.toml, in this
            folder or the nearest parent that has one). Its engines and time limits replace those here; its policies
            yield to those here. In Python, what `loadrun.base.configuration.find_configuration` returns.
        keyword: only files whose names match: "resnet and not quant".
        last_failed: only files that did not pass, or were not reached, according to a report of --json.
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
    command: str | None = None

    def __post_init__(self) -> None:
        self.check_data()
        if self.loosen and not self.policies:
            raise UsageError(
                "--loosen lets --check replace a file's own check; give the replacement with --check"
            )
        if self.threads == 0:
            raise UsageError("--threads takes a number of at least 1, found 0")
        if self.iter and (self.jobs or 1) > 1:
            raise UsageError("-j would disturb the times of --iter; leave one of them out")
        if self.threads is not None and self.jobs is not None:
            raise UsageError("--threads applies to this process only; -j divides the threads itself")
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
        files = [p for p in files if matches_words(options.keyword, p)]
    if options.last_failed is not None:
        report = reading.run_report(options.last_failed)
        verdicts = [(re.sub(_DUMP, "", e["file"]), e.get("verdict")) for e in report["files"]]
        failed = {name for name, verdict in verdicts if verdict != Verdict.PASS.value}
        if report.get("cut"):
            # The run did not come to the files that its report does not name.
            failed |= set(files).difference(name for name, _ in verdicts)
        files = [p for p in files if p in failed]
        if not files and not failed:
            raise InputError(f"{os.fspath(options.last_failed)} has no file that did not pass")
    if named and not files:
        said = {"-k": options.keyword, "--last-failed": options.last_failed}
        by = ", ".join(f"{name} {os.fspath(value)}" for name, value in said.items() if value is not None)
        raise InputError(f"none of the {named} file{'s' * (named > 1)} is selected by {by}")
    chosen = ChosenFiles(missed=missed)
    for path in files:
        rule = FileRule() if options.configuration is None else options.configuration.of(path)
        if rule.skip is not None:
            chosen.skipped[path] = rule.skip
        else:
            chosen.paths.append(path)
            chosen.rules[path] = rule
    return chosen


def matches_words(text: str, name: str) -> bool:
    """Return whether a name has the words that pytest's ``-k`` would look for: ``and``, ``or``, ``not``, parentheses.

    Raises:
        UsageError: they make no sense.

    >>> [matches_words("resnet and not (quant or v1)", n) for n in ("a/ResNet18.mge", "resnet_quant.mge", "gpt.mge")]
    [True, False, False]
    """
    lower = name.lower()
    condition = re.sub(
        r"[^\s()]+", lambda m: m[0] if m[0] in ("and", "or", "not") else str(m[0].lower() in lower), text
    )
    try:
        return _holds(ast.parse(condition.strip(), mode="eval").body)
    except (SyntaxError, MemoryError, RecursionError):
        raise UsageError(
            f"-k takes words combined with and, or, not and parentheses, found {clean(text)!r}"
        ) from None


def _holds(node: ast.expr) -> bool:
    if isinstance(node, ast.BoolOp):
        return (all if isinstance(node.op, ast.And) else any)([_holds(v) for v in node.values])
    if isinstance(node, ast.UnaryOp):
        return not _holds(node.operand)
    if isinstance(node, ast.Constant):
        return bool(node.value)
    raise SyntaxError
