"""How torch is run: with so many threads, and watched by its profiler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..engines.executed import Executed
from ..ops.numeric.parallel import threads

__all__ = ["TorchProfile", "torch_threads"]


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


class TorchProfile:
    """A context in which torch's profiler watches operators, if it is switched on; it keeps the last run.

    Args:
        enabled: whether it is.
    """

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._profile: Any = None

    def __enter__(self) -> None:
        if self._enabled:
            from torch.profiler import ProfilerActivity, profile  # optional

            self._profile = profile(activities=[ProfilerActivity.CPU], record_shapes=True)
            self._profile.__enter__()

    def __exit__(self, *error: object) -> None:
        if self._enabled:
            self._profile.__exit__(*error)

    def executed(self) -> list[Executed]:
        """Return the operators that were called, without those that they call in turn."""
        if self._profile is None:
            return []
        events = [e for e in self._profile.events() if e.cpu_parent is None]
        began = min((e.time_range.start for e in events), default=0.0)
        return [
            Executed(
                e.name,
                e.name,
                (e.time_range.start - began) * 1e-6,
                (e.time_range.end - e.time_range.start) * 1e-6,
                f"thread {e.thread}",
                [shape for shape in e.input_shapes if shape],
            )
            for e in sorted(events, key=lambda e: e.time_range.start)
        ]
