"""Engines: ways to execute a graph, behind one protocol and found by name.

`reference` is numpy; runtimes that are extras are in `loadrun.runtimes`, imported only when used.
"""

from ..base.about import About, Island
from .protocol import NATIVE, TRANSLATED, Choice, Engine, Factory, FileEngine, FileFactory, Setup
from .registry import (
    baseline_for,
    check_argument,
    check_engine,
    engine_names,
    file_of,
    make_engine,
    make_file_engine,
    make_ready,
    register_engine,
    runs_composites,
    runs_file,
    split_engines,
)

__all__ = [
    "NATIVE",
    "TRANSLATED",
    "About",
    "Choice",
    "Engine",
    "Factory",
    "FileEngine",
    "FileFactory",
    "Island",
    "Setup",
    "baseline_for",
    "check_argument",
    "check_engine",
    "engine_names",
    "file_of",
    "make_engine",
    "make_file_engine",
    "make_ready",
    "register_engine",
    "runs_composites",
    "runs_file",
    "split_engines",
]
