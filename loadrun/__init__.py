"""loadrun: replay, verify, benchmark and explain models with embedded testcases."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .base.version import __version__

if TYPE_CHECKING:
    from .base.errors import EngineError, FormatError, InputError, LoadRunError, SpecError, UnsupportedError
    from .dump import load, load_all, loads, save
    from .engines import register_engine
    from .graph import Graph
    from .runner import Result, Runner, Verdict, random_inputs, run
    from .tensors import Parameter, Tensor, tensor
    from .testcase import Bundle, Testcase
    from .tracing import trace, trace_module
    from .verify.against import check

__all__ = [
    "Bundle",
    "EngineError",
    "FormatError",
    "Graph",
    "InputError",
    "LoadRunError",
    "Parameter",
    "Result",
    "Runner",
    "SpecError",
    "Tensor",
    "Testcase",
    "UnsupportedError",
    "Verdict",
    "__version__",
    "check",
    "load",
    "load_all",
    "loads",
    "random_inputs",
    "register_engine",
    "run",
    "save",
    "tensor",
    "trace",
    "trace_module",
]

# Where the names live; they are imported when they are first asked for, so that pytest's start, shell completion and
# worker processes pay for what they use alone.
_LATER = {
    "Bundle": "testcase",
    "EngineError": "base.errors",
    "FormatError": "base.errors",
    "Graph": "graph",
    "InputError": "base.errors",
    "LoadRunError": "base.errors",
    "Parameter": "tensors",
    "Result": "runner",
    "Runner": "runner",
    "SpecError": "base.errors",
    "Tensor": "tensors",
    "Testcase": "testcase",
    "UnsupportedError": "base.errors",
    "Verdict": "runner",
    "check": "verify.against",
    "load": "dump",
    "load_all": "dump",
    "loads": "dump",
    "random_inputs": "runner",
    "register_engine": "engines",
    "run": "runner",
    "save": "dump",
    "tensor": "tensors",
    "trace": "tracing",
    "trace_module": "tracing",
}
_PACKAGES = frozenset(
    [
        "arrays",
        "base",
        "build",
        "compare",
        "dump",
        "engines",
        "graph",
        "inputs",
        "inputspec",
        "megengine",
        "onnx",
        "ops",
        "passes",
        "replay",
        "report",
        "runner",
        "runtimes",
        "tensors",
        "testcase",
        "testing",
        "torch",
        "tracing",
        "verify",
    ]
)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f".{name}", __name__)
    if name in _LATER:
        return getattr(import_module(f".{_LATER[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the names that are there, those included that are loaded when they are first asked for."""
    return sorted({*globals(), *_PACKAGES, *_LATER} - {"import_module", "Any", "TYPE_CHECKING"})
