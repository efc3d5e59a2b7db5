"""Options of the commands that take input data."""

from __future__ import annotations

import argparse

from .groups import whole

__all__ = ["add_dump_option", "add_input_options", "add_narrow_option"]

_SPEC_HELP = (
    'input data as "NAME:SOURCE;NAME:SOURCE", where SOURCE is an image, .npy, .npz or .json file, #rand(0,255), '
    "#randn(0,1), #randint(0,10), #zeros, #ones, #full(3), {1,3,224,224} for random numbers of that shape, or "
    "[[1,2],[3,4]]; NAME: is optional for a single input; @FILE reads one specification per line; each use of the "
    "option is a testcase"
)


def add_input_options(p: argparse._ActionsContainer, *flags: str) -> None:
    """Add the option for input specifications under these flags (``input_data``), and those that go with it."""
    p.add_argument(*flags, dest="input_data", metavar="SPEC", action="append", help=_SPEC_HELP)
    p.add_argument(
        "--repeat",
        metavar="N",
        type=int,
        default=1,
        help="repeat data from files N times along axis 0 (default 1)",
    )
    p.add_argument(
        "--resize-input", action="store_true", help="resize images to the input's height and width"
    )
    p.add_argument(
        "--input-transform",
        metavar="EXPR",
        help="numpy expression in data (the array as read) and np, such as \"data.astype('float32') / 255\"",
    )


def add_dump_option(p: argparse.ArgumentParser) -> None:
    """Add the option that selects one of several dumps in a file (``args.dump``)."""
    p.add_argument(
        "--dump", metavar="N", type=whole, help="use the N-th dump of a file that has several, counted from 1"
    )


def add_narrow_option(p: argparse._ActionsContainer) -> None:
    """Add ``--narrow``."""
    p.add_argument(
        "--narrow",
        action="store_true",
        help="store 64-bit numbers in 32 bits in a .mge file even where that changes values; the record says so",
    )
