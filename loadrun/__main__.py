"""`python -m loadrun`, and the command `loadrun`: a separate process for one command."""

import gc
import sys


def program() -> int:
    """Run the command that the process was started for, and return its exit code.

    >>> from unittest import mock
    >>> with mock.patch("sys.argv", ["loadrun", "--version"]):
    ...     program()  # doctest: +ELLIPSIS
    loadrun ...
    0
    """
    # What is imported stays, so that looking for garbage among it is in vain.
    gc.disable()
    from .cli import main

    try:
        return main(ready=_imported)
    finally:
        gc.enable()


def _imported() -> None:
    """Leave what there is alone in later collections, those at the end of the process among them.

    Graphs live as long as a command: looking for garbage after every 700 objects, as Python does, took a sixth of the
    time that 16,000 operators take, and finds little.
    """
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


if __name__ == "__main__":
    sys.exit(program())
