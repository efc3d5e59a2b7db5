"""Stands before MegEngine on the path of a script and of the processes it starts: `loadrun.megengine` in its place."""

import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_OURS = "loadrun.megengine"


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
        """Register the modules that came with this one by their names here, too.

        Otherwise importing one by its name would put it in the place of what its package has under that name.
        """
        for name, loaded in list(sys.modules.items()):
            if name.startswith(f"{_OURS}."):
                sys.modules.setdefault("megengine" + name.removeprefix(_OURS), loaded)


if __name__ == "megengine":
    sys.meta_path.insert(0, _Standing())
    del sys.modules["megengine"]
    importlib.import_module("megengine")
