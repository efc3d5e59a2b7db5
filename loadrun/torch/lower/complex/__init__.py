"""Operators on complex numbers, as operators on real and imaginary parts."""

from . import compare, convert, elementwise, linalg, parts, reduce

__all__ = ["compare", "convert", "elementwise", "linalg", "parts", "reduce"]
