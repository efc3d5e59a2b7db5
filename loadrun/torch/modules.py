"""Functions and methods as torch modules, and arrays as torch tensors: what a trace is given, in the form of torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..tensors import Tensor

__all__ = ["as_module", "as_torch", "owner_of"]


class _Function(torch.nn.Module):  # type: ignore[misc]
    """A function, or a method of a module, as a module that torch can export."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        owner = owner_of(function)
        self._loadrun_name = f"the function {getattr(function, '__qualname__', function)}"
        if isinstance(owner, torch.nn.Module):
            # Its parameters are found under their own names.
            self.__dict__.update({k: owner.__dict__[k] for k in ("_parameters", "_buffers", "_modules")})

        def forward(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        # Torch pairs dynamic sizes with the names of the parameters.
        forward.__signature__ = _signature(function)  # type: ignore[attr-defined]
        self.forward = forward


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError:
        return inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])


def owner_of(function: Any) -> Any:
    """Return the module of a method, or the value itself."""
    return getattr(function, "__self__", function)


def as_module(function: Any) -> Any:
    """Wrap a method or function as a module; a module stays."""
    if isinstance(function, torch.nn.Module):
        return function
    if getattr(function, "__name__", "") == "forward" and isinstance(owner_of(function), torch.nn.Module):
        return owner_of(function)
    return _Function(function)


def as_torch(value: Any) -> Any:
    """Convert an array or a tensor of loadrun to torch; leave anything else as it is."""
    if isinstance(value, (np.ndarray, np.generic)):
        return torch.from_numpy(np.array(value))
    return torch.from_numpy(np.array(value.numpy())) if isinstance(value, Tensor) else value
