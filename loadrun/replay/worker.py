"""What a worker process does: parts come in on standard input, events go out where standard output was."""

import os
import queue
import threading
from typing import IO

from ..base.pipes import receive, send, serve
from ..compare.results import Verdict
from .parts import PartReplayer
from .reporting import Closed, TaskPart

READY = "ready"
"""The first message: all is imported, from here on time counts."""


def main() -> None:
    """Replay parts until the parent closes the pipe, or is gone."""
    source, events = serve()
    parts: queue.Queue[TaskPart] = queue.Queue()
    threading.Thread(target=_listen, args=(source, parts), daemon=True).start()
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
            send(events, Closed(f"its worker raised {type(e).__name__}", ended=Verdict.CRASH))
        send(events, None)


def _listen(pipe: IO[bytes], parts: queue.Queue[TaskPart]) -> None:
    """Read parts; the end of the pipe is the end of the process, whatever it is doing."""
    while True:
        try:
            part, _ = receive(pipe)
        except EOFError:
            os._exit(0)
        parts.put(part)
