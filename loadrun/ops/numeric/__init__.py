"""What kernels share: threads, pieces, rounding, exact products, special functions."""
