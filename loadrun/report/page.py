"""The frame of every HTML report."""

from base64 import b64encode
from hashlib import sha256
from html import escape
from pathlib import Path

from ..base.errors import clean
from ..base.files import contents

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
