"""The torch package, imported when it is needed; what it says of its own internals is kept from users."""

import io
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import Any

from ..base.errors import UsageError
from ..base.extras import install


def need_torch() -> Any:
    """Import and return the torch package.

    Raises:
        UsageError: it is not installed, or older than 2.5.
    """
    try:
        import torch  # optional

        version = torch.__version__
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"tracing a PyTorch module needs the package torch (2.5 or later): {install('torch')}"
        ) from error
    numbers = tuple(int(n) for n in version.split("+")[0].split(".")[:2])
    if numbers < (2, 5):
        raise UsageError(f"torch {version} is installed; tracing PyTorch modules needs 2.5 or later")
    return torch


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the warnings and logs in which torch speaks of its own internals."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(_Filtered(sys.stderr)):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


class _Filtered(io.TextIOBase):
    """Passes on what is written, except the graph that torch prints when an export or a run of one fails."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._ends = False

    def write(self, text: str) -> int:
        graph = "Call using an FX-traced Module" in text or (
            "def forward(self" in text and "torch.ops." in text
        )
        if not graph and not (self._ends and text == "\n"):
            self._stream.write(text)
        self._ends = graph
        return len(text)

    def flush(self) -> None:
        self._stream.flush()
