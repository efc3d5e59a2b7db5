"""A hook of mkdocs: tables of operators, functions and options are made from the code when the site is built.

A page says where with a line ``<!-- tables: NAME -->``: a kind of `loadrun info --operators`, ``options``, or
``load_and_run``. ``python scripts/site_tables.py NAME`` prints what stands there in the site.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from loadrun.base.errors import UsageError
from loadrun.cli.operators import operator_tables
from loadrun.cli.parsers import help_text, metavar, parsers
from loadrun.load_and_run.flags import FLAGS, GROUPS, Flag

ROOT = Path(__file__).resolve().parent.parent
MARK = re.compile(r"^<!-- tables: ([\w-]+) -->$", re.M)
TAKES = {bool: "", int: "number", float: "number", str: "text"}


def markdown(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table, with a blank one before."""
    lines = ["", f"| {' | '.join(headers)} |", "| --- " * len(headers) + "|"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def cell(text: str) -> str:
    """Text that a table takes as it is."""
    return re.sub(r"([\\|*_<>\[\]`])", r"\\\1", text)


def operators(kind: str) -> list[str]:
    """The tables of one kind of operators."""
    lines = []
    for table in operator_tables(kind):
        rows = [(f"`{first}`", *map(cell, rest)) for first, *rest in table.rows]
        lines += ["", f"### {table.title}", *(["", cell(table.note)] if table.note else [])]
        lines += markdown(table.headers, rows)
    return lines


def option(action: argparse.Action) -> tuple[str, str]:
    """The row of an option, or of an argument without one."""
    value = "" if action.nargs == 0 else metavar(action)
    if action.choices and not action.metavar:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    names = [f"`{' '.join(filter(None, (o, value)))}`" for o in action.option_strings]
    return ", ".join(names) or f"`{value}`", cell(help_text(action))


def options() -> list[str]:
    """The options of every command, as its help groups them."""
    lines = []
    for name, (_, parser) in parsers().items():
        if name == "load_and_run":
            continue
        lines += ["", f"## {name}", "", cell(" ".join((parser.description or "").split()))]
        for group in parser._action_groups:
            shown = [a for a in group._group_actions if a.help != argparse.SUPPRESS and a.dest != "help"]
            title = cell((group.title or "").removeprefix("positional "))
            if shown and group.description:
                lines += ["", cell(f"{title}: {' '.join(group.description.split())}")]
            lines += markdown((title, ""), map(option, shown)) if shown else []
        lines += ["", cell(" ".join((parser.epilog or "").split()))]
    return lines


def flags() -> list[str]:
    """The flags of load_and_run: what the C++ tool did with each when it was tried, and what it does here."""
    tried: dict[str, str] = {}
    for row in json.loads((ROOT / "tests" / "data" / "load_and_run" / "flags.json").read_text()):
        words = row["flags"].split()
        if row["file"] == "container" and sum(w.startswith("--") for w in words) == 1:
            tried.setdefault(words[0].lstrip("-"), row["outcome"])

    def row_of(flag: Flag) -> tuple[str, ...]:
        takes = TAKES[flag.kind]
        if flag.kind is int and flag.works and isinstance(flag.default, int) and flag.default > 0:
            takes += f", default {flag.default}"
        here = flag.what if flag.works else f"*nothing*: {flag.what}"
        return f"`--{flag.name}`", takes, tried.get(flag.name, ""), here.replace("|", "\\|")

    lines = []
    for group, title in GROUPS.items():
        rows = [row_of(flag) for flag in FLAGS if flag.group == group]
        lines += ["", f"### {title}", *markdown(("flag", "takes", "there", "here"), rows)]
    return lines


def tables(name: str) -> str:
    """What stands in the site in place of ``<!-- tables: NAME -->``."""
    made = {"options": options, "load_and_run": flags}.get(name)
    try:
        return "\n".join(operators(name) if made is None else made())
    except UsageError as e:
        return f"\n{e}."


def on_page_markdown(text: str, **_: Any) -> str:
    """Put the tables into a page."""
    return MARK.sub(lambda mark: tables(mark[1]), text)


if __name__ == "__main__":
    print(tables(sys.argv[1]))
