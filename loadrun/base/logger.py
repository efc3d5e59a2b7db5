"""Messages of the library: one handler per logger to standard error, and to a file when one is set.

Source of semantics: MegEngine ``logger.py``.

>>> before = set_log_level("WARNING")
>>> get_logger("doctest").level == logging.WARNING, set_log_level(before)
(True, 'WARNING')
"""

from __future__ import annotations

import contextlib
import enum
import logging
import os
from collections.abc import Iterator
from typing import IO, Any

__all__ = [
    "LogLevel",
    "Logger",
    "MegEngineLogFormatter",
    "enable_debug_log",
    "get_logger",
    "replace_mgb_log_level",
    "set_log_file",
    "set_log_level",
    "set_mgb_log_level",
]

_VARIABLE = "MEGENGINE_LOGGING_LEVEL"
_loggers: list[logging.Logger] = []
_level: int | str = logging.getLevelName(os.environ.get(_VARIABLE, "INFO").upper())
_opened: IO[Any] | None = None
"""The log file opened by `set_log_file`."""
_PLAIN = "[%(asctime)s %(lineno)d@%(filename)s:%(name)s] "
_TAGS = {logging.DEBUG: ("DBG ", "36"), logging.WARNING: ("WRN ", "1;31"), logging.ERROR: ("ERR ", "1;4;31")}
"""Prefix of a message by its level, and its colour as a terminal's escape sequence has it."""


def _coloured(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


class MegEngineLogFormatter(logging.Formatter):
    """Date, level and message in colours; what a file gets is plain and says where the message comes from.

    Attributes:
        log_fout: the open file that gets all messages as well, None for none.
        max_lines: messages of that many lines are shortened on the terminal, and marked in the file.
    """

    log_fout: Any = None
    max_lines: float = 256

    def format(self, record: logging.LogRecord) -> str:
        """Return the message for the terminal, and write it to the log file if there is one."""
        tag, colour = _TAGS.get(record.levelno, ("", ""))
        if self.log_fout:
            text = self._formatted(record, f"{_PLAIN}{tag}%(message)s")
            head, _, body = text.partition("\n")
            lines = text.count("\n")
            if lines + 1 >= self.max_lines:
                text = f"{head}\nBEGIN_LONG_LOG_{lines}_LINES{{\n{body}\n}}END_LONG_LOG_{lines}_LINES"
            self.log_fout.write(text + "\n")
            self.log_fout.flush()
        text = self._formatted(
            record, _coloured("%(asctime)s ", "32") + _coloured(f"{tag}%(message)s", colour)
        )
        at = text.find("Traceback ") if record.exc_info or record.exc_text else -1
        if at >= 0:
            indented = "  " + text[at:].replace("\n", "\n  ")
            text = text[:at] + _coloured(indented, "34")
        return self._shortened(text)

    def _formatted(self, record: logging.LogRecord, form: str) -> str:
        self._style._fmt = form
        return super().format(record)

    def _shortened(self, text: str) -> str:
        lines = text.split("\n")
        if len(lines) < self.max_lines:
            return text
        half = int(self.max_lines // 2)
        left_out = len(lines) - 2 * half
        if left_out <= 0:
            return text
        note = f"[{left_out} lines left out; set_log_file() keeps them, {type(self).__name__}.max_lines sets the limit]"
        return "\n".join([*lines[:half], _coloured(note, "35"), *lines[-half:]])


def get_logger(
    name: str | None = None, formatter: type[logging.Formatter] = MegEngineLogFormatter
) -> logging.Logger:
    """Return the logger of a name, set up on first use: it writes to standard error and nowhere above.

    Args:
        name: its name.
        formatter: the class that forms its messages.
    """
    logger = logging.getLogger(name)
    if logger in _loggers:
        return logger
    _loggers.append(logger)
    logger.propagate = False
    logger.setLevel(_level)
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(datefmt="%d %H:%M:%S"))
    logger.handlers[:] = [handler]
    return logger


def set_log_file(fout: object, mode: str = "a") -> None:
    """Write all messages to a file as well.

    Args:
        fout: the name of a file, or an object with ``write`` and ``flush``; None ends it.
        mode: how a file of that name is opened.
    """
    global _opened
    if _opened is not None:
        _opened.close()
        _opened = None
    if isinstance(fout, str):
        fout = _opened = open(fout, mode, encoding="utf-8")  # noqa: SIM115
    MegEngineLogFormatter.log_fout = fout


def set_log_level(level: int | str, update_existing: bool = True) -> int | str:
    """Set the lowest level that is shown.

    Args:
        level: a level of Python's `logging`, as a number or a name.
        update_existing: whether loggers that are there follow.

    Returns:
        the level before.
    """
    global _level
    before, _level = _level, level
    for logger in _loggers if update_existing else ():
        logger.setLevel(level)
    return before


class LogLevel(enum.IntEnum):
    """The levels of MegEngine's compiled part, as those of Python's `logging`."""

    Debug = logging.DEBUG
    Info = logging.INFO
    Warn = logging.WARNING
    Error = logging.ERROR


class Logger:
    """The level of MegEngine's compiled part: here that of the logger ``megbrain``."""

    LogLevel = LogLevel

    @staticmethod
    def set_log_level(level: int) -> int:
        """Set the lowest level that is shown.

        Args:
            level: a `LogLevel`, or a number of Python's `logging`.

        Returns:
            the level before, a `LogLevel` if it is one.
        """
        return set_mgb_log_level(level)


_imperative_rt_logger = Logger()


def set_mgb_log_level(level: int | str) -> int:
    """Set the lowest level of the logger ``megbrain``, which stands for MegEngine's compiled part.

    Args:
        level: a level of Python's `logging`, as a number or a name.

    Returns:
        the level before, a `LogLevel` if it is one.
    """
    logger = get_logger("megbrain")
    before = logger.level
    logger.setLevel(level)
    return LogLevel(before) if before in LogLevel.__members__.values() else before


@contextlib.contextmanager
def replace_mgb_log_level(level: int | str) -> Iterator[None]:
    """Set the level of the logger ``megbrain``."""
    before = set_mgb_log_level(level)
    try:
        yield
    finally:
        set_mgb_log_level(before)


def enable_debug_log() -> None:
    """Show messages of all levels."""
    set_log_level(logging.DEBUG)
    set_mgb_log_level(logging.DEBUG)
