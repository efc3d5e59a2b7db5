"""What symbolic numbers would be at other sizes of the traced tensors."""

from collections.abc import Callable
from typing import Any

from ..graph.params import ElemwiseMode
from ..ops.elemwise.table import ROWS, ModeTrait, modes
from .symbolic import TracedNumber, place_of, steps
from .value import Tensor

_FOLLOWED = {*modes(ModeTrait.NATURAL), ElemwiseMode.SUB}
"""How numbers are computed that are known at other sizes, too."""


def at_other_sizes(value: Any, size: Callable[[Tensor, int], int | None]) -> int | None:
    """Return what an integer would be at other sizes; None if that is not known.

    Args:
        value: the number, symbolic or not.
        size: the size of a tensor along an axis there.
    """
    if not isinstance(value, TracedNumber):
        return int(value)
    known: dict[int, int | None] = {}
    for number in steps(value, lambda n: place_of(n) is None and n._source[0] not in _FOLLOWED):
        place = place_of(number)
        if place is not None:
            known[id(number)] = size(*place)
            continue
        how, *operands = number._source
        numbers = [known.get(id(v)) if isinstance(v, TracedNumber) else int(v) for v in operands]
        if None in numbers or (how == ElemwiseMode.FLOOR_DIV and not numbers[1]):
            continue
        compute = ROWS[how].wide
        assert compute is not None
        known[id(number)] = int(compute(*numbers))
    return known.get(id(value))
