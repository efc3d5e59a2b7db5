"""What a long call is at: one line on a terminal or in a notebook, from the second second on."""

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO, TypeVar

from .errors import clean

T = TypeVar("T")
_NAME = "loadrun stages"
_AFTER, _EVERY = 1.0, 0.5
"""Seconds before the line appears, and until it is written again."""


@dataclass(eq=False)
class _Stage:
    """What is being done, and when it began."""

    text: str
    began: float


class _Line:
    """The line of this process: the innermost stage of the main thread, and how long it takes.

    Attributes:
        stages: what is being done; the last one is shown.
    """

    def __init__(self) -> None:
        self.stages: list[_Stage] = []
        self._ended = threading.Event()
        self._writer: threading.Thread | None = None
        self._process = 0

    def begin(self, entry: _Stage, out: TextIO) -> None:
        """Add a stage; the first one starts the thread that writes."""
        self.stages.append(entry)
        if len(self.stages) == 1:
            self._ended, self._process = threading.Event(), os.getpid()
            write = (out, self._ended)
            self._writer = threading.Thread(target=self._write, args=write, name=_NAME, daemon=True)
            self._writer.start()

    def end(self, entry: _Stage) -> None:
        """Remove a stage, and the line after the last one; generators may end theirs in another order."""
        self.stages.remove(entry)
        if not self.stages and self._writer is not None:
            self._ended.set()
            self._writer.join()

    def _write(self, out: TextIO, ended: threading.Event) -> None:
        wide = 0
        wait = _AFTER
        while not ended.wait(wait) and self._process == os.getpid():
            wait = _EVERY
            if self.stages:
                last = self.stages[-1]
                line = f"{clean(last.text, 60)} ({time.monotonic() - last.began:.0f} s)"
                # Blanks over what stood there: notebooks know no escape sequence for that.
                # What is printed next begins where this line does.
                out.write(f"\r{line:{wide}}\r" if wide else f"\r{line}\r")
                out.flush()
                wide = len(line)
        if wide:
            out.write(f"\r{'':{wide}}\r")
            out.flush()


_LINE = _Line()


def _watched(out: TextIO) -> bool:
    """Tell whether somebody may see the line: on a terminal, or in a notebook, whose stream is none."""
    if os.environ.get("TERM") == "dumb":
        return False
    return out.isatty() or type(out).__module__.startswith("ipykernel")


@contextmanager
def stage(text: str) -> Iterator[None]:
    """Name what the main thread is doing; inner stages stand for outer ones while they last.

    >>> with stage("torch exports the module"):
    ...     sum(range(10))
    45
    """
    out = sys.stderr
    if out is None or threading.current_thread() is not threading.main_thread() or not _watched(out):
        yield
        return
    entry = _Stage(text, time.monotonic())
    _LINE.begin(entry, out)
    try:
        yield
    finally:
        _LINE.end(entry)


def tell(text: str) -> None:
    """Say how far the main thread's innermost stage is."""
    if _LINE.stages and threading.current_thread() is threading.main_thread():
        _LINE.stages[-1].text = text


def counted(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """Pass items on; while one is worked on, that is the stage.

    >>> list(counted("ab", 2, "testcase"))
    ['a', 'b']
    """
    for i, item in enumerate(items):
        with stage(f"{what} {i + 1}/{total}"):
            yield item
