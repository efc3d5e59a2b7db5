"""Replaying many files: tasks and events, here, in separate processes, and on a Dask cluster."""
