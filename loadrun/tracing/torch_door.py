"""The door to `loadrun.torch`: torch's modules are recognised without importing torch."""

import os
import sys
from collections.abc import Iterable
from typing import Any

from ..base.registry import resolve
from .arguments import leaves


def is_torch_callable(value: Any) -> bool:
    """Whether a value is a torch module, a method of one, a script or an exported program.

    False if nothing has imported torch.

    >>> is_torch_callable(print)
    False
    """
    torch = sys.modules.get("torch")
    kind = getattr(getattr(torch, "nn", None), "Module", None)
    if kind is None:
        return False
    owner = getattr(value, "__self__", value)
    if isinstance(owner, kind):
        return True
    of_torch = type(value).__module__.partition(".")[0] == "torch"
    return of_torch and bool(resolve("loadrun.torch.modules:is_torch_program")(value))


def is_torch_call(function: Any, *examples: Any) -> bool:
    """Return whether `trace` is called with a torch module, or a function and examples that hold torch tensors."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    if kind is None:
        return False
    return is_torch_callable(function) or any(isinstance(leaf, kind) for _, leaf in leaves(examples))


def is_torch_source(value: Any, examples: Iterable[Any]) -> bool:
    """Whether a value is exported by `loadrun.torch`: what torch calls, a trace of it, a .pt2 file, or a function.

    Args:
        value: what is to be exported.
        examples: the example arguments; torch tensors among them say that a function is one of torch tensors.
    """
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value).endswith(".pt2")
    traced = type(value).__module__ == "loadrun.torch.traced"
    return is_torch_callable(value) or (callable(value) and (traced or is_torch_call(value, *examples)))
