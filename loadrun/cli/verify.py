"""`loadrun verify FILE`: is the file as it was packed, and do its checks pass?"""

from __future__ import annotations

import sys

from ..base.errors import clean
from ..engines import Choice
from ..report.text import summary
from ..verify.pack.verifying import VerifiedDump, VerifyOptions, verified, verify_files
from .groups import (
    Parser,
    add_copy_option,
    add_no_check_option,
    add_quiet_option,
    add_seed_option,
    model_files,
    progress,
)
from .models import add_engine_options, add_model_options, model_options
from .stream import show

__all__ = ["main"]

_SHOWN = 20
"""How many differences are listed."""


def parser() -> Parser:
    """Add the options of `loadrun verify`."""
    p = Parser(
        prog="loadrun verify",
        description="Compare model and testcases with the digests that `loadrun pack` recorded, then replay them.",
        epilog="Exit codes as for `loadrun run`; also 1 if something differs from its digest, or the digests or the "
        "data after them are damaged, and 3 if no digests were recorded.",
    )
    p.add_argument("files", nargs="+", metavar="FILE.mge")
    add_seed_option(p)
    add_engine_options(p)
    add_model_options(p)
    add_copy_option(p)
    add_quiet_option(p)
    add_no_check_option(p)
    return p


def main(argv: list[str]) -> int:
    """Verify the files."""
    p = parser()
    args = p.parse_args(argv)
    options = p.record(
        VerifyOptions,
        vars(args),
        engine=Choice(args.engine, args.strict_engine, args.cache),
        **model_options(args.input_shape, args.constant),
    )
    dumps: list[VerifiedDump] = []
    for dump in verify_files(model_files(args.files, sys.stderr), options):
        dumps.append(dump)
        name = clean(dump.file.path, 200)
        shown = _SHOWN if dump.differences else len(dump.said)
        for text in dump.said[:shown]:
            print(f"{name}: {clean(text, 300)}")
        if dump.differences > _SHOWN:
            print(f"{name}: {dump.differences} differences in all")
        for text in dump.file.missed:
            print(f"{name}: {clean(text, 300)}")
        show(dump.file, progress(dump, dump.total, "testcase"), None if args.quiet else sys.stdout)
        if not args.quiet and dump.opened:
            print()
    print(summary([d.file for d in dumps]))
    return verified(dumps, no_check=args.no_check)
