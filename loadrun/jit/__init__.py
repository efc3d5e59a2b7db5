"""Tracing: from a Python function to a compiled graph and a self-verifying dump."""
