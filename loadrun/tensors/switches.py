"""What a thread sees of the process: its running trace, and how operators are computed.

A `SessionOf` tensors is what a trace does for the tensors inside it. Only one is active in a thread; the tensors that
it made carry a variable of its graph, all others are values from outside.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from ..graph.dtypes import Array, DType
from ..graph.params import Record
from ..ops.registry import Shape

T = TypeVar("T")


class SessionOf(Protocol[T]):
    """The interface of a running trace to the tensors inside it."""

    symbolic_shape: bool
    sizes: dict[Any, T]
    ended: bool

    def apply(
        self,
        type: str,
        params: tuple[Record, ...],
        inputs: Sequence[T],
        n: int,
        output_dtype: DType | None,
        scalar: bool,
    ) -> list[T]:
        """Record an operator, or check it against the recorded one."""

    def joined(self, tensor: T) -> None:
        """Know a tensor that stands for a variable of the session."""

    def value(self, tensor: T) -> Array:
        """Return the value of a tensor of the session, in storage form; computes what is needed."""

    def shape(self, tensor: T) -> Shape:
        """Return the shape of a tensor of the session, in storage form."""

    def detached(self, tensor: T) -> bool:
        """Return whether a tensor is a constant, so that its sizes are numbers."""

    def fluid(self, tensor: T) -> bool:
        """Return whether the data may decide how large a tensor is."""

    def measured(self, tensor: T) -> None:
        """Note that code inside the function took a size as a number."""

    def varies(self, tensor: T, axis: int) -> bool:
        """Return whether the size of a tensor along an axis may differ in another call."""

    def froze(self) -> None:
        """Note that code in C took a symbolic size as a number."""

    def named(self, tensor: T, name: str) -> None:
        """Note that code inside the function named a tensor."""

    def became(self, tensor: T, kind: str) -> None:
        """Note that code inside the function made a Python number, of that kind, of a value."""

    def leave(self) -> None:
        """Begin a region that is not recorded: what was made so far becomes values from outside."""


class _Local(threading.local):
    session: SessionOf[Any] | None = None
    exact: bool = False


_local = _Local()


def active() -> SessionOf[Any] | None:
    """Return the session of the trace that is running in this thread, if any."""
    return _local.session


@contextmanager
def use(session: SessionOf[Any] | None) -> Iterator[None]:
    """Make a session the active one inside."""
    before, _local.session = _local.session, session
    try:
        yield
    finally:
        # A generator may outlive the trace in which it began.
        _local.session = None if before is not None and before.ended else before


def is_exact() -> bool:
    """Return whether operators of this thread are computed as definitions say (`Graph.exact`), in wide dtypes too."""
    return _local.exact


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """Compute operators inside as their definitions say, not as MegEngine's kernels do, in numpy's dtypes too.

    Float64, int64 and unsigned integers that are requested by name stay what they are.
    """
    before, _local.exact = _local.exact, True
    try:
        yield
    finally:
        _local.exact = before


@contextmanager
def suspended() -> Iterator[SessionOf[Any] | None]:
    """Execute at once inside, whatever trace is running."""
    session = _local.session
    with use(None):
        yield session
