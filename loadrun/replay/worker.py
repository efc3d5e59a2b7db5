"""What a worker process does: files come in on standard input, events go out where standard output was."""

import os
import queue
import threading
from typing import IO

from ..base.errors import EXIT_CRASH, Failure
from ..base.pipes import receive, send, serve
from .reporting import Closed, Task
from .serial import Replayer


def main() -> None:
    """Replay files until the parent closes the pipe, or is gone; None stands before and after the events of each."""
    source, events = serve()
    tasks: queue.Queue[Task] = queue.Queue()
    threading.Thread(target=_listen, args=(source, tasks), daemon=True).start()
    replayer = Replayer()
    while True:
        task = tasks.get()
        send(events, None)
        try:
            for event in replayer.events(task):
                send(events, event)
        except BrokenPipeError:
            raise
        except BaseException as e:
            # Signals raise nothing here, so this is what the code of an engine or of a library raised.
            send(events, Closed(Failure(f"its worker raised {type(e).__name__}", EXIT_CRASH)))
        send(events, None)


def _listen(pipe: IO[bytes], tasks: queue.Queue[Task]) -> None:
    """Read tasks; the end of the pipe is the end of the process, whatever it is doing."""
    while True:
        try:
            task, _ = receive(pipe)
        except EOFError:
            os._exit(0)
        tasks.put(task)
