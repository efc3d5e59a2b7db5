"""Write docs/options.md: every option of every command, from the parsers themselves."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from loadrun.cli.parsers import help_text, metavar, parsers

TARGET = Path(__file__).resolve().parent.parent / "docs" / "options.md"
HEAD = """# Options

All options of all commands, as `loadrun COMMAND --help` prints them; [commands.md](commands.md) says which how-to is
about which. The flags of `load_and_run` are MegEngine's and stand in [load_and_run.md](load_and_run.md). This page is
written by `python scripts/options.py`.
"""


def cell(text: str) -> str:
    """Text that a table takes as it is."""
    for char in "\\|*_<>[]`":
        text = text.replace(char, f"\\{char}")
    return text


def row(action: argparse.Action) -> str:
    """The line of an option, or of an argument without one."""
    value = "" if action.nargs == 0 else metavar(action)
    if action.choices and not action.metavar:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    names = [f"`{' '.join(filter(None, (option, value)))}`" for option in action.option_strings]
    return f"| {', '.join(names) or f'`{value}`'} | {cell(help_text(action))} |"


def tables(parser: argparse.ArgumentParser) -> list[str]:
    """A table for each group of options, with what the group says of itself."""
    lines = []
    for group in parser._action_groups:
        shown = [a for a in group._group_actions if a.help != argparse.SUPPRESS and a.dest != "help"]
        if not shown:
            continue
        title = {"positional arguments": "arguments", "optional arguments": "options"}.get(
            group.title or "", group.title
        )
        if group.description:
            lines += ["", cell(f"{title}: {' '.join(group.description.split())}")]
        lines += ["", f"| {cell(title or '')} | |", "| --- | --- |", *map(row, shown)]
    return lines


def page() -> str:
    """The page."""
    lines = [HEAD]
    for name, (_, parser) in parsers().items():
        if name == "load_and_run":
            continue
        lines += [f"## {name}", "", cell(" ".join((parser.description or "").split())), *tables(parser)]
        if parser.epilog:
            lines += ["", cell(" ".join(parser.epilog.split()))]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
    print(f"{TARGET} written", file=sys.stderr)
