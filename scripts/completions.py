"""Write the completions of bash, zsh and fish for both programs: ``python scripts/completions.py FOLDER``; needs shtab.

They are made of the parsers themselves when packages are built, see scripts/release.sh.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import shtab

from loadrun.cli.parsers import metavar, options, parsers
from loadrun.engines.registry import NAMES

SHELLS = {"bash": "{}.bash", "zsh": "_{}", "fish": "{}.fish"}
FILES = ("DIR", "FILE", "MODEL", "FOLDER", "PATH")


def completed(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The parser, whose options say what their values are: files or engines."""
    for action in parser._actions:
        if "--engine" in action.option_strings:
            action.choices = list(NAMES)
        elif action.nargs != 0 and any(name in metavar(action).upper() for name in FILES):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return parser


def whole() -> argparse.ArgumentParser:
    """The parser of `loadrun`: that of `run`, its default, with all commands under it."""
    commands = parsers()
    program = argparse.ArgumentParser("loadrun")
    for action in options(completed(commands["run"][1])):
        if action.dest != "help":
            program._add_action(action)
    under = program.add_subparsers()
    for name, (what, parser) in commands.items():
        under.add_parser(name, help=what, parents=[completed(parser)], add_help=False)
    return program


def main(folder: str) -> None:
    """Write the files."""
    programs = {"loadrun": whole(), "load_and_run": completed(parsers()["load_and_run"][1])}
    Path(folder).mkdir(exist_ok=True)
    for name, parser in programs.items():
        parser.prog = name
        for shell, file in SHELLS.items():
            (Path(folder) / file.format(name)).write_text(shtab.complete(parser, shell), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
