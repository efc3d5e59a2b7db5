"""MegEngine's tools that need the graph alone."""
