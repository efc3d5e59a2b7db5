"""Engines: ways to execute a graph, behind one protocol and found by name.

`reference` is numpy; runtimes that are extras are in `loadrun.runtimes`, imported only when used.
"""

from ..base.about import About as About
from .protocol import (
    NATIVE as NATIVE,
    TRANSLATED as TRANSLATED,
    Engine as Engine,
    Factory as Factory,
    FileEngine as FileEngine,
    FileFactory as FileFactory,
    Setup as Setup,
    make_ready as make_ready,
)
from .registry import (
    baseline_for as baseline_for,
    check_argument as check_argument,
    check_engine as check_engine,
    engine_names as engine_names,
    file_of as file_of,
    make_engine as make_engine,
    make_file_engine as make_file_engine,
    register_engine as register_engine,
    runs_composites as runs_composites,
    runs_file as runs_file,
    split_engines as split_engines,
)
