"""The frame of every HTML report, and its plots as inline SVG."""

import math
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from html import escape
from pathlib import Path

from ..base.errors import clean
from ..base.files import contents
from ..verify.pictures import Picture

_SCRIPT = """
"use strict";
for (const table of document.querySelectorAll("table.overview")) {
  const body = table.tBodies[0], bar = document.createElement("div"), find = document.createElement("input");
  const rows = [...body.rows], shown = document.createElement("span"), hidden = new Set();
  const name = row => row.className;
  const show = () => {
    let count = 0;
    for (const row of rows) {
      const wanted = !hidden.has(name(row)) && row.textContent.toLowerCase().includes(find.value.toLowerCase());
      row.hidden = !wanted;
      count += wanted;
      const part = document.getElementById(row.dataset.part);
      if (part) part.hidden = !wanted;
    }
    shown.textContent = count + " of " + rows.length;
  };
  bar.className = "bar";
  shown.setAttribute("role", "status");
  find.type = "search";
  find.placeholder = "search";
  find.setAttribute("aria-label", "search files");
  find.addEventListener("input", show);
  bar.append(find);
  for (const kind of new Set(rows.map(name))) {
    const label = document.createElement("label"), box = document.createElement("input");
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => { box.checked ? hidden.delete(kind) : hidden.add(kind); show(); });
    label.append(box, kind.replace("-", " "));
    bar.append(label);
  }
  bar.append(shown);
  table.before(bar);
  [...table.tHead.rows[0].cells].forEach((head, at) => {
    let down = head.textContent === "verdict" || head.textContent === "file" ? false : true;
    head.tabIndex = 0;
    head.title = "sort";
    const sort = () => {
      down = !down;
      const value = row => { const c = row.cells[at]; return c.dataset.value ? +c.dataset.value : c.textContent; };
      const less = (a, b) => { const x = value(a), y = value(b); return x < y ? -1 : x > y ? 1 : 0; };
      rows.sort((a, b) => down ? less(a, b) : less(b, a));
      body.append(...rows);
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "ascending" : "descending");
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", e => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); sort(); } });
  });
  show();
}
const reveal = () => {
  const target = document.getElementById(location.hash.slice(1));
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", reveal);
reveal();
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(d => { d.open = true; }));
"""
"""Search, filter and sort the overview; the page works without it. The policy below allows no other script."""
_SCRIPT += bytes(contents(Path(__file__).with_name("graph.js"), "the script of graphs")).decode()
_HASH = b64encode(sha256(_SCRIPT.encode()).digest()).decode()

HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'sha256-HASH';
  style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>loadrun report</title>
