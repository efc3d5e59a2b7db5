"""Lowering of einsum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..layers.products import LETTERS, contracted
from ..tensors import Tensor
from .promotion import common, narrow, operand
from .registry import lowers


def _interleaved(operands: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return the form ``einsum(a, [0, 1], b, [1, 2], [0, 2])`` as subscripts and operands."""
    arrays = [*operands[0 : len(operands) - len(operands) % 2 : 2]]
    lists = [*operands[1::2]]

    def name(sub: Any) -> str:
        return "".join("..." if i is Ellipsis else LETTERS[int(i)] for i in sub)

    text = ",".join(map(name, lists))
    return (text + "->" + name(operands[-1]) if len(operands) % 2 else text), arrays


@lowers("einsum")
def einsum(
    *operands: Any,
    out: Any = None,
    optimize: Any = False,
    dtype: Any = None,
    order: str = "K",
    casting: str = "safe",
) -> Tensor:
    """Sum as Einstein does, contracting pair by pair in numpy's greedy order."""
    if not operands:
        raise ValueError("must specify the einstein sum subscripts string and at least one operand")
    if isinstance(operands[0], str):
        subscripts, arrays = operands[0], [*operands[1:]]
    else:
        subscripts, arrays = _interleaved(operands)
    kind = narrow(common(arrays) if dtype is None else dtype)
    return contracted(subscripts, [operand(a, kind) for a in arrays])
