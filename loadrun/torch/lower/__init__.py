"""Lowerings of ATen operators, one family a file."""