<style>
:root { color-scheme: light dark; --back: #ffffff; --front: #1c2128; --soft: #5b6673; --line: #d8dee4;
  --panel: #f5f7f9; --pass: #1a7f37; --fail: #c0262d; --odd: #8a5a00; --broken: #7b2fbf; --mark: #2563a8; }
@media screen and (prefers-color-scheme: dark) { :root { --back: #14181d; --front: #dde3ea; --soft: #98a4b1;
  --line: #343c46; --panel: #1c222a; --pass: #4cc26b; --fail: #ff7b72; --odd: #e0a63a; --broken: #c79bff;
  --mark: #6cb0f5; } }
body { margin: 0 auto; max-width: 76rem; padding: 1.2rem; background: var(--back); color: var(--front);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .4rem; } h2 { font-size: 1.1rem; margin: 1.6rem 0 .5rem; }
h4 { margin: .8rem 0 .2rem; font-size: .95rem; }
.total { font-size: 1.1rem; font-weight: 600; padding: .5rem .8rem; border-left: .3rem solid var(--soft);
  background: var(--panel); }
.total.pass { border-color: var(--pass); } .total.fail { border-color: var(--fail); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; margin: .4rem 0; }
th, td { text-align: left; padding: .22rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; font-size: .85rem; }
tr.pass td:nth-child(7), .overview tr.pass td:first-child { color: var(--pass); }
tr.fail td:nth-child(7), .overview tr.fail td:first-child { color: var(--fail); font-weight: 600; }
tr.not-compared td:nth-child(7), .overview tr.not-compared td:first-child { color: var(--odd); }
tr.error td:nth-child(7), .overview tr.error td:first-child, .overview tr.timeout td:first-child,
  .overview tr.crash td:first-child { color: var(--broken); font-weight: 600; }
.overview .xfail td:first-child { color: var(--odd); } .overview .skipped { color: var(--soft); }
.engines td.pass { color: var(--pass); } .engines td.fail, .engines td.error { color: var(--fail); }
tr.said td { border-bottom: 1px solid var(--line); padding-top: 0; }
pre { margin: .2rem 0; white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.4 ui-monospace, monospace;
  color: var(--soft); }
pre.message { color: var(--broken); } .warning { color: var(--odd); margin: .2rem 0; } .more { color: var(--soft); }
details { border: 1px solid var(--line); border-radius: .4rem; padding: .4rem .8rem; margin: .5rem 0;
  overflow-x: auto; }
summary { cursor: pointer; overflow-wrap: anywhere; }
.badge { display: inline-block; min-width: 5.5rem; text-align: center; border-radius: .3rem; font-size: .85rem;
  border: 1px solid currentColor; margin-right: .4rem; }
.badge.pass { color: var(--pass); } .badge.fail { color: var(--fail); } .badge.not-compared { color: var(--odd); }
.badge.error, .badge.timeout, .badge.crash { color: var(--broken); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .9rem; margin: .4rem 0; font-size: .88rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; } dd dl { margin: 0; }
.top { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 0 1rem; }
.top details { align-self: start; } .broke td:nth-child(2) { min-width: 9rem; }
.broke ul { margin: 0; padding: 0; list-style: none; }
a { color: var(--mark); } .plots { display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start; }
figure { margin: .3rem 0; } figcaption { color: var(--soft); font-size: .82rem; max-width: 26rem; }
svg { max-width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 11px; }
.trend { vertical-align: middle; }
svg .axis { stroke: var(--line); } svg .bars rect { fill: var(--mark); } svg .dots circle { fill: var(--mark); }
svg .limit { stroke: var(--fail); stroke-width: 1.5; stroke-dasharray: 4 3; }
.bar { display: flex; flex-wrap: wrap; gap: .4rem .9rem; align-items: center; margin: .6rem 0 .2rem;
  color: var(--soft); }
.bar input[type=search] { font: inherit; padding: .2rem .5rem; min-width: 12rem; flex: 0 1 20rem; }
.overview th { cursor: pointer; white-space: nowrap; } .wide { overflow-x: auto; }
th[aria-sort=ascending]::after { content: " \\25b4"; } th[aria-sort=descending]::after { content: " \\25be"; }
td:nth-child(2), .engines td { overflow-wrap: anywhere; } td:nth-child(2) { min-width: 5rem; }
@media (max-width: 40rem) { body { padding: .6rem; } th, td { padding: .2rem .35rem; }
  dl { grid-template-columns: 1fr; }
  .overview.files :is(th, td):is(:nth-child(3), :nth-child(5)),
  .outputs tr:not(.said) > :is(:nth-child(3), :nth-child(4), :nth-child(8)) { display: none; }
  .broke :is(th, td):nth-child(2) { display: none; }
  .outputs { font-size: .85rem; } .outputs :is(th, td) { padding-inline: .2rem; } }
body:has(.graph.whole) { max-width: none; } button, select { font: inherit; }
.graph { display: grid; grid-template: auto 1fr / 1fr 20rem; gap: .5rem; } .graph .bar { grid-column: 1 / 3; }
.graph .plane { overflow: auto; max-height: 28rem; border: 1px solid var(--line); border-radius: .4rem; }
.graph.whole .plane { height: calc(100vh - 10rem); max-height: none; min-height: 20rem; }
.graph aside { overflow: auto; max-height: 28rem; font-size: .9rem; min-width: 0; }
.graph h3 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
.graph.whole aside { max-height: calc(100vh - 10rem); }
.graph aside dl { grid-template-columns: 1fr; } .graph aside dt { margin-top: .4rem; }
.graph aside button { border: 0; background: none; color: var(--mark); padding: .1rem 0; text-align: left;
  text-decoration: underline; cursor: pointer; overflow-wrap: anywhere; }
.graph svg { max-width: none; display: block; margin: 0 auto; }
.graph path { fill: none; stroke: var(--soft); opacity: .6; }
.graph svg text { fill: var(--front); font: 12px system-ui, sans-serif; }
.graph svg .size { opacity: .8; font-size: 11px; }
.graph rect { fill: var(--panel); stroke: var(--soft); } .graph [role=button] { cursor: pointer; outline: none; }
.graph .layer rect { stroke: var(--mark); stroke-width: 1.5; }
.graph .open rect { fill: var(--panel); stroke: var(--line); }
.graph .found rect { stroke: var(--mark); stroke-width: 3; }
.graph .blamed rect { stroke: var(--fail); stroke-width: 3; }
.graph .open.blamed rect { stroke-width: 1; } .graph path.chosen { stroke: var(--mark); stroke-width: 2.5; opacity: 1; }
.graph [role=button]:is(.chosen, :focus-visible) rect { stroke: var(--mark); stroke-width: 3; stroke-dasharray: none; }
.graph .blamed.chosen rect { stroke: var(--fail); stroke-width: 4; }
@media (max-width: 40rem) { .graph { display: block; } .graph.whole .plane { height: 60vh; } }
svg .map { image-rendering: pixelated; } svg .worst { fill: none; stroke: var(--front); stroke-width: 2; }
@media print { :root { color-scheme: light; font-size: 12px; } pre { font-size: 9px; } .bar { display: none; }
  a { color: inherit; }
  .graph .plane, .wide, details { max-height: none; overflow: visible; }
  details { border: 0; padding: 0; } summary, h2, h4 { break-after: avoid; } tr, figure { break-inside: avoid; }
  body { max-width: none; padding: 0; font-size: 11px; } }
</style>
</head>
<body>
<main>
<h1>loadrun report</h1>
""".replace("HASH", _HASH)

FOOT = f"<script>{_SCRIPT}</script>\n</main>\n</body>\n</html>\n"


def page(title: str, inside: str) -> str:
    """Return a page with a title."""
    return f"{HEAD.replace('loadrun report', escape(clean(title, 200)))}{inside}{FOOT}"


def table_head(names: Iterable[str]) -> str:
    """Return the head of a table.

    >>> table_head(["file", "ms"])
    '<thead><tr><th scope=col>file</th><th scope=col>ms</th></tr></thead>'
    """
    heads = (f"<th scope=col>{escape(clean(name, 60))}</th>" for name in names)
    return f"<thead><tr>{''.join(heads)}</tr></thead>"


_WIDE, _HIGH = 360, 120
_LEFT, _BOTTOM, _TOP = 44, 18, 8


class Series:
    """Numbers in order, of which a bounded number is kept: the largest of neighbours that share a position.

    >>> series = Series(map(float, range(9)), most=4)
    >>> series.values, series.stride, series.count
    ([3.0, 7.0, 8.0], 4, 9)
    """

    def __init__(self, values: Iterable[float] = (), most: int = 600) -> None:
        self.values: list[float] = []
        self.stride = 1
        self.count = 0
        self._most = most
        self._filled = 0
        for value in values:
            self.add(value)

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
    data = b64encode(_png(pixels)).decode()
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
