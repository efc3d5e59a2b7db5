"""Graphs built from other graphs: copies, checks, and optimizations."""
