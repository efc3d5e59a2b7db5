"""Colour on terminals."""

from __future__ import annotations

import os
from typing import TextIO

from ..compare.results import Verdict

__all__ = ["PLAIN", "Style", "style_for"]

_COLOURS = {
    Verdict.PASS: "32",
    Verdict.NOT_COMPARED: "33",
    Verdict.FAIL: "1;31",
    Verdict.ERROR: "1;35",
    Verdict.TIMEOUT: "1;35",
    Verdict.CRASH: "1;35",
}


class Style:
    """Paints words by verdict, or leaves them as they are.

    Args:
        colour: whether to paint.

    >>> Style(True).verdict(Verdict.PASS, "pass"), Style(False).verdict(Verdict.PASS, "pass")
    ('\\x1b[32mpass\\x1b[0m', 'pass')
    """

    def __init__(self, colour: bool = False) -> None:
        self.colour = colour

    def verdict(self, verdict: Verdict, word: str) -> str:
        """Return a word in the colour of a verdict."""
        return f"\x1b[{_COLOURS[verdict]}m{word}\x1b[0m" if self.colour and word.strip() else word


PLAIN = Style()


def style_for(choice: str, out: TextIO) -> Style:
    """Return the style for a stream.

    Args:
        choice: ``always``, ``never``, or ``auto``: on a terminal that knows colours, or where FORCE_COLOR is
            set, unless NO_COLOR is.
        out: where the text goes.
    """
    if choice != "auto":
        return Style(choice == "always")
    forced = os.environ.get("FORCE_COLOR", "0") not in ("", "0")
    if forced and not os.environ.get("NO_COLOR"):
        return Style(True)
    return Style(out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")
