"""Tasks replayed one after another in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .events import Event, Task, TaskPart
from .parts import PartReplayer

__all__ = ["serial"]


def serial(tasks: Iterable[Task]) -> Iterator[tuple[Task, Event]]:
    """Yield the events of tasks, in order."""
    replayer = PartReplayer()
    for task in tasks:
        for event in replayer.events(TaskPart(task)):
            yield task, event
