"""How many threads torch uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..ops.numeric.parallel import threads

__all__ = ["torch_threads"]


@contextmanager
def torch_threads() -> Iterator[None]:
    """Let torch use as many threads as loadrun itself does; the program's own number stands again afterwards."""
    import torch  # optional

    before, wanted = torch.get_num_threads(), threads()
    if before != wanted:
        torch.set_num_threads(wanted)
    try:
        yield
    finally:
        if before != wanted:
            torch.set_num_threads(before)
