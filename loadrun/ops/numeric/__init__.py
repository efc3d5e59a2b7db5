"""Numerics shared by kernels: threads, pieces, rounding, exact products, special functions."""
