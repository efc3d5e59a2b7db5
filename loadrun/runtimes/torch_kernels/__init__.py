"""ONNX's operators on torch tensors, those that loadrun writes; one file for each kind.

A kernel gets a `Node` and the values of its inputs, None for one that is left out, and returns a tensor, or a tuple of
them.
"""

from __future__ import annotations

from importlib import import_module

from .registry import KERNELS, Node

__all__ = ["KERNELS", "Node", "load_kernels"]


def load_kernels() -> None:
    """Import the kernels, and torch with them."""
    for module in ("elementwise", "shapes", "indexing", "networks", "recurrent"):
        import_module(f"{__name__}.{module}")
