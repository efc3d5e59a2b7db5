"""Options of the commands that take input data."""

from __future__ import annotations

import argparse

from .groups import whole

__all__ = ["add_dump_option", "add_input_options"]

_SPEC_HELP = (
    'data as "NAME:SOURCE;NAME:SOURCE", where SOURCE is an image, .npy, .npz or .json file, #rand(0,255), #randn(0,1), '
    "#randint(0,10), #zeros, #ones, #full(3), {1,3,224,224} for random numbers of a shape, or [[1,2],[3,4]]; NAME: may "
    "be left out for a single input; @FILE reads a specification a line; given more than once, each is a testcase"
)


def add_input_options(p: argparse._ActionsContainer, *flags: str) -> None:
    """Add the option for specifications under the given flags (``input_data``), and those that go with it."""
    p.add_argument(*flags, dest="input_data", metavar="SPEC", action="append", help=_SPEC_HELP)
    p.add_argument(
        "--repeat",
        metavar="N",
        type=int,
        default=1,
        help="repeat axis 0 of data from files N times (default 1)",
    )
    p.add_argument("--resize-input", action="store_true", help="scale images to the input's height and width")
    p.add_argument(
        "--input-transform",
        metavar="EXPR",
        help="numpy expression over data (what was read) and np, such as \"data.astype('float32') / 255\"",
    )


def add_dump_option(p: argparse.ArgumentParser) -> None:
    """Add the option that chooses one of the dumps that a file holds (``args.dump``)."""
    p.add_argument("--dump", metavar="N", type=whole, help="which dump of a file that holds several, from 1")
