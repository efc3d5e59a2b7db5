"""What a worker process does: parts come in on standard input, events go out where standard output was."""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import sys
import threading
from typing import IO

from ..compare.results import Verdict
from .events import Closed, TaskPart
from .parts import PartReplayer
from .wire import receive, send

__all__ = ["READY", "main"]

READY = "ready"
"""The first message: all is imported, from here on time counts."""

_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux."""


def main(parent: int) -> None:
    """Replay parts until the parent closes the pipe, or is gone.

    Args:
        parent: its process id.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with(parent)
    events = os.fdopen(os.dup(1), "wb")
    # What a library prints goes where messages go, and not between the events.
    os.dup2(2, 1)
    parts: queue.Queue[TaskPart] = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, parts), daemon=True).start()
    replayer = PartReplayer()
    send(events, READY)
    while True:
        part = parts.get()
        try:
            for event in replayer.events(part):
                send(events, event)
        except BrokenPipeError:
            raise
        except BaseException as e:
            # Signals raise nothing here, so this is what the code of an engine or of a library raised.
            send(events, Closed(f"what ran it raised {type(e).__name__}", ended=Verdict.CRASH))
        send(events, None)


def _listen(pipe: IO[bytes], parts: queue.Queue[TaskPart]) -> None:
    """Read parts; the end of the pipe is the end of the process, whatever it is doing."""
    while True:
        try:
            part, _ = receive(pipe)
        except EOFError:
            os._exit(0)
        parts.put(part)


def _die_with(parent: int) -> None:
    """Ask Linux to kill this process when its parent dies, for the time in which no Python code runs here."""
    if not sys.platform.startswith("linux"):
        return
    try:
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:
        os._exit(0)
