"""Tables that fit a terminal: nothing that tells a verdict or a digit is cut."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

_GAP = 2
_LEAST = 12
"""Characters that a name keeps at least."""


def shortened(text: str, width: int) -> str:
    """Shorten a text in its middle, since names differ at their ends.

    >>> shortened("backbone.layer4.conv2.weight", 17)
    'backbon....weight'
    """
    if len(text) <= width:
        return text
    tail = (width - 3) // 2
    return f"{text[: width - 3 - tail]}...{text[len(text) - tail :]}"


def _wrapped(parts: Sequence[str], width: int, lead: str) -> list[str]:
    """Return lines of parts with commas between, as many in a line as fit.

    >>> _wrapped(["max error 1e-07", "tolerance 1e-05", "ms 0.4"], 40, "    ")
    ['    max error 1e-07, tolerance 1e-05,', '    ms 0.4']
    """
    lines: list[str] = []
    for i, part in enumerate(parts):
        text = part + ("," if i + 1 < len(parts) else "")
        if lines and len(lines[-1]) + 1 + len(text) <= width:
            lines[-1] += f" {text}"
        else:
            lines.append((" " * len(lead) if lines else lead) + text)
    return lines


class Fit(NamedTuple):
    """How a table fits.

    Attributes:
        row: the columns of a row, by number.
        below: the columns that stand in a line of their own below it.
        same: the columns left out, which say the same in every row.
        name: characters that names have at most.
    """

    row: list[int]
    below: list[int]
    same: list[int]
    name: int


def fit(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    names: Collection[str] = (),
    kept: Collection[str] = (),
    margin: int = 0,
) -> Fit:
    """Choose what a table leaves out or puts below its rows in a window of some width.

    First the columns go that say the same in every row, then names are shortened, then columns are put below.

    Args:
        headers: of the columns.
        rows: their cells.
        width: of the window.
        names: headers of columns that may be shortened.
        kept: headers of columns that stay in the rows.
        margin: what columns are wider than their headers at least.

    >>> fit(["output", "dtype", "verdict"], [["a", "float32", "pass"], ["b", "float32", "FAIL"]], 20, kept=["verdict"])
    Fit(row=[0, 2], below=[], same=[1], name=20)
    """
    cells = [max([len(h) + margin, *(len(r[i]) for r in rows)]) for i, h in enumerate(headers)]
    row = [*range(len(headers))]
    same: list[int] = []
    below: list[int] = []
    name = width

    def total() -> int:
        widths = [min(cells[i], name) if headers[i] in names else cells[i] for i in row]
        return sum(widths) + _GAP * (len(row) - 1)

    for i in [*row]:
        alike = len(rows) > 1 and len({r[i] for r in rows}) == 1
        if total() > width and alike and headers[i] not in kept and headers[i] not in names:
            row.remove(i)
            same.append(i)
    while total() > width and name > _LEAST:
        name -= 1
    for i in reversed([i for i in row if headers[i] not in kept]):
        if total() > width and headers[i] not in names:
            row.remove(i)
            below.insert(0, i)
    return Fit(row, below, same, name)


def with_rest(
    lines: Sequence[str], headers: Sequence[str], rows: Sequence[Sequence[str]], how: Fit, width: int
) -> list[str]:
    """Add what does not fit to the lines of a table, whose last ones are its rows."""
    above = len(lines) - len(rows)
    result = [*lines[:above]]
    for line, row in zip(lines[above:], rows, strict=True):
        told = [f"{headers[i]} {row[i]}" for i in how.below if row[i] not in ("", "-")]
        result += [line, *_wrapped(told, width, "    ")]
    said = [f"{headers[i]} {rows[0][i]}" for i in how.same]
    return [*result, *_wrapped(said, width, "  every row: ")]
