"""The parsers of all commands, for what is made of them: the page of options, completions, tests."""

import argparse
from importlib import import_module

from . import COMMANDS


def parsers() -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """Return the summary and the parser of each command, in the order of the help."""
    commands = {}
    for name, what in COMMANDS.items():
        # A literal choice of modules: no name from outside reaches the import.
        module = import_module(f"{__package__}.{name.replace('-', '_')}")
        commands[name] = what, module.parser()
    return commands


def commands_with(option: str) -> list[str]:
    """Return the commands that have an option, as they are typed."""
    return [f"`loadrun {n}`" for n, (_, p) in parsers().items() if option in p._option_string_actions]


def options(p: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the options of a command, without hidden ones."""
    return [a for a in p._actions if a.option_strings and a.help != argparse.SUPPRESS]


def help_text(action: argparse.Action) -> str:
    """Return an option's help as one line, with placeholders filled in."""
    text = " ".join((action.help or "").split())
    return text % {**vars(action), "prog": "loadrun"} if "%(" in text else text.replace("%%", "%")


def metavar(action: argparse.Action) -> str:
    """Return the placeholder for an option's value."""
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    return action.metavar or " ".join(map(str, action.choices or ())) or action.dest.upper()
