"""Runs the examples in the docstrings of modules; in a process of its own, since examples seed, register and set.

``python -m tests.support.docstring_examples loadrun.graph.dtypes loadrun.tracing`` prints what they do not give.
"""

from __future__ import annotations

import doctest
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

__all__ = ["main"]

ABSENT = ("torch", "onnx", "onnxruntime", "openvino", "cv2", "numba")
"""Packages that may be absent, with what stands on them."""


def imported(name: str) -> ModuleType | None:
    """The module, None where a package that it needs is absent."""
    try:
        if name.startswith("loadrun.torch"):
            import_module("torch")
        return import_module(name)
    except ModuleNotFoundError as e:
        if e.name in ABSENT:
            return None
        raise


def main(names: Sequence[str]) -> int:
    """Run all examples; the number of those that fail."""
    warnings.simplefilter("error")
    failed = tried = 0
    for name in names:
        module = imported(name)
        if module is not None:
            found = doctest.testmod(module)
            failed, tried = failed + found.failed, tried + found.attempted
    print(f"{tried} examples, {failed} of them failed")
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
