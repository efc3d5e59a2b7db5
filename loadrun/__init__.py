"""loadrun: replay, verify, benchmark and explain MegEngine dumps with embedded testcases."""

from .dump import load, load_all, loads, save
from .errors import EngineError, FormatError, InputError, LoadRunError, SpecError, UnsupportedError
from .graph import Graph
from .runner import Result, Runner, Verdict, random_inputs, run
from .testcase import Bundle, Testcase

__all__ = [
    "Bundle",
    "EngineError",
    "FormatError",
    "Graph",
    "InputError",
    "LoadRunError",
    "Result",
    "Runner",
    "SpecError",
    "Testcase",
    "UnsupportedError",
    "Verdict",
    "load",
    "load_all",
    "loads",
    "random_inputs",
    "run",
    "save",
]
__version__ = "0.1.0"
