"""The command line: `loadrun model.mge` replays, `loadrun info model.mge` describes."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

from ..base import __version__
from ..base.errors import EXIT_ERROR, clean, failure, indented
from ..base.limits import EndedBySignal
from ..base.registry import late

with late(__name__):
    import difflib

__all__ = ["main"]

COMMANDS = {
    "run": "replay testcases or run a model (the default)",
    "info": "describe a model",
    "pack": "embed input data and expected outputs in a model",
    "audit": "measure which faults the checks of a file catch",
    "accept": "make a file expect what its model computes now",
    "report": "compare the reports of runs",
    "diff": "find where two runs first diverge",
    "reduce": "find the smallest part of a model that still fails, or anonymize it",
    "bench": "time models and compare them",
    "load_and_run": "run a model like MegEngine's load_and_run",
    "convert": "write a model as .mge, as .onnx or as a folder",
}
JOBS = {
    "Check models": ("run", "diff", "reduce", "audit"),
    "Make files": ("pack", "accept", "convert"),
    "Time models": ("bench",),
    "Inspect files and reports": ("info", "report"),
}
"""The commands by purpose; those not listed here come last."""

EXIT_PIPE = 141
"""The exit code that shells report after SIGPIPE: 128 plus the signal's number."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main(argv: Sequence[str] | None = None, *, ready: Callable[[], object] | None = None) -> int:
    """Run a command and return its exit code.

    Args:
        argv: arguments without the program name (default: those of the process).
        ready: called after the command's modules are imported, before it starts.

    Returns:
        0 when there was at least one check and all passed, 1 when a check failed, 2 for a bad file, bad usage
        or a model that cannot be executed, 3 when nothing was compared, 70 for a bug in loadrun; 141 when the reader
        of the output closed the pipe.
    """
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Characters that the terminal's encoding lacks are shown as escapes.
            stream.reconfigure(errors="backslashreplace")
    args = list(sys.argv[1:] if argv is None else argv)
    name = "run"
    if args and args[0] in COMMANDS:
        name = args.pop(0)
    elif not args or args[0] in ("-h", "--help", "--version"):
        name = "overview"
    elif meant := _mistyped(args[0]):
        print(
            f"loadrun: there is no file and no command {clean(args[0])!r}; did you mean `loadrun {meant}`?",
            file=sys.stderr,
        )
        return EXIT_ERROR
    try:
        with _ended_by_signals():
            return _run(name, args, ready)
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else EXIT_ERROR


def _run(name: str, args: list[str], ready: Callable[[], object] | None) -> int:
    """Run one command; any exception becomes a message and an exit code."""
    try:
        if name == "overview":
            code = _overview(args)
            sys.stdout.flush()
            return code
        # The name is one of COMMANDS: no outside input reaches the import.
        command = import_module(f"{__package__}.{name.replace('-', '_')}")
        if ready is not None:
            ready()
        code = int(command.main(args))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of the output closed the pipe, as `head` does.
        _drop_output()
        return EXIT_PIPE
    except KeyboardInterrupt:
        print("loadrun: interrupted", file=sys.stderr)
        return 130
    except Exception as e:
        error = failure(e, named=True)
        place = ""
        if isinstance(e, OSError) and e.filename is None and e.errno in _FULL:
            # Errors on named files say which.
            place = "standard output: "
            _drop_output()
        print(f"loadrun: {place}{indented(error.message)}", file=sys.stderr)
        return error.code


def _open_streams() -> None:
    """Open streams that the process was started without, lest a file that is written gets their number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "w" if number else "r"))


def _mistyped(word: str) -> str | None:
    """Return the command that resembles a word which is neither a command nor a file."""
    if not word.isascii() or not word.replace("-", "").isalpha() or os.path.lexists(word):
        return None

    return next(iter(difflib.get_close_matches(word.lower(), COMMANDS, 1)), None)


def _drop_output() -> None:
    """Discard the rest of standard output, so that exiting does not fail as well."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Turn termination signals into an exception, so that temporary files are removed and outputs stay intact.

    Python drops that exception where a finalizer is just running, and some C code wherever it calls Python. A dropped
    one is raised again; if the command ends meanwhile, it ends as if it had been heard.

    Raises:
        EndedBySignal: a signal came.
    """
    main = threading.current_thread() is threading.main_thread()
    ending = [getattr(signal, n) for n in ("SIGTERM", "SIGHUP") if main and hasattr(signal, n)]
    ending = [n for n in ending if signal.getsignal(n) is signal.SIG_DFL]
    code, over = 0, False
    raised: list[weakref.ref[EndedBySignal]] = []

    def leave(number: int, frame: object) -> None:
        nonlocal code
        code = 128 + number
        end = EndedBySignal(code)
        # One that nobody drops is alive until the command is over.
        raised.append(weakref.ref(end, lambda _: again(number)))
        try:
            raise end
        finally:
            del end  # its traceback has this frame

    def again(number: int) -> None:
        # In another thread, since where an exception was just dropped the next one would be, too.
        threading.Timer(0.1, lambda: None if over else os.kill(os.getpid(), number)).start()

    def unraisable(dropped: sys.UnraisableHookArgs) -> None:
        if dropped.exc_type is KeyboardInterrupt:
            again(signal.SIGINT)
        elif dropped.exc_type is not EndedBySignal:
            usual(dropped)

    usual = sys.unraisablehook
    for number in ending:
        signal.signal(number, leave)
    if ending:
        sys.unraisablehook = unraisable
    try:
        yield
        if code:
            raise EndedBySignal(code)
    finally:
        over = True
        if ending:
            sys.unraisablehook = usual
        for number in ending:
            signal.signal(number, signal.SIG_DFL)


def _overview(args: list[str]) -> int:
    if args and args[0] == "--version":
        print(f"loadrun {__version__}")
        return 0
    print("usage: loadrun [run] MODEL [MODEL ...] [options]\n       loadrun COMMAND ... [options]")
    named = {name for names in JOBS.values() for name in names}
    jobs = {**JOBS, "More": tuple(name for name in COMMANDS if name not in named)}
    for job, names in jobs.items():
        print(f"\n{job}:")
        for name in names:
            print(f"  {name:{max(map(len, COMMANDS))}}  {COMMANDS[name]}")
    print("\n`loadrun COMMAND --help` lists its options.")
    print(
        "Exit codes: 0 all checks passed, 1 a check failed, 2 bad file or usage, 3 nothing was compared, 4 timeout, "
        "5 crash, 70 a bug in loadrun."
    )
    return 0 if args else EXIT_ERROR
