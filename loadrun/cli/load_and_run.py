"""`load_and_run model.mge`: flags, output and files as with MegEngine's C++ tool."""

import os
import sys
from collections.abc import Sequence
from errno import ENOENT

from ..base import __version__
from ..base.errors import EXIT_ERROR, UsageError, clean, reason
from ..compare.results import EXIT_FAIL, EXIT_NOT_COMPARED, EXIT_PASS
from ..load_and_run.flags import FLAGS, GROUPS, Flag, ParsedFlags, parse
from ..load_and_run.saying import Log
from ..load_and_run.session import LoadAndRunSession
from ..runner import Verdict
from . import main as loadrun
from .groups import Parser, limited

_HELP = ("help", "helpfull", "helpshort")


def parser() -> Parser:
    """Build a parser for completions and docs; `main` parses them as gflags does."""
    p = Parser(
        prog="loadrun load_and_run",
        description="Run testcase 0 of a model with the flags, output and files of MegEngine's C++ tool.",
    )
    p.add_argument("model", metavar="MODEL")
    for f in FLAGS:
        if f.name == "help":
            continue
        what = (f.what if f.works else f"has no effect: {f.what}").replace("%", "%%")
        if f.kind is bool:
            p.add_argument(f"--{f.name}", action="store_true", help=what)
        else:
            p.add_argument(f"--{f.name}", metavar=f.kind.__name__.upper(), help=what)
    return p


def main(argv: list[str]) -> int:
    """Run one model as load_and_run does.

    Returns:
        0 when testcase 0 passed or the file has no testcases; 1 when a check failed; 2 for bad usage or a model that
        cannot be executed; 3 when the file's checks compare nothing.
    """
    flags = parse(argv)
    if any(flags.on(n) for n in _HELP):
        print(_help())
        return EXIT_PASS
    if flags.on("version"):
        print(f"load_and_run of loadrun {__version__}")
        return EXIT_PASS
    return _run(flags)


def program(argv: Sequence[str] | None = None) -> int:
    """Run the command `load_and_run`."""
    return loadrun(["load_and_run", *(sys.argv[1:] if argv is None else argv)])


def _run(flags: ParsedFlags) -> int:
    log = Log()
    if not flags.files:
        raise UsageError("usage: load_and_run MODEL [FLAGS]; `load_and_run --help` lists the flags")
    path = flags.files[0]
    if len(flags.files) > 1:
        others = clean(", ".join(flags.files[1:]), 200)
        log.say(f"load_and_run: only the first model is run; ignored: {others}")
    if not os.path.exists(path):
        raise UsageError(
            f"failed to open {path}: {reason(FileNotFoundError(ENOENT, os.strerror(ENOENT), path))}"
        )
    session = LoadAndRunSession(flags, path, log)
    with limited():
        verdict = session.run()
    if verdict is Verdict.FAIL:
        return EXIT_FAIL
    if verdict is Verdict.ERROR:
        return EXIT_ERROR
    return EXIT_NOT_COMPARED if session.vacuous else EXIT_PASS


def _help() -> str:
    lines = ["load_and_run MODEL [FLAGS]: replay testcase 0 of a model, or run it on data", ""]
    for group, title in GROUPS.items():
        lines += [f"  {title}", *(_line(f) for f in FLAGS if f.group == group), ""]
    lines.append("`loadrun MODEL` replays all testcases of any number of files.")
    return "\n".join(lines)


def _line(flag: Flag) -> str:
    value = "" if flag.kind is bool else f" {flag.kind.__name__.upper()}"
    default = (
        f" (default {flag.default})"
        if flag.kind is int and flag.works and flag.default not in (-1, 0)
        else ""
    )
    what = flag.what if flag.works else f"has no effect: {flag.what}"
    return f"{f'    --{flag.name}{value}':42}{what}{default}"
