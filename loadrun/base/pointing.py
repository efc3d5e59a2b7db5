"""A caret under the place of a fault in a text."""

import unicodedata

_SHOWN = 100


def point(message: str, text: str, at: int) -> str:
    """Append the text to a message, with a caret under one place; long texts are shown around it.

    >>> print(point("no such input", "data:a.npy", 0))
    no such input
      data:a.npy
      ^
    """
    at = min(at, len(text))
    start = max(0, min(at - _SHOWN * 2 // 3, len(text) - _SHOWN))
    shown = "".join(map(_printable, text[start : start + _SHOWN]))
    before = sum(map(_width, shown[: at - start]))
    lead = "..." if start else ""
    tail = "..." if start + _SHOWN < len(text) else ""
    return f"{message}\n  {lead}{shown}{tail}\n  {' ' * (len(lead) + before)}^"


def _printable(char: str) -> str:
    if char.isspace():
        return " "
    return "?" if unicodedata.category(char)[0] == "C" else char


def _width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
