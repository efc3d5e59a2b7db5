"""Reading the arguments that window functions share: sizes per axis, names of modes, conditions."""

from collections.abc import Sequence
from enum import IntEnum
from typing import TypeAlias, TypeVar

import numpy as np

from ..base.errors import EngineError
from ..graph.dtypes import Array

E = TypeVar("E", bound=IntEnum)
Sizes: TypeAlias = int | Sequence[int] | Array
"""One number for all axes, or one for each."""
Mode: TypeAlias = str | IntEnum
"""A member of an enum of `loadrun.graph.params`, or its name in any case."""


def require(fits: object, text: str) -> None:
    """Raise AssertionError, as MegEngine does for arguments that do not fit.

    >>> require(1 < 2, "1 must be less than 2")
    """
    if not fits:
        raise AssertionError(text)


def sizes(value: Sizes, count: int, what: str) -> tuple[int, ...]:
    """Return one number per axis, given as one for all or as a sequence.

    Raises:
        EngineError: a number is negative (the operators' parameters are unsigned).
        TypeError: the value is not a number.
        ValueError: the sequence has another length.

    >>> sizes(2, 2, "stride"), sizes([1, 3], 2, "stride")
    ((2, 2), (1, 3))
    """
    if isinstance(value, (Sequence, np.ndarray)):
        if len(value) != count:
            raise ValueError(f"{what} must be one number or {count}, found {len(value)}: {[*value]}")
        numbers = tuple(int(v) for v in value)
    else:
        numbers = (int(value),) * count
    if min(numbers) < 0:
        raise EngineError(f"{what} must not be negative, found {value}")
    return numbers


def pair(value: Sizes, what: str) -> tuple[int, int]:
    """Return `sizes` for height and width.

    >>> pair(2, "stride")
    (2, 2)
    """
    h, w = sizes(value, 2, what)
    return h, w


def triple(value: Sizes, what: str) -> tuple[int, int, int]:
    """Return `sizes` for depth, height and width.

    >>> triple((1, 2, 3), "stride")
    (1, 2, 3)
    """
    d, h, w = sizes(value, 3, what)
    return d, h, w


def member(kind: type[E], value: Mode, what: str) -> E:
    """Return the member of an enum that is given by name (in any case) or as a member.

    Raises:
        EngineError: the enum has none of that name; the text lists those it has.

    >>> from loadrun.graph.params import PoolingMode
    >>> member(PoolingMode, "average", "mode").name
    'AVERAGE'
    """
    if isinstance(value, kind):
        return value
    name = str(getattr(value, "name", value)).upper()
    if name not in kind.__members__:
        known = ", ".join(n.lower() for n in kind.__members__)
        raise EngineError(f"{what} must be one of {known}; found {value!r}")
    return kind[name]
