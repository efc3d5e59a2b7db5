"""loadrun: replay, verify, benchmark and explain MegEngine dumps with embedded testcases."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .checkpoint import load_checkpoint, save_checkpoint
    from .dump import load, load_all, loads, save
    from .engines import register_engine
    from .errors import EngineError, FormatError, InputError, LoadRunError, SpecError, UnsupportedError
    from .graph import Graph
    from .imperative import Parameter, Tensor, tensor
    from .jit import trace, trace_module
    from .review.against import check
    from .runner import Result, Runner, Verdict, random_inputs, run
    from .testcase import Bundle, Testcase

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
    "register_engine",
    "run",
    "save",
    "save_checkpoint",
    "tensor",
    "trace",
    "trace_module",
]

# Where the names live; they are imported when they are first asked for, so that pytest's start, shell completion and
# worker processes pay for what they use alone.
_LATER = {
    "Bundle": "testcase",
    "EngineError": "errors",
    "FormatError": "errors",
    "Graph": "graph",
    "InputError": "errors",
    "LoadRunError": "errors",
    "Result": "runner",
    "Runner": "runner",
    "SpecError": "errors",
    "Testcase": "testcase",
    "UnsupportedError": "errors",
    "Verdict": "runner",
    "load": "dump",
    "load_all": "dump",
    "loads": "dump",
    "random_inputs": "runner",
    "register_engine": "engines",
    "run": "runner",
    "save": "dump",
    "Parameter": "imperative",
    "Tensor": "imperative",
    "check": "review.against",
    "coalesce_free_memory": "device",
    "enable_debug_log": "logger",
    "get_allocated_memory": "device",
    "get_cuda_compute_capability": "device",
    "get_cuda_device_property": "device",
    "get_cuda_driver_version": "device",
    "get_cuda_version": "device",
    "get_cudnn_version": "device",
    "get_default_device": "device",
    "get_device_count": "device",
    "get_logger": "logger",
    "get_max_allocated_memory": "device",
    "get_max_reserved_memory": "device",
    "get_mem_status_bytes": "device",
    "get_reserved_memory": "device",
    "get_tensorrt_version": "device",
    "is_atlas_available": "device",
    "is_cambricon_available": "device",
    "is_cuda_available": "device",
    "is_rocm_available": "device",
    "load_checkpoint": "checkpoint",
    "reset_max_memory_stats": "device",
    "save_checkpoint": "checkpoint",
    "set_default_device": "device",
    "set_log_file": "logger",
    "set_log_level": "logger",
    "set_prealloc_config": "device",
    "tensor": "imperative",
    "trace": "jit",
    "trace_module": "jit",
}
_ROOM_NAMES = (
    "dtypes dump engines errors graph ops params runner testcase verdicts "
    "amp autodiff checkpoint config core data device distributed dtr functional hub jit logger "
    "module onnx optimizer quantization random serialization tools torch utils"
)
_ROOMS = frozenset(_ROOM_NAMES.split())


def _sync() -> None:
    """Do nothing: what is asked for is computed at once."""


_full_sync = _sync


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    if name in _LATER:
        return getattr(import_module(f".{_LATER[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names that are there, those included that are loaded when they are first asked for."""
    return sorted({*globals(), *_ROOMS, *_LATER} - {"import_module", "Any", "TYPE_CHECKING"})
