"""The command line: `loadrun model.mge` replays, `loadrun info model.mge` describes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from ..shown import indented
from ..version import __version__
from .groups import EXIT_ERROR, failure

__all__ = ["main"]

COMMANDS = {
    "run": "replay testcases or run a model (the default)",
    "info": "describe a model",
    "pack": "embed input data and outputs in a model",
    "unpack": "take a packed file apart",
    "audit": "try what the checks of a file catch",
    "judge": "judge saved results by other tolerances",
    "compare": "what changed between two reports",
    "verify": "check a packed file against its digests and replay it",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Args:
        argv: arguments without the program name, default those of the process.

    Returns:
        0 when at least one check was made and all passed, 1 when a check failed, 2 for a bad file, bad usage
        or a model that cannot be executed, 3 when it ran but nothing was compared, 70 for a fault of loadrun.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal of another encoding shows escapes where it has no character.
            stream.reconfigure(errors="backslashreplace")
    args = list(sys.argv[1:] if argv is None else argv)
    name = "run"
    if args and args[0] in COMMANDS:
        name = args.pop(0)
    elif not args or args[0] in ("-h", "--help", "--version"):
        return _overview(args)
    try:
        # A literal choice of modules: no name from outside reaches the import.
        command = import_module(f"{__package__}.{name}")
        return int(command.main(args))
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else EXIT_ERROR
    except BrokenPipeError:
        # The reader of the output went away (as `head` does); nothing is left to tell it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("loadrun: interrupted", file=sys.stderr)
        return 130
    except Exception as e:
        found = failure(e, named=True)
        print(f"loadrun: {indented(found.message, 9)}", file=sys.stderr)
        return found.code
    return EXIT_ERROR


def _overview(args: list[str]) -> int:
    if args and args[0] == "--version":
        print(f"loadrun {__version__}")
        return 0
    print(
        "usage: loadrun [run] MODEL.mge [MODEL.mge ...] [options]\n       loadrun info MODEL.mge [options]\n"
    )
    for name, what in COMMANDS.items():
        print(f"  {name:7} {what}")
    print("\n`loadrun COMMAND --help` lists the options.")
    print(
        "Exit codes: 0 all checks passed, 1 a check failed, 2 bad file or usage, 3 nothing was compared, "
        "70 a fault of loadrun."
    )
    return 0 if args else EXIT_ERROR
