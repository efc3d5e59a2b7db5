"""Run attacks on the reader of checkpoints, as `tests.attacks.run` does those on dumps."""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

from tests.attacks.run import FLOOR, serve, status


def attacked(name: str) -> dict[str, Any]:
    """Run one attack in this process, which it limits."""
    from loadrun.base.errors import FormatError
    from loadrun.dump.checkpoint import load_checkpoint
    from tests.attacks.checkpoint_attacks import ATTACKS, TENSOR, array, blob

    attack = ATTACKS[name]
    data = attack.make()
    seen: list[str] = []
    watching = [False]

    def audit(event: str, args: tuple[object, ...]) -> None:
        watched = (
            "open",
            "import",
            "exec",
            "compile",
            "os.system",
            "subprocess.Popen",
            "socket.connect",
            "pickle.find_class",
        )
        if watching[0] and event in watched:
            seen.append(f"{event} {args[:1]!r}")

    assert load_checkpoint(blob(3) + b"0Vx\n.") == "x"
    # So that imports of the first call are not counted.
    load_checkpoint(TENSOR + array(b"K\x01\x85", blob(4)) + b"\x85\x81.")
    sys.addaudithook(audit)
    before = status("VmRSS")
    limit = status("VmSize") + FLOOR + attack.factor * len(data)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    start = time.process_time()
    text = ""
    watching[0] = True
    try:
        load_checkpoint(data)
        end = "loaded"
    except FormatError as e:
        end, text = "refused", str(e)
    except BaseException as e:  # the harness wants to know whatever it was
        end, text = type(e).__name__, str(e)
    watching[0] = False
    seconds = time.process_time() - start
    peak = max(status("VmHWM") - before, 0)
    row = {"end": end, "text": text[:2000], "seconds": round(seconds, 3), "peak": peak, "size": len(data)}
    return {**row, "opened": seen}


if __name__ == "__main__":
    import loadrun.dump.checkpoint  # noqa: F401
    import tests.attacks.checkpoint_attacks  # noqa: F401  the children inherit both

    serve(attacked)
