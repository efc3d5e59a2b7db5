"""Graphs built from other graphs: copies, checks, operators of older runtimes."""
