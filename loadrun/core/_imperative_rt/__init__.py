"""Names that tests of MegEngine take from its compiled part."""

from . import core2, ops

__all__ = ["core2", "ops"]
