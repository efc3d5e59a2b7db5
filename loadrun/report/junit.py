"""JUnit XML as CI servers read it: a suite for each file, a test for each output of each testcase."""

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, TextIO
from xml.etree import ElementTree

from ..base.errors import clean
from ..base.plain import plain
from ..runner import FileResult, OutputResult, Result, Verdict
from ..verify.bench import Timing
from .engines import entrants_lines
from .text import engine

_NOTHING = "there is nothing to compare it with"


class JUnitWriter:
    """Writes a JUnit report at its end, because totals come first.

    Args:
        file: where the text goes.
        about: what the first suite has as properties: environment and options of the run; the format has no other
            place for them.

    >>> import io, loadrun
    >>> text, found = io.StringIO(), FileResult("fixtures/nets/mlp.mge")
    >>> report = JUnitWriter(text)
    >>> report.begin(found)
    >>> for result in loadrun.run(found.path):
    ...     found.add(result)
    ...     report.add(result)
    >>> report.end(found)
    >>> report.close(0)
    >>> text.getvalue().count("<testcase ")
    3
    """

    def __init__(self, file: TextIO, about: Mapping[str, Any] | None = None) -> None:
        self.file = file
        self._about = dict(about or {})
        self._skipped: dict[str, str] = self._about.pop("skipped", {})
        self._suites = ElementTree.Element("testsuites", name="loadrun")
        self._suite = self._suites
        self._path, self._silent = "", "failure"
        self._expected: str | None = None
        self._facts: dict[str, Any] = {}

    def begin(self, file: FileResult, facts: Mapping[str, Any] | None = None) -> None:
        """Begin a file; its results follow."""
        self._path = clean(file.path, 500)
        self._suite = ElementTree.SubElement(
            self._suites,
            "testsuite",
            name=self._path,
            timestamp=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S"),
            hostname=clean(platform.node() or "localhost", 200),
            file=self._path,
        )
        # CI servers must count the same failures as exit codes.
        self._silent = "skipped" if file.free else "failure"
        self._expected = file.rule.xfail
        self._facts = dict(facts or {})

    def add(self, result: Result, extra: Mapping[str, Any] | None = None) -> None:
        """Add a result of the file."""
        case = "run" if result.index is None else str(result.index)
        if result.choice is not None:
            case += f"::{clean(result.choice, 60)}"
        seconds = result.seconds
        if result.verdict is Verdict.ERROR or not result.outputs:
            said = result.message or "the model has no outputs"
            kind = "error" if result.verdict is Verdict.ERROR else self._silent
            self._case(case, seconds, kind, said, said)
            return
        for out in result.outputs:
            name = f"{case}::{clean(out.name)}"
            standing = result.standing(out)
            if standing is Verdict.FAIL:
                kind, said = "failure", _short(out)
                if self._expected is not None:
                    kind, said = "skipped", f"expected to fail: {self._expected}: {said}"
                explained = out.comparison.explain().splitlines() if out.comparison else []
                self._case(name, seconds, kind, said, "\n".join([*explained, *out.notes]))
            elif standing is Verdict.NOT_COMPARED:
                free = "engines were compared with each other only" if out.is_between else _NOTHING
                said = f"not compared: {out.reason or free}"
                self._case(name, seconds, self._silent, said, said)
            elif standing is None:
                self._case(name, seconds, "skipped", _NOTHING)
            else:
                self._case(name, seconds)
            # The testcase ran once, whatever the number of its outputs.
            seconds = 0.0

    def end(self, file: FileResult, timings: Sequence[Timing] = (), explanation: Sequence[str] = ()) -> None:
        """End a file with the summary of its results."""
        if file.failure is not None:
            self.case(file.verdict.value, "error", file.failure.message)
        if file.surprise and file.rule.xfail_strict:
            self.case("xfail", "failure", file.surprise)
        if file.altered:
            self.case("digests", "failure", "\n".join(file.altered))
        for number, missed in enumerate(file.missed):
            self._case(f"not compared {number}", 0.0, self._silent, missed, missed)
        about, self._about = self._about, {}
        properties = ElementTree.Element("properties")
        for key, value in _flat({**about, **self._facts, "load_seconds": file.load_seconds}):
            shown = {"name": clean(key, 200), "value": clean(str(value), 500)}
            ElementTree.SubElement(properties, "property", shown)
        self._suite.insert(0, properties)
        ran = [*entrants_lines(list(file.entrants.values())), engine(file)]
        engines = [line.strip() for line in ran if line]
        said = [*(f"warning: {w}" for w in file.warnings), *engines, *explanation]
        ElementTree.SubElement(self._suite, "system-out").text = _text(said)
        ElementTree.SubElement(self._suite, "system-err")
        self._suite.set("skipped", _count(self._suite))

    def close(self, exit_code: int) -> None:
        """End the report; the file stays open."""
        for path, why in self._skipped.items():
            file = FileResult(path)
            self.begin(file)
            self.case("skipped", "skipped", why)
            self.end(file)
        _count(self._suites)
        ElementTree.indent(self._suites)
        self.file.write('<?xml version="1.0" encoding="UTF-8"?>\n')
        self.file.write(ElementTree.tostring(self._suites, encoding="unicode") + "\n")

    def case(self, name: str, kind: str = "", message: str = "") -> None:
        """Add a test of the file besides its results.

        Args:
            name: its name.
            kind: ``failure``, ``error`` or ``skipped``, empty for one that passes.
            message: why.
        """
        self._case(name, 0.0, kind, message.partition("\n")[0], message)

    def _case(self, name: str, seconds: float, kind: str = "", message: str = "", text: str = "") -> None:
        about = {"name": name, "classname": _class(self._path), "time": f"{seconds:.6f}"}
        case = ElementTree.SubElement(self._suite, "testcase", about)
        if kind:
            said = ElementTree.SubElement(case, kind, message=clean(message, 500))
            said.text = _text(text.splitlines())
            if kind != "skipped":
                said.set("type", kind)


def _count(suite: ElementTree.Element) -> str:
    """Note how many tests there are of which kind, and return how many were skipped."""
    cases = list(suite.iter("testcase"))
    kinds = Counter(kind.tag for case in cases for kind in case)
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(kinds["failure"]))
    suite.set("errors", str(kinds["error"]))
    suite.set("time", f"{sum(float(case.get('time', 0)) for case in cases):.6f}")
    return str(kinds["skipped"])


def _class(path: str) -> str:
    """Return the name of a class for a file; servers take what stands before the last dot for its package.

    >>> _class("fixtures/nets/mlp.v1.mge")
    'fixtures.nets.mlp_v1_mge'
    """
    parts = (part for part in path.replace("\\", "/").split("/") if part not in ("", ".", ".."))
    return ".".join(part.replace(".", "_") for part in parts)


def _short(out: OutputResult) -> str:
    maxerr = out.tolerance.maxerr
    error = "" if out.error is None or maxerr is None else f"error {out.error:.4g} > {maxerr:.4g}"
    return "; ".join(x for x in (error, *out.notes) if x) or "the check failed"


def _text(lines: Sequence[str]) -> str:
    return "\n".join(clean(line, 2000) for line in lines)


def _flat(data: Mapping[str, Any], lead: str = "") -> list[tuple[str, Any]]:
    """Nested data as pairs of a dotted name and a value; lists as text."""
    pairs: list[tuple[str, Any]] = []
    for key, value in plain(data).items():
        if isinstance(value, dict):
            pairs += _flat(value, f"{lead}{key}.")
        elif value is not None:
            pairs.append((lead + key, value))
    return pairs
