"""The errors that loadrun raises, every one a `LoadRunError`, and descriptions of exceptions and warnings.

Each also subclasses the builtin exception that callers expect, so that both
``except LoadRunError`` and ``except ValueError`` work.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from .registry import late

with late(__name__):
    import difflib
    import traceback

E = TypeVar("E", bound="LoadRunError")


class LoadRunError(Exception):
    """Base of all errors that a user of loadrun can cause."""

    def explained(self: E, text: str) -> E:
        """Add what was found to a message that is MegEngine's own, which scripts compare.

        Tracebacks show it below the message, as a note; before Python 3.11, which has no notes, it ends the message.

        >>> str(TraceError("trace error because operator mismatch").explained("SUB for ADD")).partition(":")[0]
        'trace error because operator mismatch'
        """
        if hasattr(self, "add_note"):
            self.add_note(text)
        else:
            self.args = (f"{self.args[0]}: {text}", *self.args[1:])
        return self


class FormatError(LoadRunError, ValueError):
    """A file is not what it claims to be; the message names the broken rule and, where known, the offset.

    Args:
        message: what was found and what was expected.
        offset: byte offset in the file, or None when the fault has no single place.
        path: the file, filled in by the outermost reader.
    """

    def __init__(self, message: str, *, offset: int | None = None, path: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.path = path

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        at = f" (at byte {self.offset})" if self.offset is not None else ""
        return f"{where}{self.message}{at}"


class SpecError(LoadRunError, ValueError):
    """An input specification cannot be parsed or does not fit the model."""


class InputError(LoadRunError, ValueError):
    """Given input arrays do not fit the inputs of the model."""


class EngineError(LoadRunError, RuntimeError):
    """An operator failed while a graph was executed; the message names the operator and its inputs.

    Attributes:
        expressible: gives the graph of what can be expressed of the file, None where nothing is known of it.
    """

    expressible: Callable[[], object] | None = None


class OutOfMemoryError(EngineError, MemoryError):
    """Running a model takes more memory than is available or allowed."""


class UnsupportedError(EngineError):
    """A graph has an operator without a numpy kernel (a vendor runtime, a custom operator)."""


class TraceWarning(UserWarning):
    """A traced function is recorded differently from how it reads; the message names the line."""


class UsageError(LoadRunError, ValueError):
    """A command line or API call that makes no sense."""


class UsageTypeError(UsageError, TypeError):
    """A call with a value of the wrong type."""


class UsageRuntimeError(UsageError, RuntimeError):
    """A call that MegEngine refuses with RuntimeError, which code for it may catch."""


class UsageAssertionError(UsageError, AssertionError):
    """A call that fails an assertion of MegEngine's, which code for it may catch."""


class TimeLimitError(LoadRunError, TimeoutError):
    """Something took longer than allowed."""


class TraceError(LoadRunError, RuntimeError):
    """A function cannot be traced, or took another path than the one that was recorded."""


EXIT_ERROR = 2
EXIT_TIMEOUT = 4
EXIT_CRASH = 5
EXIT_FAULT = 70
"""The exit code of a bug in loadrun: EX_SOFTWARE of sysexits.h."""


def reason(e: Exception, *, named: bool = False) -> str:
    """Explain in one line why a file cannot be read or written; `named` if the line does not name the file otherwise.

    >>> reason(FileNotFoundError(2, "No such file or directory", "a.mge"), named=True)
    'a.mge: No such file or directory'
    """
    if isinstance(e, FormatError) and not named:
        return str(FormatError(e.message, offset=e.offset))
    if isinstance(e, OSError) and e.strerror:
        near = _nearest(os.fsdecode(e.filename)) if isinstance(e, FileNotFoundError) and e.filename else ""
        return f"{e.filename}: {e.strerror}{near}" if named and e.filename else f"{e.strerror}{near}"
    return str(e)


