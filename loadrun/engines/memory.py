"""How much memory a single value may take."""

from __future__ import annotations

import os

__all__ = ["memory_limit"]


def memory_limit() -> int:
    """Bytes of physical memory, or 2**62 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**62
