"""Text that came from a file or from arguments, made safe to print."""

from __future__ import annotations

__all__ = ["clean", "indented"]

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


def indented(message: str, indent: int, width: int = 2000) -> str:
    """Indent the further lines of a message (a specification with a caret under its fault) below its first one.

    >>> print("error: " + indented("no such input\\n  data:a.npy\\n  ^", 7))
    error: no such input
             data:a.npy
             ^
    """
    return ("\n" + " " * indent).join(clean(line, width) for line in message.split("\n"))
