"""ONNX's operators on torch tensors, those that loadrun writes; one file for each kind.

A kernel gets a `Node` and the values of its inputs, None for one that is left out, and returns a tensor, or a tuple of
them.
"""

from __future__ import annotations

from .registry import KERNELS, Node

__all__ = ["KERNELS", "Node"]
