"""Descriptions of exceptions, and the warnings of a run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from .errors import FormatError, LoadRunError, TimeLimitError

__all__ = ["EXIT_ERROR", "EXIT_FAULT", "EXIT_TIMEOUT", "Failure", "Warnings", "failure", "out_of_memory"]

EXIT_ERROR = 2
EXIT_TIMEOUT = 4
EXIT_FAULT = 70
"""The exit code of what loadrun did not foresee: EX_SOFTWARE of sysexits.h."""


def reason(e: Exception, *, named: bool = False) -> str:
    """Say why a file cannot be read or written, in one line; `named` for a line that does not name the file otherwise.

    >>> reason(FileNotFoundError(2, "No such file or directory", "a.mge"), named=True)
    'a.mge: No such file or directory'
    """
    if isinstance(e, FormatError) and not named:
        return str(FormatError(e.message, offset=e.offset))
    if isinstance(e, OSError) and e.strerror:
        return f"{e.filename}: {e.strerror}" if named and e.filename else e.strerror
    return str(e)


def out_of_memory(e: MemoryError) -> str:
    """Say that memory ran out.

    >>> out_of_memory(MemoryError())
    'out of memory: this needs more than is available or than --max-memory allows'
    """
    more = f": {str(e)[:300]}" if str(e) else ""
    return f"out of memory: this needs more than is available or than --max-memory allows{more}"


@dataclass(frozen=True)
class Failure:
    """The reason why something could not be done, whether it is a bug in loadrun or took too long; the exit code."""

    message: str
    fault: bool = False
    late: bool = False

    @property
    def code(self) -> int:
        """The exit code of a command that does nothing else."""
        return EXIT_FAULT if self.fault else EXIT_TIMEOUT if self.late else EXIT_ERROR


def failure(e: Exception, *, named: bool = False) -> Failure:
    """Describe an exception; one that loadrun did not foresee is its own fault, not the file's.

    With LOADRUN_TRACEBACK in the environment such a one is shown whole, on standard error.

    Args:
        e: the exception.
        named: for a line that does not name the file otherwise.

    >>> failure(FileNotFoundError(2, "No such file or directory", "a.mge"), named=True)
    Failure(message='a.mge: No such file or directory', fault=False, late=False)
    """
    if isinstance(e, (LoadRunError, OSError)):
        return Failure(reason(e, named=named), late=isinstance(e, TimeLimitError))
    if isinstance(e, MemoryError):
        return Failure(out_of_memory(e))
    if isinstance(e, UnicodeEncodeError) and e.reason == "surrogates not allowed":
        shown = e.object.encode("ascii", "backslashreplace").decode()[:300]
        return Failure(
            f"{shown} holds half a character, which no file can be called and no text be written with"
        )
    import traceback  # for start-up

    if os.environ.get("LOADRUN_TRACEBACK"):
        traceback.print_exception(e)
    place = traceback.extract_tb(e.__traceback__)[-1:]
    at = f" at {os.path.basename(place[0].filename)}:{place[0].lineno}" if place else ""
    return Failure(
        f"this is a bug in loadrun; please report it: {type(e).__name__}{at}: {str(e)[:500]}", fault=True
    )


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
