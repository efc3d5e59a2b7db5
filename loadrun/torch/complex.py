"""Complex numbers of torch: MegEngine's graphs hold them as pairs of real tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..tensors import Tensor
from .values import arr, constant, ten

__all__ = ["Complex", "constants", "is_complex", "of_parts", "pair", "parts", "touches_complex"]


@dataclass(frozen=True, eq=False)
class Complex:
    """A complex value of a graph.

    Attributes:
        real: the real part, an array of float32 or float16.
        imaginary: the imaginary part, which has the same shape; None if it is zero because a real value was
            converted.
    """

    real: Any
    imaginary: Any = None

    @property
    def imag(self) -> Any:
        """The imaginary part, zeros included."""
        return np.zeros_like(arr(self.real)) if self.imaginary is None else self.imaginary

    @property
    def conj(self) -> Complex:
        """The conjugate."""
        return Complex(self.real, None if self.imaginary is None else -arr(self.imaginary))

    def settled(self) -> Complex:
        """Convert the parts to plain tensors."""
        return Complex(ten(self.real), None if self.imaginary is None else ten(self.imaginary))


def is_complex(value: Any) -> bool:
    """Return whether a torch tensor or a Python number is complex."""
    return isinstance(value, complex) or (isinstance(value, torch.Tensor) and value.is_complex())


def touches_complex(node: Any) -> bool:
    """Return whether a node of an exported graph takes or returns complex numbers."""
    values = [node.meta.get("val"), *node.args, *node.kwargs.values()]
    leaves = torch.utils._pytree.tree_leaves(values)
    return any(is_complex(v.meta.get("val") if isinstance(v, torch.fx.Node) else v) for v in leaves)


def pair(value: Any, dtype: Any = None) -> Complex:
    """Convert an operator's argument to a complex value, with parts of a dtype."""
    if isinstance(value, Complex):
        imaginary = value.imaginary
        return Complex(arr(value.real, dtype), None if imaginary is None else arr(imaginary, dtype))
    if isinstance(value, complex):
        return Complex(arr(value.real, dtype), arr(value.imag, dtype) if value.imag else None)
    return Complex(arr(value, dtype))


def constants(value: torch.Tensor, name: str = "") -> Tensor | Complex:
    """Turn a torch tensor into a constant of the graph, a complex one into two, distinguished by name."""
    if not value.is_complex():
        return constant(value, name)
    return Complex(*(constant(part, key) for key, part in parts(name, value)))


def parts(name: str, value: Any) -> list[tuple[str, Any]]:
    """Split a torch tensor by name into what the graph holds: itself, or its real and imaginary part."""
    if not isinstance(value, torch.Tensor) or not value.is_complex():
        return [(name, value)]
    value = value.detach().resolve_conj()
    return [(f"{name}.real", value.real), (f"{name}.imag", value.imag)]


def of_parts(value: Any, values: Any) -> Any:
    """Rebuild the value of a torch tensor from as many values as `parts` gives for it.

    Args:
        value: the tensor, or a fake one.
        values: an iterator of what `parts` names.
    """
    first = next(values)
    return Complex(first, next(values)) if isinstance(value, torch.Tensor) and value.is_complex() else first
