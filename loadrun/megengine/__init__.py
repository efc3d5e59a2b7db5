"""MegEngine's Python API on loadrun's tensors: a script runs with ``import loadrun.megengine as megengine``.

``python -m loadrun.megengine script.py`` runs an unchanged script, with this package standing for ``megengine``.
Nothing else of loadrun needs this package.
"""

from typing import TYPE_CHECKING

from ..base.registry import lazy
from . import absent  # noqa: F401 - modules that went are found from now on

if TYPE_CHECKING:
    from ..tensors import Parameter, Tensor, tensor
    from .serialization import load, save

__all__ = ["Parameter", "Tensor", "load", "save", "tensor"]

__version__ = "1.13.0"
"""The MegEngine whose API this is."""

# Of these four names compute, the others are refused one by one.
_DEVICE = """
get_default_device get_device_count is_cuda_available set_default_device
coalesce_free_memory get_allocated_memory get_cuda_compute_capability get_cuda_device_property get_cuda_driver_version
get_cuda_version get_cudnn_version get_max_allocated_memory get_max_reserved_memory get_mem_status_bytes
get_reserved_memory get_tensorrt_version is_atlas_available is_cambricon_available is_rocm_available
reset_max_memory_stats set_prealloc_config
"""
# Where the names live; they are imported on first use.
_LATER = {
    "Parameter": ".tensor",
    "Tensor": ".tensor",
    "tensor": ".tensor",
    "load": ".serialization",
    "save": ".serialization",
    **dict.fromkeys(("enable_debug_log", "get_logger", "set_log_file", "set_log_level"), ".logger"),
    **dict.fromkeys(_DEVICE.split(), ".device"),
}
_MODULES = """
amp autodiff config core data device distributed dtr functional hub jit logger module optimizer quantization random
serialization tools traced_module utils
"""
__getattr__ = lazy(__name__, _LATER | dict.fromkeys(_MODULES.split(), "."))


def _sync() -> None:
    """Do nothing: what is requested is computed at once."""


_full_sync = _sync


def __dir__() -> list[str]:
    """List the names that are there, those included that are loaded on first use."""
    return sorted({*globals(), *_MODULES.split(), *_LATER} - {"lazy", "TYPE_CHECKING"})
