"""Reports: pure functions of results."""
