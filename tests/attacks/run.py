"""Run one attack in this process: ``python -m tests.attacks.run NAME``; prints how it ended, with memory and time."""

from __future__ import annotations

import json
import resource
import sys
import time

FLOOR = 96 << 20
"""Bytes that any file may take, whatever its size."""


def status(key: str) -> int:
    """A line of /proc/self/status in bytes."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(f"{key}:"))


def main() -> None:
    import loadrun.onnx.loading  # noqa: F401  what the first ONNX model imports is not counted
    from loadrun.dump import loads
    from loadrun.errors import FormatError
    from tests.attacks.attack_files import good
    from tests.attacks.attacks import ATTACKS

    attack = ATTACKS[sys.argv[1]]
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
    print(json.dumps({**row, "opened": opened}))


if __name__ == "__main__":
    main()
