"""Which of many files a run replays: by words of their names, by an earlier report, by shard, by configuration."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..base import schema
from ..base.configuration import FileRule
from ..base.errors import FormatError, InputError
from ..compare.results import FileResult, Verdict

if TYPE_CHECKING:
    from .options import RunOptions

__all__ = ["ChosenFiles", "selected"]

_FILE = schema.record(
    {"file": schema.text, "testcases": schema.items(schema.record({"verdict": schema.text}))},
    {"verdict": schema.text, "message": schema.either(schema.text)},
)
_REPORT = schema.record({"files": schema.items(_FILE)})
_DUMP = re.compile(r" \(dump \d+\)$")


@dataclass
class ChosenFiles:
    """The files of a run.

    Attributes:
        paths: those to replay.
        rules: what is configured for each.
        skipped: those that the configuration leaves out, with the reason.
        recorded: entries of the report that is resumed, of files that are done.
    """

    paths: list[str] = field(default_factory=list)
    rules: dict[str, FileRule] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    recorded: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def done(self) -> list[FileResult]:
        """Return what the report that is resumed says of the files that are done."""
        return [_file_result(entry) for entry in self.recorded]


def selected(paths: Iterable[str], options: RunOptions) -> ChosenFiles:
    """Choose files.

    Args:
        paths: all that were named.
        options: what is asked for.

    Raises:
        InputError: none is left, though some were named.
        FormatError: the report that is read is none.
        UsageError: the words of ``-k`` make no sense.
    """
    found = list(paths)
    named = len(found)
    if options.keyword is not None:
        from .keywords import keyword  # for start-up

        wanted = keyword(options.keyword)
        found = [p for p in found if wanted(p)]
    if options.last_failed is not None:
        failed = {e["file"] for e in _entries(options.last_failed) if e.get("verdict") != Verdict.PASS.value}
        failed = {_DUMP.sub("", name) for name in failed}
        found = [p for p in found if p in failed]
        if not found and not failed:
            raise InputError(f"{os.fspath(options.last_failed)} has no file that did not pass")
    if options.shard is not None:
        number, count = options.shard
        found = found[number - 1 :: count]
    chosen = ChosenFiles()
    done: set[str] = set()
    if options.resume and options.json_lines is not None and os.path.exists(options.json_lines):
        # A file of several dumps is done when the next file has begun.
        entries = [e for e in _entries(options.json_lines) if "verdict" in e]
        done = {_DUMP.sub("", e["file"]) for e in entries} & set(found)
        chosen.recorded = [e for e in entries if _DUMP.sub("", e["file"]) in done]
    for path in found:
        rule = FileRule() if options.configuration is None else options.configuration.of(path)
        if rule.skip is not None:
            chosen.skipped[path] = rule.skip
        elif path not in done:
            chosen.paths.append(path)
            chosen.rules[path] = rule
    if named and not (chosen.paths or chosen.skipped or chosen.recorded or options.shard):
        raise InputError(f"none of the {named} files is selected by {_choices(options)}")
    return chosen


def _choices(options: RunOptions) -> str:
    said = {"-k": options.keyword, "--last-failed": options.last_failed}
    return ", ".join(f"{name} {os.fspath(value)}" for name, value in said.items() if value is not None)


def _entries(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    from ..report.reading import load_report  # for start-up

    try:
        files: list[dict[str, Any]] = _REPORT(load_report(path), "the report")["files"]
    except FormatError as e:
        raise FormatError(
            f"this is not a report of `loadrun --json`: {e.message}", path=os.fspath(path)
        ) from None
    return files


def _file_result(entry: Mapping[str, Any]) -> FileResult:
    found = FileResult(entry["file"], message=entry.get("message"))
    verdict = Verdict(entry["verdict"]) if entry["verdict"] in {v.value for v in Verdict} else Verdict.ERROR
    found.verdicts.add(verdict)
    found.ended = verdict if verdict in (Verdict.TIMEOUT, Verdict.CRASH) else None
    found.expected = entry.get("expected_failure")
    for case in entry["testcases"]:
        found.testcases += case.get("testcase") is not None
        found.errors += case["verdict"] == Verdict.ERROR.value
        for output in case.get("outputs", ()):
            found.passed += output.get("verdict") == Verdict.PASS.value
            found.failed += output.get("verdict") == Verdict.FAIL.value
    return found
