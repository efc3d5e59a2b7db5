"""Which function is an operator's kernel, and what it knows of its node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...base.records import dataclass
from ...base.registry import Registry

__all__ = ["KERNELS", "Kernel", "Node", "kernel"]

Kernel = Callable[..., Any]
_FILES = ("elementwise", "shapes", "indexing", "networks", "recurrent")
KERNELS: Registry[str, Kernel] = Registry("torch kernel", (f"{__package__}.{name}" for name in _FILES))
"""Kernels by ONNX's name of the operator; they import torch."""
kernel = KERNELS.register


@dataclass(frozen=True)
class Node:
    """A node of a model.

    Attributes:
        op: the operator's name.
        attributes: its attributes: numbers, texts, lists of them, arrays.
        outputs: how many outputs it has.
    """

    op: str
    attributes: Mapping[str, Any]
    outputs: int

    def get(self, name: str, default: object = None) -> Any:  # noqa: ANN401 - the kernel knows the attribute's type
        """Return an attribute, or its default."""
        return self.attributes.get(name, default)
