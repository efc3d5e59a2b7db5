"""The command line: `loadrun model.mge` replays, `loadrun info model.mge` describes."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
    "diff": "find where two runs first part",
    "verify": "check a packed file against its digests and replay it",
    "convert": "write a model in another format: .mge, .onnx",
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
        with _ended_by_signals():
            return _run(name, args)
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else EXIT_ERROR


def _run(name: str, args: list[str]) -> int:
    """Run one command; whatever goes wrong becomes a message and an exit code."""
    try:
        # A literal choice of modules: no name from outside reaches the import.
        command = import_module(f"{__package__}.{name}")
        return int(command.main(args))
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


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """A signal to end leaves by the way of exceptions, so that temporaries are removed and outputs stay whole."""
    ending = [getattr(signal, n) for n in ("SIGTERM", "SIGHUP") if hasattr(signal, n)]
    ending = [n for n in ending if signal.getsignal(n) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        ending = []

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    for number in ending:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in ending:
            signal.signal(number, signal.SIG_DFL)


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
