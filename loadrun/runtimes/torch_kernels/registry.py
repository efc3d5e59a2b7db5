"""Which function is an operator's kernel, and what it knows of its node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["KERNELS", "Kernel", "Node", "kernel"]

Kernel = Callable[..., Any]
K = TypeVar("K", bound=Kernel)
KERNELS: dict[str, Kernel] = {}
"""Kernels by ONNX's name of the operator."""


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

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or its default."""
        return self.attributes.get(name, default)


def kernel(*names: str) -> Callable[[K], K]:
    """Register a function as the kernel of operators."""

    def register(func: K) -> K:
        KERNELS.update(dict.fromkeys(names, func))
        return func

    return register
