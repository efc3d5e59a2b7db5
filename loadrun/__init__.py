"""loadrun: replay, verify, benchmark and explain MegEngine dumps with embedded testcases."""

from .dump import Bundle, load, loads

__all__ = ["Bundle", "load", "loads"]
__version__ = "0.1.0"
