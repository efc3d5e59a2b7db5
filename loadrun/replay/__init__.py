"""Replaying many files: tasks and events, here, in processes of their own, and on a Dask cluster."""
