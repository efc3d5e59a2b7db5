"""What the subcommands share: exit codes, argument groups, progress."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from typing import NoReturn, TypeVar

from ..errors import FormatError
from ..runner import Verdict

__all__ = [
    "EXIT_ERROR",
    "EXIT_FAIL",
    "EXIT_NOT_COMPARED",
    "EXIT_PASS",
    "Parser",
    "Warnings",
    "exit_code",
    "progress",
]

EXIT_PASS, EXIT_FAIL, EXIT_ERROR, EXIT_NOT_COMPARED = 0, 1, 2, 3
T = TypeVar("T")


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors end with the way to help."""

    def error(self, message: str) -> NoReturn:
        """Print the message and leave with exit code 2."""
        print(f"{self.prog}: {message}\n`{self.prog} --help` lists the options.", file=sys.stderr)
        raise SystemExit(EXIT_ERROR)


def reason(e: Exception, *, named: bool = False) -> str:
    """Why a file cannot be read or written, in one line; `named` for a line that does not name the file otherwise.

    >>> reason(FileNotFoundError(2, "No such file or directory", "a.mge"), named=True)
    'a.mge: No such file or directory'
    """
    if isinstance(e, FormatError) and not named:
        return str(FormatError(e.message, offset=e.offset))
    if isinstance(e, OSError) and e.strerror:
        return f"{e.filename}: {e.strerror}" if named and e.filename else e.strerror
    return str(e)


def exit_code(verdicts: Iterable[Verdict], *, no_check: bool = False) -> int:
    """The exit code for the verdicts of all files.

    An error outweighs a failed check, which outweighs a file with nothing compared.

    >>> exit_code([Verdict.PASS, Verdict.FAIL])
    1
    >>> exit_code([Verdict.PASS, Verdict.NOT_COMPARED]), exit_code([Verdict.NOT_COMPARED], no_check=True)
    (3, 0)
    """
    found = set(verdicts)
    if Verdict.ERROR in found:
        return EXIT_ERROR
    if Verdict.FAIL in found:
        return EXIT_FAIL
    if Verdict.NOT_COMPARED in found or not found:
        return EXIT_PASS if no_check else EXIT_NOT_COMPARED
    return EXIT_PASS


class Warnings(list[str]):
    """The first different warnings of a run, and how many more came.

    >>> found = Warnings()
    >>> for i in range(30):
    ...     found.add(f"testcase {i}: NaN")
    ...     found.add("always the same")
    >>> len(found), found[-1]
    (21, 'and 11 more warnings')
    """

    MOST = 20

    def __init__(self, known: Iterable[str] = ()) -> None:
        super().__init__(known)
        self._more = 0

    def add(self, text: str) -> None:
        """Note a warning."""
        if text in self:
            return
        if not self._more and len(self) < self.MOST:
            self.append(text)
            return
        self._more += 1
        self[self.MOST :] = [f"and {self._more} more warning{'s' * (self._more > 1)}"]


def progress(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """Pass items on; on a terminal, work of more than a second shows how far it is."""
    started = last = time.monotonic()
    shown = False
    for i, item in enumerate(items):
        yield item
        now = time.monotonic()
        if sys.stderr.isatty() and now - started > 1 and now - last > 0.2:
            print(f"\r{what} {i + 1}/{total}", end="", file=sys.stderr, flush=True)
            shown, last = True, now
    if shown:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
