"""Options of the commands that take input data."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

from ..base.errors import UsageError
from ..base.files import one_file
from ..dump import load_all
from ..graph.dtypes import Array
from ..testcase import Bundle
from .groups import whole

__all__ = ["add_dump_option", "add_input_options", "cases_of", "check_input_options", "load_dump"]

_SPEC_HELP = (
    'data as "NAME:SOURCE;NAME:SOURCE", where SOURCE is an image, .npy, .npz or .json file, #rand(0,255), #randn(0,1), '
    "#randint(0,10), #zeros, #ones, #full(3), {1,3,224,224} for random numbers of a shape, or [[1,2],[3,4]]; NAME: may "
    "be left out for a single input; @FILE reads a specification a line; given more than once, each is a testcase"
)


def add_input_options(p: argparse._ActionsContainer, *flags: str) -> None:
    """Add the option for specifications under the given flags (``args.input``), and those that go with it."""
    p.add_argument(*flags, dest="input", metavar="SPEC", action="append", help=_SPEC_HELP)
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


def load_dump(given: str, number: int | None, **read: Any) -> Bundle:
    """Load one dump of a file.

    Args:
        given: the file, or a pattern or folder that stands for one.
        number: which dump, from 1; None for the only one.
        read: what `loadrun.load` is told of an ONNX model: input_shapes, constants, test_data.

    Raises:
        UsageError: the file holds several and none is chosen, or it holds fewer.
    """
    path = one_file(given)
    found = load_all(path, **read)
    if number is None and len(found) > 1:
        raise UsageError(f"{path} holds {len(found)} dumps; --dump N says which one is meant, from 1")
    if number is not None and not 1 <= number <= len(found):
        raise UsageError(f"{path} holds dumps 1 to {len(found)}, found --dump {number}")
    return found[(number or 1) - 1]


def check_input_options(p: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Refuse options that have no effect because no specification was given, and read lists from pipes, once.

    Raises:
        SpecError: a pipe cannot be read.
    """
    if args.input is None and (args.repeat != 1 or args.resize_input or args.input_transform):
        p.error("--repeat, --resize-input and --input-transform say how to load input data; give it")
    if args.input is not None:
        from ..inputs.lists import read_pipes  # for start-up

        args.input = read_pipes(args.input)


def cases_of(
    args: argparse.Namespace, bundle: Bundle, warn: Callable[[str], None]
) -> Iterator[dict[str, Array]]:
    """The testcases that the options stand for, loaded one at a time."""
    from ..inputs.loading import load_cases  # for start-up

    return load_cases(
        args.input,
        bundle.inputs,
        repeat=args.repeat,
        resize_input=args.resize_input,
        input_transform=args.input_transform,
        open_inputs=bundle.open_inputs,
        seed=args.seed,
        warn=warn,
    )
