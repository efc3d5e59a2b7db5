"""``python -m loadrun.megengine SCRIPT ARG ...``: run a script written for MegEngine, unchanged, on loadrun.

``python -m loadrun.megengine -m MODULE ARG ...`` runs a module, for example pytest. Python processes that the script
starts run on loadrun, too.
"""

import importlib.util
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

_OURS = __package__
_IN_PLACE = str(Path(__file__).resolve().with_name("in_place"))


def main(argv: Sequence[str]) -> int:
    """Run a script, or with -m a module, with its arguments; return 2 where there is none."""
    module = argv[1] if argv[:1] == ["-m"] and len(argv) > 1 else None
    if module is None and (not argv or argv[0] in ("-h", "--help", "-m")):
        print(
            f"usage: python -m {_OURS} SCRIPT ARG ...\n       python -m {_OURS} -m MODULE ARG ...",
            file=sys.stderr,
        )
        return 2
    script = Path(argv[0])
    if module is None and not script.is_file():
        print(f"{_OURS}: {script}: there is no such script", file=sys.stderr)
        return 2
    real = sys.modules.get("megengine")
    if real is not None:
        print(f"{_OURS}: MegEngine itself is imported already, from {real.__file__}", file=sys.stderr)
        return 2
    # Processes that multiprocessing spawns are given sys.path, all others inherit the environment.
    sys.path.insert(1, _IN_PLACE)
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = _IN_PLACE if not inherited else os.pathsep.join((_IN_PLACE, inherited))
    if module is not None:
        if not _is_there(module):
            print(f"{_OURS}: {module}: there is no such module", file=sys.stderr)
            return 2
        sys.argv = [*argv[1:]]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return 0
    sys.argv = [*argv]
    sys.path[0] = str(script.parent.resolve())
    runpy.run_path(str(script), run_name="__main__")
    return 0


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
