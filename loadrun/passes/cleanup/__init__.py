"""Passes that remove what changes nothing or is known in advance."""
