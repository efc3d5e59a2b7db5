"""Results as they come: counted, printed and reported, none of them kept."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TextIO

from ..files import replacing
from ..report import json as json_report
from ..report import text
from ..review.saved import ResultWriter
from ..runner import FileResult, Result
from ..shown import clean
from ..version import __version__
from .groups import failure

__all__ = ["json_file", "results_file", "show"]

_ROWS = 200
_SECONDS = 1.0
"""Rows are printed when there are that many of them, or after that time."""


def show(
    file: FileResult,
    results: Iterable[Result],
    out: TextIO | None,
    seen: Callable[[Result], None] | None = None,
) -> None:
    """Count results into `file` and print them as they come.

    Args:
        file: what is known of the file; an error that ends the results becomes its message, and warnings that are
            added to it meanwhile are printed where they come up.
        results: one after another.
        out: where to print; None for errors alone, on standard error.
        seen: called with every result, without the values of its outputs.
    """
    rows = text.Rows()
    said: list[str] | None = None

    def tell(block: str = "") -> None:
        nonlocal said
        if out is None:
            if file.message:
                print(f"{clean(file.path, 200)}\n{text.error(file.message)}", file=sys.stderr)
            return
        _clear_progress()
        new = [text.head(file)] if said is None else [text.warning(w) for w in file.warnings if w not in said]
        said = list(file.warnings)
        if lines := [*new, *([block] if block else [])]:
            print("\n".join(lines), file=out, flush=True)

    def counted() -> Iterator[Result]:
        try:
            for result in results:
                bare = replace(
                    result, outputs=tuple(replace(o, value=None, expect=None) for o in result.outputs)
                )
                file.add(bare)
                if seen is not None:
                    seen(bare)
                yield bare
        except Exception as e:
            found = failure(e, named=True)
            file.message, file.fault = found.message, found.fault

    def table(block: list[Result]) -> str:
        try:
            return rows.block(block)
        except Exception as e:
            found = failure(e, named=True)
            file.message, file.fault = found.message, found.fault
            return ""

    for block in _blocks(counted()):
        if out is not None:
            tell(table(block))
    tell(text.error(file.message) if file.message else "")


def _blocks(results: Iterable[Result]) -> Iterator[list[Result]]:
    pending: list[Result] = []
    last = time.monotonic()
    for result in results:
        pending.append(result)
        if len(pending) >= _ROWS or time.monotonic() - last > _SECONDS:
            yield pending
            pending, last = [], time.monotonic()
    if pending:
        yield pending


def _clear_progress() -> None:
    """Remove the line that tells the progress, so that nothing is printed behind it."""
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def json_file(target: str | None) -> Iterator[json_report.Writer | None]:
    """A report to write: to standard output for ``-``, else to a file that appears when it is complete."""
    if target is None:
        yield None
    elif target == "-":
        yield json_report.Writer(sys.stdout, __version__)
    else:
        with replacing(target) as raw:
            file = io.TextIOWrapper(raw, encoding="ascii", newline="\n")
            yield json_report.Writer(file, __version__)
            file.detach()


@contextmanager
def results_file(target: str | None) -> Iterator[ResultWriter | None]:
    """Results with their values to write, to a file that appears when it is complete."""
    if target is None:
        yield None
        return
    with replacing(target) as raw:
        writer = ResultWriter(raw)
        yield writer
        writer.close()
