"""Tasks replayed one after another in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .desk import Desk
from .events import Event, Task, TaskPart

__all__ = ["serial"]


def serial(tasks: Iterable[Task]) -> Iterator[tuple[Task, Event]]:
    """The events of tasks, in order."""
    desk = Desk()
    for task in tasks:
        for event in desk.events(TaskPart(task)):
            yield task, event
