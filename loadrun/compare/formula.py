"""Kinds of checks."""

from __future__ import annotations

from enum import Enum

__all__ = ["Formula"]


class Formula(Enum):
    """The formula by which a check computes its error.

    - REAL: MegEngine's formula in float32 (or in numbers that it converts to).
    - INTEGER: the same with FLOOR_DIV, which MegEngine writes for integers: every error below 100 % is 0, and small
      integers wrap around.
    - NARROW: the same in float16, whose rounding is part of the verdict.
    - OTHER: anything else.
    """

    REAL = "real"
    INTEGER = "integer"
    NARROW = "narrow"
    OTHER = "other"
