"""``python -m loadrun.megengine SCRIPT ARG ...``: run a script written for MegEngine, unchanged, on loadrun."""

from __future__ import annotations

import importlib.abc
import importlib.util
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_OURS = __package__


class _Standing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``megengine`` and what is in it here, as the same modules, so that each is imported once."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module of MegEngine's.

        Raises:
            ModuleNotFoundError: it is not here.
        """
        if name.partition(".")[0] != "megengine":
            return None
        ours = _OURS + name.removeprefix("megengine")
        if importlib.util.find_spec(ours) is None:
            raise ModuleNotFoundError(
                f"No module named {name!r} in loadrun; docs/megengine.md lists what is not there, and why",
                name=name,
            )
        return importlib.util.spec_from_loader(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(_OURS + spec.name.removeprefix("megengine"))

    def exec_module(self, module: ModuleType) -> None:
        """Give the modules that came with this one their names here, too.

        Otherwise importing one by its name would put it in the place of what its package has under that name.
        """
        for name, loaded in list(sys.modules.items()):
            if name.startswith(f"{_OURS}."):
                sys.modules.setdefault("megengine" + name.removeprefix(_OURS), loaded)


def main(argv: Sequence[str]) -> int:
    """Run a script with its arguments; return 2 where there is none."""
    if not argv or argv[0] in ("-h", "--help"):
        print(f"usage: python -m {_OURS} SCRIPT ARG ...", file=sys.stderr)
        return 2
    script = Path(argv[0])
    if not script.is_file():
        print(f"{_OURS}: {script}: there is no such script", file=sys.stderr)
        return 2
    real = sys.modules.get("megengine")
    if real is not None:
        print(f"{_OURS}: MegEngine itself is imported already, from {real.__file__}", file=sys.stderr)
        return 2
    sys.meta_path.insert(0, _Standing())
    sys.argv = [*argv]
    sys.path[0] = str(script.parent.resolve())
    runpy.run_path(str(script), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
