"""A worker whose files are orders: it sleeps, dies, floods, or tells how it was started."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

from loadrun.compare.results import Result, Verdict
from loadrun.ops.numeric.parallel import threads
from loadrun.replay import worker
from loadrun.replay.parts import PartReplayer
from loadrun.replay.reporting import Closed, Event, Opened, Replayed, TaskPart


class Obedient(PartReplayer):
    """Does what the path says: ``order:argument``."""

    def events(self, part: TaskPart) -> Iterator[Event]:
        """What was ordered."""
        order, _, argument = part.task.path.partition(":")
        if order == "unreadable":
            os.kill(os.getpid(), signal.SIGKILL)
        if order == "parts":
            yield from self._part(part, int(argument))
            return
        yield Opened(part.task.path, total=1)
        if order == "sleep":
            time.sleep(float(argument))
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

    def _part(self, part: TaskPart, total: int) -> Iterator[Event]:
        """As many testcases as are left; the one with the number 7 of 77 kills its process."""
        stop = min(total, part.start + (part.most or total))
        yield Opened(part.task.path, total=total, rest=stop if stop < total else None)
        for i in range(part.start, stop):
            if (i, total) == (7, 77):
                os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(0.01)
            yield Replayed(Result(i, (), Verdict.PASS, message=str(os.getpid())))
        yield Closed()


def main() -> None:
    """The worker's main function with this replayer."""
    worker.PartReplayer = Obedient  # type: ignore[misc]
    worker.main()
