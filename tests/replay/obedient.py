"""A worker whose files are orders: it sleeps, dies, floods, or tells how it was started."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

from loadrun.compare.results import Result, Verdict
from loadrun.ops.numeric.parallel import threads
from loadrun.replay import worker
from loadrun.replay.reporting import Closed, Event, Opened, Replayed, Task
from loadrun.replay.serial import Replayer


class Obedient(Replayer):
    """Does what the path says: ``order:argument``."""

    def events(self, task: Task) -> Iterator[Event]:
        """What was ordered."""
        order, _, argument = task.path.partition(":")
        if order == "unreadable":
            os.kill(os.getpid(), signal.SIGKILL)
        yield Opened(task.path, total=1)
        if order == "sleep":
            time.sleep(float(argument))
        elif order == "half":
            yield from (Replayed(Result(i, (), Verdict.PASS)) for i in range(int(argument)))
            os.kill(os.getpid(), signal.SIGSEGV)
        elif order == "die":
            os.kill(os.getpid(), int(argument))
        elif order == "exit":
            os._exit(int(argument))
        elif order == "flood":
            for i in range(int(argument)):
                yield Replayed(Result(i, (), Verdict.PASS, message="x" * 1000))
        elif order == "print":
            print(argument, flush=True)
            os.system(f"echo {argument}")
        said = f"{os.getpid()} {threads()} {os.environ['OMP_NUM_THREADS']}"
        yield Replayed(Result(0, (), Verdict.PASS, message=said))
        yield Closed()


def main() -> None:
    """The worker's main function with this replayer."""
    worker.Replayer = Obedient  # type: ignore[misc]
    worker.main()
