"""loadrun: replay, verify, benchmark and explain MegEngine dumps with embedded testcases."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .dump import load, load_all, loads, save
from .errors import EngineError, FormatError, InputError, LoadRunError, SpecError, UnsupportedError
from .graph import Graph
from .runner import Result, Runner, Verdict, random_inputs, run
from .testcase import Bundle, Testcase
from .version import __version__

if TYPE_CHECKING:
    from .checkpoint import load_checkpoint, save_checkpoint
    from .imperative import Parameter, Tensor, tensor
    from .jit import trace, trace_module
    from .review.against import check

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
    "load_checkpoint",
    "loads",
    "random_inputs",
    "run",
    "save",
    "save_checkpoint",
    "tensor",
    "trace",
    "trace_module",
]

# Where the names of the tracing side live; they are imported when they are first asked for.
_LATER = {
    "Parameter": "imperative",
    "check": "review.against",
    "Tensor": "imperative",
    "get_default_device": "imperative.device",
    "get_device_count": "imperative.device",
    "is_cuda_available": "imperative.device",
    "set_default_device": "imperative.device",
    "load_checkpoint": "checkpoint",
    "save_checkpoint": "checkpoint",
    "tensor": "imperative",
    "trace": "jit",
    "trace_module": "jit",
}
_ROOMS = frozenset(
    (
        "amp",
        "autodiff",
        "checkpoint",
        "config",
        "core",
        "device",
        "distributed",
        "functional",
        "hub",
        "jit",
        "module",
        "onnx",
    )
    + ("quantization", "random", "torch", "utils")
)


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    if name in _LATER:
        return getattr(import_module(f".{_LATER[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
