"""What optimizers of scripts import: a sum that replaces its first operand."""

from __future__ import annotations

from ...tensors.value import Tensor

__all__: list[str] = []


def _inplace_add_(dest: Tensor, delta: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """Let `dest` be ``dest * alpha + delta * beta``, and return it.

    >>> _inplace_add_(Tensor([2.0]), Tensor([3.0]), alpha=Tensor(0.5), beta=Tensor(2.0)).tolist()
    [7.0]
    """
    dest.set_value(dest * alpha + delta * beta)
    return dest
