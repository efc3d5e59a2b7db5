"""The budget of computing while a file is read: bytes and operations, paid before they are spent.

A file of a few bytes can ask for any amount of work, since the constants in it can be computed from one another. So
what reads files computes under a `FoldingBudget`, which whoever computes asks first; without one, nothing is counted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod

from ..base.errors import EngineError
from ..graph import Opr
from ..graph.dtypes import Array, DType
from .registry import ShapeCall, UnknownShape, implementation

__all__ = ["BudgetError", "FoldingBudget", "affordable", "limited", "pay", "pay_operator", "unlimited"]


_SMALL = (1 << 18, 10**7)
"""Bytes and operations up to which something is small."""


class BudgetError(EngineError):
    """Something is not computed while a file is read, since it takes more than the file's size allows."""


class FoldingBudget:
    """Bytes of results and operations that are left.

    What is large may take half of it, so that enough is left for the small constants that every model is full of.

    Args:
        nbytes: bytes that may be made, all together.
        operations: operations, a multiply-add counts two.

    >>> with limited(FoldingBudget(1000, 1000)):
    ...     affordable(600), affordable(600), affordable(400)
    (True, False, True)
    """

    def __init__(self, nbytes: int, operations: int) -> None:
        self._left = [nbytes, operations]
        self._for_large = [nbytes // 2, operations // 2]

    def add(self, other: FoldingBudget) -> None:
        """Grow by another budget."""
        self._left = [a + b for a, b in zip(self._left, other._left, strict=True)]
        self._for_large = [a + b for a, b in zip(self._for_large, other._for_large, strict=True)]

    def take(self, nbytes: int, operations: int) -> bool:
        """Take so much, where there is that much; whether there was."""
        asked = (nbytes, operations)
        large = [n if n > most else 0 for n, most in zip(asked, _SMALL, strict=True)]
        if any(n > left for n, left in zip((*asked, *large), (*self._left, *self._for_large), strict=True)):
            return False
        self._left = [left - n for left, n in zip(self._left, asked, strict=True)]
        self._for_large = [left - n for left, n in zip(self._for_large, large, strict=True)]
        return True


class _Local(threading.local):
    budget: FoldingBudget | None = None


_local = _Local()


@contextmanager
def limited(budget: FoldingBudget | None) -> Iterator[None]:
    """Compute under a budget inside, or under none."""
    before, _local.budget = _local.budget, budget
    try:
        yield
    finally:
        _local.budget = before


def unlimited() -> bool:
    """Tell whether nothing is counted."""
    return _local.budget is None


def affordable(nbytes: int, operations: int = 0) -> bool:
    """Take from the budget where it has that much; whether it had."""
    return _local.budget is None or _local.budget.take(nbytes, operations)


def pay(nbytes: int, operations: int = 0) -> None:
    """Take from the budget.

    Raises:
        BudgetError: it has less.
    """
    if not affordable(nbytes, operations):
        raise BudgetError(
            f"it would take {nbytes} bytes and {operations} operations while the model is loaded, more than the "
            "size of the file allows"
        )


def pay_operator(
    opr: Opr, inputs: Sequence[DType], outputs: Sequence[DType], arrays: Sequence[Array]
) -> None:
    """Take what an operator costs on these arrays from the budget; costs nothing where there is none.

    Where data decide the shapes of the results, they are taken to be as large as the inputs together.

    Raises:
        BudgetError: the budget has less.
    """
    if _local.budget is None:
        return
    shapes = tuple(a.shape for a in arrays)
    impl = implementation(opr.type)
    try:
        out_shapes = tuple(impl.shape(ShapeCall(opr, tuple(inputs), shapes, tuple(arrays))))
        sizes = (
            None if None in out_shapes else [tuple(int(n) for n in s) for s in out_shapes if s is not None]
        )
    except UnknownShape:
        sizes = None
    if sizes is None:
        pay(2 * sum(a.nbytes for a in arrays), sum(a.size for a in arrays))
        return
    nbytes = sum(prod(s) * d.np.itemsize for s, d in zip(sizes, outputs, strict=True))
    pay(nbytes, int(impl.flops(opr, list(shapes), sizes)))
