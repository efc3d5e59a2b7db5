"""Messages of the library: one handler per logger to standard error, and one to a file when one is set.

>>> before = set_log_level("WARNING")
>>> get_logger("doctest").level == logging.WARNING, set_log_level(before)
(True, 'WARNING')
"""

import logging
import os
from typing import TextIO

__all__ = ["enable_debug_log", "get_logger", "set_log_file", "set_log_level"]

_VARIABLE = "MEGENGINE_LOGGING_LEVEL"
_FORM = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%d %H:%M:%S")
_loggers: list[logging.Logger] = []
_level: int | str = logging.getLevelName(os.environ.get(_VARIABLE, "INFO").upper())
_file: logging.Handler | None = None


def get_logger(name: str | None = None) -> logging.Logger:
    """Return the logger of a name, set up on first use: it writes to standard error and nowhere above.

    Args:
        name: its name.
    """
    logger = logging.getLogger(name)
    if logger in _loggers:
        return logger
    _loggers.append(logger)
    logger.propagate = False
    logger.setLevel(_level)
    handler = logging.StreamHandler()
    handler.setFormatter(_FORM)
    logger.handlers[:] = [handler] if _file is None else [handler, _file]
    return logger


def set_log_file(fout: str | TextIO | None, mode: str = "a") -> None:
    """Write all messages to a file as well.

    Args:
        fout: the name of a file, or an open one; None ends it.
        mode: how a file of that name is opened.
    """
    global _file
    if _file is not None:
        for logger in _loggers:
            logger.removeHandler(_file)
        _file.close()
        _file = None
    if fout is not None:
        _file = (
            logging.FileHandler(fout, mode, "utf-8") if isinstance(fout, str) else logging.StreamHandler(fout)
        )
        _file.setFormatter(_FORM)
        for logger in _loggers:
            logger.addHandler(_file)


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


def enable_debug_log() -> None:
    """Show messages of all levels."""
    set_log_level(logging.DEBUG)
