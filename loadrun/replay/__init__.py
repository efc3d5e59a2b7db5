"""Replaying many files: tasks and events, here and in separate processes."""
