"""What the sessions of the first call and of later calls share: the tensors that stand for variables."""

from __future__ import annotations

import weakref
from typing import Any

from ..tensors.access import detach, recorded_variable, session_of, set_stored
from ..tensors.value import Session, Tensor
from .recording import Recording

__all__ = ["RunningTrace"]


class RunningTrace(Session):
    """A session over a recording that grows, or that is compared with.

    Args:
        recording: the recording.
        symbolic_shape: whether sizes are values of the graph.
    """

    def __init__(self, recording: Recording, *, symbolic_shape: bool) -> None:
        self.recording = recording
        self.symbolic_shape = symbolic_shape
        self.sizes: dict[Any, Tensor] = {}
        self.ended = False
        self._live: list[weakref.ref[Tensor]] = []

    def joined(self, tensor: Tensor) -> None:
        """Know a tensor that stands for a variable of the session."""
        self._live.append(weakref.ref(tensor))

    def alive(self) -> list[Tensor]:
        """Return the tensors of the session that somebody else still holds."""
        self.sizes.clear()
        found = (r() for r in self._live)
        return [t for t in found if t is not None and session_of(t) is self]

    def detached(self, tensor: Tensor) -> bool:
        """Tell whether a tensor is a constant, so that its sizes are numbers."""
        return recorded_variable(tensor) is None or recorded_variable(tensor).id in self.recording.static

    def fluid(self, tensor: Tensor) -> bool:
        """Tell whether the data may decide how large a tensor is."""
        return recorded_variable(tensor) is not None and recorded_variable(tensor).id in self.recording.fluid

    def became(self, tensor: Tensor, kind: str) -> None:
        """Note that code inside the function made a Python number of a value; where it runs again, that is checked."""

    def leave(self) -> None:
        """Begin a region that is not recorded: what was made so far becomes values from outside."""
        for tensor in self.alive():
            set_stored(tensor, self.value(tensor))
            detach(tensor)

    def release(self) -> None:
        """End: part all tensors from the session; those without a value cannot be read any more."""
        self.ended = True
        for tensor in self.alive():
            detach(tensor)
