"""The door to torch: it is imported when it is needed, and asking whether a value is torch's imports nothing."""

from __future__ import annotations

import sys
from typing import Any

from ..errors import UsageError

__all__ = ["is_torch_callable", "need_torch"]


def need_torch() -> Any:
    """The torch package.

    Raises:
        UsageError: it is not installed, or older than 2.5.
    """
    try:
        import torch
    except ImportError as error:
        raise UsageError(
            "tracing a PyTorch module needs the package torch (2.5 or later): pip install 'loadrun[torch]'"
        ) from error
    numbers = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2])
    if numbers < (2, 5):
        raise UsageError(f"torch {torch.__version__} is installed; tracing PyTorch modules needs 2.5 or later")
    return torch


def is_torch_callable(value: Any) -> bool:
    """Whether a value is a torch module or a method of one; False where nothing has imported torch.

    >>> is_torch_callable(print)
    False
    """
    torch = sys.modules.get("torch")
    kind = getattr(getattr(torch, "nn", None), "Module", None)
    if kind is None:
        return False
    return isinstance(value, kind) or isinstance(getattr(value, "__self__", None), kind)
