"""Passes on sums, products and other elementwise arithmetic."""
