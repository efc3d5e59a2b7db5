"""Load and run a dump in a child with limited memory and time: what does it end with?"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import traceback
import warnings
from pathlib import Path

MEMORY = 3 << 30
SECONDS = 20.0


class Fault(Exception):
    """A run that ended with anything but a verdict or a LoadRunError."""


def run(data: bytes) -> str:
    """What becomes of the bytes in this process: ``refused``, ``error`` or a verdict."""
    import loadrun
    from loadrun.base.errors import LoadRunError

    try:
        bundle = loadrun.loads(data)
    except LoadRunError:
        return "refused"
    try:
        runner = loadrun.Runner(bundle)
        results = list(runner.replay()) if len(bundle.testcases) else [runner.run()]
    except LoadRunError:
        return "error"
    return str(loadrun.Verdict.worst(r.verdict for r in results).value)


def execute(data: bytes, *, memory: int = MEMORY, seconds: float = SECONDS) -> str:
    """What becomes of the bytes in a fork of this process, which inherits what is imported.

    Raises:
        Fault: another exception, a hang, or a crash.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        text = ""
        try:
            warnings.simplefilter("error")
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            text = run(data)
        except BaseException as e:
            frames = traceback.extract_tb(e.__traceback__)[-3:]
            where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames))
            text = f"!{type(e).__name__}: {str(e)[:200]} ({where})"
        finally:
            os.write(write, text.encode("utf-8", "replace")[:4000])
            os._exit(0)
    os.close(write)
    try:
        ready, _, _ = select.select([read], [], [], seconds)
        if not ready:
            os.kill(child, signal.SIGKILL)
        answer = os.read(read, 4096).decode() if ready else ""
    finally:
        os.close(read)
        status = os.waitpid(child, 0)[1]
    if not ready:
        raise Fault(f"still running after {seconds} s")
    if not answer:
        raise Fault(f"the process died with status {status}")
    if answer.startswith("!"):
        raise Fault(answer[1:])
    return answer


if __name__ == "__main__":
    for name in sys.argv[1:]:
        try:
            print(name, execute(Path(name).read_bytes()))
        except Fault as fault:
            print(name, "FAULT", fault)
