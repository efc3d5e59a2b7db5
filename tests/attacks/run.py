"""Run attacks, each in a child of its own: names come in, and how each ended goes out, with memory and time."""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

FLOOR = 96 << 20
"""Bytes that any file may take, whatever its size."""


def status(key: str) -> int:
    """A line of /proc/self/status in bytes."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(f"{key}:"))


def serve(run: Callable[[str], dict[str, Any]]) -> None:
    """Answer each name on standard input by what `run` gives in a child, which has what this process imported."""
    gc.freeze()
    for line in sys.stdin:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            try:
                text = json.dumps(run(line.strip()))
            except BaseException:
                text = json.dumps({"fault": traceback.format_exc()})
            os.write(1, text.encode() + b"\n")
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if status:
            os.write(1, json.dumps({"fault": f"the child ended with status {status}"}).encode() + b"\n")


class Server:
    """A process that runs attacks: what it imports is imported once.

    Args:
        module: the module that calls `serve`.
    """

    def __init__(self, module: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, name: str) -> dict[str, Any]:
        """How an attack ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        row: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "fault" not in row, row["fault"]
        return row

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)


def attacked(name: str) -> dict[str, Any]:
    """Run one attack in this process, which it limits."""
    from loadrun.base.errors import FormatError
    from loadrun.dump import loads
    from tests.attacks.attack_files import good
    from tests.attacks.attacks import ATTACKS

    attack = ATTACKS[name]
    data = attack.make()
    opened: list[str] = []
    watching = [False]

    def audit(event: str, args: tuple[object, ...]) -> None:
        if watching[0] and event in (
            "open",
            "import",
            "exec",
            "compile",
            "subprocess.Popen",
            "socket.connect",
        ):
            opened.append(f"{event} {args[:1]!r}")

    assert loads(good()).checks == []  # so that imports and caches of the first call are not counted
    sys.addaudithook(audit)
    before = status("VmRSS")
    limit = status("VmSize") + FLOOR + attack.factor * len(data)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    start = time.process_time()
    text = ""
    watching[0] = True
    try:
        bundle = loads(data)
        text = "; ".join(bundle.warnings)
        uses = [len(bundle.checks), len(bundle.outputs), len(bundle.inputs), len(bundle.graph.needed())]
        for testcase in bundle.testcases:
            uses.append(len(testcase.arrays))
        end = "loaded"
    except FormatError as e:
        end, text = "refused", str(e)
    except BaseException as e:  # the harness wants to know whatever it was
        end, text = type(e).__name__, str(e)
    watching[0] = False
    seconds = time.process_time() - start
    peak = max(status("VmHWM") - before, 0)
    row = {"end": end, "text": text[:2000], "seconds": round(seconds, 3), "peak": peak, "size": len(data)}
    return {**row, "opened": opened}


if __name__ == "__main__":
    import loadrun.dump.v1
    import loadrun.onnx.loading  # noqa: F401  nor what the first ONNX model does
    import tests.attacks.attacks  # noqa: F401  the children inherit it
    from loadrun.dump import loads
    from tests.attacks.attack_files import good

    loads(good())  # what the first dump imports

    serve(attacked)
