"""Engines: ways to execute a graph, behind one protocol and found by name.

`reference` is numpy; runtimes that are extras are in `loadrun.runtimes`, imported only when used.
"""

from ..base.about import About, Island
from .protocol import Choice, Engine, Factory, Setup
from .registry import (
    baseline_for,
    check_engine,
    engine_names,
    make_engine,
    make_ready,
    register_engine,
    split_engines,
)

__all__ = [
    "About",
    "Choice",
    "Engine",
    "Factory",
    "Island",
    "Setup",
    "baseline_for",
    "check_engine",
    "engine_names",
    "make_engine",
    "make_ready",
    "register_engine",
    "split_engines",
]
