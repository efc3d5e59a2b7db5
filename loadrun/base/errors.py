"""The errors that loadrun raises; every one is a `LoadRunError`.

Each also subclasses the builtin that a caller would reach for by habit, so that both
``except LoadRunError`` and ``except ValueError`` work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = [
    "EngineError",
    "FormatError",
    "InputError",
    "LoadRunError",
    "NotDefinedError",
    "OutOfMemoryError",
    "SpecError",
    "TimeLimitError",
    "TraceError",
    "TraceWarning",
    "UnsupportedError",
    "UsageAssertionError",
    "UsageError",
    "UsageRuntimeError",
    "UsageTypeError",
]


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
    """Running a model takes more memory than there is, or than it may take."""


class UnsupportedError(EngineError):
    """A graph holds an operator that no numpy kernel can stand for (a vendor runtime, a custom operator)."""


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


class NotDefinedError(UsageError, NotImplementedError):
    """A method that a subclass has to define, as Python has it."""


class TimeLimitError(LoadRunError, TimeoutError):
    """Something took longer than it was allowed to."""


class TraceError(LoadRunError, RuntimeError):
    """A function cannot be traced, or took another path than the one that was recorded."""
