"""The index by which a model imports no more families of lowerings than it needs."""

from __future__ import annotations

import subprocess
import sys

REGISTERED = """
import pkgutil, sys
from importlib import import_module
from loadrun.onnx import lowering
from loadrun.onnx.call import LOWERINGS

found, add = {}, LOWERINGS.add
def noted(key, thing):
    found[key] = sys._getframe(2).f_globals["__name__"].removeprefix(lowering.__name__ + ".")
    add(key, thing)
LOWERINGS.add = noted
for module in pkgutil.walk_packages(lowering.__path__, lowering.__name__ + "."):
    import_module(module.name)
print({k: (found.get(k), lowering.HOMES.get(k)) for k in found.keys() | lowering.HOMES.keys()
       if found.get(k) != lowering.HOMES.get(k)})
"""


def test_every_operator_is_listed_with_the_file_that_lowers_it() -> None:
    ran = subprocess.run([sys.executable, "-c", REGISTERED], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "{}"
