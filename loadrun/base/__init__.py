"""Foundations for every other package: errors, files, locks, log messages, printable text."""
