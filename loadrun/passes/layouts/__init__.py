"""Passes that change memory layouts, by target."""
