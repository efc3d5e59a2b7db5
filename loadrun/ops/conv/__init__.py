"""Convolutions, windows and what shares their geometry."""
