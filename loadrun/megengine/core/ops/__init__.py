"""Operators as values, under the name of ``megengine.core.ops``."""

from . import builtin

__all__ = ["builtin"]
