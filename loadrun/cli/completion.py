"""`loadrun completion bash|zsh|fish|man`: generated from the parsers, so that it is always up to date."""

from __future__ import annotations

import argparse
import re
from importlib import import_module

from ..base import __version__
from ..compare.results import EXIT_PASS
from ..engines.registry import NAMES
from .groups import Parser

__all__ = ["help_text", "main", "metavar", "options", "parser", "parsers"]

_FILES = ("DIR", "FILE", "MODEL", "FOLDER", "PATH")
_SHELLS = ("bash", "zsh", "fish", "man")


def parser() -> Parser:
    """Add the options of `loadrun completion`."""
    p = Parser(
        prog="loadrun completion",
        description="Print a shell's completion script for commands and options, or the manual page.",
        epilog='bash: eval "$(loadrun completion bash)"; zsh: loadrun completion zsh > DIR/_loadrun, where DIR is in '
        "$fpath; fish: loadrun completion fish > ~/.config/fish/completions/loadrun.fish; manual page: loadrun "
        "completion man > loadrun.1",
    )
    p.add_argument("what", choices=_SHELLS, help="the shell, or man for the manual page")
    return p


def main(argv: list[str]) -> int:
    """Print the script."""
    args = parser().parse_args(argv)
    print({"bash": _bash, "zsh": _zsh, "fish": _fish, "man": _man}[args.what](parsers()), end="")
    return EXIT_PASS


def parsers() -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """Return the summary and the parser of each command, in the order of the help."""
    from . import COMMANDS  # for start-up: that module names this one

    commands = {}
    for name, what in COMMANDS.items():
        # A literal choice of modules: no name from outside reaches the import.
        module = import_module(f"{__package__}.{name.replace('-', '_')}")
        factory = getattr(module, "parser", Parser)
        commands[name] = what, factory()
    return commands


def options(p: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the options of a command, without hidden ones."""
    return [a for a in p._actions if a.option_strings and a.help != argparse.SUPPRESS]


def _choices(action: argparse.Action) -> list[str]:
    if "--engine" in action.option_strings:
        return list(NAMES)
    return [str(c) for c in action.choices or ()]


def _bash(commands: dict[str, tuple[str, argparse.ArgumentParser]]) -> str:
    """Write a completion function for bash: commands, options, choices, and files otherwise."""
    cases = []
    for name, (_, p) in commands.items():
        words = " ".join(o for a in options(p) for o in a.option_strings)
        cases.append(f'    {name}) options="{words}" ;;')
    values = sorted(
        {
            (option, " ".join(_choices(a)))
            for _, p in commands.values()
            for a in options(p)
            for option in a.option_strings
            if _choices(a)
        }
    )
    chosen = "\n".join(f'    {o}) COMPREPLY=($(compgen -W "{c}" -- "$word")); return ;;' for o, c in values)
    return f"""_loadrun() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command=run options=""
  case " {" ".join(commands)} " in *" ${{COMP_WORDS[1]}} "*) command="${{COMP_WORDS[1]}}" ;; esac
  case "$before" in
{chosen}
  esac
  case "$command" in
{chr(10).join(cases)}
  esac
  if [[ "$word" == -* ]]; then COMPREPLY=($(compgen -W "$options" -- "$word")); return; fi
  COMPREPLY=($(compgen -f -- "$word"))
  if [[ $COMP_CWORD -eq 1 ]]; then COMPREPLY+=($(compgen -W "{" ".join(commands)}" -- "$word")); fi
}}
_load_and_run() {{
  COMP_WORDS=(loadrun load_and_run "${{COMP_WORDS[@]:1}}")
  (( COMP_CWORD++ ))
  _loadrun
}}
complete -o filenames -F _loadrun loadrun
complete -o filenames -F _load_and_run load_and_run
"""


def _zsh(commands: dict[str, tuple[str, argparse.ArgumentParser]]) -> str:
    """Write a completion function for zsh, with descriptions of the options."""
    described = "\n".join(f"    {_quoted(f'{n}:{what}')}" for n, (what, _) in commands.items())
    cases = []
    for name, (_, p) in commands.items():
        lines = [f"      {_quoted(spec)}" for a in options(p) for spec in _zsh_specs(a)]
        cases.append(
            f"    {name}) _arguments -s \\\n" + " \\\n".join([*lines, "      '*:file:_files'"]) + " ;;"
        )
    return f"""#compdef loadrun load_and_run