def _nearest(path: str) -> str:
    """Name the file in the same folder whose name is nearest, for a message."""
    folder, name = os.path.split(path)
    try:
        names = [n for n in os.listdir(folder or ".") if not n.startswith(".")]
    except OSError:
        return ""
    close = difflib.get_close_matches(name, names, 1, 0.75)
    return f"; did you mean {clean(os.path.join(folder, close[0]), 200)}?" if close else ""


_NO_MEMORY = ("failed to map segment", "can't start new thread")
"""What the dynamic linker and threads say where Python has no MemoryError."""


def out_of_memory(e: Exception) -> str:
    """Report that memory ran out.

    >>> out_of_memory(MemoryError())
    'out of memory: this needs more than is available or than --max-memory allows'
    """
    more = f": {str(e)[:300]}" if str(e) else ""
    return f"out of memory: this needs more than is available or than --max-memory allows{more}"


@dataclass(frozen=True)
class Failure:
    """The reason why something could not be done, and the exit code of a command that does nothing else."""

    message: str
    code: int = EXIT_ERROR


def failure(e: Exception, *, named: bool = False) -> Failure:
    """Describe an exception; an unforeseen one is a bug in loadrun, not a fault of the file.

    With LOADRUN_TRACEBACK in the environment, its traceback is printed to standard error.

    Args:
        e: the exception.
        named: for a line that does not name the file otherwise.

    >>> failure(FileNotFoundError(2, "No such file or directory", "a.mge"), named=True)
    Failure(message='a.mge: No such file or directory', code=2)
    """
    if isinstance(e, (LoadRunError, OSError)):
        return Failure(reason(e, named=named), EXIT_TIMEOUT if isinstance(e, TimeLimitError) else EXIT_ERROR)
    if isinstance(e, MemoryError) or any(text in str(e) for text in _NO_MEMORY):
        return Failure(out_of_memory(e))
    if isinstance(e, UnicodeEncodeError) and e.reason == "surrogates not allowed":
        shown = e.object.encode("ascii", "backslashreplace").decode()[:300]
        return Failure(
            f"{shown} holds a lone surrogate, half of a character, which no file name or text file can contain"
        )
    if isinstance(e, ValueError) and str(e).startswith("embedded null"):
        return Failure("no file and no command can hold a null character")

    if os.environ.get("LOADRUN_TRACEBACK"):
        traceback.print_exception(e)
    place = traceback.extract_tb(e.__traceback__)[-1:]
    at = f" at {os.path.basename(place[0].filename)}:{place[0].lineno}" if place else ""
    return Failure(
        f"this is a bug in loadrun; please report it: {type(e).__name__}{at}: {str(e)[:500]}", EXIT_FAULT
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


_WIDEST = 60


def clean(text: str, width: int = _WIDEST) -> str:
    """Return one line that is safe for a terminal: unprintable characters escaped, long text shortened in the middle.

    Escaped are control characters, line ends, lone surrogates, and what turns or hides the text around it (overrides
    of direction, characters without width). Everything that loadrun prints from a file goes through here.

    Args:
        text: any text.
        width: the most characters that are shown.

    >>> clean("a" + chr(27) + "[31m"), clean("cat" + chr(0x202E) + "gpj")
    ('a\\\\x1b[31m', 'cat\\\\u202egpj')
    """
    if not text.isprintable():
        # An escape is at least as long as its character, so the middle of a long text is never shown.
        if len(text) > 2 * width:
            text = text[:width] + text[-width:]
        text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return text if len(text) <= width else f"{text[: width // 2 - 1]}...{text[-(width // 2 - 2) :]}"


def indented(message: str) -> str:
    """Indent the further lines of a message (a specification with a caret under its fault) below its first one.

    >>> print("loadrun: " + indented("no such input\\n  data:a.npy\\n  ^"))
    loadrun: no such input
               data:a.npy
               ^
    """
    return ("\n" + " " * 9).join(clean(line, 2000) for line in message.split("\n"))
