"""Files that do not pass, replayed again: a pass after a failure is reported as flaky."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import groupby

from ..compare.results import Verdict
from .reporting import Closed, Event, Replayed, Task

Events = Iterator[tuple[Task, Event]]
Source = Callable[[Sequence[Task]], AbstractContextManager[Events]]


def retrying(events: Events, source: Source, retries: int) -> Events:
    """Pass events on, file by file; those of one that does not pass are replaced by those of a further replay.

    Args:
        events: of the first replays.
        source: replays tasks.
        retries: how many further replays a file gets at most.
    """
    for _, group in groupby(events, key=lambda pair: id(pair[0])):
        pairs = list(group)
        task, failures = pairs[0][0], 0
        while failures < retries and not _passes(event for _, event in pairs):
            failures += 1
            with source([task]) as again:
                pairs = list(again)
        flaky = failures if failures and _passes(event for _, event in pairs) else 0
        for each, event in pairs:
            yield each, replace(event, flaky=flaky) if isinstance(event, Closed) else event


def _passes(events: Iterator[Event]) -> bool:
    bad = (Verdict.FAIL, Verdict.ERROR)
    return not any(
        (isinstance(e, Closed) and (e.message is not None or e.ended is not None))
        or (isinstance(e, Replayed) and e.result.verdict in bad)
        for e in events
    )