_loadrun() {{
  if [[ $service == load_and_run ]]; then words=(loadrun load_and_run ${{words[2,-1]}}); (( CURRENT++ )); fi
  local -a commands
  commands=(
{described}
  )
  local command=run
  if (( CURRENT == 2 )); then _describe command commands; _files; [[ $PREFIX == -* ]] || return; fi
  if (( ${{+commands[(r)${{words[2]}}:*]}} )); then command=$words[2]; shift words; (( CURRENT-- )); fi
  case $command in
{chr(10).join(cases)}
  esac
}}
_loadrun "$@"
"""


def _zsh_specs(action: argparse.Action) -> list[str]:
    said = re.sub(r"([\[\]:])", r"\\\1", help_text(action))
    value = ""
    if action.nargs != 0:
        choices = _choices(action)
        what = f"({' '.join(choices)})" if choices else "_files" if _is_file(action) else ""
        value = f":{metavar(action).replace(':', '')}:{what}"
    return [f"*{option}[{said}]{value}" for option in action.option_strings]


def _fish(commands: dict[str, tuple[str, argparse.ArgumentParser]]) -> str:
    """Write completions for fish, with descriptions of the options."""
    names = " ".join(commands)
    lines = [f"set -l commands {names}"]
    for name, (what, p) in commands.items():
        lines.append(
            f'complete -c loadrun -n "not __fish_seen_subcommand_from $commands" -a {name} -d {_quoted(what)}'
        )
        seen = f"__fish_seen_subcommand_from {name}"
        if name == "run":
            seen = f"not __fish_seen_subcommand_from $commands; or {seen}"
        for a in options(p):
            words = " ".join(
                f"-l {o[2:]}" if o.startswith("--") else f"-s {o[1:]}"
                for o in a.option_strings
                if o.startswith("--") or len(o) == len("-x")
            )
            takes = "" if a.nargs == 0 else " -r"
            if _choices(a):
                takes += f" -f -a {_quoted(' '.join(_choices(a)))}"
            lines.append(f'complete -c loadrun -n "{seen}" {words}{takes} -d {_quoted(help_text(a))}')
            if name == "load_and_run":
                lines.append(f"complete -c load_and_run {words}{takes} -d {_quoted(help_text(a))}")
    return "\n".join(lines) + "\n"


def _man(commands: dict[str, tuple[str, argparse.ArgumentParser]]) -> str:
    """Write the manual page in troff."""
    lines = [f'.TH LOADRUN 1 "" "loadrun {__version__}" "User Commands"', ".SH NAME"]
    lines += ["loadrun \\- pack, replay, verify and explain models with their testcases", ".SH SYNOPSIS"]
    lines += [".B loadrun", "[\\fIcommand\\fR] [\\fIoptions\\fR] \\fIfile\\fR ...", ".SH COMMANDS"]
    for name, (what, _) in commands.items():
        lines += [".TP", f".B {_troff(name)}", _troff(what)]
    for name, (_, p) in commands.items():
        lines += [f'.SH "LOADRUN {name.upper()}"', _troff(p.description or ""), ".PP"]
        for group in p._action_groups:
            shown = [a for a in group._group_actions if a.help != argparse.SUPPRESS]
            if shown:
                lines.append(f'.SS "{_troff(group.title or "")}"')
            for a in shown:
                words = ", ".join(f"\\fB{_troff(o)}\\fR" for o in a.option_strings)
                value = "" if a.nargs == 0 and a.option_strings else f" \\fI{_troff(metavar(a))}\\fR"
                lines += [".TP", (words + value).strip(), _troff(help_text(a))]
        if p.epilog:
            lines += [".PP", _troff(p.epilog)]
    return "\n".join(lines) + "\n"


def help_text(action: argparse.Action) -> str:
    """Return an option's help as one line, with placeholders filled in."""
    text = " ".join((action.help or "").split())
    return text % {**vars(action), "prog": "loadrun"} if "%(" in text else text.replace("%%", "%")


def metavar(action: argparse.Action) -> str:
    """Return the placeholder for an option's value."""
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    return action.metavar or (" ".join(_choices(action)) if action.choices else action.dest.upper())


def _is_file(action: argparse.Action) -> bool:
    return any(name in metavar(action).upper() for name in _FILES)


def _quoted(text: str) -> str:
    """Put text in single quotes for a shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def _troff(text: str) -> str:
    """Escape text so that troff prints it literally."""
    text = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
