"""What the subcommands share: exit codes, argument groups, progress."""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from ..errors import FormatError, LoadRunError
from ..inputspec import MAX_SEED
from ..runner import Verdict
from ..shown import clean

__all__ = [
    "EXIT_ERROR",
    "EXIT_FAIL",
    "EXIT_FAULT",
    "EXIT_NOT_COMPARED",
    "EXIT_PASS",
    "Failure",
    "Parser",
    "Warnings",
    "add_copy_option",
    "exit_code",
    "failure",
    "progress",
    "seed",
    "whole",
]

EXIT_PASS, EXIT_FAIL, EXIT_ERROR, EXIT_NOT_COMPARED = 0, 1, 2, 3
EXIT_FAULT = 70
"""What loadrun did not foresee; the number is that of EX_SOFTWARE in sysexits.h."""
T = TypeVar("T")


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors end with the way to help."""

    def error(self, message: str) -> NoReturn:
        """Print the message and leave with exit code 2."""
        print(f"{self.prog}: {clean(message, 500)}\n`{self.prog} --help` lists the options.", file=sys.stderr)
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


@dataclass(frozen=True)
class Failure:
    """Why something could not be done, whether that is a fault of loadrun, and the exit code that follows."""

    message: str
    fault: bool = False

    @property
    def code(self) -> int:
        """What a command that does nothing else exits with."""
        return EXIT_FAULT if self.fault else EXIT_ERROR


def failure(e: Exception, *, named: bool = False) -> Failure:
    """What to say of an exception; one that loadrun did not foresee is its fault, not the file's.

    With LOADRUN_TRACEBACK in the environment such a one is shown whole, on standard error.

    Args:
        e: the exception.
        named: for a line that does not name the file otherwise.

    >>> failure(FileNotFoundError(2, "No such file or directory", "a.mge"), named=True)
    Failure(message='a.mge: No such file or directory', fault=False)
    """
    if isinstance(e, (LoadRunError, OSError)):
        return Failure(reason(e, named=named))
    if isinstance(e, MemoryError):
        return Failure("this takes more memory than there is")
    if os.environ.get("LOADRUN_TRACEBACK"):
        traceback.print_exception(e)
    place = traceback.extract_tb(e.__traceback__)[-1:]
    at = f" at {os.path.basename(place[0].filename)}:{place[0].lineno}" if place else ""
    return Failure(
        f"this is a fault of loadrun, please report it: {type(e).__name__}{at}: {str(e)[:500]}", fault=True
    )


def add_copy_option(p: argparse.ArgumentParser) -> None:
    """Add ``--copy``."""
    p.add_argument(
        "--copy",
        action="store_true",
        help="read files into memory at once, for files that others write to meanwhile",
    )


def whole(value: str) -> int:
    """A count or a number of a testcase, for an option."""
    if not value.isdigit():
        raise argparse.ArgumentTypeError(f"expected a whole number >= 0, found {value!r}")
    return int(value)


def seed(value: str) -> int:
    """The number of ``--seed``."""
    number = int(value) if value.isascii() and value.isdigit() and len(value) <= 20 else -1
    if not 0 <= number <= MAX_SEED:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to 2**64 - 1, found {value!r}")
    return number


def exit_code(verdicts: Iterable[Verdict], *, no_check: bool = False, fault: bool = False) -> int:
    """The exit code for the verdicts of all files.

    A fault of loadrun outweighs an error, which outweighs a failed check, which outweighs a file with nothing compared.

    >>> exit_code([Verdict.PASS, Verdict.FAIL])
    1
    >>> exit_code([Verdict.PASS, Verdict.NOT_COMPARED]), exit_code([Verdict.NOT_COMPARED], no_check=True)
    (3, 0)
    """
    found = set(verdicts)
    if fault:
        return EXIT_FAULT
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
