"""Graphs made of other graphs: copies, checks, operators of older runtimes."""
