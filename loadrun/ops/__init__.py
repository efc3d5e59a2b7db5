"""Operators: the catalog of their wire facts and, one module a family, their kernels and rules."""
