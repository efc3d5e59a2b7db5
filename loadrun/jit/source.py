"""Where in the user's code something happens."""

from __future__ import annotations

import contextlib
import linecache
import sys
from pathlib import Path

__all__ = ["Place", "here"]

_OWN = str(Path(__file__).resolve().parent.parent)
_SKIPPED = (_OWN, contextlib.__file__)

Place = tuple[str, int]
"""A file and a line number."""


def here() -> Place:
    """The innermost line of the running code that is not loadrun's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_SKIPPED):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def shown(place: Place) -> str:
    """A place with the text of its line: ``model.py:12 `y = x + 1` ``."""
    path, number = place
    text = linecache.getline(path, number).strip()
    return f"{Path(path).name}:{number}" + (f" `{text}`" if text else "")
