"""Foundations for every other package: errors, files, locks, log messages, printable text; the version."""

__all__ = ["__version__"]

__version__ = "0.2.0"
