"""Plots as inline SVG, without a plotting library; colours are variables of the page."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from html import escape

from ..verify.pictures import Picture

_WIDE, _HIGH = 360, 120
_LEFT, _BOTTOM, _TOP = 44, 18, 8


class Series:
    """Numbers in order, of which a bounded number is kept: the largest of neighbours that share a position.

    >>> series = Series(4)
    >>> for i in range(9):
    ...     series.add(float(i))
    >>> series.values, series.stride, series.count
    ([3.0, 7.0, 8.0], 4, 9)
    """

    def __init__(self, most: int = 600) -> None:
        self.values: list[float] = []
        self.stride = 1
        self.count = 0
        self._most = most
        self._filled = 0

    def add(self, value: float) -> None:
        """Add the next number."""
        self.count += 1
        if self._filled and self._filled < self.stride:
            self.values[-1] = max(self.values[-1], value)
            self._filled += 1
            return
        if len(self.values) == self._most:
            self.values = [max(self.values[i : i + 2]) for i in range(0, self._most, 2)]
            self.stride *= 2
        self.values.append(value)
        self._filled = 1


def times(series: Series, of: str = "testcases") -> str:
    """Milliseconds over testcases (or what else `of` says), as dots; of many in one place the slowest."""
    values = [v * 1e3 for v in series.values]
    top = max(values, default=0.0) or 1.0
    step = (_WIDE - _LEFT - 8) / max(1, len(values))
    dots = "".join(
        f'<circle cx="{_LEFT + (i + 0.5) * step:.1f}" cy="{_y(v / top):.1f}" r="2"/>'
        for i, v in enumerate(values)
    )
    return _frame(
        f'<g class="dots">{dots}</g>',
        f"ms for each of {series.count} {of}",
        [(0.0, "0"), (1.0, f"{top:.3g}")],
        ("0", str(max(0, series.count - 1))),
    )


def histogram(picture: Picture, tolerance: float | None) -> str:
    """Draw how many elements have an error of which decade, on a logarithmic scale, with the tolerance as a line."""
    limit = None
    if tolerance is not None and tolerance > 0 and math.isfinite(tolerance):
        limit = min(max(math.log10(tolerance) - picture.low, 0), len(picture.counts))
    caption = f"errors by decade; {picture.equal} elements are equal"
    if picture.nonfinite:
        caption += f", {picture.nonfinite} are not finite"
    caption += f"; dashed: the tolerance of {tolerance:g}" if limit is not None else ""
    ends = (f"1e{picture.low}", f"1e{picture.low + len(picture.counts)}")
    decades = range(picture.low, picture.low + len(picture.counts))
    said = [
        f"{n} elements with an error from 1e{d} to 1e{d + 1}"
        for n, d in zip(picture.counts, decades, strict=True)
    ]
    return bars(picture.counts, said, caption, ends, limit)


def bars(
    counts: Sequence[int],
    said: Sequence[str],
    caption: str,
    ends: tuple[str, str],
    limit: float | None = None,
) -> str:
    """Draw counts as bars on a logarithmic scale.

    Args:
        counts: the numbers.
        said: what each bar tells under the pointer.
        caption: what stands below.
        ends: what the axis begins and ends with.
        limit: where a dashed line stands, counted in bars.
    """
    top = math.log10(max(counts, default=0) + 1) or 1.0
    step = (_WIDE - _LEFT - 8) / max(1, len(counts))
    drawn = []
    for i, (n, text) in enumerate(zip(counts, said, strict=True)):
        if n:
            height = (_HIGH - _BOTTOM - _TOP) * max(0.03, math.log10(n + 1) / top)
            x = _LEFT + i * step
            drawn.append(
                f'<rect x="{x + 1:.1f}" y="{_HIGH - _BOTTOM - height:.1f}" width="{step - 2:.1f}" '
                f'height="{height:.1f}"><title>{escape(text)}</title></rect>'
            )
    line = ""
    if limit is not None:
        x = _LEFT + limit * step
        line = f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HIGH - _BOTTOM}"/>'
    most = max(counts, default=0)
    return _frame(f'<g class="bars">{"".join(drawn)}</g>{line}', caption, [(1.0, f"{most:.3g}")], ends)


def error_map(picture: Picture) -> str:
    """Draw where the errors are: rows are all axes but the last, columns the last one; the worst cell has a frame."""
    if not picture.cells:
        return ""
    rows, columns = len(picture.cells), len(picture.cells[0])
    logs = [[_depth(v) for v in row] for row in picture.cells]
    known = [v for row in logs for v in row if v is not None and math.isfinite(v)]
    low, high = min(known, default=0.0), max(known, default=0.0)
    span = (high - low) or 1.0
    pixels = [[_shade(v, low, span) for v in row] for row in logs]
    cell = max(3, min(16, 240 // max(rows, columns)))
    wide, high_px = columns * cell, rows * cell
    r, c = picture.worst
    shape = "x".join(map(str, picture.shape)) or "scalar"
    lines = f"{rows} row{'s' * (rows != 1)} of {columns} cells"
    caption = f"where the errors are: {shape} shown as {lines}, the worst one framed"
    data = base64.b64encode(_png(pixels)).decode()
    return (
        f'<figure><svg viewBox="-1 -1 {wide + 2} {high_px + 2}" width="{wide + 2}" height="{high_px + 2}" role="img" '
        f'aria-label="{escape(caption)}"><image class="map" href="data:image/png;base64,{data}" width="{wide}" '
        f'height="{high_px}" preserveAspectRatio="none"/><rect class="worst" x="{c * cell}" y="{r * cell}" '
        f'width="{cell}" height="{cell}"/></svg><figcaption>{escape(caption)}</figcaption></figure>'
    )


def _y(share: float) -> float:
    return _HIGH - _BOTTOM - share * (_HIGH - _BOTTOM - _TOP)


def _frame(inside: str, caption: str, marks: Sequence[tuple[float, str]], ends: tuple[str, str]) -> str:
    """Axes, marks and a caption around what is drawn."""
    floor = _HIGH - _BOTTOM
    parts = [f'<line class="axis" x1="{_LEFT}" x2="{_WIDE - 8}" y1="{floor}" y2="{floor}"/>']
    for share, said in marks:
        parts.append(f'<text x="{_LEFT - 4}" y="{_y(share) + 4:.1f}" text-anchor="end">{escape(said)}</text>')
    parts.append(f'<text x="{_LEFT}" y="{_HIGH - 3}">{escape(ends[0])}</text>')
    parts.append(f'<text x="{_WIDE - 8}" y="{_HIGH - 3}" text-anchor="end">{escape(ends[1])}</text>')
    return (
        f'<figure><svg viewBox="0 0 {_WIDE} {_HIGH}" width="{_WIDE}" height="{_HIGH}" role="img" '
        f'aria-label="{escape(caption)}">{"".join(parts)}{inside}</svg>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _depth(error: float) -> float | None:
    """Return the logarithm of an error, None for no error, infinity for one that is not finite."""
    if not math.isfinite(error):
        return math.inf
    return None if error <= 0 else math.log10(error)


def _shade(depth: float | None, low: float, span: float) -> tuple[int, int, int, int]:
    """Return a colour: clear where nothing differs, pale to deep orange, violet where a value is not finite."""
    if depth is None:
        return 128, 128, 128, 24
    if depth == math.inf:
        return 140, 60, 200, 255
    share = (depth - low) / span
    return 230 - int(40 * share), 180 - int(130 * share), 90 - int(60 * share), 90 + int(165 * share)


def _png(pixels: Sequence[Sequence[tuple[int, int, int, int]]]) -> bytes:
    """Encode an image of RGBA pixels.

    >>> _png([[(1, 2, 3, 4)]])[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    rows = b"".join(b"\0" + bytes(v for pixel in row for v in pixel) for row in pixels)
    head = struct.pack(">IIBBBBB", len(pixels[0]), len(pixels), 8, 6, 0, 0, 0)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows, 9)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def history_line(values: Sequence[float | None], of: str = "", unit: str = "") -> str:
    """Numbers from run to run as a small line where there are several, and the last one in words with its unit.

    >>> history_line([1.0, None, 0.5]).count("<circle")
    2
    """
    known = [v for v in values if v is not None and math.isfinite(v)]
    top = max(known, default=0.0) or 1.0
    step = 120 / max(1, len(values) - 1)
    dots = [
        (4 + i * step, 28 - 24 * v / top) for i, v in enumerate(values) if v is not None and math.isfinite(v)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
    marks = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2"/>' for x, y in dots)
    last = next((v for v in reversed(values) if v is not None), None)
    said = "-" if last is None else f"{last:.3g}{unit}"
    if len(dots) < 2:
        return said
    title = f"<title>{escape(of)}</title>" if of else ""
    drawn = f'<polyline points="{line}" fill="none" stroke="var(--mark)"/><g class="dots">{marks}</g>'
    return f'<svg class="trend" width="128" height="32" viewBox="0 0 128 32" role="img">{title}{drawn}</svg> {said}'
