"""`loadrun audit FILE`: which faults do the checks of a file catch?"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack

from ..base import __version__
from ..base.errors import clean
from ..base.writing import check_targets, text_file
from ..compare.results import FileResult
from ..replay.options import RunOptions
from ..report.json import dumps
from ..report.junit import JUnitWriter
from ..report.text import error, table
from ..verify.audit import NO_CHECK, Audit, AuditOptions, FileAudit, Score, audits_of
from ..verify.audit_mutants import CASE_KINDS, ELEMENT
from .fields import add_options
from .groups import Parser, limited, model_files
from .models import add_engine_option, add_model_options, model_options

_HEADERS = ("file", "output", "mutants", "caught", "score", "not caught")


def parser() -> Parser:
    """Build the parser of `loadrun audit`."""
    p = Parser(
        prog="loadrun audit",
        description="Replay files with single weight elements or testcases corrupted, and report how many of these "
        "mutants the checks catch. A file's score is the probability that one wrong element is caught, times the share "
        "of testcase mutants that are caught.",
        epilog="Exit codes: 0 every check caught a mutant, 1 a check caught none or a score is 0, 2 a file cannot be "
        "read or run, 3 there are no checks, or one fails on the unchanged model.",
    )
    p.add_argument("files", nargs="+", metavar="MODEL", help="files, patterns and folders")
    add_options(p, AuditOptions, "mutants", "timeout", "seed", "jobs")
    add_options(p, RunOptions, "junit", json={"more": ""})
    add_engine_option(p)
    add_model_options(p)
    add_options(p, RunOptions, "max_memory")
    return p


def main(argv: list[str]) -> int:
    """Audit the files; 1 where a check caught nothing."""
    p = parser()
    args = p.parse_args(argv)
    options = p.record(
        AuditOptions,
        vars(args),
        **model_options(args.input_shape, args.constant),
    )
    files = model_files(args.files, sys.stderr)
    check_targets({"--json": args.json, "--junit": args.junit}, files)
    out = sys.stderr if args.json == "-" else sys.stdout
    result = Audit()
    entries: list[dict[str, object]] = []
    with limited(args.max_memory), ExitStack() as stack:
        json = stack.enter_context(text_file(args.json or "-"))
        junit = None
        if args.junit is not None:
            junit = JUnitWriter(stack.enter_context(text_file(args.junit, "utf-8")))
        for path, audit in zip(files, audits_of(files, options), strict=True):
            for _, why in audit.failures:
                print(f"{clean(path, 200)}\n{error(why.message)}", file=sys.stderr)
            if len(files) > 1:
                for _, audited in audit.files:
                    print(_line(path, audited), file=out, flush=True)
            entries += _entries(path, audit)
            if junit is not None:
                _add_suite(junit, path, audit)
            result.files += audit.files
            result.failures += audit.failures
        scores = [s for _, s in result.scores]
        if scores and len(files) == 1:
            print(table([_row(path, s) for path, s in result.scores], _HEADERS, right=(2, 3, 4)), file=out)
            print(file=out)
            for path, audited in result.files:
                print(*_about(path, audited), sep="\n", file=out)
        print(_total(result), file=out)
        code = result.exit_code
        if junit is not None:
            junit.close(code)
        if args.json is not None:
            print(dumps({"loadrun": __version__, "exit_code": code, "files": entries}), file=json)
    return code


def _total(result: Audit) -> str:
    scores = [s for _, s in result.scores]
    silent = sum(s.reason not in (None, NO_CHECK) for s in scores)
    outputs = f"{len(scores)} output{'s' * (len(scores) != 1)}"
    without = f", {silent} that fail on the unchanged model" if silent else ""
    values = [a.whole.value for _, a in result.files if a.whole.value is not None]
    lowest = f"lowest score {_percent(min(values))}" if values else "no score"
    return f"{len(result.files)} file{'s' * (len(result.files) != 1)}, {outputs}: {lowest}{without}"


def _line(path: str, audited: FileAudit) -> str:
    """Describe the audit of a file among many in one line."""
    lines = _about(path, audited)
    findings = len(audited.findings)
    missed = ", ".join(filter(None, (_row(path, s)[-1] for s in audited.scores)))
    more = f"; not caught: {missed}" if missed else ""
    more += f"; {findings} finding{'s' * (findings != 1)}" if findings else ""
    return f"{lines[0]}{';' if len(lines) > 1 else ''} {lines[1].strip() if len(lines) > 1 else ''}{more}".rstrip()


def _entries(path: str, audit: Audit) -> Iterator[dict[str, object]]:
    """Yield what the JSON report says of a file."""
    for _, audited in audit.files:
        yield {
            "file": path,
            "score": audited.whole.value,
            "interval": audited.whole.interval,
            "testcases": audited.testcases,
            "cut": audited.cut,
            "findings": audited.findings,
            "outputs": audited.scores,
        }
    for _, why in audit.failures:
        yield {"file": path, "message": why.message}


def _add_suite(junit: JUnitWriter, path: str, audit: Audit) -> None:
    """Put the audit of a file into the JUnit report."""
    file = FileResult(path)
    junit.begin(file)
    for _, audited in audit.files:
        for s in audited.scores:
            caught = sum(s.caught.values())
            kind = "skipped" if s.reason == NO_CHECK else "failure" if s.reason or not caught else ""
            why = s.reason or f"it caught {caught} of {s.mutants} mutants"
            junit.case(s.output, kind, why if kind else "")
        if audited.whole.value is None:
            junit.case("audit", "failure", f"no score: {_silence(audited)}")
    for _, failed in audit.failures:
        junit.case("audit", "error", failed.message)
    junit.end(file)


def _about(path: str, audited: FileAudit) -> list[str]:
    """Describe the score of a file in a line, and what lowers it in one each."""
    whole = audited.whole
    if whole.value is None or whole.interval is None:
        return [f"{clean(path, 200)}: no score, {_silence(audited)}"]
    low, high = whole.interval
    caught, count = whole.caught_of((ELEMENT,))
    sure = "" if low == high else f" ({_percent(low)[:-2]} to {_percent(high)} with 95 % confidence)"
    right, cases = whole.caught_of(CASE_KINDS)
    tested = f"{audited.testcases} testcase{'s' * (audited.testcases != 1)}"
    lines = [
        f"{clean(path, 200)}: score {_percent(whole.value)}{sure}",
        f"  {caught} of {count} wrong weight elements caught, drawn from {whole.elements}; "
        f"{right} of {cases} mutants of {tested} caught" + ("; the time was up" if audited.cut else ""),
    ]
    return lines + [f"  {clean(said, 300)}" for said in audited.findings]


def _silence(audited: FileAudit) -> str:
    """Say why there is no score."""
    return "no mutant was tried within the time limit" if audited.cut else "; ".join(audited.findings)


def _percent(share: float) -> str:
    """Return a share in whole percent; 100 only for 1."""
    return f"{min(round(100 * share), 99) if share < 1 else 100} %"


def _row(path: str, s: Score) -> tuple[str, ...]:
    missed = [f"{n} {what} passed" for what, n in s.passed.items()]
    missed += [f"{n} {what} changed nothing" for what, n in s.unmoved.items()]
    return (
        clean(path),
        clean(s.output),
        str(s.mutants),
        str(sum(s.caught.values())),
        "-" if s.value is None else _percent(s.value),
        clean(f"({s.reason}) " * bool(s.reason) + ", ".join(missed), 160),
    )
